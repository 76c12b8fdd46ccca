# SPDX-License-Identifier: Apache-2.0
# Which blocks are stored, changed while a model trains. The library has the schedule, the layouts and the step; collections of
# parameters and of what moves with them are Julia's.

"""
    Sparsifier(parameters; density = nothing, initial = nothing, curve = :cubic, threshold = nothing, score = :rms, scope = :layer,
               swap = 0, decay = :cosine, growth = :score, fill = :zero, fill_scale = 0.1, start = 0, stop = nothing, every = 1,
               fresh_rate = 1, fresh_steps = 0, l0 = 0, gate_rate = 0.01, gate_initial = 2, seed = 0)
    Sparsifier(file, name)

Owns the schedule by which blocks are pruned and grown, and the layouts of a model's block-sparse weights. `parameters` are those of
the model, a named tuple, a tuple, a vector, or one matrix: the block-sparse matrices among them are its weights. For the filter of a
convolution give its layout of channels here: blocks of all taps stay or go together. [`step!`](@ref) takes a step.

The schedule is that of [`evolve`](@ref): `density` or `threshold`, `curve`, `swap`, `decay`, `start`, `every`, `stop` and `seed` are explained
there. `initial`, the density at step `start`, is that which each weight has now unless it is given, and weight `i` has the seed
`seed + i - 1`. Besides:

* `score`: what a block is worth: the root mean square of its values, `:rms`; its norm, `:max`, `:l1` or `:l2`; `:movement`, the sum of
  what [`observe!`](@ref) saw in each step (Sanh et al. 2020); or `:gate`, the logarithm of alpha of its gate (see
  [`gates`](@ref gates(::Sparsifier, ::Any)))
* `scope`: `:layer` if each weight has the density, `:model` if all have it together and their blocks compete
* `growth`: `:score` if blocks are grown where [`add_growth!`](@ref) says (RigL), `:random` if anywhere
* `fill`, `fill_scale`: what new blocks of a weight hold: `:zero`s; `:normal` numbers with `fill_scale` times the root mean square of the values
  that stay as their standard deviation; or `:uniform` ones up to that, of both signs
* `fresh_rate`, `fresh_steps`: a factor of the learning rate of new blocks in so many steps; see [`learning_rates`](@ref)
* `l0`, `gate_rate`, `gate_initial`: for gates, the factor of the penalty, the learning rate, and log alpha of a new block

All choices follow from these, the step and the numbers of the model. So a run that was stopped goes on with the same bits from a
file that has the sparsifier and the model, in any language: `save(path, "sparsifier" => s, "w" => w, ...)`, and `Sparsifier(path,
"sparsifier")`. One thread at a time may use it. `s.steps` are the steps so far, `s.options` all options as text, `s.penalty` what gates add to the
loss; `layouts(s)` are the layouts of the weights.

    w = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 8)); seed = 1)
    s = Sparsifier((w = w,); density = 0.25, stop = 20, every = 5)
    function run(s, p, means, squares)
        for step in 1:20
            adam!(p, (w = 2 * p.w,), means, squares; step = step)
            p, means, squares = step!(s, p, means, squares)
        end
        return p
    end
    nblocks(run(s, (w = w,), (w = 0 * w,), (w = 0 * w,)).w) == 16
"""
struct Sparsifier
    handle::Handle{Raw.tartan_sparsifier}
    Sparsifier(address::Ptr{Raw.tartan_sparsifier}) = new(Handle(address))
end
Raw.c_handle(::Type{Raw.tartan_sparsifier}, s::Sparsifier) = s.handle

