# SPDX-License-Identifier: Apache-2.0
# Every operation that the library describes, by its description: Tartan.OPERATIONS.

# ---- Values ----

# What is not called so in Base.
const FUNCTIONS = Dict{Symbol, Function}(
    :add => +, :subtract => -, :multiply => *, :divide => /, :maximum => max, :minimum => min, :negative => -, :reciprocal => inv,
    :square => abs2, :sigmoid => x -> 1 / (1 + exp(-x)), :relu => x -> max(x, 0),
    :leaky_relu => x -> x < 0 ? x / 100 : x, :elu => x -> x < 0 ? expm1(x) : x,
    :silu => x -> x / (1 + exp(-x)), :softplus => x -> log1p(exp(x)), :swish => x -> x / (1 + exp(-x)),
    :gelu_tanh => x -> x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), :scale => identity, :filter_tensor => identity,
    :concrete_gate_infer => x -> clamp(1.2 / (1 + exp(-x)) - 0.1, 0, 1), :glu => (a, b) -> a / (1 + exp(-b)),
    :reglu => (a, b) -> a * max(b, 0), :swiglu => (a, b) -> a * b / (1 + exp(-b)), :add_relu => (a, b) -> max(a + b, 0),
    :add_silu => (a, b) -> (a + b) / (1 + exp(-a - b)))
reference(op) = get(FUNCTIONS, op.name) do
    isdefined(Base, op.name) ? getfield(Base, op.name) : nothing
end
units(T) = 8 * Float64(eps(T))

@testset "values of functions of numbers, $T" for T in TYPES
    for op in OPERATIONS
        op.place === :Pointwise && !is_gradient(op) && reference(op) !== nothing || continue
        made = operands(op, T; make = fitting(op))
        found, wanted = results(op, made)[first_output(op)], broadcast(reference(op), map(wide, positional(op, made))...)
        @test eltype(found) === T && size(found) == size(wanted)
        @test isapprox(wide(found), wanted; rtol = units(T), atol = units(T))
    end
end

@testset "values of norms, $T" for T in TYPES
    x, gain, bias = normal(T, 9, 5, 3), randn(Tartan.gate_type(T), 9), randn(Tartan.gate_type(T), 9)
    z = wide(x) .- mean(wide(x); dims = 1)
    z ./= sqrt.(mean(abs2, z; dims = 1) .+ 0.01)
    y, stats = layer_norm(x; gain, bias, epsilon = 0.01, return_stats = true)
    @test isapprox(wide(y), z .* gain .+ bias; rtol = units(T))
    @test stats[1, :, :] ≈ mean(wide(x); dims = 1)[1, :, :] && size(stats) == (2, 5, 3)
    @test rms_norm(x; gain, epsilon = 0.01) ≈ wide(x) ./ sqrt.(mean(abs2, wide(x); dims = 1) .+ 0.01) .* gain rtol = units(T)
    @test l2_norm(x; gain) ≈ wide(x) ./ sqrt.(sum(abs2, wide(x); dims = 1)) .* gain rtol = units(T)
    @test l2_norm(x; epsilon = 1e4) ≈ wide(x) ./ 100 rtol = units(T)
    @test layer_norm(x[:, 1, 1]) == layer_norm(x)[:, 1, 1]
end

