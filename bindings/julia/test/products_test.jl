# SPDX-License-Identifier: Apache-2.0

@testset "exact products, $T" for T in TYPES
    for _ in 1:60
        m, k, n = rand(0:40), rand(0:40), rand(0:12)
        A = random_matrix(T, m, k, (rand(1:9), rand(1:9)))
        D = Matrix(A)
        X, Y, x, y = exact(T, k, n), exact(T, n, m), exact(T, k), exact(T, m)
        @test wide(A * X) == wide(D) * wide(X) && A * X isa Matrix{T}
        @test wide(A * x) == wide(D) * wide(x) && A * x isa Vector{T}
        @test wide(Y * A) == wide(Y) * wide(D) && Y * A isa Matrix{T}
        @test wide(A' * y) == wide(D)' * wide(y)
        @test wide(transpose(A) * copy(Y')) == wide(D)' * wide(Y)'
        @test wide(A * copy(X')') == wide(D) * wide(X)
        @test wide(copy(X') * A') == wide(X)' * wide(D)'
        @test wide(Y' * copy(Y')') == wide(Y)' * wide(Y) # Julia's own stays Julia's own
        @test wide(X' * transpose(A)) == wide(X)' * wide(D)'
        row = y' * A
        @test wide(row) == wide(y)' * wide(D) && row isa Adjoint
        @test wide(transpose(x) * A') == transpose(wide(x)) * wide(D)'
    end
end

@testset "5-argument mul!, $T" for T in (Float64, Float32)
    for _ in 1:60
        m, k, n = rand(1:40), rand(1:40), rand(1:12)
        A = random_matrix(T, m, k, (rand(1:9), rand(1:9)))
        D = Matrix(A)
        for (α, β) in ((1, 0), (2, 1), (-0.5, 0.5), (true, false), (0, 2))
            X, C = exact(T, k, n), exact(T, m, n)
            @test mul!(copy(C), A, X, α, β) == α * D * X + β * C
            @test mul!(copy(C)', X', A', α, β) == (α * D * X + β * C)'
            @test mul!(transpose(copy(C)), transpose(X), transpose(A), α, β) == transpose(α * D * X + β * C)
            x, c = exact(T, k), exact(T, m)
            @test mul!(copy(c), A, x, α, β) == α * D * x + β * c
            @test mul!(copy(x), A', c, α, β) == α * D' * c + β * x
            y, d = exact(T, n, m), exact(T, n, k)
            @test mul!(copy(d), y, A, α, β) == α * y * D + β * d
            @test mul!(copy(y), d, A', α, β) == α * d * D' + β * y
        end
        C = fill(T(NaN), m, n)
        X = exact(T, k, n)
        @test mul!(C, A, X) == D * X # beta = 0: C is not read
        @test mul!(C, A, X) === C
    end
end

@testset "rounding within the bound, $T" for T in TYPES
    for (m, k, n, block) in ((70, 130, 9, (16, 8)), (64, 256, 1, (32, 32)), (33, 100, 20, (7, 5)))
        A = random_matrix(T, m, k, block; make = normal)
        X, Y = normal(T, k, n), normal(T, n, m)
        @test within_bound(A * X, A, X)
        @test within_bound(Y * A, Y, A)
        @test within_bound(A' * copy(Y'), A', Y')
        @test within_bound(spmm!(zeros(T, m, n), A, X; alpha = -0.3), Matrix(A), X; alpha = -0.3)
    end
end

@testset "promotion" begin
    A = random_matrix(Float32, 8, 8, (4, 4))
    D = Matrix(A)
    @test A * [1, 2, 3, 4, 5, 6, 7, 8] == D * (1:8) && eltype(A * (1:8)) === Float32
    @test A * (1:8) == D * (1:8) && A * trues(8, 2) == D * ones(8, 2)
    @test A * ones(Float16, 8) isa Vector{Float32}
    @test BlockSparseMatrix{BFloat16}(A) * fill(2, 8) isa Vector{BFloat16}
    x, X, Y = normal(Float64, 8), normal(Float64, 8, 3), normal(Float64, 3, 8)
    @test A * x isa Vector{Float64} && A * x ≈ wide(D) * x && A' * X ≈ wide(D)' * X && Y * A ≈ Y * wide(D) && x' * A ≈ x' * wide(D)
    @test A * (x .+ 2im) isa Vector{ComplexF64} && A * (x .+ 2im) ≈ D * (x .+ 2im) && (Y .- im) * A' ≈ (Y .- im) * D'
    @test A * ones(ComplexF32, 8) isa Vector{ComplexF32}
    @test BlockSparseMatrix{Float16}(A) * ones(BFloat16, 8) isa Vector{Float32}
    @test A * big.(x) isa Vector{BigFloat} && A * big.(x) ≈ D * big.(x) && big.(Y) * A' ≈ big.(Y) * D'
    @test A * complex.(big.(X)) isa Matrix{Complex{BigFloat}}
    @test mul!(zeros(Float32, 8), A, x) ≈ D * x && mul!(ones(ComplexF64, 8, 3), A, X, 2im, 3) ≈ 2im * D * X .+ 3
    @test mul!(fill(big(1.0), 3, 8), Y, A, 2, 3) ≈ 2Y * D .+ 3
    @test_throws DimensionMismatch A * ones(Float64, 9)
    out = zeros(8)
    @test_throws ArgumentError mul!(out, A, ones(ComplexF32, 8))
    @test out == zeros(8)
end

@testset "with other matrices" begin
    A, B = random_matrix(Float64, 12, 10, (4, 4)), random_matrix(Float64, 10, 9, (3, 3))
    @test A * B == Matrix(A) * Matrix(B) && A * A' == Matrix(A) * Matrix(A)' && B' * A' == Matrix(B)' * Matrix(A)'
    @test A * sparse(B) == Matrix(A) * Matrix(B)
    @test A * Diagonal(1:10) == Matrix(A) * Diagonal(1:10)
    @test A * UpperTriangular(ones(10, 10)) == Matrix(A) * UpperTriangular(ones(10, 10))
    @test (A * I) == A
end

@testset "every kind of factor that LinearAlgebra knows" begin
    A = random_matrix(Float64, 10, 10, (4, 4))
    X, D = exact(Float64, 10, 10), Matrix(A)
    special = Any[X, X', transpose(X), view(X, :, 10:-1:1), PermutedDimsArray(X, (2, 1)), Diagonal(X), Bidiagonal(X, :U), Tridiagonal(X),
                  SymTridiagonal(X[:, 1], X[1:9, 2]), Symmetric(X), Hermitian(X, :L), sparse(X), sparse(X)', trues(10, 10)]
    for F in (UpperTriangular, UnitUpperTriangular, LowerTriangular, UnitLowerTriangular)
        append!(special, Any[F(X), F(X)', Adjoint(F(X)), Transpose(F(X))])
    end
    append!(special, Any[Adjoint(Symmetric(X)), Transpose(Symmetric(X)), Adjoint(Hermitian(X)), UpperHessenberg(X)])
    for B in special, S in (A, A')
        E, M = Matrix(S), Matrix(B)
        @test S * B == E * M && B * S == M * E
        eltype(B) === Float64 || continue
        @test mul!(zeros(10, 10), S, B) == E * M && mul!(zeros(10, 10), B, S) == M * E
        @test mul!(copy(X), S, B, 2, -1) == 2 * (E * M) - X && mul!(copy(X), B, S, 2, -1) == 2 * (M * E) - X
    end
    for x in Any[X[:, 1], view(X, 3, :), 1.0:10.0, sparse(X[:, 2]), trues(10)]
        @test A * x == D * x && A' * x == D' * x && x' * A == x' * D && transpose(x) * A' == transpose(x) * D'
        @test x' * A isa Adjoint && mul!(zeros(10), A, collect(Float64, x), 1, 0) == D * x
    end
    @test A * Diagonal(1:10) isa BlockSparseMatrix && (Diagonal(1:10) * A').parent.layout == A.layout
    @test_throws DimensionMismatch A * Diagonal(1:9)
    @test_throws DimensionMismatch Diagonal(1:9) * A
    G = LinearAlgebra.Givens(1, 3, 0.6, 0.8)
    @test A * G' ≈ D * G'
end

@testset "OpenAI's cases: feature axes are strides" begin
    for block in (32, 16, 8), n in (256, 64, 8)
        layout = pattern(:barabasi_albert, (160, 160), block; m = min(5, 160 ÷ block - 1), seed = 1)
        W = fill_normal!(BlockSparseMatrix{Float32}(layout); seed = 1)
        x = normal(Float32, 160, n)
        y = W' * x
        @test within_bound(y, Matrix(W)', x)
        @test x' * W == y' # the other feature axis: the same numbers, bit for bit
        out = zeros(Float32, n, 160)
        @test mul!(out, x', W) == y'
    end
end

@testset "batches" begin
    A = random_matrix(Float64, 10, 14, (4, 4))
    B, C = exact(Float64, 14, 3, 2, 5), exact(Float64, 10, 3, 2, 5)
    expected = copy(C)
    for i in 1:2, j in 1:5
        expected[:, :, i, j] = 2 * Matrix(A) * B[:, :, i, j] - C[:, :, i, j]
    end
    @test spmm!(copy(C), A, B; alpha = 2, beta = -1) == expected
    R, Q = exact(Float64, 3, 10, 4), zeros(3, 14, 4)
    spmm!(Q, A, R; side = :right)
    @test all(Q[:, :, i] == R[:, :, i] * Matrix(A) for i in 1:4)
end

@testset "heads" begin
    layout = random_layout(12, 8, (4, 4), 0.5; heads = 3)
    A = BlockSparseMatrix(exact(Float64, 12, 8, 3), layout)
    D = Array(A)
    B, C = exact(Float64, 8, 5, 3, 2), zeros(12, 5, 3, 2)
    spmm!(C, A, B)
    @test all(C[:, :, h, i] == D[:, :, h] * B[:, :, h, i] for h in 1:3, i in 1:2)
    T = zeros(8, 5, 3)
    spmm!(T, A, C[:, :, :, 1]; transpose = true)
    @test all(T[:, :, h] == D[:, :, h]' * C[:, :, h, 1] for h in 1:3)
end

@testset "gates, $G" for G in (Float32, Float64)
    A = random_matrix(Float64, 16, 16, (4, 4), 0.6)
    g = G.(rand([0, 0.5, 1, 2], nblocks(A)))
    gated = BlockSparseMatrix(A.layout, A.values .* reshape(g, 1, 1, :))
    X = exact(Float64, 16, 3)
    @test spmm!(zeros(16, 3), A, X; gates = g) == Matrix(gated) * X
    A.values[:, :, g .== 0] .= NaN # what is skipped is not touched
    @test spmm!(zeros(16, 3), A, X; gates = g) == Matrix(gated) * X
    strided = zeros(G, 2 * length(g))
    strided[1:2:end] = g
    @test spmm!(zeros(16, 3), A, X; gates = view(strided, 1:2:length(strided))) == Matrix(gated) * X
end

@testset "Float32 from 16 bits, $T" for T in (Float16, BFloat16)
    A = random_matrix(T, 20, 40, (8, 8); make = normal)
    X = normal(T, 40, 6)
    C = spmm!(zeros(Float32, 20, 6), A, X)
    @test maximum(abs, C - Matrix{Float64}(A) * wide(X)) < 1e-4
    @test mul!(zeros(Float32, 20, 6), A, X) == C
    @test T.(C) == A * X
end

@testset "the same bits from any number of threads" begin
    A = random_matrix(Float32, 200, 300, (16, 8); make = normal)
    X = normal(Float32, 300, 31)
    expected = A * X
    for options in ((threads = 1,), (threads = 2,), (threads = 3,), (threads = 7,), (threads = 2, parallel = :julia))
        context = Context(; options...)
        @test spmm!(zeros(Float32, 200, 31), A, X; context = context) == expected
        close(context)
    end
end

@testset "slices of a three-dimensional array" begin
    H, X, Y = random_matrix(Float32, 20, 12, (4, 4); heads = 3), exact(Float32, 12, 5, 3), exact(Float32, 2, 20, 3)
    heads_of(f) = cat((f(h) for h in 1:3)...; dims = 3)
    D = Array(H)
    @test H * X == heads_of(h -> D[:, :, h] * X[:, :, h]) && Y * H == heads_of(h -> Y[:, :, h] * D[:, :, h])
    @test H' * permutedims(Y, (2, 1, 3)) == heads_of(h -> D[:, :, h]' * Y[:, :, h]') && H * Float64.(X) isa Array{Float64, 3}
    @test mul!(ones(Float32, 20, 5, 3), H, X, 2, 3) == 2 .* (H * X) .+ 3 && mul!(zeros(Float32, 2, 12, 3), Y, H) == Y * H
    A = H[:, :, 1]
    @test A * X == heads_of(h -> A * X[:, :, h])
    @test refusal(() -> H * X[:, :, 1:2]) isa DimensionMismatch && refusal(() -> H * Y) isa DimensionMismatch && refusal(() -> H * (X .* im)) isa ArgumentError
    @test refusal(() -> collect(H)) isa ArgumentError && length(collect(A)) == length(A)
end
