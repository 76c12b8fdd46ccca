# SPDX-License-Identifier: Apache-2.0
# Memory that a raw ccall would misread: every operand is read and written where its indices say.

inputs(X) = Any[
    X,
    view(vcat(zero(X), X), size(X, 1) + 1:2size(X, 1), :),
    view(repeat(X, inner = (2, 3)), 1:2:2size(X, 1), 1:3:3size(X, 2)),
    view(X[end:-1:1, end:-1:1], size(X, 1):-1:1, size(X, 2):-1:1),
    view(X, collect(1:size(X, 1)), :),
    copy(X')', transpose(permutedims(X)), view(permutedims(X), :, :)',
    PermutedDimsArray(permutedims(X), (2, 1)),
    view(PermutedDimsArray(permutedims(X), (2, 1)), :, :),
    reshape(vec(X), size(X)), reshape(view(X, :, :), size(X)),
    reinterpret(eltype(X), reinterpret(UInt64, X)),
    view(reshape(X, size(X)..., 1), :, :, 1),
    Base.ReshapedArray(view(X, :, collect(1:size(X, 2))), size(X), ()),
]

@testset "inputs" begin
    A = random_matrix(Float64, 10, 14, (4, 4))
    D = Matrix(A)
    X, Y = exact(Float64, 14, 6), exact(Float64, 6, 10)
    for (i, B) in enumerate(inputs(X))
        @test B == X
        @test A * B == D * X
        @test mul!(zeros(10, 6), A, B) == D * X
        @test spmm!(zeros(10, 6), A, B) == D * X
        @test B' * A' == (D * X)'
    end
    for B in inputs(Y)
        @test B * A == Y * D
        @test mul!(zeros(6, 14), B, A) == Y * D
        @test A' * B' == (Y * D)'
    end
    x = exact(Float64, 14)
    for v in (view(repeat(x, inner = 3), 1:3:42), view(reverse(x), 14:-1:1), view(repeat(x', 2), 2, :),
              view(x, collect(1:14)), reinterpret(Float64, reinterpret(UInt64, x)), view(X[:, 1:1] .+ 0, :, 1))
        @test A * v == D * collect(v)
        @test mul!(zeros(10), A, v) == D * collect(v)
        @test transpose(v) * A' == transpose(D * collect(v))
    end
end

@testset "outputs" begin
    A = random_matrix(Float64, 10, 14, (4, 4))
    X = exact(Float64, 14, 6)
    expected = Matrix(A) * X
    backing = fill(NaN, 33, 33)
    for C in (view(backing, 2:3:29, 1:2:11), view(backing, 10:-1:1, 6:-1:1),
              view(backing, 7:12, 1:10)', PermutedDimsArray(view(backing, 1:6, 1:10), (2, 1)), zeros(10, 6),
              reinterpret(Float64, zeros(UInt64, 10, 6)), reshape(zeros(60), 10, 6))
        backing .= NaN
        @test mul!(C, A, X) === C
        @test C == expected
        @test count(!isnan, backing) in (0, 60) # nothing else was written
        @test mul!(C, A, X, 1, 2) == 3 * expected
    end
    y = fill(NaN, 40)
    out = view(y, 38:-4:2)
    @test mul!(out, A, X[:, 1]) == expected[:, 1] && count(!isnan, y) == 10
    for irregular in (view(zeros(10, 6), collect(10:-1:1), :), view(zeros(6, 10)', 1:10, 1:6))
        @test_throws ArgumentError mul!(irregular, A, X)
        @test_throws ArgumentError spmm!(irregular, A, X)
        @test all(iszero, irregular)
    end
end

@testset "wrong element types are not reinterpreted" begin
    A = random_matrix(Float32, 8, 8, (4, 4))
    before = fill(7.0f0, 8)
    for x in (ones(Float64, 8), ones(Int, 8), ones(Float16, 8), trues(8))
        @test mul!(copy(before), A, x) == Matrix(A) * x
        @test_throws ArgumentError spmm!(zeros(Float32, 8, 1), A, reshape(x, 8, 1))
    end
    for x in (ones(ComplexF32, 8), Any[1.0f0 for _ in 1:8])
        out = copy(before)
        error = refusal(() -> mul!(out, A, x))
        @test error isa ArgumentError && occursin(string(eltype(x)), error.msg) && out == before
        @test_throws ArgumentError spmm!(zeros(Float32, 8, 1), A, reshape(x, 8, 1))
    end
    @test mul!(zeros(Float64, 8), A, ones(Float32, 8)) == A * ones(Float32, 8)
    C = zeros(Int, 8)
    @test mul!(C, A, fill(2, 8)) == 2 * sum(Matrix(A); dims = 2)[:]
    @test refusal(() -> mul!(C, BlockSparseMatrix(fill(0.5f0, 8, 8), 4), [1; zeros(Int, 7)])) isa InexactError && C == 2 * sum(Matrix(A); dims = 2)[:]
    @test_throws ArgumentError BlockSparseMatrix(A.layout, zeros(Int, 4, 4, nblocks(A)))
    @test_throws ArgumentError BlockSparseMatrix{Int}(A.layout)
    @test_throws ArgumentError BlockSparseMatrix{ComplexF64}(A)
    @test_throws MethodError Raw.tartan_layout_prune(A.layout, zeros(Float32, nblocks(A)))
end

@testset "batches with permuted dimensions" begin
    A = random_matrix(Float64, 10, 14, (4, 4))
    B = exact(Float64, 3, 14, 6)
    C = zeros(6, 3, 10)
    spmm!(PermutedDimsArray(C, (3, 1, 2)), A, PermutedDimsArray(B, (2, 3, 1)))
    @test all(C[:, i, :] == (Matrix(A) * B[i, :, :])' for i in 1:3)
end

# What views of a matrix show, in sums, products and conversions, read as a part of it.
@testset "views of block-sparse matrices" begin
    for A in (random_matrix(Float64, 10, 14, (4, 3)), copy(random_matrix(Float64, 14, 10, (3, 4))'), random_matrix(Float64, 14, 10, (3, 4))',
              BlockSparseMatrix(exact(Float64, 10, 14); rows = [0, 3, 4, 10], cols = [0, 5, 8, 14]))
        D, X, x, y = Matrix(A), exact(Float64, 9, 3), exact(Float64, 10), exact(Float64, 14)
        for j in 1:14
            @test A[:, j] isa SparseVector && A[:, j] == D[:, j] && A[3:8, j] == D[3:8, j] && A[[9, 2, 2], j] == D[[9, 2, 2], j]
            v, d = view(A, :, j), view(D, :, j)
            @test sum(v) == sum(d) && sum(abs2, v) == sum(abs2, d) && maximum(v) == maximum(d) && norm(v) ≈ norm(d) && norm(v, 1) ≈ norm(d, 1)
            @test collect(v) == d && collect(v) isa Vector && Vector(v) == d && sparse(v) == d && findall(!iszero, v) == findall(!iszero, d)
            @test findall(in((0.0, d[1])), v) == findall(in((0.0, d[1])), d)
            @test dot(v, sparse(x)) ≈ dot(d, x) && dot(sparse(x), v) ≈ dot(x, d) && dot(v, 1:length(d)) ≈ dot(d, 1:length(d))
            @test dot(v, x) ≈ dot(d, x) && dot(x, v) ≈ dot(x, d) && dot(v, v) ≈ dot(d, d) && axpy!(2, v, copy(x)) ≈ axpy!(2, d, copy(x))
            @test any(iszero, v) == any(iszero, d) && all(iszero, v) == all(iszero, d) && count(!iszero, v) == count(!iszero, d)
        end
        for i in 1:10
            @test A[i, :] isa SparseVector && A[i, :] == D[i, :] && A[i, end:-1:1] == D[i, end:-1:1] && sum(view(A, i, :)) == sum(D[i, :])
            @test dot(view(A, i, :), y) ≈ dot(D[i, :], y)
        end
        @test map(sum, eachcol(A)) == map(sum, eachcol(D)) && map(maximum, eachrow(A)) == map(maximum, eachrow(D))
        for (i, j) in ((2:9, 3:11), (:, 1:9), ([5, 1, 1], 2:10), (1:2:9, 9:-1:1))
            V, U = view(A, i, j), view(D, i, j)
            @test sum(V) == sum(U) && sum(V; dims = 1) == sum(U; dims = 1) && Matrix(V) == U && collect(V) == U && sparse(V) == U && norm(V) ≈ norm(U)
            @test V * X == U * X && V * X[:, 1] == U * X[:, 1] && mul!(ones(size(V, 1), 3), V, X, 2, 3) ≈ 2 * U * X .+ 3
            @test ones(2, size(V, 1)) * V == ones(2, size(V, 1)) * U && mul!(ones(size(V, 1)), V, X[:, 2]) ≈ U * X[:, 2]
        end
        @test_throws BoundsError A[:, 15]
        @test_throws BoundsError A[11, :]
        @test_throws BoundsError A[[1, 11], 2]
        B = copy(A)
        close(B isa Tartan.TransposedBlocks ? parent(B) : B)
        @test_throws TartanError B[:, 1]
        @test_throws TartanError B[1, :]
    end
    H = BlockSparseMatrix{Float64}(pattern(:dense, (4, 4), 2; heads = 2))
    @test_throws ArgumentError H[:, 1]
    @test_throws ArgumentError H[1, :]
    @test_throws ArgumentError istriu(H)
end

@testset "triangular or not" begin
    for A in (random_matrix(Float64, 12, 12, (5, 3)), random_matrix(Float64, 12, 9, (4, 4)), BlockSparseMatrix{Float64}(Matrix(1.0I, 9, 9), (2, 3))), k in -3:3
        for B in (A, triu(A, k), tril(A, k)), C in (B, B')
            @test istriu(C, k) == istriu(Matrix(C), k) && istril(C, k) == istril(Matrix(C), k) && isdiag(C) == isdiag(Matrix(C))
        end
    end
end
