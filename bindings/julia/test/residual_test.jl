# SPDX-License-Identifier: Apache-2.0

function unit_of(::Type{T}) where {T}
    S = T === Float64 ? Float64 : Float32
    part(rows, cols, k; options...) = begin
        c = BlockConv(pattern(:dense, (rows, cols), 4); kernel = (k, k), options...)
        (c, conv_filter(c, T.(randn(k, k, cols, rows) ./ cols)), randn(S, rows), randn(S, rows))
    end
    return part(8, 16, 1), part(12, 8, 3; padding = :same), part(16, 12, 1)
end
function whole_unit(x, parts)
    y = x
    for (i, (c, w, gain, bias)) in enumerate(parts)
        y = conv(c, w, y; gain, bias, relu = i < 3)
    end
    return y
end

@testset "units in windows are units over the whole image, $T" for T in (Float64, Float32)
    parts, x = unit_of(T), randn(T, 13, 18, 16, 2)
    windows = Windows((5, 5); count = (3, 4))
    mask = zeros(13, 18, 2)
    mask[1, 1, 1] = mask[13, 18, 1] = mask[7, 7, 2] = 1
    active = active_windows(mask, windows)
    seen = falses(size(x))
    for at in ((1:5, 1:5, 1), (11:13, 16:18, 1), (6:10, 6:10, 2))
        seen[at[1], at[2], :, at[3]] .= true
    end
    before = copy(x)
    @test residual_unit(x, parts..., active, windows) == ifelse.(seen, max.(x .+ whole_unit(x, parts), 0), x)
    @test x == before
    x_gain, x_bias = randn(T, 16), randn(T, 16)
    a = channel_linear(x; gain = x_gain, bias = x_bias, relu = true)
    own = copy(x)
    @test residual_unit!(own, own, parts..., active, windows; relu = false, preactivate = true, x_gain, x_bias) === own
    @test own == ifelse.(seen, x .+ whole_unit(a, parts), x)
    plain = map(p -> p[1:2], parts)
    one = active_windows(ones(13, 18), windows)
    @test residual_unit(x[:, :, :, 1], plain..., one, windows) ==
          max.(x[:, :, :, 1] .+ whole_unit(x[:, :, :, 1], map(p -> (p..., nothing, nothing), plain)), 0)
end

@testset "what units refuse" begin
    parts, x, windows = unit_of(Float64), zeros(10, 10, 16), Windows((5, 5); count = (2, 2))
    active = active_windows(ones(10, 10), windows)
    @test refuses(() -> residual_unit(x[:, :, 1:12], parts..., active, windows), :shape, "expected 16 channels")
    @test refuses(() -> residual_unit(x, parts[1][1], parts[2], parts[3], active, windows), :argument, "reduce is not (c, w)")
    @test refuses(() -> residual_unit(x, parts[1], parts[2][1:3], parts[3], active, windows), :argument, "spatial is not (c, w)")
    @test refuses(() -> residual_unit(x, parts[1], parts[2], (parts[3][1:2]..., zeros(3), nothing), active, windows), :shape,
                  "the gain of expand has size (3,), expected (16,)")
    @test refuses(() -> residual_unit(x, parts..., active, windows; x_gain = ones(16)), :argument, "x_gain is given, which needs preactivate = true")
    @test refuses(() -> residual_unit(x, parts[1], parts[1], parts[3], active, windows), :shape, "spatial has 16 input channels")
    @test refuses(() -> residual_unit!(zeros(10, 9, 16), x, parts..., active, windows), :shape, "y has size")
    @test refuses(() -> residual_unit(x, parts..., active, Windows((5, 5); stride = (4, 5), count = (2, 2))), :argument, "overlap")
end
