# SPDX-License-Identifier: Apache-2.0
# Gradients of a function of parameters, by recording what it computes (reverse mode). While the function runs, its parameters are
# Tracked: each holds a value and its number on a tape. What is computed with them is computed as ever, and adds to the tape a function
# from the gradients of its results to those of its operands. The tape is then gone through backwards.
#
# Operations of the library find their gradients in their description (operations_generated.jl), so a new one needs nothing here.

struct Step
    from::Vector{Int} # the numbers of the operands
    to::Vector{Int}   # of the results
    pullback::Any     # from the gradients of the results, nothing where there is none, to a tuple of those of the operands
end

mutable struct Tape
    numbers::Int
    steps::Vector{Step}
end
Tape() = Tape(0, Step[])

"""
    Tartan.Tracked

What a function gets in place of its parameters while [`value_and_gradient`](@ref) runs it.
"""
struct Tracked{V}
    value::V
    number::Int # 0: a constant
    tape::Tape
end
Tracked(tape::Tape, value) = Tracked(value, tape.numbers += 1, tape)

"""
    untracked(x)

The value of a parameter within [`value_and_gradient`](@ref), or of something computed from parameters, as a constant: no
gradient flows through it. Anything else is returned unchanged.
"""
untracked(x) = x
untracked(x::Tracked) = x.value

is_tracked(x) = false
is_tracked(x::Tracked) = true
any_tracked(xs...) = any(is_tracked, xs)

# The constant x beside operands that are tracked, so that methods for Tracked are chosen.
constant(x, others...) = is_tracked(x) ? x : Tracked(x, 0, first(filter(is_tracked, others)).tape)

function tape_of(operands)
    tapes = [x.tape for x in operands if x isa Tracked]
    all(tape -> tape === tapes[1], tapes) || throw(ArgumentError(
        "operands belong to two calls of value_and_gradient, expected one (untracked(x) is the value of the other)"))
    return tapes[1]
end

# A Tracked for each of the values that were computed from operands. pullback(grads) returns a tuple with the gradient of each operand.
function record_all(operands, values, pullback)
    tape = tape_of(operands)
    found = map(value -> Tracked(tape, value), values)
    from = [x isa Tracked ? x.number : 0 for x in operands]
    push!(tape.steps, Step(from, [x.number for x in found], pullback))
    return found
end
record(pullback, value, operands...) = first(record_all(operands, (value,), grads -> pullback(grads[1])))

added(::Nothing, b) = b
added(a, b) = a + b
added(a::DeviceArray, b::DeviceArray) = Pointwise.add(a, b)

function gradients(tape::Tape, last::Tracked, count)
    grads = Vector{Any}(nothing, tape.numbers)
    grads[last.number] = one(last.value)
    for step in Iterators.reverse(tape.steps)
        given = grads[step.to]
        grads[step.to] .= nothing
        all(isnothing, given) && continue
        for (number, grad) in zip(step.from, step.pullback(given))
            number > 0 && grad !== nothing && (grads[number] = added(grads[number], grad))
        end
    end
    return grads[1:count]
end

const Group = Union{Tuple, NamedTuple}
const Parameter = Union{Real, AbstractArray{<:Real}, DeviceArray, DeviceBlockSparseMatrix}

tracked(tape, x::Group) = map(y -> tracked(tape, y), x)
tracked(tape, x::Parameter) = Tracked(tape, x isa Real ? float(x) : x)
tracked(tape, x) = throw(ArgumentError("a parameter is a $(typeof(x)), expected numbers, an array, a block-sparse matrix, or a tuple of these"))

gradient_in(grads, x::Group, of) = map((y, z) -> gradient_in(grads, y, z), x, of)
gradient_in(grads, x, of) = grads[of.number] === nothing ? zero_of(of.value) : grad_at(of.value, grads[of.number])
zero_of(x) = zero(x)
zero_of(x::DeviceArray) = fill!(similar(x), 0)
zero_of(A::BlockSparseMatrix) = fill_zero!(similar(A))
zero_of(A::DeviceBlockSparseMatrix) = fill_zero!(copy(A))