@testset "norms of sums, in segments, with activations" begin
    x, r, gain, bias = randn(8, 5), randn(8, 5), randn(8), randn(8)
    halves = reshape(x .+ r, 4, 2, 5)
    z = halves .- mean(halves; dims = 1)
    z ./= sqrt.(mean(abs2, z; dims = 1) .+ 0.01)
    wanted = max.(reshape(z, 8, 5) .* gain .+ bias, 0)
    y, total, stats = add_layer_norm(x; residual = r, gain, bias, epsilon = 0.01, segments = 2, activation = :relu,
                                     return_total = true, return_stats = true)
    @test y ≈ wanted && total == x .+ r && size(stats) == (2, 2, 5)
    @test stats[1, :, :] ≈ mean(halves; dims = 1)[1, :, :]
    g = randn(8, 5)
    grads = add_layer_norm_gradient(total, stats, g; gain, bias, total_grad = 2g, segments = 2, activation = :relu)
    slope = reshape(g .* (wanted .> 0), 4, 2, 5)
    half = [layer_norm_gradient(halves[:, s, :], stats[:, s, :], slope[:, s, :]; gain = gain[(4s - 3):(4s)]) for s in 1:2]
    @test grads.x ≈ vcat((h.x for h in half)...) .+ 2g && grads.residual == grads.x
    @test grads.gain ≈ vcat((h.gain for h in half)...) && grads.bias ≈ vcat((h.bias for h in half)...)
    @test add_rms_norm(x; residual = r, gain) ≈ rms_norm(x .+ r; gain)
    @test refuses(() -> add_layer_norm(x; segments = 3), :shape, "x has lines of 8 numbers, expected a multiple of segments, 3")
end

@testset "functions of two arrays broadcast" begin
    a, b, c = randn(5, 3, 2), randn(5), randn(1, 3)
    @test Tartan.Pointwise.add(a, b) == a .+ b && Tartan.Pointwise.multiply(b, c) == b .* c && Tartan.Pointwise.subtract(c, a) == c .- a
    grads = Tartan.Pointwise.multiply_gradient(a, c, ones(5, 3, 2))
    @test size(grads.a) == size(a) && grads.b ≈ sum(a; dims = (1, 3))[:, :, 1]
    @test refuses(() -> Tartan.Pointwise.add(a, randn(4)), :shape, "(5, 3, 2)", "(4,)")
    @test refuses(() -> Tartan.Pointwise.add!(a, b, b), :shape, "y has size (5, 3, 2)")
end

# ---- Gradients ----

@testset "gradients are slopes" begin
    for op in OPERATIONS
        (op.gradient === nothing || op.name === :quantize) && continue # whose gradient goes straight through its steps
        grad_op = operation_named(op.gradient)
        made = operands(op, Float64; make = fitting(op))
        given = results(op, made)
        directions = Dict(a.name => randn(size(numbers(given[a.name]))...) for a in outputs(op) if !a.optional && a.dtype !== :I)
        value(m) = (y = results(op, m); sum(sum(numbers(y[name]) .* d) for (name, d) in directions))
        inputs = merge(made, given)
        for (name, d) in directions
            y_grad = inputs[Symbol(name, "_grad")] = copy(given[name])
            numbers(y_grad) .= d
        end
        grads = results(grad_op, inputs)
        for name in keys(made)
            found = get(grads, Symbol(name, "_grad"), nothing)
            found === nothing && continue
            step = randn(size(numbers(made[name]))...)
            moved(s) = (m = copy(made); m[name] = copy(made[name]); numbers(m[name]) .+= s .* step; m)
            slope = (value(moved(1e-5)) - value(moved(-1e-5))) / 2e-5
            @test isapprox(sum(numbers(found) .* step), slope; rtol = 1e-6, atol = 1e-8)
        end
    end
end

# ---- Memory ----

with_each(f, all) = Dict{Symbol, Any}(k => f(v) for (k, v) in all)

# Arrays with other strides and the same numbers.
spread(x::Array) = ndims(x) == 0 ? x : (y = view(similar(x, map(n -> 2n, size(x))), map(n -> 1:2:2n, size(x))...); y .= x; y)
turned(x::Array) = (order = Tuple(ndims(x):-1:1); PermutedDimsArray(permutedims(x, order), order))
spread(x) = copy(x)
turned(x) = copy(x)
# Sums may run in the order of the memory.
agrees(::typeof(turned), a, b) = eltype(b) <: Integer ? a == b : isapprox(wide(a), wide(b); rtol = units(eltype(b)))
agrees(_, a, b) = isequal(a, b)

