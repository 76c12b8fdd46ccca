# SPDX-License-Identifier: Apache-2.0
# What the package does for other packages that are loaded, with small ones of the same names and ids in their place.

push!(LOAD_PATH, joinpath(@__DIR__, "stand_ins"))
using ChainRulesCore, CUDA
import BSON, IterativeSolvers, JLD2
pop!(LOAD_PATH)
# Where Julia loads extensions, it may not do so for packages that no project lists.
for (id, name, _) in Tartan.EXTENSIONS
    Tartan.has_extensions && Base.get_extension(Tartan, name) === nothing && Tartan.load_extension(id)
end
extension(name) = Tartan.has_extensions && Base.get_extension(Tartan, name) !== nothing ? Base.get_extension(Tartan, name) : getfield(Tartan, name)

@testset "loaded once, without ambiguities" begin
    for (id, name, _) in Tartan.EXTENSIONS
        place = extension(name)
        @test place isa Module
        Tartan.load_extension(id)
        @test extension(name) === place
    end
    rules = [m for f in (ChainRulesCore.rrule, ChainRulesCore.ProjectTo) for m in methods(f)]
    append!(rules, methods(ChainRulesCore.ProjectTo{BlockSparseMatrix, NamedTuple{(), Tuple{}}}(NamedTuple())))
    @test isempty([(a, b) for a in rules, b in rules if a !== b && Base.isambiguous(a, b)])
end

# The gradients of sum(R .* f(arguments...)) by the rule, and by differences along a direction. Not compiled for each rule.
function check_rule(@nospecialize(f), @nospecialize(arguments...); @nospecialize(given...))
    y, pullback = rrule(f, arguments...; given...)
    @test typeof(y) == typeof(f(arguments...; given...))
    @test all(map((a, b) -> Array(a) ≈ Array(b), listed(y), listed(f(arguments...; given...))))
    R = map(direction, listed(y))
    grads = map(unthunk, pullback(y isa Tuple ? Tangent{typeof(y)}(R...) : R[1]))
    @test grads[1] isa NoTangent && length(grads) == length(arguments) + 1
    for (i, x) in enumerate(arguments)
        if !(x isa Union{AbstractArray, NamedTuple}) || eltype(x) <: Integer
            @test grads[i + 1] isa NoTangent
            continue
        end
        structured(x) && @test structured(grads[i + 1]) && grads[i + 1].layout == x.layout
        step = direction(x)
        value(s) = along(R, listed(f(Any[j == i ? moved(x, s, step) : z for (j, z) in enumerate(arguments)]...; given...)))
        # Of the fourth order: the error of a difference of the second one reaches the bound.
        slope = (8 * (value(1e-4) - value(-1e-4)) - (value(2e-4) - value(-2e-4))) / 12e-4
        @test isapprox(along(grads[i + 1], step), slope; rtol = 1e-6, atol = 1e-8)
    end
end
moved(x, s, step) = x + s * step
moved(x::NamedTuple, s, step) = map((a, b) -> moved(a, s, b), x, step)
along(gradient, step) = sum(Array(gradient) .* Array(step))
along(gradients::Tuple, steps::Tuple) = sum(map(along, gradients, steps))
along(gradient, step::NamedTuple) = sum(along(getproperty(gradient, name), step[name]) for name in keys(step))
listed(y) = y isa Tuple ? y : (y,)
structured(x) = x isa BlockSparseMatrix
direction(x::NamedTuple) = map(direction, x)
direction(x) = randn(size(x)...)
direction(A::BlockSparseMatrix) = BlockSparseMatrix(randn(size(A)...), A.layout)
direction(A::Tartan.TransposedBlocks) = direction(parent(A))'

