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