"""
    value, grads = value_and_gradient(f, parameters...)

The value of `f(parameters...)`, a number such as the loss of a model, and its derivatives with respect to all parameters, by
reverse-mode automatic differentiation. The cost is a small multiple of the cost of the function, whatever the number of
parameters.

Parameters are numbers, arrays, block-sparse matrices, arrays on a device, or (named) tuples of these, which may be nested.
`grads` is a tuple with a gradient for each, of the same form. The gradient of a block-sparse matrix has the same layout: only
the derivatives of stored blocks are computed. Parameters that `f` does not use have the gradient 0.

`f` runs once, with objects of type [`Tartan.Tracked`](@ref) in place of the parameters. These support `+ - * / ^`, broadcasting
of functions that are made of arithmetic and the usual mathematical functions, `dot`, `sum`, `mean`, `maximum`, `minimum`,
`transpose`, `reshape`, `vec`, `vcat`, `hcat`, indexing, for block-sparse matrices `map`, `sparse`, `opnorm`, [`project`](@ref),
[`slice`](@ref) and [`block_norms`](@ref), and all operations of this package that have a gradient. Other functions refuse them.
Comparisons compare the values. Gradients are sums in a fixed order, so they have the same bits in each run. Gradients of
gradients are not computed.

    layout = pattern(:banded, (16, 12), 4; lower = 1, upper = 1)
    W = fill_normal!(BlockSparseMatrix{Float64}(layout); seed = 1)
    x, y = randn(12, 8), randn(16, 8)
    loss(p) = sum(abs2, tanh.(p.W * x .+ p.b) .- y) / length(y)
    value, (grad,) = value_and_gradient(loss, (W = W, b = zeros(16)))
    W -= 0.1 * grad.W
"""
function value_and_gradient(f, parameters...)
    tape = Tape()
    given = tracked(tape, parameters)
    count = tape.numbers
    result = f(given...)
    result isa Tracked || throw(ArgumentError("f returned a $(typeof(result)), expected a number that was computed from its parameters"))
    result.value isa Real || throw(ArgumentError("f returned a $(typeof(result.value)), expected one number (such as a sum or a mean)"))
    return (value = result.value, grads = gradient_in(gradients(tape, result, count), parameters, given))
end

# ---- Operations of the library ----

# The function of an operation, which is in the module that its description names.
function_of(op::Operation) = getfield(op.place === :Tartan ? Tartan : getfield(Tartan, op.place), op.name)
operation_of(name::Symbol) = getfield(Tartan, Symbol(uppercase(string(name))))
inputs_of(op::Operation) = filter(a -> a.use !== :out, op.arguments)
outputs_of(op::Operation) = filter(a -> a.use !== :in, op.arguments)

# The input whose gradient an output of a rule is, and the output whose gradient an input is.
without_grad(name) = Symbol(chop(string(name); tail = length("_grad")))