@testset "f! writes what f gives, to memory with any strides" begin
    for (i, op) in enumerate(CALLED)
        T = TYPES[mod1(i, 4)]
        made = operands(op, T; make = fitting(op))
        wanted = results(op, made)
        # Each operation takes and gives both kinds of strides.
        for (taken, given) in ((copy, copy), isodd(i) ? (spread, turned) : (turned, spread))
            rooms = with_each(given, wanted)
            foreach(x -> fill!(numbers(x), 0), values(rooms))
            write_results!(op, rooms, with_each(taken, made))
            @test all(agrees(taken, numbers(rooms[k]), numbers(wanted[k])) for k in keys(wanted))
        end
        for a in outputs(op), name in a.may_be
            other = copy(made)
            own = other[name] = copy(made[name])
            eltype(own) === eltype(wanted[a.name]) && size(own) == size(wanted[a.name]) || continue
            rooms = merge(with_each(copy, wanted), Dict(a.name => own))
            @test same(write_results!(op, rooms, other), wanted)
        end
    end
end

# Dimensions that may be left out at the end.
function padding(a, op)
    startswith(a.shape, "=") && return padding(op.arguments[findfirst(b -> b.name === Symbol(a.shape[2:end]), op.arguments)], op)
    startswith(a.shape, "[batch..., ") && return Tartan.as_matrix
    return Tartan.AtLeast{minimum(part -> count(item -> !occursin("...", item), split(part, ",")), split(a.shape, " or "))}()
end

input_of(a) = a.dtype === :I ? Tartan.index_input : a.dtype === :U8 ? Tartan.mask_input : Tartan.dense_input

@testset "results are what the library infers" begin
    for op in CALLED, (T, all_of_it) in ((Float64, true), (Float16, false))
        made = operands(op, T; make = fitting(op), all_of_it)
        text = any(a -> a.kind === :arrays, op.arguments) ? "count=2" : ""
        arguments = Tuple(a.use === :out || !haskey(made, a.name) ? nothing :
            a.kind === :array ? input_of(a)(padding(a, op), made[a.name], "") :
            a.kind === :arrays ? Tartan.list_operand(made[a.name], "", made[a.name], "", false) : Tartan.handle_of(made[a.name]) for a in op.arguments)
        room = Vector{Raw.tartan_op_result}(undef, length(op.arguments))
        count = GC.@preserve room Raw.tartan_op_infer(Tartan.number(op), arguments, text, Ptr{Raw.tartan_op_result}(pointer(room)), length(room))
        found = results(op, made)
        @test count == length(found)
        for result in room[1:count]
            y = found[op.arguments[result.argument + 1].name]
            @test eltype(y) === (result.dtype == Raw.TARTAN_I64 ? Int64 : Tartan.type_of_dtype(result.dtype))
            y isa Array && padding(op.arguments[result.argument + 1], op) !== Tartan.as_matrix && @test reverse(result.shape[1:result.ndim]) == (size(y)..., ones(Int, result.ndim - ndims(y))...)
        end
    end
end
@testset "threads do not matter" begin
    one, two = Context(threads = 1), Context(threads = 2)
    for (i, op) in enumerate(CALLED)
        T, make = TYPES[mod1(i, 4)], fitting(op)
        lengthy(S, n...) = make(S, n...)
        made = operands(op, T; make = lengthy)
        @test same(results(op, made, Dict{Symbol, Any}(:context => one)), results(op, made, Dict{Symbol, Any}(:context => two)))
    end
    x, y_grad = randn(300, 700), randn(300, 700)
    stats = layer_norm(x; return_stats = true).stats
    @test layer_norm_gradient(x, stats, y_grad; context = one) == layer_norm_gradient(x, stats, y_grad; context = two)
end

# ---- Refusals ----

refused(f) = refusal(f) isa Union{TartanError, ArgumentError, MethodError, TypeError}
outside(option) = [parse(Float64, m[1]) - (m[2] == "<=") for m in eachmatch(r"([-\d.e]+) (<=?)", option.range)]

