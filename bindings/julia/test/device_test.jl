# SPDX-License-Identifier: Apache-2.0
# Contexts of the user's own and what lies on their devices. The dummy device gives no access to its memory: what would
# read it past the library crashes here.

# An array of another package, in memory of a device.
struct ForeignArray{T, N} <: DenseArray{T, N}
    memory::DeviceArray{T, N}
end
primitive type ForeignPointer 64 end
Base.size(x::ForeignArray) = size(x.memory)
Base.strides(x::ForeignArray) = strides(x.memory)
Base.pointer(x::ForeignArray) = reinterpret(ForeignPointer, UInt(Tartan.device_operand(x.memory).address))
Base.similar(x::ForeignArray, ::Type{T}, n::Dims) where {T} = ForeignArray(DeviceArray{T}(x.memory.context, n))
Base.getindex(::ForeignArray, ::Int...) = error("scalar indexing")
Tartan.device_operand(x::ForeignArray) = Tartan.DeviceMemory(x, pointer(x), strides(x), 0)

@testset "arrays go there and back, $place, $T" for place in DEVICES, T in TYPES
    context = Context(place)
    for X in Any[normal(T, 3, 4), normal(T, 5), normal(T, 2, 3, 4), normal(T, 2, 3, 4, 5), zeros(T, 0, 3), T[], normal(T, 1, 1),
                 view(normal(T, 6, 8), 2:2:6, 3:7), normal(T, 3, 4)', transpose(normal(T, 3)),
                 PermutedDimsArray(normal(T, 2, 3, 4), (3, 1, 2)), view(normal(T, 4, 4), [1, 3], :)]
        x = to_device(X, context)
        @test x isa DeviceArray{T, ndims(X)} && !(x isa AbstractArray)
        @test to_host(x) isa Array{T, ndims(X)} && to_host(x) == X && Array(x) == X
        @test size(x) == size(X) && length(x) == length(X) && ndims(x) == ndims(X) && eltype(x) === T && size(x, 9) == 1
        @test strides(x) == strides(Array(X))
        y = copy(x)
        close(x)
        @test to_host(y) == X
    end
    @test to_host(DeviceArray{T}(context, 3, 2)) == zeros(T, 3, 2)
    @test to_host(DeviceArray{T}(context, (4,))) == zeros(T, 4)
    X, v = normal(T, 3, 5), normal(T, 4)
    x, w = to_device(X, context), to_device(v, context)
    @test to_host(x') == X' && to_host(transpose(x)) == transpose(X) && to_host(x'') == X && size(x') == (5, 3)
    @test to_host(w') == Array(v') && size(w') == (1, 4) && to_host(w'') == reshape(v, 4, 1)
    @test to_host(copy(x')) == X'
    before = copy(X)
    X .= T(7) # the source may change
    @test to_host(x) == before
end

@testset "matrices go there and back, $place, $T" for place in DEVICES, T in TYPES
    context = Context(place)
    for A in (random_matrix(T, 21, 17, (4, 3)), random_matrix(T, 12, 8, (4, 4); heads = 3), random_matrix(T, 8, 8, (4, 4), 0.0))
        D = to_device(A, context)
        @test D isa DeviceBlockSparseMatrix{T} && to_host(D) isa BlockSparseMatrix{T}
        @test to_host(D).values == A.values && to_host(D).layout == A.layout
        @test size(D) == size(A) && size(D, 1) == size(A, 1) && eltype(D) === T && ndims(D) == 2
        @test nblocks(D) == nblocks(A) && blocksize(D) == blocksize(A) && gridsize(D) == gridsize(A) && heads(D) == heads(A)
        @test density(D) == density(A) && nnz(D) == nnz(A)
        E = copy(D)
        close(D)
        @test to_host(E).values == A.values
        @test size(E') == reverse(size(A)) && E'' === E
    end
    A = random_matrix(T, 9, 7, (2, 2))
    @test to_host(to_device(A', context)) == A'
end

@testset "what is made of blocks is the CPU's, and stays there, $place, $T" for place in DEVICES, T in (TYPES..., Tartan.Float8E4M3)
    context = Context(place)
    for (m, n) in ((32, 24), (29, 19)), p in (0.4, 1.0)
        A = random_matrix(T, m, n, (8, 8), p)
        D = to_device(A, context)
        wider = union(A.layout, random_layout(m, n, (8, 8)))
        some = max(nblocks(A) - 1, 0)
        for norm in (:max, :l1, :l2)
            @test block_norms(D; norm = norm) ≈ block_norms(A; norm = norm)
        end
        for f in (x -> permute_blocks(x; rows = [2, 1, 3, 4], cols = [2, 1, 3]), x -> slice(x, 2:3, 1:2), x -> project(x, wider),
                  x -> project(x, keep_largest(x.layout, block_norms(x), some)), permutedims, x -> copy(x'),
                  x -> rearrange(x, x.layout, collect(nblocks(x) - 1:-1:0)),
                  x -> scatter!(copy(x), slice(x, 1:1, 1:2), collect(nblocks(slice(x, 1:1, 1:2)):-1:1)))
            here, there = f(A), f(D)
            @test there isa DeviceBlockSparseMatrix{T} && there.layout == here.layout
            @test to_host(there).values == here.values && to_host(there).layout == here.layout
        end
        for S in (Float64, Float32, Float16, BFloat16)
            @test DeviceBlockSparseMatrix{S}(D) isa DeviceBlockSparseMatrix{S}
            @test to_host(DeviceBlockSparseMatrix{S}(D)).values == BlockSparseMatrix{S}(A).values
        end
        @test to_host(D).values == A.values
        place == "cpu" || @test refuses(() -> scatter!(D, A, collect(1:nblocks(A))), :unsupported, "B is on")
        @test refuses(() -> scatter!(D, D, collect(1:nblocks(A))), :argument, "overlaps") || nblocks(A) == 0
        scatter!(D, to_device(A, Context(place)), collect(1:nblocks(A))) # of another context
        @test to_host(D).values == A.values
    end
end

@testset "every product gives the CPU's numbers within the bound, $place, $T" for place in DEVICES, T in TYPES
    context = Context(place)
    shapes = ((21, 17, (4, 3)), (64, 96, (32, 16)), (33, 65, (1, 7)), (256, 384, (64, 64)), (300, 200, (32, 32)),
              (256, 256, (128, 128)))
    for (m, k, block) in shapes, n in (m > 100 ? (64,) : (0, 1, 9))
        A = random_matrix(T, m, k, block; make = normal)
        D, F = to_device(A, context), Matrix(A)
        X, Y = normal(T, k, n), normal(T, m, n)
        x, y = to_device(X, context), to_device(Y, context)
        @test within_bound(to_host(D * x), F, X)
        @test within_bound(to_host(D' * y), F', Y)
        @test within_bound(to_host(transpose(D) * y), F', Y)
        @test within_bound(to_host(y' * D), Y', F)
        @test within_bound(to_host(x' * D'), X', F')
        @test within_bound(to_host(D * to_device(copy(X'), context)'), F, X)
        @test within_bound(to_host(to_device(copy(Y'), context) * D), Y', F)
        @test (D * x) isa DeviceArray{T, 2} && size(D * x) == (m, n)
        n == 1 || continue
        @test within_bound(reshape(to_host(D * to_device(X[:, 1], context)), m, 1), F, X)
        @test within_bound(to_host(to_device(Y[:, 1], context)' * D), Y', F)
        @test (D * to_device(X[:, 1], context)) isa DeviceArray{T, 1}
    end
end

@testset "mul! and spmm!, $place" for place in DEVICES
    context = Context(place)
    A = random_matrix(Float64, 21, 17, (4, 3))
    D, F = to_device(A, context), Matrix(A)
    X, C = exact(Float64, 17, 3), exact(Float64, 21, 3)
    x, c = to_device(X, context), to_device(C, context)
    @test mul!(c, D, x, 2, -0.5) === c && to_host(c) == 2 * F * X - 0.5 * C
    @test to_host(mul!(to_device(C, context)', x', D', 1, 1)) == (F * X + C)'
    @test to_host(mul!(DeviceArray{Float64}(context, 21, 3), D, x)) == F * X
    g = rand([0, 0.5, 2], nblocks(A))
    expected = spmm!(zeros(21, 3), A, X; gates = g)
    @test to_host(spmm!(DeviceArray{Float64}(context, 21, 3), D, x; gates = to_device(g, context))) == expected
    B, Q = exact(Float64, 17, 3, 2, 5), DeviceArray{Float64}(context, 21, 3, 2, 5)
    @test to_host(spmm!(Q, D, to_device(B, context); context = context)) == spmm!(zeros(21, 3, 2, 5), A, B)
    R = exact(Float64, 3, 21, 4)
    @test to_host(spmm!(DeviceArray{Float64}(context, 3, 17, 4), D, to_device(R, context); side = :right)) ==
          spmm!(zeros(3, 17, 4), A, R; side = :right)
    H = BlockSparseMatrix(exact(Float64, 12, 8, 3), random_layout(12, 8, (4, 4), 0.5; heads = 3))
    Z = exact(Float64, 8, 5, 3)
    @test to_host(spmm!(DeviceArray{Float64}(context, 12, 5, 3), to_device(H, context), to_device(Z, context))) ==
          spmm!(zeros(12, 5, 3), H, Z)
    for T in (Float16, BFloat16)
        L = BlockSparseMatrix{T}(A)
        wide_result = spmm!(DeviceArray{Float32}(context, 21, 3), to_device(L, context), to_device(T.(X), context))
        @test to_host(wide_result) == Float32.(F * X)
    end
    wait(context)
end

gate_type(T) = T === Float64 ? Float64 : Float32

@testset "sddmm!, $place, $T" for place in DEVICES, T in TYPES
    context = Context(place)
    S, X, Y = random_matrix(T, 21, 17, (4, 3)), exact(T, 21, 5), exact(T, 5, 17)
    D, x, y = to_device(S, context), to_device(X, context), to_device(Y, context)
    @test sddmm!(D, x, y; alpha = 2, beta = -1) === D
    @test to_host(D) == sddmm!(copy(S), X, Y; alpha = 2, beta = -1)
    D = to_device(S, context)
    @test to_host(sddmm!(D, (x, x), (y, y))) == sddmm!(copy(S), (X, X), (Y, Y))
    @test to_host(sddmm!(D, [x], [y])) == sddmm!(copy(S), X, Y)
    @test to_host(sddmm!(D, x, to_device(copy(Y'), context)')) == sddmm!(copy(S), X, Y)
    g = gate_type(T).(rand([0, 0.5, 2], nblocks(S)))
    @test to_host(sddmm!(D, x, y; gates = to_device(g, context))) == sddmm!(copy(S), X, Y; gates = g)
    S, X, Y = random_matrix(T, 256, 192, (64, 64)), exact(T, 256, 96), exact(T, 96, 192)
    @test to_host(sddmm!(to_device(S, context), to_device(X, context), to_device(Y, context))) == sddmm!(copy(S), X, Y)
end

# A GPU's backend may say that it has no such operation yet; the dummy and the CPU have all.
function has_operation(f)
    haskey(ENV, "TARTAN_TEST_DEVICES") || return true
    error = refusal(f)
    error isa TartanError && error.status == :unsupported || return true
    println("left out: ", error.message)
    return false
end

@testset "gate_gradient!, growth_score!, $place, $T" for place in DEVICES, T in TYPES
    context, G = Context(place), gate_type(T)
    W, X, Y = random_matrix(T, 21, 17, (4, 3)), exact(T, 21, 5), exact(T, 5, 17)
    dW = sddmm!(copy(W), X, Y)
    g = G.(rand([0, 0.5, 2], nblocks(W)))
    there, known = DeviceArray{G}(context, nblocks(W)), zeros(G, nblocks(W))
    device_W, device_dW = to_device(W, context), to_device(dW, context)
    if has_operation(() -> gate_gradient!(there, device_W, copy(device_W)))
        gate_gradient!(there, device_W, device_dW; gates = to_device(g, context))
        gate_gradient!(known, W, dW; gates = g)
        @test to_host(there) ≈ known && to_host(device_dW) == dW
    end
    x, y, score = to_device(X, context), to_device(Y, context), DeviceArray{G}(context, 6, 6)
    if has_operation(() -> growth_score!(score, x, y, (4, 3)))
        growth_score!(score, x, y, (4, 3); norm = :l2)
        @test to_host(score) ≈ growth_score!(zeros(G, 6, 6), X, Y, (4, 3); norm = :l2)
    end
end

@testset "contexts, closing and showing, $place" for place in DEVICES
    name = place == "cuda" ? "cuda:0" : place
    context = Context(place; threads = 1, seed = 3, math = :tf32)
    @test occursin(name, sprint(show, context)) && wait(context) === nothing
    x, A = to_device([1.0 2.0], context), to_device(random_matrix(Float64, 8, 12, (4, 4), 1.0), context)
    @test occursin("1×2", sprint(show, x)) && occursin(name, sprint(show, x))
    @test occursin("8×12", sprint(show, A)) && occursin(name, sprint(show, A)) && occursin("6 of 6 blocks", sprint(show, A))
    @test occursin("transpose of", sprint(show, A'))
    @test occursin("3-element", sprint(show, to_device(ones(3), context)))
    @test_throws ArgumentError serialize(IOBuffer(), x)
    @test_throws ArgumentError serialize(IOBuffer(), A)
    @test_throws ArgumentError deepcopy(x)
    row, y = x', to_device(ones(12), context)
    close(x)
    close(x)
    @test !isopen(x) && !isopen(row) && occursin("closed", sprint(show, x))
    for f in (() -> to_host(x), () -> to_host(row), () -> copy(x), () -> spmm!(row, A, y))
        @test refuses(f, :handle, "DeviceArray is closed")
    end
    close(A)
    @test occursin("closed", sprint(show, A))
    @test refuses(() -> to_host(A), :handle, "closed") && refuses(() -> A * y, :handle, "closed")
    close(context)
    @test occursin("closed", sprint(show, context))
    @test refuses(() -> to_host(y), :handle, "Context is closed")
    close(y) # memory may go after its context
end

# The dummy device refuses work on memory that another context may still be at work on.
@testset "operands may come from several contexts, $place" for place in DEVICES
    contexts = [Context(place) for _ in 1:4]
    A = random_matrix(Float64, 21, 17, (4, 3); make = normal)
    X, Y = normal(Float64, 17, 2), normal(Float64, 2, 17)
    for turn in 1:4
        one, two, three, four = circshift(contexts, turn)
        D, x = to_device(A, one), to_device(X, two)
        y = D * x
        @test within_bound(to_host(y), Matrix(A), X)
        @test to_host(spmm!(y, D, x; context = three)) ≈ A * X
        mul!(y, to_device(A, four), x, 1, 1)
        @test to_host(y) ≈ 2 * (A * X)
        close(x)
        S = sddmm!(to_device(A, three), y, to_device(Y, four); gates = to_device(ones(nblocks(A)), one))
        @test to_host(S).values ≈ sddmm!(copy(A), to_host(y), Y).values
        gradient = gate_gradient!(DeviceArray{Float64}(two, nblocks(A)), D, S)
        @test to_host(gradient) ≈ gate_gradient!(zeros(nblocks(A)), A, to_host(S))
        score = growth_score!(DeviceArray{Float64}(one, 6, 6), y, to_device(Y, two), (4, 3))
        @test to_host(score) ≈ growth_score!(zeros(6, 6), to_host(y), Y, (4, 3))
    end
    foreach(close, contexts)
end

@testset "indices and masks, $place" for place in DEVICES
    context = Context(place)
    for x in ([3 1; 2 3], Int32[1, 3, 2], UInt8[2, 3], [true, false])
        @test to_host(to_device(x, context)) == x && eltype(to_device(x, context)) === eltype(x)
    end
    table, i = randn(4, 3), [3 1; 2 3]
    @test to_host(embedding(to_device(table, context), to_device(i, context))) == table[:, i]
    mask = [true, false, true, true]
    @test to_host(softmax(to_device(table, context); mask = to_device(mask, context))) == softmax(table; mask = mask)
end

@testset "refusals, $place" for place in DEVICES
    context = Context(place)
    A = random_matrix(Float64, 21, 17, (4, 3))
    D, X, Y = to_device(A, context), ones(17, 2), fill(7.0, 21, 2)
    x, y = to_device(X, context), to_device(Y, context)
    @test_throws DimensionMismatch D * y
    @test_throws DimensionMismatch x * D
    @test_throws DimensionMismatch mul!(y, D', x)
    @test_throws ArgumentError D * to_device(Float32.(X), context)
    @test_throws ArgumentError spmm!(y, D, to_device(Float32.(X), context))
    @test_throws ArgumentError to_device(Int16[1, 2], context)
    @test_throws ArgumentError to_device(["a"], context)
    @test_throws ArgumentError DeviceArray{Int16}(context, 2)
    @test_throws ArgumentError D * to_device(ones(Int, 17, 2), context)
    @test_throws MethodError x[1, 1]
    @test refuses(() -> D * D', :unsupported, "one dense factor") && refuses(() -> mul!(y, D, D), :unsupported, "one dense factor")
    @test refuses(() -> DeviceArray{Float64}(context, -1), :shape)
    @test refuses(() -> to_device(ones(ntuple(_ -> 1, 9)), context), :shape, "9")
    @test refuses(() -> spmm!(y, D, to_device(ones(16, 2), context)), :shape)
    @test refuses(() -> spmm!(y, D, x; gates = to_device(ones(2), context)), :shape)
    @test refuses(() -> mul!(y, D, x, NaN, 0), :argument, "alpha")
    @test refuses(() -> D * X, :unsupported, "B is a", "to_device")
    @test refuses(() -> Y' * D, :unsupported, "to_device")
    @test refuses(() -> A * x, :unsupported, "A is a", "to_device")
    @test refuses(() -> y' * A, :unsupported, "to_device")
    @test refuses(() -> mul!(y, A, x), :unsupported, "to_device")
    square = to_device(random_matrix(Float64, 8, 8, (4, 4)), context)
    z = to_device(ones(8), context)
    @test refuses(() -> mul!(z, square, z), :argument)
    if place != "cpu" # on a CPU context they are in one memory
        out = copy(Y)
        @test refuses(() -> mul!(out, D, x), :unsupported)
        @test refuses(() -> spmm!(y, D, X), :unsupported)
        @test refuses(() -> spmm!(out, A, X; context = context), :unsupported)
        @test refuses(() -> sddmm!(D, Y, to_device(ones(2, 17), context)), :unsupported)
        @test refuses(() -> sddmm!(copy(A), y, to_device(ones(2, 17), context)), :unsupported)
        @test refuses(() -> spmm!(y, D, x; gates = ones(nblocks(A))), :unsupported)
        @test refuses(() -> gate_gradient!(DeviceArray{Float64}(context, nblocks(A)), D, A), :unsupported)
        @test refuses(() -> checksum(ForeignArray(x)), :unsupported)
        @test out == Y
    end
    @test to_host(y) == Y && to_host(x) == X && to_host(D) == A && to_host(z) == ones(8)
end

@testset "arrays of other packages" begin
    @test Tartan.device_operand(ones(2)) === nothing
    if "cuda" in DEVICES
        context = Context("cuda")
        A = random_matrix(Float32, 21, 17, (4, 3))
        D, X = to_device(A, context), exact(Float32, 17, 3)
        x = ForeignArray(to_device(X, context))
        y = D * x
        @test y isa ForeignArray{Float32, 2} && to_host(y.memory) == A * X
        @test mul!(y, D, x, 1, 1) === y && to_host(y.memory) == 2 * (A * X)
        @test to_host((ForeignArray(to_device(copy(X'), context)) * D').memory) == X' * A'
        @test to_host(sddmm!(copy(D), y, ForeignArray(to_device(copy(X'), context)))) == sddmm!(copy(A), 2 * (A * X), X')
        @test to_host((x' * D').memory) == X' * A' && to_host(sddmm!(copy(D), y, x')) == sddmm!(copy(A), 2 * (A * X), X')
        @test to_host(sddmm!(copy(D), y, PermutedDimsArray(x, (2, 1)))) == sddmm!(copy(A), 2 * (A * X), X')
        row = ForeignArray(to_device(X[:, 1], context))
        @test to_host(sddmm!(copy(D), ForeignArray(to_device(A * X[:, 1], context)), row')) == sddmm!(copy(A), A * X[:, 1], X[:, 1]')
        @test to_host(to_device(x, context)) == X
        g = ForeignArray(to_device(ones(Float32, nblocks(A)), context))
        @test to_host(spmm!(DeviceArray{Float32}(context, 21, 3), D, x; gates = g)) == A * X
        # Arrays of channel_linear without a context take that of gain or bias.
        factor, images = Float32.(1:3), exact(Float32, 5, 3, 2)
        of_device, foreign = to_device(factor, context), ForeignArray(to_device(images, context))
        for terms in ((gain = factor,), (bias = factor,))
            far = map(_ -> of_device, terms)
            @test to_host(channel_linear(foreign; far...).memory) == channel_linear(images; terms...)
            @test to_host(channel_linear_gradient(foreign, foreign; far...).x.memory) == channel_linear_gradient(images, images; terms...).x
        end
        @test refuses(() -> A * x, :unsupported)
        DUMMY && @test refuses(() -> Context("cuda:1") |> c -> spmm!(y, to_device(A, c), x), :unsupported)
    end
end

@testset "explain, $place" for place in DEVICES
    context = Context(place)
    A = random_matrix(Float32, 64, 64, (8, 8))
    D, x, y = to_device(A, context), to_device(ones(Float32, 64, 32), context), DeviceArray{Float32}(context, 64, 32)
    for text in (explain(*, D, x), explain(spmm!, y, D, x; transpose = true), explain(() -> sddmm!(D, x, transpose(x))))
        @test all(part -> occursin(part, text), ("\"operation\"", "[64, 32]", "\"kernel\"", "\"why\"", "\"refused\"", place))
        @test occursin("\"block_order\": \"column-major\"", text)
    end
    @test occursin("\"device\": \"cpu\"", explain(*, A, ones(Float32, 64)))
    for allowed in (false, true)
        choosy = Context(place; allow_dense = allowed)
        text = explain(*, to_device(A, choosy), to_device(ones(Float32, 64, 32), choosy))
        @test occursin("dense copy of a, which the context does not allow", text) == (place != "cpu" && !allowed)
        close(choosy)
    end
    @test refuses(() -> explain(explain, *, D, x), :argument, "explain is at work on this thread")
    @test explain(() -> nothing) == "[]"
    @test to_host(D * x) ≈ A * ones(Float32, 64, 32) # what comes afterwards runs
end

@testset "products in parts of bfloat16" begin
    A = fill_normal!(BlockSparseMatrix{Float32}(pattern(:dense, (64, 64), 32)); seed = 1)
    x = reshape(collect(LinRange(-1f0, 1f0, 64 * 40)), 64, 40)
    for mode in (:bf16x3, :bf16x6)
        context = Context(; math = mode)
        @test occursin("spmm_$mode", explain(() -> spmm!(zeros(Float32, 64, 40), A, x; context = context)))
        @test isapprox(spmm!(zeros(Float32, 64, 40), A, x; context = context), Matrix(A) * x; rtol = 2.0^-14)
        close(context)
    end
end

@testset "devices that are not there" begin
    @test refuses(() -> Context("gpu"), :argument, "gpu")
    @test refuses(() -> Context("cuda:99"), :device)
    @test refuses(() -> Context(; math = :fast), :argument, ":fast")
    @test refuses(() -> Context("cuda"; parallel = :julia), :argument, "cpu")
    @test refuses(() -> Context("cpu"; stream = 1), :argument, "stream")
end

if DUMMY
    @testset "a full device is collected first, then refused" begin
        context = Context("cuda:1")
        GC.gc()
        withenv("TARTAN_DUMMY_BYTES" => "100000") do
            x = nothing
            for _ in 1:12
                x = to_device(ones(5000), context) # 40 kB each, all but one forgotten
            end
            @test to_host(x) == ones(5000)
            @test refuses(() -> DeviceArray{Float64}(context, 20000), :memory, "out of memory")
            @test to_host(x) == ones(5000)
        end
        @test to_host(DeviceArray{Float64}(context, 20000)) == zeros(20000)
    end

    @testset "a lost device is an error and no more" begin
        context = Context("cuda")
        A = random_matrix(Float64, 8, 8, (4, 4))
        D, x = to_device(A, context), to_device(ones(8), context)
        withenv("TARTAN_DUMMY_LOST" => "1") do
            for f in (() -> D * x, () -> to_host(x), () -> wait(context), () -> Context("cuda"))
                @test refuses(f, :device, "was lost")
            end
        end
        @test A * ones(8) == Matrix(A) * ones(8)
    end

    @testset "finalizers free memory of a device" begin
        context = Context("cuda:1")
        churn(n) = for _ in 1:n to_device(ones(1000), context) end
        withenv("TARTAN_DUMMY_BYTES" => "2000000") do
            churn(800)
            @test true
        end
    end
end

@testset "attention of another package's arrays, $place" for place in filter(!=("cpu"), DEVICES)
    context, layout = Context(place), pattern(:local, (32, 32), 8)
    x = normal(Float64, 8, 32, 2)
    far = ForeignArray(to_device(x, context))
    out, lse = attention(far, far, far, layout; context = context, return_lse = true)
    @test out isa ForeignArray && lse isa ForeignArray && to_host(out.memory) ≈ attention(x, x, x, layout)
end

@testset "dense arrays on $device: parts, copies, element by element" for device in DEVICES
    context = Context(device)
    X, Y = exact(Float64, 6, 4) .+ 5, exact(Float64, 6, 4)
    x, y = to_device(X, context), to_device(Y, context)
    for places in ((2:4, :), (:, 3), (2, 1:2:4), (6:-1:1, 2:3), (3, 2), (1:0, :))
        v = view(x, places...)
        @test to_host(v) == X[places...] || v.size == () && only(to_host(v)) == X[places...]
    end
    @test to_host(view(x', 2:3, :)) == X'[2:3, :] && to_host(reshape(x, 4, 6)) == reshape(X, 4, 6) && to_host(vec(x')) == vec(X') && to_host(reshape(x, :, 2)) == reshape(X, :, 2)
    @test refusal(() -> view(x, 7, 1)) isa BoundsError && refusal(() -> view(x, 1:3)) isa ArgumentError && refusal(() -> reshape(x, 5, 5)) isa DimensionMismatch
    z = copy(x)
    copyto!(view(z, 2:3, :), Y[1:2, :])
    @test to_host(z)[2:3, :] == Y[1:2, :] && to_host(z)[4:6, :] == X[4:6, :] && to_host(x) == X
    @test copyto!(zeros(6, 4), x) == X && to_host(fill!(similar(x), 3)) == fill(3.0, 6, 4) && iszero(to_host(zero(x)))
    @test to_host(copyto!(DeviceArray{Float32}(context, 6, 4), x)) == X && refusal(() -> copyto!(z, ones(3))) isa DimensionMismatch
    for f in (+, -, *, /, max, min)
        @test to_host(f.(x, y .+ 9)) ≈ f.(X, Y .+ 9) && to_host(f.(x, 2)) ≈ f.(X, 2) && to_host(f.(2, x)) ≈ f.(2, X)
    end
    for f in (-, inv, abs2, sqrt, exp, log, tanh)
        @test to_host(f.(x)) ≈ f.(X)
    end
    @test to_host(x .^ 2) == X .^ 2 && to_host(x + y) == X + Y && to_host(-x) == -X && to_host(2x / 4) == X / 2 && to_host(x .* view(y, :, 1)) == X .* Y[:, 1]
    @test sum(x) == sum(X) && sum(abs2, y) == sum(abs2, Y) && sum(x; dims = 1) == sum(X; dims = 1) && norm(x) ≈ norm(X) && dot(x, y) ≈ dot(X, Y) && maximum(x) == maximum(X)
    z .= x .- 0.5 .* y
    @test to_host(z) == X .- 0.5 .* Y
    z .-= 2
    @test to_host(z) == X .- 0.5 .* Y .- 2 && to_host(z .= 0) == zeros(6, 4) && to_host(axpy!(2, x, copy(y))) == Y + 2X && to_host(axpby!(2, x, 3, copy(y))) == 3Y + 2X
    @test refusal(() -> sin.(x)) isa TartanError
    # A step of gradient descent with momentum, as optimisers write it.
    w, velocity = copy(x), zero(x)
    velocity .= 0.9 .* velocity .+ y
    w .-= 0.1 .* velocity
    @test to_host(w) ≈ X .- 0.1 .* Y
end
