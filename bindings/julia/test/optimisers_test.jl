# SPDX-License-Identifier: Apache-2.0
# Optimisers: lists of arrays and block-sparse matrices, updated in place.

lists(T, n) = ntuple(_ -> [T.(0.5 .+ rand(9, 5)), T.(0.5 .+ rand(4))], n)

@testset "adam! is its formula, $T" for T in (Float64, Float32)
    p, g, m, v = lists(T, 4)
    before = map(list -> map(wide, list), (p, m, v))
    @test adam!(p, g, m, v; rate = 0.1, beta1 = 0.8, beta2 = 0.9, epsilon = 1e-3, weight_decay = 0.2, step = 3) === p
    for i in 1:2
        mean = 0.8 .* before[2][i] .+ 0.2 .* g[i]
        square = 0.9 .* before[3][i] .+ 0.1 .* g[i] .^ 2
        step = mean ./ (1 - 0.8^3) ./ (sqrt.(square ./ (1 - 0.9^3)) .+ 1e-3)
        @test isapprox(m[i], mean; rtol = 8eps(T)) && isapprox(v[i], square; rtol = 8eps(T))
        @test isapprox(p[i], before[1][i] .- 0.1 .* (0.2 .* before[1][i] .+ step); rtol = 32eps(T))
    end
end

@testset "matrices stand for their values, with gates for their blocks" begin
    layout = pattern(:random, (16, 12), (4, 2); density = 0.6, seed = 1)
    W, G = (fill_normal!(BlockSparseMatrix{Float32}(layout); seed) for seed in (1, 2))
    gates = Float32.(isodd.(1:nblocks(W)))
    before = copy(W.values)
    sgd!([W, ones(3)], [G, ones(3)]; gates = [gates, nothing], rate = 0.5)
    live = gates .== 1
    @test W.values[:, :, live] == before[:, :, live] .- 0.5f0 .* G.values[:, :, live] && W.values[:, :, .!live] == before[:, :, .!live]
    X = copy(before)
    Y = BlockSparseMatrix(layout, copy(before))
    sgd!(X, G.values; rate = 0.5)
    sgd!(Y, G.values; rate = 0.5) # an array beside a matrix has the order of its values
    @test X == Y.values
    other = fill_normal!(BlockSparseMatrix{Float32}(pattern(:random, (16, 12), (4, 2); density = 0.6, seed = 2)))
    @test refuses(() -> sgd!([ones(3), W], [ones(3), other]), :layout,
                  "array 2 of gradients is on another layout, expected that of array 2 of parameters")
end

@testset "lists that do not fit are refused" begin
    p = [ones(3), ones(3)]
    @test refuses(() -> sgd!(p, [ones(3)]), :argument, "gradients has 1 arrays, expected 2 (as parameters)")
    @test refuses(() -> sgd!([], []), :argument, "parameters has no arrays, expected 1 or more")
    @test refuses(() -> sgd!(p, [ones(3), ones(4)]), :shape, "array 2 of gradients has size (4,), expected (3,)")
    @test all(list -> refuses(() -> global_norm(list), :argument, "gradients has no arrays, expected 1 or more"), ([], nothing))
    @test refusal(() -> sgd!(p, [ones(3), "text"])) isa ArgumentError
    @test refusal(() -> sgd!([1:3], [ones(3)])) isa ArgumentError
    @test all(x -> all(==(1), x), p)
end

@testset "a norm that is not finite skips the step" begin
    g = [[3.0], fill(4.0, 1, 1)]
    @test global_norm(g; clip = 2, return_scale = true) == (norm = [5.0], scale = [0.4])
    g[1][1] = NaN
    scale = global_norm(g; return_scale = true).scale
    p = [ones(1), ones(1, 1)]
    sgd!(p, g; scale)
    @test scale == [0] && p == [ones(1), ones(1, 1)]
end

@testset "hundreds of arrays" begin
    p, g = ([ones(i % 5 + 1) for i in 1:700] for _ in 1:2)
    sgd!(p, g; rate = 1)
    @test all(iszero, p)
    a = [ones(4, 4)]
    exponential_average!(a, [zeros(4, 4)]; decay = 0.75)
    group_lasso!(ones(4), rate = 0.25)
    @test a == [fill(0.75, 4, 4)]