# For a call in which an operand is tracked: `operands` are the inputs that must be given, `options` all else.
function record_operation(op::Operation, operands::Tuple, options)
    options = (; options...)
    needed = [a.name for a in inputs_of(op) if !a.optional]
    all_operands = merge(NamedTuple{Tuple(needed)}(operands), (; (k => v for (k, v) in pairs(options) if v isa Tracked)...))
    known = map(untracked, merge(NamedTuple{Tuple(needed)}(operands), options))
    rule = operation_of(op.gradient)
    refuse_constants(op, rule, all_operands)
    takes = [a.name for a in inputs_of(rule)]
    asked(a) = !a.optional || get(options, Symbol("return_", a.name), false)
    wanted = [a.name for a in outputs_of(op) if a.optional && (a.name in takes || asked(a))]
    requests = (; (Symbol("return_", name) => true for name in wanted)...)
    found = function_of(op)(map(untracked, operands)...; map(untracked, options)..., requests...)
    outputs = Tuple(a.name for a in outputs_of(op) if !a.optional || a.name in wanted)
    results = found isa NamedTuple ? NamedTuple{outputs}(found) : NamedTuple{outputs}(found isa Tuple ? found : (found,))
    function pullback(grads)
        given = (; (Symbol(name, "_grad") => grad_at(results[name], grad) for (name, grad) in zip(outputs, grads))...)
        for (name, grad) in pairs(given)
            grad === nothing || name in takes || throw(ArgumentError(
                "$(op.name) has no gradient of its result $(without_grad(name)), expected untracked of it"))
        end
        all_known = merge(known, results, given)
        value(a) = begin
            x = get(all_known, a.name, nothing)
            x === nothing && !a.optional ? zero_of(results[without_grad(a.name)]) : x
        end
        rest = (; (a.name => value(a) for a in inputs_of(rule) if a.optional)...)
        more = (; (o.name => options[o.name] for o in rule.options if haskey(options, o.name))...)
        grads_found = function_of(rule)((value(a) for a in inputs_of(rule) if !a.optional)...; rest..., more...,
                                        context = get(options, :context, nothing))
        named = grads_found isa NamedTuple ? grads_found : NamedTuple{Tuple(without_grad(a.name) for a in outputs_of(rule))}((grads_found,))
        return map(name -> get(named, name, nothing), keys(all_operands))
    end
    recorded = NamedTuple{outputs}(record_all(Tuple(all_operands), Tuple(results), pullback))
    # In the form that the operation has; what only the gradient needs is not the caller's.
    shown = [a.name => asked(a) ? recorded[a.name] : nothing for a in outputs_of(op)]
    any(a -> a.optional && asked(a), outputs_of(op)) && return (; shown...)
    return found isa Tuple ? Tuple(recorded) : first(recorded)
end

# Tracked operands and options that the rule has no gradient of. Indices never have one.
function refuse_constants(op, rule, operands)
    trained = [without_grad(a.name) for a in outputs_of(rule)]
    for (name, x) in pairs(operands)
        x isa Tracked && !(name in trained) && !any(a -> a.name === name && a.dtype in (:I, :U8), op.arguments) && throw(ArgumentError(
            "$(op.name) has no gradient with respect to $name, expected untracked($name)"))
    end
end

# A gradient in the form and of the type of what it belongs to: C takes no other type, and nobody expects one.
grad_at(y, ::Nothing) = nothing
grad_at(y, g) = shaped(g, y)
grad_at(y::Array{T}, g::AbstractArray) where {T <: AbstractFloat} = in_type(T, shaped(g, y))

# ---- Arithmetic ----

# A gradient in the form of the array that it belongs to; that of a number is a number.
shaped(g, x::Number) = g isa Number ? oftype(x, g) : oftype(x, sum(g))
shaped(g::AbstractArray, x::AbstractArray) = size(g) == size(x) ? g : reshape(g, size(x))
shaped(g::AbstractArray, A::BlockSparse) = on_layout(A, g)
shaped(g, x) = g

on_layout(A::BlockSparseMatrix{T}, g::BlockSparseMatrix{T}) where {T} = A.layout == g.layout ? g : project(g, A.layout)
on_layout(A::BlockSparseMatrix{T}, g) where {T} = BlockSparseMatrix(convert(Matrix{T}, g), A.layout)
on_layout(A::BlockSparseMatrix{T}, g::Compressed) where {T} =
    project(BlockSparseMatrix(SparseMatrixCSC{T, Int}(compressed(g)), cutting(A)), A.layout)
on_layout(A::TransposedBlocks, g) = transpose(on_layout(parent(A), transpose(g)))

const Constant = Union{Number, AbstractArray, DeviceArray, DeviceBlockSparseMatrix}
for (f, left, right) in ((:+, :g, :g), (:-, :g, :(-g)))
    @eval Base.$f(a::Tracked, b::Tracked) = record(g -> (shaped($left, a.value), shaped($right, b.value)), $f(a.value, b.value), a, b)
    @eval Base.$f(a::Tracked, b::Constant) = record(g -> (shaped($left, a.value),), $f(a.value, b), a)
    @eval Base.$f(a::Constant, b::Tracked) = record(g -> (shaped($right, b.value),), $f(a, b.value), b)
