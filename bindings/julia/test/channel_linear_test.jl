# SPDX-License-Identifier: Apache-2.0

@testset "channel_linear and its gradients, $T" for T in (Float64, Float32, Float16)
    x, y_grad = normal(T, 6, 5, 8, 2), normal(T, 6, 5, 8, 2)
    S = T === Float64 ? Float64 : Float32
    gain, bias = normal(S, 8), normal(S, 8)
    over(v) = reshape(v, 1, 1, :)
    unit = 8 * Float64(eps(T))
    y = channel_linear(x; gain, bias)
    @test eltype(y) === T && isapprox(wide(y), over(gain) .* wide(x) .+ over(bias); rtol = unit)
    before = over(gain) .* (wide(x) .+ over(bias))
    @test isapprox(wide(channel_linear(x; gain, bias, bias_first = true, relu = true)), max.(before, 0); rtol = unit)
    found = channel_linear_gradient(x, y_grad; gain, bias, bias_first = true, relu = true)
    passed = wide(y_grad) .* (before .> 0)
    @test isapprox(wide(found.x), over(gain) .* passed; rtol = unit)
    sums(a) = vec(sum(a; dims = (1, 2, 4)))
    @test eltype(found.gain) === S && isapprox(found.gain, sums(passed .* (wide(x) .+ over(bias))); rtol = 1e-5)
    @test isapprox(found.bias, gain .* sums(passed); rtol = 1e-5)
    @test channel_linear_gradient(x, y_grad).gain === nothing
    own = copy(x)
    @test channel_linear!(own, own; gain, bias) === own && own == y
end

@testset "edge classes" begin
    c = BlockConv(pattern(:dense, (8, 4), 4); kernel = (3, 3), padding = :same)
    x, table = randn(6, 5, 8), randn(8, 9)
    classes = edge_classes(c, (6, 5))
    over = permutedims(table[:, classes], (2, 3, 1))
    edges = (c, (6, 5))
    @test channel_linear(x; bias = table, edges) ≈ x .+ over
    found = channel_linear_gradient(x, x; gain = table, edges)
    @test found.x ≈ over .* x
    @test found.gain ≈ [sum(x[:, :, k][classes .== e] .^ 2) for k in 1:8, e in 1:9]
    w, image = conv_filter(c, randn(3, 3, 4, 8)), randn(6, 5, 4)
    @test channel_linear(conv(c, w, image); bias = table, relu = true, edges) ≈ conv(c, w, image; bias = table, relu = true)
    back = BlockConv(pattern(:dense, (8, 4), 4); kernel = 3, stride = 2, transposed = true)
    y = conv(back, conv_filter(back, randn(3, 4, 8)), randn(5, 8); size = 12)
    @test channel_linear(y; gain = ones(4), edges = (back, 5)) == y
    @test refuses(() -> channel_linear(x; bias = randn(8, 4), edges), :shape, "(8,), or (8, 9)")
    @test refuses(() -> channel_linear(x; bias = randn(8, 9)), :shape, "bias")
    @test refuses(() -> channel_linear(x; bias = randn(7)), :shape, "bias has size (7,), expected")
    @test refuses(() -> channel_linear(x; bias = randn(8), edges = (c, (6, 6))), :shape, "x has size (6, 5, 8), expected 6 x 6")
    @test refuses(() -> channel_linear(randn(4)), :shape, "(..., channels, n)")
    @test refuses(() -> channel_linear_gradient(x, x[1:5, :, :]), :shape, "y_grad has size")
end