end

@testset "adafactor! keeps means of rows and columns" begin
    p, g = randn(6, 4, 5), randn(6, 4, 5) # five matrices, whose rows lie along the first dimension
    old, rows, cols, d = copy(p), zeros(4, 5), zeros(6, 5), 0.999 / 1.999
    adafactor!([p], [g], [rows], [cols]; rate = 0.1, clip_threshold = 0)
    @test isapprox(rows, (1 - d) .* dropdims(sum(abs2, g; dims = 1); dims = 1) ./ 6; rtol = 1e-12)
    @test isapprox(cols, (1 - d) .* dropdims(sum(abs2, g; dims = 2); dims = 2) ./ 4; rtol = 1e-12)
    x = g ./ sqrt.(reshape(rows, 1, 4, 5) .* reshape(cols, 6, 1, 5) ./ (sum(reshape(rows, 1, 4, 5); dims = 2) ./ 4))
    @test isapprox(p, old .- 0.1 .* x; rtol = 1e-12)
end

@testset "steps of muon! are about orthogonal" begin
    g = [3.0 * (i == j) + rand() - 0.5 for i in 1:16, j in 1:16]
    p, means = zeros(16, 16), zeros(16, 16)
    muon!([p], [g], [means]; rate = 1, momentum = 0)
    square = p * p'
    @test all(i -> 0.4 < square[i, i] < 1.6, 1:16) && means == g
end

@testset "formats of few bits round numbers" begin
    x = Float32[0.3, 1.03, 1.0625, -500, 1e-9, 464, NaN, Inf]
    @test isequal(quantize(x; emax = 8, largest = 448, rounding = :even), Float32[0.3125, 1, 1, -448, 0, 448, NaN, 448])
    stats = quantize_stats(x[1:4]; emax = 7)
    @test stats[[1, 4, 5]] == [500, 0.25, 0]
end

@testset "moments of 8 bits" begin
    layout = pattern(:random, (16, 12), (4, 2); density = 0.6, seed = 1)
    W, G = (fill_normal!(BlockSparseMatrix{Float32}(layout); seed) for seed in (1, 2))
    m, v = (BlockSparseMatrix{Tartan.Float8E4M3}(layout) for _ in 1:2)
    mean_scales, square_scales = (zeros(Float32, nblocks(layout)) for _ in 1:2)
    before = copy(W.values)
    adam!(W, G, m, v; mean_scales, square_scales, rate = 0.1)
    @test all(x -> x > 0 && x == exp2(round(log2(x))), mean_scales) && W.values != before
    scaled(x, scales) = Float32.(x.values) .* reshape(scales, 1, 1, :)
    @test isapprox(scaled(m, mean_scales), 0.1f0 .* G.values; rtol = 0.07)
    @test isapprox(scaled(v, square_scales) .^ 2, 0.001f0 .* G.values .^ 2; rtol = 0.15)
    path = joinpath(mktempdir(), "state.h5")
    save(path, "w" => W, "m" => m, "mean_scales" => mean_scales)
    @test load(path, "m").values == m.values
    @test refuses(() -> lion!(W, G, m), :argument, "array 1 of means is of Float8E4M3, expected its scales as array 1 of mean_scales")
end

@testset "casts, whose gradients may have a dtype of their own" begin
    x = Float32[0.3, 1e-9, 500, -1.03]
    for T in (Float64, Float32, Float16, BFloat16, Tartan.Float8E4M3, Tartan.Float8E5M2)
        y = float_cast(x; dtype = T)
        @test y isa Vector{T} && isequal(Float32.(y), Float32.(T.(x)))
    end
    @test float_cast(x; dtype = :float16) == Float16.(x) && float_cast(x) == x
    @test float_cast!(zeros(Float16, 4), x) == Float16.(x)
    @test float_cast_gradient(x; gradient_dtype = BFloat16) isa Vector{BFloat16}
    error = refusal(() -> float_cast!(zeros(Float16, 4), x; dtype = Float64))
    @test error isa ArgumentError && occursin("y is of Float16, expected Float64, the dtype", error.msg)
    @test refusal(() -> float_cast(x; dtype = Int)) isa ArgumentError
end