end
Base.:+(a::Tracked) = a
Base.:-(a::Tracked) = record(g -> (-g,), -a.value, a)

Base.:*(a::Tracked, b::Tracked) = record(g -> (left_gradient(a.value, b.value, g), right_gradient(a.value, b.value, g)), a.value * b.value, a, b)
Base.:*(a::Tracked, b::Constant) = record(g -> (left_gradient(a.value, b, g),), a.value * b, a)
Base.:*(a::Constant, b::Tracked) = record(g -> (right_gradient(a, b.value, g),), a * b.value, b)

# Those of a and b in a * b, given the one of the product.
left_gradient(a::Number, b::Number, g) = g * b
left_gradient(a::Number, b, g) = inner(g, b)
left_gradient(a, b::Number, g) = g * b
left_gradient(a, b, g) = shaped(columns(g) * transpose(columns(b)), a)
left_gradient(A::Union{BlockSparse, DeviceBlockSparseMatrix}, b::Number, g) = g * b
left_gradient(A::Union{BlockSparse, DeviceBlockSparseMatrix}, b, g) = sampled(A, g, transpose(columns(b)))
right_gradient(a, b, g) = shaped(transpose(columns(a)) * columns(g), b)
right_gradient(a::Number, b::Number, g) = a * g
right_gradient(a::Number, b, g) = a * g
right_gradient(a, b::Number, g) = inner(g, a)
right_gradient(a::Number, B::Union{BlockSparse, DeviceBlockSparseMatrix}, g) = a * g
right_gradient(a, B::Union{BlockSparse, DeviceBlockSparseMatrix}, g) = sampled(B, transpose(columns(a)), g)

"""
    spmm(A, B; gates = nothing)

`A * B`, where block `k` of `A` is multiplied by `gates[k]`, and skipped if that is 0. [`value_and_gradient`](@ref) knows the gradients with
respect to all three. See [`spmm!`](@ref) for memory of your own.

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    spmm(A, ones(64, 3); gates = zeros(nblocks(A))) == zeros(64, 3)
"""
function spmm(A, B; gates = nothing)
    gates === nothing && return A * B
    a, b, g = untracked(A), untracked(B), untracked(gates)
    value = gated_product(a, b, g)
    any(x -> x isa Tracked, (A, B, gates)) || return value
    return record(value, A, B, gates) do grad
        found = sampled(a, grad, transpose(columns(b)))
        sums = gate_gradient!(similar(g, sum_type(eltype(a))), stored(a), stored(found); gates = g) # found is the gradient with gates then
        (found, shaped(gated_product(transpose(a), grad, g), b), shaped(in_type(eltype(g), sums), g))
    end
end
gated_product(A::BlockSparse{T}, B::AbstractVecOrMat, gates) where {T} =
    spmm!(zeros(product_type(T), size(A, 1), size(B)[2:end]...), A, in_type(T, B); gates = gates)

columns(x) = x
columns(x::AbstractVector) = reshape(x, :, 1)
inner(g::BlockSparseMatrix, b::BlockSparseMatrix) = g.layout == b.layout ? dot(g.values, b.values) : sum(g .* b)
inner(g, b) = dot(g, b)

# x y at the stored blocks of A.
sampled(A::TransposedBlocks, x, y) = transpose(sampled(parent(A), transpose(columns(y)), transpose(columns(x))))
sampled(A::BlockSparseMatrix{T}, x, y) where {T} = sddmm!(similar(A), in_type(T, columns(x)), in_type(T, columns(y)))
sampled(A::DeviceBlockSparseMatrix, x, y) = sddmm!(copy(A), x, y)
in_type(::Type{T}, x::AbstractArray{T}) where {T} = x isa BlockSparse ? Matrix(x) : x
in_type(::Type{T}, x) where {T} = convert(Array{T}, x)

Base.:/(a::Tracked, b::Union{Number, Tracked}) = a * inv(b)
Base.:/(a::Constant, b::Tracked) = a * inv(b)
Base.:^(a::Tracked, b::Union{Number, Tracked}) = broadcast(^, number(a), b)
Base.:^(a::Number, b::Tracked) = broadcast(^, a, number(b))

