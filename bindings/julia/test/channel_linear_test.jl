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
    x, table = randn(6, 5, 8, 1), randn(8, 9)
    classes = edge_classes(c, (6, 5))
    over = permutedims(table[:, classes], (2, 3, 1))
    edges = (conv = c, size = (6, 5))
    @test channel_linear(x; bias = table, edges...) ≈ x .+ over
    found = channel_linear_gradient(x, x; gain = table, edges...)
    @test found.x ≈ over .* x
    @test found.gain ≈ [sum(x[:, :, k, 1][classes .== e] .^ 2) for k in 1:8, e in 1:9]
    w, image = conv_filter(c, randn(3, 3, 4, 8)), randn(6, 5, 4, 1)
    @test channel_linear(conv(c, w, image); bias = table, relu = true, edges...) ≈ conv(c, w, image; bias = table, relu = true)
    wide = BlockConv(pattern(:dense, (8, 4), 4); kernel = (3, 1), padding = (1, 0)) # no two dimensions alike
    image, table = randn(6, 5, 4, 1), randn(8, 3)
    z = conv(wide, conv_filter(wide, randn(3, 1, 4, 8)), image)
    @test channel_linear(z; bias = table, conv = wide, size = (6, 5)) ≈ z .+ permutedims(table[:, edge_classes(wide, (6, 5))], (2, 3, 1))
    back = BlockConv(pattern(:dense, (8, 4), 4); kernel = (3, 1), stride = (2, 1), transposed = true)
    y = conv(back, conv_filter(back, randn(3, 1, 4, 8)), randn(5, 7, 8, 1); size = (12, 7))
    @test channel_linear(y; gain = ones(4), conv = back, size = ((5, 7), (12, 7))) == y
    @test refuses(() -> channel_linear(x; bias = randn(8, 4), edges...), :shape, "(8,), or (8, 9)")
    @test refuses(() -> channel_linear(x; bias = randn(8, 9)), :shape, "bias")
    @test refuses(() -> channel_linear(x; bias = randn(7)), :shape, "bias has size (7,), expected (8,) or (8, classes)")
    @test refuses(() -> channel_linear(x; bias = randn(8), conv = c, size = (6, 6)), :shape, "x has size (6, 5, 8, 1)")
    @test refuses(() -> channel_linear(x; bias = table, size = (6, 5)), :shape, "size is given without conv")
    @test refuses(() -> channel_linear_gradient(x, x[1:5, :, :, :]), :shape, "y_grad has size")
end