function Sparsifier(parameters; density = nothing, initial = nothing, curve = :cubic, threshold = nothing, score = :rms, scope = :layer,
                    swap = 0, decay = :cosine, growth = :score, fill = :zero, fill_scale = 0.1, start::Integer = 0, stop = nothing,
                    every::Integer = 1, fresh_rate = 1, fresh_steps::Integer = 0, l0 = 0, gate_rate = 0.01, gate_initial = 2, seed::Integer = 0)
    code_of((rms = 0, max = 1, l1 = 2, l2 = 3, movement = 4, gate = 5), score, "score")
    code_of((layer = 0, model = 1), scope, "scope")
    code_of((score = 0, random = 1), growth, "growth")
    code_of((zero = 0, normal = 1, uniform = 2), fill, "fill")
    weights = filter(x -> x isa Union{Blocks, BlockLayout}, parameters_in(parameters))
    isempty(weights) && throw(ArgumentError("parameters have no block-sparse matrix, expected one or more"))
    options = string(schedule_text(density, initial, curve, threshold, swap, decay, start, stop, every, seed), "score=", score, " scope=", scope,
                     " growth=", growth, " fill=", fill, " ", option_text("fresh_steps", whole(fresh_steps, "fresh_steps")),
                     (option_text(name, Float64(real_factor(x, name))) for (name, x) in
                      (("fill_scale", fill_scale), ("fresh_rate", fresh_rate), ("l0", l0), ("gate_rate", gate_rate),
                       ("gate_initial", gate_initial)))...)
    s = Sparsifier(Raw.tartan_sparsifier_create(options))
    foreach(w -> Raw.tartan_sparsifier_add(s, w isa BlockLayout ? w : w.layout), weights)
    return s
end

Sparsifier(file::BlockFile, name::AbstractString) = Sparsifier(Raw.tartan_sparsifier_load(file, name))
function Sparsifier(path::AbstractString, name::AbstractString)
    file = BlockFile(path)
    try
        return Sparsifier(file, name)
    finally
        close(file)
    end
end
function store!(file::BlockFile, name::AbstractString, s::Sparsifier)
    Raw.tartan_sparsifier_save(s, file, name)
    return file
end

Base.close(s::Sparsifier) = close(s.handle)
Base.isopen(s::Sparsifier) = isopen(s.handle)
Base.propertynames(::Sparsifier) = (:steps, :options, :penalty)
Base.getproperty(s::Sparsifier, name::Symbol) =
    name === :steps ? Int(Raw.tartan_sparsifier_steps(getfield(s, :handle))) :
    name === :options ? Raw.tartan_sparsifier_options(getfield(s, :handle)) :
    name === :penalty ? Raw.tartan_sparsifier_get_penalty(getfield(s, :handle)) : getfield(s, name)

"`layouts(s)`: the layout of each weight of a [`Sparsifier`](@ref)."
layouts(s::Sparsifier) = [layout_at(s, i) for i in 1:Raw.tartan_sparsifier_weights(s)]
layout_at(s, i) = BlockLayout(Raw.tartan_sparsifier_get_layout(s, i - 1))

Base.show(io::IO, ::MIME"text/plain", s::Sparsifier) = show(io, s)
function Base.show(io::IO, s::Sparsifier)
    isopen(s) || return print(io, "Sparsifier (closed)")
    all = layouts(s)
    places = sum(Int[prod(gridsize(l)) * heads(l) for l in all])
    print(io, "Sparsifier of ", length(all), length(all) == 1 ? " weight" : " weights", ", density ",
          round(sum(Int[nblocks(l) for l in all]) / max(places, 1); sigdigits = 3), ", after ", s.steps, " steps")
end

# ---- Collections of parameters: a single object is a collection of its own, and so is an array of numbers ----

parameters_in(x::Union{NamedTuple, Tuple}) = collect(Any, values(x))
parameters_in(x::AbstractVector) = eltype(x) <: Number ? Any[x] : collect(Any, x)
parameters_in(x) = Any[x]
like(x::NamedTuple, items) = NamedTuple{keys(x)}(Tuple(items))
like(x::Tuple, items) = Tuple(items)
like(x::AbstractVector, items) = eltype(x) <: Number ? items[1] : map(identity, items)
like(x, items) = items[1]

# The items of `x` that belong to the parameters, in their order.
function belonging(parameters, x, name)
    items, expected = parameters_in(x), length(parameters_in(parameters))
    length(items) == expected ||
        throw(DimensionMismatch("$name has $(length(items)) entries, expected $expected, one for each parameter"))
    x isa NamedTuple && parameters isa NamedTuple && keys(x) != keys(parameters) &&
        throw(ArgumentError("$name has the names $(keys(x)), expected those of the parameters, $(keys(parameters))"))
    return items
end