@testset "gradients of products" begin
    A, B = random_matrix(Float64, 21, 17, (4, 3); make = normal), random_matrix(Float64, 17, 10, (3, 5); make = normal)
    for X in (randn(17, 5), randn(17), randn(5, 17)', view(randn(30, 5), 1:17, :))
        check_rule(*, A, X)
    end
    check_rule(*, A', randn(21, 3))
    check_rule(*, randn(4, 21), A)
    check_rule(*, randn(17, 4)', A')
    check_rule(*, A, B)
    check_rule(*, B', A')
    A32 = BlockSparseMatrix{Float32}(A)
    @test unthunk(rrule(*, A32, ones(Float32, 17))[2](ones(21))[2]) isa BlockSparseMatrix{Float32}
end

@testset "gradients stay on the layout" begin
    A = random_matrix(Float64, 21, 17, (4, 3))
    p, X = ProjectTo(A), randn(21, 17)
    @test p(X) == BlockSparseMatrix(X, A.layout) && p(X).layout == A.layout && p(A) === A
    @test p(BlockSparseMatrix(X, (7, 17))) == p(X) && p(BlockSparseMatrix(copy(X'), (3, 4))') == p(X)
    @test ProjectTo(A')(copy(X')) == p(X)' && p(NoTangent()) === NoTangent()
    @test ProjectTo(BlockSparseMatrix{Float32}(A))(X) isa BlockSparseMatrix{Float32}
    values = randn(size(A.values)...)
    @test p(Tangent{typeof(A)}(; values = values)).values == values
    @test p(Tangent{typeof(A)}()) isa NoTangent
    B, pullback = rrule(BlockSparseMatrix, A.layout, values)
    @test B.values == values && pullback(X)[2] isa NoTangent && pullback(X)[3] == p(X).values
end

@testset "gradients of softmax, attention and convolution" begin
    layout = BlockLayout(Bool[1 0 1; 1 1 0; 0 0 1], (8, 4))
    check_rule(block_softmax, BlockSparseMatrix(randn(24, 12), layout); scale = 0.5, causal = true)
    q, causal = randn(4, 32), pattern(:causal, (32, 32), 8)
    check_rule(attention, q, randn(4, 32), randn(4, 32), causal; causal = true)
    c = BlockConv(layout; kernel = (3, 2), padding = (1, 0))
    check_rule(conv, c, BlockSparseMatrix(c.layout, randn(blocksize(c.layout)..., nblocks(c.layout))), randn(6, 5, 12, 2))
    @test_throws ArgumentError rrule(attention, q, q, q, causal; return_lse = true)
    @test_throws ArgumentError rrule(conv, c, BlockSparseMatrix{Float64}(c.layout), randn(6, 5, 12, 2); active = layout, windows = 1)
    @test_throws ArgumentError rrule(block_softmax, BlockSparseMatrix(randn(24, 12), layout); return_lse = true)
end

@testset "gradients of sinks, biases and gains" begin
    layout = pattern(:causal, (16, 16), 4)
    q, k, v = (randn(4, 16, 2) for _ in 1:3)
    for terms in ((distance_bias = randn(5, 2), sinks = randn(2)), (block_bias = randn(nblocks(layout), 2),), (slopes = rand(2),), (mask = randn(16, 16, 2),))
        check_rule(attention, q, k, v, layout, terms; causal = true, scale = 0.5)
    end
    # Zeros, as nothing of it is asked for; `nothing` is an option that is left out.
    _, pullback = rrule(attention, q, k, v, layout, (sinks = nothing,))
    @test unthunk(pullback(q)[6]).sinks isa NoTangent && pullback(q)[2:4] == rrule(attention, q, k, v, layout)[2](q)[2:4]
    c = BlockConv(BlockLayout(Bool[1 0 1; 1 1 0], (4, 2)); kernel = (3, 2), padding = (1, 0))
    w, x, gain, bias = conv_filter(c, randn(3, 2, 6, 8)), randn(6, 5, 6, 2), rand(8) .+ 0.5, randn(8)
    classes = maximum(edge_classes(c, (6, 5)))
    for (terms, options) in (((gain = gain, bias = randn(8, classes)), (relu = true,)), ((gain = gain, bias = bias), (bias_first = true,)))
        check_rule(conv, c, w, x, terms; options...)
    end
    up = BlockConv(BlockLayout(trues(1, 2), (4, 4)); kernel = 3, stride = 2, transposed = true)
    check_rule(conv, up, BlockSparseMatrix(up.layout, randn(blocksize(up.layout)..., nblocks(up.layout))), randn(5, 4), (bias = bias,); size = conv_size(up, 5) .+ 1)
    check_rule(channel_linear, randn(3, 8, 2), (gain = gain, bias = bias); relu = true)
    check_rule(conv_normalize, c, w, (gain = gain,))
    # As options they would get no gradient, without a word.
    for (call, name) in ((() -> rrule(attention, q, k, v, layout; sinks = zeros(2)), "sinks"), (() -> rrule(attention, q, k, v, layout; slopes = zeros(2)), "slopes"),
                         (() -> rrule(attention, q, k, v, layout; mask = zeros(16, 16)), "mask"),
                         (() -> rrule(conv, c, w, x; bias = bias), "bias"), (() -> rrule(conv_normalize, c, w; gain = gain), "gain"), (() -> rrule(channel_linear, x; gain = gain), "gain"),
                         (() -> attention(q, k, v, layout, (slope = 1,)), "slopes"), (() -> conv(c, w, x, (bias = bias,); bias = bias), "once"))
        @test refusal(call) isa ArgumentError && occursin(name, refusal(call).msg)
    end
    @test attention(q, k, v, layout, (sinks = ones(2),); causal = true) == attention(q, k, v, layout; sinks = ones(2), causal = true)
    @test conv_normalize(c, w, (gain = gain,)) == conv_normalize(c, w; gain = gain)
end

@testset "gradients of the operations that the library describes" begin
    for op in OPERATIONS
        (op.gradient === nothing || op.name === :quantize) && continue # whose gradient goes straight through its steps
        made, f = operands(op, Float64; make = fitting(op)), plain(op)
        gradient = [a.name for a in outputs(operation_named(op.gradient))]
        terms = (; (k => v for (k, v) in pairs(keywords(op, made)) if Symbol(k, "_grad") in gradient)...)
        check_rule(f, positional(op, made)...)
        isempty(terms) && continue
        check_rule(f, positional(op, made)..., terms)
        check_rule(f, positional(op, made)..., NamedTuple{keys(terms)[1:1]}(terms))
        error = refusal(() -> rrule(f, positional(op, made)...; terms...))
        @test error isa ArgumentError && all(name -> occursin("$name = ...", error.msg), keys(terms))
        for name in asked_for(op)
            @test refusal(() -> rrule(f, positional(op, made)...; Symbol("return_", name) => true)) isa ArgumentError
        end
    end
    c, gates = randn(8, 5), randn(8, 4, 5)
    (next, h), pullback = rrule(lstm_gates, c, gates)
    @test pullback(Tangent{Tuple}(NoTangent(), h))[2] == lstm_gates_gradient(c, gates; h_grad = h).c
    @test pullback(Tangent{Tuple}(next, NoTangent()))[3] == lstm_gates_gradient(c, gates; c_next_grad = next).gates
    x = rand(Float32, 8, 5)
    grads = rrule(layer_norm, x, (gain = ones(8), bias = nothing))[2](ones(8, 5)) # of other types than C takes
    @test eltype(grads[2]) === Float32 && size(grads[2]) == size(x) && grads[3].bias isa NoTangent
end

@testset "gradients of functions of a matrix" begin
    A = random_matrix(Float64, 21, 17, (4, 3), 0.6; make = normal)
    for B in (A, copy(A')), dims in (1, 2, (1, 2))
        check_rule(sum, B; dims = dims)
        check_rule(sum, B'; dims = dims)
    end
    y, pullback = rrule(sum, A)
    @test y == sum(A) && pullback(2.0)[2] == BlockSparseMatrix(fill(2.0, size(A)), A.layout)
    check_rule(project, A, random_layout(21, 17, (4, 3)))
    check_rule(slice, A, 2:4, 1:3)
    for norm in (:l1, :l2, :max)
        check_rule(block_norms, A; norm = norm)
    end
    for p in (1, Inf)
        y, pullback = rrule(opnorm, A, p)
        step = direction(A)
        slope = (opnorm(A + 1e-6 * step, p) - opnorm(A - 1e-6 * step, p)) / 2e-6
        @test y == opnorm(A, p) && isapprox(along(pullback(1.0)[2], step), slope; rtol = 1e-6)
    end
    for f in (sparse, SparseMatrixCSC), B in (A, A')
        y, pullback = rrule(f, B)
        R = sparse(randn(size(B)...))
        @test y == f(B) && pullback(R)[2] == ProjectTo(B)(Matrix(R)) && pullback(Matrix(R))[2] == ProjectTo(B)(Matrix(R))
    end
    for (f, rule) in ((map, sin), (Base.broadcasted, tanh))
        y, pullback = rrule(f, rule, A)
        R = direction(A)
        @test y == rule.(A) && pullback(R)[3] ≈ R .* (rule === sin ? cos.(Matrix(A)) : 1 .- tanh.(Matrix(A)) .^ 2)
    end
    scale = 2.0
    @test refusal(() -> rrule(map, x -> scale * x, A)) isa ArgumentError && refusal(() -> rrule(map, cos, A)) isa ArgumentError
    y, pullback = rrule(Base.broadcasted, Float32, A)
    @test y == Float32.(A) && pullback(y)[3] isa BlockSparseMatrix{Float64}
    X, Y = randn(21, 5), randn(5, 17)
    S, pullback = rrule(sddmm!, similar(A), X, Y; alpha = 2)
    dS = direction(A)
    @test S == sddmm!(similar(A), X, Y; alpha = 2) && pullback(dS)[3] ≈ 2 * (dS * Y') && pullback(dS)[4] ≈ 2 * (X' * dS)
    @test refusal(() -> rrule(sddmm!, similar(A), X, Y; beta = 1)) isa ArgumentError
    c = BlockConv(BlockLayout(Bool[1 0 1; 1 1 0], (4, 2)); kernel = (3, 2))
    w, pullback = rrule(conv_filter, c, randn(3, 2, 6, 8))
    R = direction(w)
    @test pullback(R)[3] == dense_filter(c, R)
end

@testset "objects in files of BSON and JLD2" begin
    layout = random_layout(21, 17, (4, 3))
    A, mask, c = BlockSparseMatrix(randn(21, 17), layout), BlockMask((q, k, head) -> k <= q, layout), BlockConv(random_layout(8, 4, (4, 4), 1.0); kernel = (3, 2))
    file = BlockFile()
    store!(file, "A", A; gates = ones(nblocks(A)), metadata = "{}")
    for package in (BSON, JLD2)
        for x in (A, layout, c, transpose(A))
            x isa Tartan.TransposedBlocks && package === JLD2 && continue # the package goes through its field
            y = package.roundtrip(x)
            @test typeof(y) == typeof(x) && y == x && isopen(y)
        end
        back = package.roundtrip(A)
        @test back * ones(17) == A * ones(17) && back.values !== A.values
        @test kept(package.roundtrip(mask)) == kept(mask)
        again = package.roundtrip(file)
        @test again["A"] == A && gates(again, "A") == ones(nblocks(A)) && metadata(again, "A") == "{}"
        for x in (Context("cpu"), to_device(ones(3), Context("cpu")), to_device(A, Context("cpu")))
            @test refusal(() -> package.roundtrip(x)) isa ArgumentError
        end
        closed = copy(A)
        close(closed)
        @test refuses(() -> package.roundtrip(closed), :handle, "closed")
    end
end

# What a package makes that knows nothing of Tartan.
@testset "copies of addresses are no objects" begin
    fields(x) = Any[getfield(x, name) for name in fieldnames(typeof(x))]
    handle(h) = BSON.made(typeof(h), fields(h))
    A = random_matrix(Float64, 8, 8, (4, 4), 1.0)
    B = BSON.made(typeof(A), Any[handle(A.handle), A.layout, A.values])
    layout = BSON.made(BlockLayout, Any[handle(A.layout.handle), A.layout.frame, A.layout.bounds])
    for f in (() -> B * ones(8), () -> B[1, 1], () -> copy(B'), () -> block_norms(B), () -> nblocks(layout), () -> isdynamic(layout), () -> svg(layout))
        @test refuses(f, :handle, "address means nothing", "BSON")
    end
    @test !isopen(B) && !isopen(layout) && occursin("closed", sprint(show, B))
    close(B)
    @test isopen(A) && A * ones(8) == Matrix(A) * ones(8)
end

@testset "stationary methods of IterativeSolvers" begin
    A, b = random_matrix(Float64, 12, 12, (4, 4)), ones(12)
    for B in (A, A')
        @test IterativeSolvers.jacobi!(zeros(12), B, b; maxiter = 3) == IterativeSolvers.gauss_seidel!(zeros(12), B, b; maxiter = 3) == sum(A) .* b .+ 3
        @test IterativeSolvers.sor!(zeros(12), B, b, 1.5) == IterativeSolvers.ssor!(zeros(12), B, b, 1.5) == sum(A) .* b .+ 11.5
    end
end

@testset "arrays of CUDA.jl" begin
    if DUMMY
        context = Context(CUDA.CuStream(C_NULL))
        @test context.device == "cuda:0"
        function make(T, dims)
            memory = DeviceArray{T}(context, dims)
            return memory, reinterpret(UInt, Tartan.device_operand(memory).address)
        end
        CUDA.MAKE[] = make
        function cu(X::Array{T}) where {T}
            memory = to_device(X, context)
            return CuArray{T, ndims(X)}(memory, reinterpret(UInt, Tartan.device_operand(memory).address), size(X))
        end
        A, X = random_matrix(Float32, 21, 17, (4, 3)), exact(Float32, 17, 3)
        D, x = to_device(A, context), cu(X)
        y = D * x
        @test y isa CuArray{Float32, 2} && to_host(y.memory) == A * X
        @test to_host(sddmm!(copy(D), y, x')) == sddmm!(copy(A), A * X, X')
        @test to_host((x' * D').memory) == X' * A'
    end
end