@testset "what does not fit is refused before anything is written" begin
    for op in CALLED
        made = operands(op, Float64; make = fitting(op))
        wanted = results(op, made)
        rooms = with_each(x -> (y = copy(x); fill!(numbers(y), 7); y), wanted)
        attempt(changes...) = refused(() -> write_results!(op, rooms, merge(made, Dict{Symbol, Any}(changes...))))
        attempt_with(option, @nospecialize(value)) = refused(() -> write_results!(op, rooms, made, Dict{Symbol, Any}(option => value)))
        for (i, a) in enumerate(op.arguments)
            x = get(made, a.name, nothing)
            x isa Array && a.kind === :array || continue
            a.dtype in (:S, :I) || isodd(i) || @test attempt(a.name => rand(1:9, size(x))) # numbers of sums are converted
            a.dtype === :I && @test attempt(a.name => fill(100, size(x)))
            iseven(i) || @test attempt(a.name => complex(x))
            @test attempt(a.name => isodd(i) ? BlockSparseMatrix(randn(8, 8), 4) : sparse(randn(8, 8)))
            first_use = a === needed(op)[1]
            first_use || @test attempt(a.name => ones(eltype(x), map(n -> n + 1, size(x))))
            first_use || a.dtype in (:S, :R) || @test attempt(a.name => Float32.(x))
        end
        for a in outputs(op)
            rooms[a.name] isa Array || continue
            for wrong in (rand(size(rooms[a.name])..., 2), 1:length(rooms[a.name]))
                @test refused(() -> write_results!(op, merge(rooms, Dict(a.name => wrong)), made))
            end
        end
        for option in op.options
            option.kind === :sizes && continue
            for value in (NaN, Inf, "text", outside(option)...)
                @test attempt_with(option.name, value)
            end
        end
        @test attempt_with(:there_is_no_such_option, 1)
        @test all(x -> all(==(7), numbers(x)), values(rooms))
    end
end

@testset "errors have the words of Julia" begin
    x = randn(8, 5)
    @test refuses(() -> layer_norm(x; gain = ones(7)), :shape, "gain has size (7,), expected (8,)")
    @test refuses(() -> layer_norm_gradient(x, ones(3, 5), x), :shape, "stats has size (3, 5), expected (2, 5), which is (2, lines...)")
    @test refuses(() -> layer_norm(x; epsilon = -1), :argument, "epsilon is -1.0, expected a finite number of 0 or more")
    @test sprint(showerror, refusal(() -> layer_norm!(ones(Float32, 8, 5), x))) == "ArgumentError: y is of Float32, expected Float64 (x is of Float64)"
    @test occursin("gain or bias", refusal(() -> layer_norm(x, (gian = ones(8),))).msg)
    @test occursin("x, gain or bias", refusal(() -> layer_norm_gradient!((z = x,), x, ones(2, 5), x)).msg)
end

@testset "numbers of sums are converted" begin
    x, gain = rand(Float32, 8, 5), rand(1:4, 8)
    @test layer_norm(x; gain) == layer_norm(x; gain = Float32.(gain)) == layer_norm(x, (gain = Float64.(gain),))
end

# ---- Training ----

@testset "random numbers are those of other languages" begin
    kept = dropout(ones(16); dropout = 0.5, seed = 7)
    @test join(Int.(kept .!= 0)) == "1111011101000101"
    @test random_uniform!(zeros(3); seed = 7) == [0.13418846748340363, 0.44570915609319905, 0.6398692349670435]
    @test dropout_gradient(ones(16); dropout = 0.5, seed = 7) == kept
end

@testset "the gates of an LSTM and batch normalisation" begin
    logistic(x) = 1 / (1 + exp(-x))
    c, gates, bias = randn(5, 3), randn(5, 4, 3), randn(5, 4)
    next, h = lstm_gates(c, gates; bias)
    i, u, f, o = (gates[:, k, :] .+ bias[:, k] for k in 1:4)
    now = logistic.(f .+ 1) .* c .+ logistic.(i) .* tanh.(u)
    @test next ≈ now && h ≈ logistic.(o) .* tanh.(now)
    x = randn(3, 4, 2) # positions, channels, batch
    z = x .- mean(x; dims = (1, 3))
    @test batch_norm(x) ≈ z ./ sqrt.(mean(abs2, z; dims = (1, 3)) .+ 1e-5)
end