# Where the weights stand among the parameters.
function weight_places(s, items)
    places = findall(x -> x isa Blocks, items)
    expected = Raw.tartan_sparsifier_weights(s)
    length(places) == expected ||
        throw(DimensionMismatch("parameters have $(length(places)) block-sparse matrices, expected the $expected weights of the sparsifier"))
    return places
end

item_name(group, parameters::NamedTuple, k) = "$group.$(keys(parameters)[k])"
item_name(group, parameters::Union{Tuple, AbstractVector}, k) = "$group[$k]"
item_name(group, parameters, k) = group

# Errors say which object they are about.
function naming(f, name)
    try
        return f()
    catch error
        error isa TartanError ? throw(TartanError(error.status, "$name: $(error.message)")) : rethrow()
    end
end

# ---- Steps ----

"""
    step!(s, parameters, state...)

Counts a step of training, and changes layouts if it is due. Returns the parameters, and each `state` after them, as they are then.

`state` is what moves with the parameters, such as moments, averages and scales: of a weight a matrix on its layout, or on the same blocks
of another size; an array whose last dimension is that of the blocks; or `nothing`. What belongs to other parameters stays as it is. New
blocks are zeros. If anything does not fit, nothing changes. See [`Sparsifier`](@ref).

    w = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 8)); seed = 1)
    s = Sparsifier(w; density = 0.25)
    w, mean = step!(s, w, 0 * w)
    nblocks(mean) == 16
"""
function step!(s::Sparsifier, parameters, state...)
    given = (parameters, state...)
    names = ["parameters"; ["state $g" for g in eachindex(state)]]
    groups = [belonging(parameters, x, name) for (x, name) in zip(given, names)]
    places = weight_places(s, groups[1])
    each(f) = for (i, k) in enumerate(places), (g, items) in enumerate(groups)
        naming(() -> f(i, k, g, items), item_name(names[g], parameters, k))
    end
    each((i, k, g, items) -> check_state(s, i, items[k]))
    Raw.tartan_sparsifier_needs_norms(s) == 1 && each() do i, k, g, items
        g == 1 && Raw.tartan_sparsifier_measure(context_of(items[k]), s, i - 1, items[k])
    end
    Raw.tartan_sparsifier_prepare(s)
    each() do i, k, g, items
        Raw.tartan_sparsifier_changes(s, i - 1) == 1 || return
        items[k] = moved_state(s, i, items[k])
        g == 1 && Raw.tartan_sparsifier_fill(context_of(items[k]), s, i - 1, items[k])
    end
    Raw.tartan_sparsifier_commit(s)
    return isempty(state) ? like(parameters, groups[1]) : map(like, given, Tuple(groups))
end

check_state(s, i, A::Blocks) = Raw.tartan_sparsifier_check(s, i - 1, A)
check_state(s, i, ::Nothing) = nothing
function check_state(s, i, x::Array)
    blocks = nblocks(layout_at(s, i))
    size(x, ndims(x)) == blocks ||
        throw(TartanError(:layout, "has size $(size(x)), expected $blocks entries along the last dimension, one for each block"))
    return nothing
end
check_state(s, i, x) = throw(TartanError(:argument, "is a $(typeof(x)), expected a block-sparse matrix, an Array or nothing"))

moved_state(s, i, A::Blocks) = made(A, Raw.tartan_sparsifier_move(context_of(A), s, i - 1, A))
moved_state(s, i, ::Nothing) = nothing
function moved_state(s, i, x::Array)
    sources = Vector{Int64}(undef, nblocks(BlockLayout(Raw.tartan_sparsifier_get_next(s, i - 1))))
    Raw.tartan_sparsifier_get_sources(s, i - 1, sources)
    y = zeros(eltype(x), size(x)[1:end - 1]..., length(sources))
    for (new, old) in enumerate(sources)
        old < 0 || copyto!(selectdim(y, ndims(y), new), selectdim(x, ndims(x), old + 1))
    end
    return y
end

# ---- What blocks and places are worth ----

"""
    observe!(s, parameters, gradients)

Adds what a step shows about blocks, before the optimiser changes the weights: the negative of [`gate_gradient!`](@ref). For a
[`Sparsifier`](@ref) with `score = :movement`, where blocks that move away from 0 are worth more, or `score = :gate`, where gates learn by it.
Of a weight, `gradients` has its gradient, without gates, or that of its gates, a vector with a number for each block.
"""
function observe!(s::Sparsifier, parameters, gradients)
    items, grads = parameters_in(parameters), belonging(parameters, gradients, "gradients")
    for (i, k) in enumerate(weight_places(s, items))
        naming(item_name("gradients", parameters, k)) do
            Raw.tartan_sparsifier_add_scores(s, i - 1, -gate_sums_of(items[k], grads[k]))
        end
    end
    return s