# The same functions of a number are broadcast.
number(x::Tracked{<:Number}) = x
number(x::Tracked) = throw(ArgumentError("a function of a $(typeof(x.value)) has no gradient, expected a number, or broadcasting: f.(x)"))
const SMOOTH = (:abs, :abs2, :acos, :asin, :atan, :cos, :cosh, :exp, :expm1, :inv, :log, :log1p, :log2, :log10, :sin, :sinh, :sqrt, :tan, :tanh)
for f in SMOOTH
    @eval Base.$f(x::Tracked) = broadcast($f, number(x))
end
for f in (:max, :min)
    @eval Base.$f(a::Tracked, b::Union{Number, Tracked}) = broadcast($f, number(a), b)
    @eval Base.$f(a::Number, b::Tracked) = broadcast($f, a, number(b))
end
for f in (:<, :<=, :(==), :isless)
    @eval Base.$f(a::Tracked, b::Tracked) = $f(a.value, b.value)
    @eval Base.$f(a::Tracked, b::Number) = $f(a.value, b)
    @eval Base.$f(a::Number, b::Tracked) = $f(a, b.value)
end

# ---- Broadcasting: each element carries its derivatives with respect to the N tracked operands ----

struct Dual{T <: Real, N} <: Real
    value::T
    partials::NTuple{N, T}
end
Base.promote_rule(::Type{Dual{T, N}}, ::Type{S}) where {T, N, S <: Real} = Dual{promote_type(T, S), N}
Base.promote_rule(::Type{Dual{T, N}}, ::Type{Dual{S, N}}) where {T, N, S} = Dual{promote_type(T, S), N}
Base.convert(::Type{Dual{T, N}}, x::Dual{S, N}) where {T, N, S} = Dual{T, N}(T(x.value), map(T, x.partials))
Base.convert(::Type{Dual{T, N}}, x::Real) where {T, N} = Dual{T, N}(T(x), ntuple(_ -> zero(T), Val(N)))
Dual{T, N}(x::Real) where {T, N} = convert(Dual{T, N}, x)
Base.float(x::Dual) = x

