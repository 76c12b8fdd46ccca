# SPDX-License-Identifier: Apache-2.0

mask_of(A) = Matrix(BlockSparseMatrix(ones(size(A)), A.layout))

@testset "sddmm!, $T" for T in TYPES
    for _ in 1:40
        m, n, k = rand(1:30), rand(1:30), rand(0:10)
        S = random_matrix(T, m, n, (rand(1:8), rand(1:8)))
        D, keep = wide(Matrix(S)), mask_of(S)
        X, Y = exact(T, m, k), exact(T, k, n)
        P = wide(X) * wide(Y)
        @test wide(Matrix(sddmm!(copy(S), X, Y))) == P .* keep
        @test wide(Matrix(sddmm!(copy(S), X, copy(Y')'))) == P .* keep
        @test wide(Matrix(sddmm!(copy(S), copy(X')', Y; alpha = 2, beta = 0.5))) == (2P + 0.5D) .* keep
        @test wide(Matrix(sddmm!(copy(S), (X, X), (Y, Y); alpha = 0.5))) == P .* keep
    end
end

@testset "weight gradient" begin
    W = random_matrix(Float64, 12, 9, (4, 3))
    X, dY = exact(Float64, 9, 5), exact(Float64, 12, 5)
    @test Matrix(sddmm!(similar(W), dY, X')) == dY * X' .* mask_of(W)
    x, dy = exact(Float64, 9), exact(Float64, 12)
    @test Matrix(sddmm!(similar(W), dy, x')) == dy * x' .* mask_of(W)
end

@testset "batches, heads and gates" begin
    S = random_matrix(Float64, 8, 8, (4, 4), 0.7)
    X, Y = exact(Float64, 8, 3, 4), exact(Float64, 3, 8, 4)
    @test Matrix(sddmm!(similar(S), X, Y)) == sum(X[:, :, i] * Y[:, :, i] for i in 1:4) .* mask_of(S)
    layout = random_layout(8, 8, (4, 4), 0.7; heads = 4)
    H = sddmm!(BlockSparseMatrix{Float64}(layout), X, Y)
    keep = repeat(block_mask(layout), inner = (4, 4, 1))
    @test all(Array(H)[:, :, h] == X[:, :, h] * Y[:, :, h] .* keep[:, :, h] for h in 1:4)
    g = rand([0.0, 0.5, 1.0], nblocks(S))
    plain = sddmm!(similar(S), X, Y)
    @test sddmm!(similar(S), X, Y; gates = g).values == plain.values .* reshape(g, 1, 1, :)
end

@testset "gate gradient, $T" for T in TYPES
    W = random_matrix(T, 16, 12, (4, 4))
    dW = BlockSparseMatrix(exact(T, 16, 12), W.layout)
    G = T === Float64 ? Float64 : Float32
    expected = [sum(wide(W.values[:, :, k]) .* wide(dW.values[:, :, k])) for k in 1:nblocks(W)]
    g = G.(rand([0, 0.5, 2], nblocks(W)))
    before = copy(dW)
    out = fill(G(NaN), nblocks(W))
    @test gate_gradient!(out, W, dW) == expected && dW == before
    @test gate_gradient!(out, W, dW; gates = g) == expected
    @test wide(dW.values) == wide(before.values) .* reshape(g, 1, 1, :)
end

@testset "growth score, $norm_name" for (norm_name, p) in ((:max, Inf), (:l2, 2))
    X, Y = exact(Float64, 10, 6), exact(Float64, 6, 9)
    rows, cols = [1:4, 5:8, 9:10], [1:3, 4:6, 7:9]
    expected = [sum(norm(X[r, k], p) * norm(Y[k, c], p) for k in 1:6) for r in rows, c in cols]
    @test growth_score!(fill(NaN, 3, 3), X, Y, (4, 3); norm = norm_name) ≈ expected
    @test growth_score!(ones(3, 3), X, copy(Y')', (4, 3); norm = norm_name, scale = 2, beta = 3) ≈ 2expected .+ 3
    @test growth_score!(zeros(Float32, 3, 3), Float32.(X), Float32.(Y), (4, 3); norm = norm_name) ≈ expected
end