end
sum_type(::Type{Float64}) = Float64
sum_type(::Type) = Float32
gate_sums_of(w, gradient) = gate_sums(w, gradient)
gate_sums_of(w, gradient::AbstractVector{<:Real}) = Float64.(gradient)
gate_sums_of(w, gradient::DeviceArray) = Float64.(to_host(gradient))
gate_sums(w::BlockSparseMatrix, dw) = Float64.(gate_gradient!(Vector{sum_type(eltype(w))}(undef, nblocks(w)), w, dw))
gate_sums(w, dw) =
    Float64.(to_host(gate_gradient!(to_device(zeros(sum_type(eltype(w)), nblocks(w)), context_of(w)), w, dw)))

"""
    add_growth!(s, growth...)

Adds to what the places of each weight are worth in the next step: for each weight an array of the grid, (block rows, block columns) or
(block rows, block columns, heads), for instance the [`growth_score!`](@ref) of a batch. `needs_growth(s)` tells whether the next step of a
[`Sparsifier`](@ref) wants it.
"""
function add_growth!(s::Sparsifier, growth...)
    all = layouts(s)
    length(growth) == length(all) ||
        throw(DimensionMismatch("growth has $(length(growth)) arrays, expected one for each of the $(length(all)) weights"))
    foreach(i -> Raw.tartan_sparsifier_add_growth(s, i - 1, growth_of(all[i], growth[i])), eachindex(all))
    return s
end

"`needs_growth(s)`: whether the next step of a [`Sparsifier`](@ref) grows blocks by what [`add_growth!`](@ref) says."
needs_growth(s::Sparsifier) = Raw.tartan_sparsifier_needs_growth(s) == 1

"""
    learning_rates(s, parameters)

For the `rates` of the optimisers: a factor of the learning rate for each block of a weight, `fresh_rate` of the [`Sparsifier`](@ref) where it is
new, and `nothing` for other parameters.
"""
learning_rates(s::Sparsifier, parameters) =
    for_blocks((i, numbers) -> Raw.tartan_sparsifier_get_rates(s, i, numbers), s, parameters)

"""
    gates(s, parameters; training = true)

The gates of the blocks of each weight, and `nothing` for other parameters, of a [`Sparsifier`](@ref) with `score = :gate`: for
[`spmm`](@ref) and [`spmm!`](@ref).

Each block has a hard-concrete gate whose log alpha learns with the model (Louizos, Welling, Kingma 2018). `training`: the gates of the next
step, drawn by `seed` and the step; else those of a model in use, without random numbers. In each step [`observe!`](@ref) takes their gradients, and
[`step!`](@ref) a step of Adam, with the rate `gate_rate`, on log alpha; a step without `observe!` leaves it. If there is neither a
density nor a threshold, a step that is due removes the blocks whose gates are closed.

    w = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 8)); seed = 1)
    s = Sparsifier(w; score = :gate, l0 = 0.1)
    g = gates(s, w)
    loss(w, g) = sum(abs2, spmm(w, ones(64, 2); gates = g))
    value, (dw, dg) = value_and_gradient(loss, w, g)
    observe!(s, w, dg)
    nblocks(step!(s, w)) == 64
"""
gates(s::Sparsifier, parameters; training::Bool = true) =
    for_blocks((i, numbers) -> Raw.tartan_sparsifier_get_gates(s, i, training, numbers), s, parameters)

# A number for each block of a weight, and nothing for other parameters.
function for_blocks(fill!, s, parameters)
    items, result = parameters_in(parameters), Any[nothing for _ in parameters_in(parameters)]
    for (i, k) in enumerate(weight_places(s, items))
        numbers = Vector{Float64}(undef, nblocks(items[k]))
        fill!(i - 1, numbers)
        result[k] = convert(Vector{sum_type(eltype(items[k]))}, numbers)
    end
    return like(parameters, result)
end