# f at x, with the derivatives d and e of f.
chained(y, x::Dual, d) = Dual(promote(y, map(p -> p * d, x.partials)...)...)
Dual(y::T, partials::T...) where {T <: Real} = Dual{T, length(partials)}(y, partials)
chained(y, a::Dual, d, b::Dual, e) = Dual(promote(y, map((p, q) -> p * d + q * e, a.partials, b.partials)...)...)
# Where a derivative does not count, 0 times an infinite factor is 0.
Base.:+(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = Dual{T, N}(a.value + b.value, map(+, a.partials, b.partials))
Base.:-(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = Dual{T, N}(a.value - b.value, map(-, a.partials, b.partials))
Base.:-(a::Dual{T, N}) where {T, N} = Dual{T, N}(-a.value, map(-, a.partials))
Base.:*(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = chained(a.value * b.value, a, b.value, b, a.value)
Base.:/(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = (y = a.value / b.value; chained(y, a, inv(b.value), b, -y / b.value))
function Base.:^(a::Dual{T, N}, b::Dual{T, N}) where {T, N}
    y = a.value^b.value
    return chained(y, a, b.value * a.value^(b.value - 1), b, a.value > 0 ? y * log(a.value) : zero(y))
end
Base.:^(a::Dual, n::Integer) = chained(a.value^n, a, n == 0 ? zero(a.value) : n * a.value^(n - 1))
Base.max(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = a.value >= b.value ? a : b
Base.min(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = a.value <= b.value ? a : b
for f in (:<, :<=, :(==), :isless)
    @eval Base.$f(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = $f(a.value, b.value)
end
for f in (:isnan, :isinf, :isfinite, :iszero, :signbit)
    @eval Base.$f(a::Dual) = $f(a.value)
end
for (f, derivative) in (
        (:abs, :(sign(x))), (:abs2, :(2x)), (:acos, :(-inv(sqrt(1 - x^2)))), (:asin, :(inv(sqrt(1 - x^2)))), (:atan, :(inv(1 + x^2))),
        (:cos, :(-sin(x))), (:cosh, :(sinh(x))), (:exp, :y), (:expm1, :(y + 1)), (:inv, :(-y^2)), (:log, :(inv(x))),
        (:log1p, :(inv(1 + x))), (:log2, :(inv(x * log(oftype(x, 2))))), (:log10, :(inv(x * log(oftype(x, 10))))), (:sin, :(cos(x))),
        (:sinh, :(cosh(x))), (:sqrt, :(inv(2y))), (:tan, :(1 + y^2)), (:tanh, :(1 - y^2)))
    @eval function Base.$f(a::Dual)
        x = a.value
        y = $f(x)
        return chained(y, a, $derivative)
    end
end

struct TrackedStyle <: Broadcast.BroadcastStyle end
Broadcast.BroadcastStyle(::Type{<:Tracked}) = TrackedStyle()
Broadcast.BroadcastStyle(::TrackedStyle, ::Broadcast.BroadcastStyle) = TrackedStyle()
Broadcast.broadcastable(x::Tracked) = x
Broadcast.instantiate(bc::Broadcasted{TrackedStyle}) = bc
Base.axes(x::Tracked) = axes(x.value)
Base.ndims(::Type{Tracked{V}}) where {V} = ndims(V)

seeded(x, ::Val{N}, ::Val{K}) where {N, K} = K == 0 ? x : seed(x, Val(N), Val(K))
seed(x::Real, ::Val{N}, ::Val{K}) where {N, K} = (y = float(x); Dual{typeof(y), N}(y, ntuple(i -> i == K ? one(y) : zero(y), Val(N))))
real_part(x) = x
real_part(x::Dual) = x.value
partial(x::Dual, k) = x.partials[k]
partial(x, k) = zero(x)

function Base.copy(bc::Broadcasted{TrackedStyle})
    flat = Broadcast.flatten(bc)
    operands = filter(is_tracked, flat.args)
    numbers = accumulate((n, x) -> n + is_tracked(x), flat.args; init = 0)
    places = map((x, n) -> Val(is_tracked(x) ? n : 0), flat.args, Tuple(numbers))
    count = Val(length(operands))
    f(xs...) = flat.f(map((x, k) -> seeded(x, count, k), xs, places)...)
    return recorded_broadcast(f, operands, map(untracked, flat.args))
end

function recorded_broadcast(f, operands, values)
    any(x -> x isa Union{BlockSparse, DeviceArray, DeviceBlockSparseMatrix}, values) && return broadcast_blocks(f, operands, values)
    found = broadcast(f, values...)
    y = map(real_part, found)
    eltype(y) === Bool && return y
    pullback(g) = ntuple(k -> summed(g .* map(x -> partial(x, k), found), operands[k].value), length(operands))
    return record(pullback, y, operands...)
end

# Over what was repeated.
summed(g::Number, x::Number) = g
summed(g, x::Number) = sum(g)
function summed(g, x)
    dims = Tuple(d for d in 1:ndims(g) if size(x, d) == 1 && size(g, d) > 1)
    return reshape(isempty(dims) ? g : sum(g; dims = dims), size(x))
end

# At the stored blocks, of matrices on one layout and numbers.
function broadcast_blocks(f, operands, values)
    layout = nothing
    for x in values
        is_number(x) && continue
        x isa BlockSparseMatrix && (layout === nothing || x.layout == layout) ||
            throw(ArgumentError("broadcasting has a $(typeof(x)) beside what is tracked, expected dense arrays, or block-sparse matrices on one layout and numbers"))
        layout = x.layout
    end
    outside = real_part(f(map(x -> is_number(x) ? value_of(x) : zero(eltype(x)), values)...))
    iszero(outside) || throw(ArgumentError("the function is $outside for zeros, expected one that keeps the zeros of a block-sparse matrix"))
    found = broadcast(f, map(x -> is_number(x) ? x : x.values, values)...)
    inside(z) = BlockSparseMatrix(layout, clear_padding!(z, layout))
    y = map(real_part, found)
    eltype(y) === Bool && return inside(y)
    function pullback(g)
        return ntuple(length(operands)) do k
            products = g.values .* map(x -> partial(x, k), found)
            operands[k].value isa Number ? sum(products) : inside(products)
        end
    end
    return record(pullback, inside(y), operands...)
end

# ---- Sums ----

everywhere(g, x::Number) = g
everywhere(g, x::AbstractArray) = fill!(similar(x), g)
everywhere(g, A::BlockSparseMatrix) = BlockSparseMatrix(A.layout, clear_padding!(fill!(similar(A.values), g), A.layout))

Base.sum(x::Tracked{<:BlockSparse}; dims = :) = record(g -> (spread(x.value, g),), sum(x.value; dims = dims), x)
Base.sum(x::Tracked; dims = :) = dims === (:) ? record(g -> (everywhere(g, x.value),), sum(x.value), x) :
    record(g -> (g .* fill!(similar(x.value), 1),), sum(x.value; dims = dims), x)
Base.sum(f, x::Tracked; dims = :) = sum(f.(x); dims = dims)
Statistics.mean(x::Tracked; dims = :) = (y = sum(x; dims = dims); y * (prod(size(y)) / length(x)))
Statistics.mean(f, x::Tracked; dims = :) = mean(f.(x); dims = dims)
LinearAlgebra.dot(a::Union{Tracked, AbstractArray}, b::Tracked) = sum(a .* b)
LinearAlgebra.dot(a::Tracked, b::AbstractArray) = sum(a .* b)
# The first of equal numbers has the gradient.
Base.maximum(x::Tracked) = x[argmax(x.value)]
Base.minimum(x::Tracked) = x[argmin(x.value)]

# ---- Functions of block-sparse matrices: gradients stay on the layout ----

# The gradient of sum(A; dims), given the one of the result.
spread(A::BlockSparseMatrix{T}, g::Number) where {T} = everywhere(convert(T, g), A)
spread(A::BlockSparseMatrix{T}, g) where {T} = BlockSparseMatrix(A.layout, convert(Array{T, 3}, sampled(g, A.layout)))
spread(A::TransposedBlocks, g::Number) = transpose(spread(parent(A), g))
spread(A::TransposedBlocks, g) = transpose(spread(parent(A), permutedims(g)))

# Of the blocks that slice takes, which keep their order.
function unsliced(A::BlockSparseMatrix, rows, cols, g)
    block_rows, block_cols, _ = coordinates(A.layout)
    result = similar(A)
    result.values[:, :, [k for k in eachindex(block_rows) if block_rows[k] in rows && block_cols[k] in cols]] .= g.values
    return result
end

# Of block_norms; a block of zeros has none.
function of_norms(A::BlockSparseMatrix{T}, norm, norms, g) where {T}
    result = similar(A)
    for k in eachindex(norms)
        iszero(norms[k]) && continue
        block, out = view(A.values, :, :, k), view(result.values, :, :, k)
        if Symbol(norm) === :l2
            out .= (g[k] / norms[k]) .* block
        elseif Symbol(norm) === :l1
            out .= g[k] .* sign.(block)
        else
            i = argmax(abs.(block))
            out[i] = g[k] * sign(block[i])
        end
    end
    return result
end

# Of opnorm: the signs of the first column, or row, whose sum is the largest.
function of_opnorm(A, p, g)
    sums = sum(abs, A; dims = p == 1 ? 1 : 2)
    weights = zeros(eltype(A), size(sums))
    isempty(weights) || (weights[argmax(sums)] = g)
    return sign.(A) .* spread(A, weights)
end

# f of the elements, which has to be 0 for 0, and its derivatives there.
function mapped(f, A::BlockSparse)
    fieldcount(typeof(f)) == 0 || throw(ArgumentError("a function that holds values of its own would get no gradient of them, " *
                                                      "expected one without: write it as broadcasting"))
    found = map(x -> f(Dual(x, one(x))), plain(A).values)
    y = broadcast(f, A)
    y isa BlockSparseMatrix && y.layout == plain(A).layout ||
        throw(ArgumentError("the function is not 0 for 0, expected one that keeps the zeros of a block-sparse matrix"))
    derivatives = BlockSparseMatrix(y.layout, clear_padding!(map(x -> partial(x, 1), found), y.layout))
    return y, A isa TransposedBlocks ? copy(derivatives) : derivatives
end

function project(x::Tracked{<:BlockSparseMatrix}, layout::BlockLayout)
    y = project(x.value, layout)
    return record(g -> (project(on_layout(y, g), x.value.layout),), y, x)
end
function slice(x::Tracked{<:BlockSparseMatrix}, rows::AbstractUnitRange, cols::AbstractUnitRange)
    y = slice(x.value, rows, cols)
    return record(g -> (unsliced(x.value, rows, cols, on_layout(y, g)),), y, x)
end
function block_norms(x::Tracked{<:BlockSparseMatrix}; norm = :l2)
    norms = block_norms(x.value; norm = norm)
    return record(g -> (of_norms(x.value, norm, norms, g),), norms, x)
end
LinearAlgebra.opnorm(x::Tracked{<:BlockSparse}, p::Real = 2) = record(g -> (of_opnorm(x.value, p, g),), opnorm(x.value, p), x)
SparseArrays.sparse(x::Tracked{<:BlockSparseMatrix}) = record(g -> (on_layout(x.value, g),), sparse(x.value), x)
function Base.map(f, x::Tracked{<:BlockSparseMatrix})
    y, derivatives = mapped(f, x.value)
    return record(g -> (g .* derivatives,), y, x)
end
function conv_filter(c::BlockConv, dense::Tracked)
    w = conv_filter(c, dense.value)
    return record(g -> (dense_filter(c, on_layout(w, g)),), w, dense)
end

# ---- Dimensions ----

Base.size(x::Tracked, dims...) = size(x.value, dims...)
Base.length(x::Tracked) = length(x.value)
Base.ndims(x::Tracked) = ndims(x.value)
Base.eltype(::Type{Tracked{V}}) where {V} = eltype(V)
Base.lastindex(x::Tracked, dims...) = lastindex(x.value, dims...)
Base.firstindex(x::Tracked, dims...) = firstindex(x.value, dims...)

for f in (:transpose, :adjoint)
    @eval Base.$f(x::Tracked) = record(g -> (shaped($f(g), x.value),), $f(x.value), x)
end
Base.reshape(x::Tracked, dims::Union{Int, Colon}...) = record(g -> (reshape(g, size(x.value)),), reshape(x.value, dims...), x)
Base.reshape(x::Tracked, dims::Tuple) = reshape(x, dims...)
Base.vec(x::Tracked) = reshape(x, :)

Base.getindex(x::Tracked{<:BlockSparse}, places...) =
    throw(ArgumentError("a part of a block-sparse matrix has no gradient, expected one of an array"))
function Base.getindex(x::Tracked, places...)
    value = x.value[places...]
    function pullback(g)
        grad = fill!(similar(x.value), 0)
        at = LinearIndices(x.value)[places...]
        for (k, i) in zip(eachindex(g), at)
            grad[i] += g[k]
        end
        return (grad,)
    end
    return record(pullback, value, x)
end

function joined(dims, xs)
    value = cat(map(untracked, xs)...; dims = dims)
    function pullback(g)
        last = 0
        return map(xs) do x
            n = size(untracked(x), dims)
            part = selectdim(g, dims, last + 1:last + n)
            last += n
            x isa Tracked ? shaped(copy(part), x.value) : nothing
        end
    end
    return record(pullback, value, xs...)
end
for (f, dims) in ((:vcat, 1), (:hcat, 2))
    @eval Base.$f(x::Tracked, xs...) = joined($dims, (x, xs...))
    @eval Base.$f(a::Union{Number, AbstractArray}, x::Tracked, xs...) = joined($dims, (a, x, xs...))
end

Base.show(io::IO, x::Tracked) = print(io, "Tracked(", summary(x.value), ")")
