# SPDX-License-Identifier: Apache-2.0

@testset "every value survives" begin
    for bits in 0x0000:0xffff
        x = reinterpret(BFloat16, bits)
        isnan(x) ? (isnan(BFloat16(Float32(x))) && isnan(BFloat16(Float64(x))) || error("NaN lost: $bits")) :
            (BFloat16(Float32(x)) === x && BFloat16(Float64(x)) === x || error("lost: $bits"))
    end
    @test true
end

@testset "one rounding, to nearest even" begin
    candidates = Float64.(filter(isfinite, [reinterpret(BFloat16, bits) for bits in 0x0000:0x7f7f]))
    nearest(x) = (i = searchsortedlast(candidates, x);
                  i == length(candidates) ? candidates[i] : begin
                      low, high = candidates[i], candidates[i + 1]
                      x - low < high - x ? low : x - low > high - x ? high : iseven(i - 1) ? low : high
                  end)
    for _ in 1:2000
        i = rand(1:length(candidates) - 1)
        low, high = candidates[i], candidates[i + 1]
        middle = (low + high) / 2
        for x in (low + rand() * (high - low), middle, prevfloat(middle), nextfloat(middle))
            @test Float64(BFloat16(x)) == nearest(x)
            @test Float64(BFloat16(-x)) == -nearest(x)
        end
    end
    @test BFloat16(floatmax(Float32)) == Inf && BFloat16(1e300) == Inf && BFloat16(-1e300) == -Inf
    @test isnan(BFloat16(NaN)) && isnan(BFloat16(NaN32))
end

@testset "arithmetic" begin
    x, y = BFloat16(1.5), BFloat16(-2.25)
    @test x + y == BFloat16(-0.75) && x * y == BFloat16(-3.375) && x - y == BFloat16(3.75) && -x == BFloat16(-1.5)
    @test abs(y) == BFloat16(2.25) && x > y && zero(BFloat16) == 0 && one(BFloat16) == 1
    @test promote_type(BFloat16, Int) == BFloat16 && promote_type(BFloat16, Float32) == Float32
    @test x + 1 === BFloat16(2.5) && x * 2.0 === 3.0
    @test sum([x, y]) == BFloat16(-0.75)
    @test eps(BFloat16) == reinterpret(BFloat16, reinterpret(UInt16, one(BFloat16)) + 0x0001) - 1
    @test sort([x, y]) == [y, x]
    @test string(x) == "BFloat16(1.5)"
    @test hash(x) == hash(1.5) && isequal(x, 1.5)
end

@testset "limits, rounding, random numbers" begin
    all_of_them = filter(isfinite, [reinterpret(BFloat16, bits) for bits in 0x0000:0xffff])
    @test maximum(all_of_them) === floatmax(BFloat16) && minimum(all_of_them) === -floatmax(BFloat16)
    @test minimum(filter(>(0), all_of_them)) === nextfloat(zero(BFloat16)) && nextfloat(floatmax(BFloat16)) === typemax(BFloat16)
    @test Float32(typemax(BFloat16)) === Inf32 && Float32(typemin(BFloat16)) === -Inf32 && isinf(typemax(BFloat16))
    @test Float32(floatmin(BFloat16)) === floatmin(Float32) && widen(BFloat16) === Float32
    order = sort(unique(Float64.(all_of_them) .+ 0.0)) # one zero
    @test Float64.(nextfloat.(BFloat16.(order[1:end - 1]))) == order[2:end] && Float64.(prevfloat.(BFloat16.(order[2:end]))) == order[1:end - 1]
    @test all(x -> x + eps(x) == nextfloat(x), filter(x -> 0 <= x < floatmax(BFloat16), all_of_them))
    @test maxintfloat(BFloat16) + 1 == maxintfloat(BFloat16) && maxintfloat(BFloat16) - 1 == 255 && precision(BFloat16) == 8
    x = BFloat16(-2.5)
    @test (round(x), trunc(x), floor(x), ceil(x)) === BFloat16.((-2, -2, -3, -2)) && round(Int, x) === -2 && floor(Int, x) === -3
    @test round(x, RoundNearestTiesAway) === BFloat16(-3) && round(BFloat16(2.71875); digits = 1) == BFloat16(2.7)
    @test exp(BFloat16(1)) === BFloat16(exp(1.0)) && x^2 === BFloat16(6.25) && mod(x, BFloat16(2)) == 1.5 && exponent(x) == 1
    @test significand(x) * BFloat16(2)^exponent(x) === x && ldexp(BFloat16(1), -133) === nextfloat(zero(BFloat16))
    numbers = rand(BFloat16, 10000)
    @test eltype(numbers) === BFloat16 && all(0 .<= numbers .< 1) && 0.48 < sum(Float64, numbers) / 10000 < 0.52
    numbers = randn(BFloat16, 10000)
    @test eltype(numbers) === BFloat16 && abs(sum(Float64, numbers)) < 500 && 0.9 < sum(abs2, Float64.(numbers)) / 10000 < 1.1
    @test isapprox(BFloat16(1), BFloat16(1.0078125)) && range(BFloat16(0), BFloat16(1); length = 3)[2] == BFloat16(0.5)
end
