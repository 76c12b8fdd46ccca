# SPDX-License-Identifier: Apache-2.0
using Tartan: Float8E4M3, Float8E5M2

const EIGHTS = (Float8E4M3, Float8E5M2)
every(T) = [reinterpret(T, bits) for bits in 0x00:0xff]

@testset "every value survives, $T" for T in EIGHTS
    for x in every(T)
        isnan(x) ? (isnan(T(Float64(x))) && isnan(T(Float32(x))) || error("NaN lost: $(reinterpret(UInt8, x))")) :
            (T(Float64(x)) === x && T(Float32(x)) === x && T(Float16(x)) === x || error("lost: $x"))
    end
    finite = filter(isfinite, every(T))
    @test length(finite) == (T === Float8E4M3 ? 254 : 248) && maximum(finite) == (T === Float8E4M3 ? 448 : 57344)
    @test minimum(filter(x -> x > T(0), finite)) == (T === Float8E4M3 ? 2.0^-9 : 2.0^-16)
end

@testset "Float8E5M2 is the upper half of a Float16" begin
    @test all(isnan(x) ? isnan(reinterpret(Float16, UInt16(reinterpret(UInt8, x)) << 8)) :
              Float16(x) === reinterpret(Float16, UInt16(reinterpret(UInt8, x)) << 8) for x in every(Float8E5M2))
end

@testset "the C library rounds to the same bits, $T" for T in EIGHTS
    finite = sort(filter(x -> isfinite(x) && !signbit(x), every(T)))
    middles = [(Float64(x) + Float64(y)) / 2 for (x, y) in zip(finite, finite[2:end])]
    numbers = vcat(middles, prevfloat.(middles), nextfloat.(middles), 448.0, 464.0, 465.0, 57344.0, 61440.0, 1e30, Inf, 0.0,
                   exp.(randn(500) .* 4))
    x = vcat(numbers, -numbers)
    layout = BlockLayout(trues(cld(length(x), 16), 1), (16, 1); shape = (length(x), 1))
    cast = BlockSparseMatrix{T}(BlockSparseMatrix(reshape(x, :, 1), layout))
    found = vec(cast.values)[1:length(x)]
    @test all(isnan(a) ? isnan(b) : a === b for (a, b) in zip(T.(x), found))
    @test isnan(T(NaN)) && (T === Float8E5M2 ? T(1e9) == Inf : isnan(T(1e9)))
end

@testset "arithmetic, $T" for T in EIGHTS
    x, y = T(1.5), T(-2.5)
    @test x + y == T(-1) && x * y == T(-3.75) && x - y == T(4) && -x == T(-1.5) && x > y && abs(y) == T(2.5)
    @test promote_type(T, Int) == T && promote_type(T, Float32) == Float32 && promote_type(T, BFloat16) == BFloat16
    @test promote_type(EIGHTS...) == Float32
    @test x * 2.0 === 3.0 && sum([x, y]) == T(-1) && sort([x, y]) == [y, x] && hash(x) == hash(1.5)
    @test string(x) == string(nameof(T), "(1.5)") && eps(T) == Float64(reinterpret(T, reinterpret(UInt8, one(T)) + 0x01)) - 1 && one(T) == 1 && zero(T) == 0
end

@testset "matrices and products, $T" for T in EIGHTS
    A = random_matrix(T, 21, 17, (4, 3))
    D = wide(Matrix(A))
    X, Y = exact(T, 17, 5), exact(T, 4, 21)
    @test eltype(A) === T && wide(A[3, 2]) == D[3, 2]
    @test A * X isa Matrix{Float32} && A * X == D * wide(X) && A' * copy(Y') == D' * wide(Y)' && Y * A == wide(Y) * D
    @test A * X[:, 1] isa Vector{Float32} && A * X[:, 1] == D * wide(X[:, 1])
    @test spmm!(zeros(Float16, 21, 5), A, X) == D * wide(X)
    @test_throws ArgumentError spmm!(exact(T, 21, 5), A, X)
    @test A * ones(Float32, 17) isa Vector{Float32} && A * ones(Float32, 17) == Float32.(Matrix(A)) * ones(Float32, 17)
    @test refuses(() -> sddmm!(A, exact(T, 21, 2), exact(T, 2, 17)), :dtype, "float8")
    path = joinpath(mktempdir(), "eight.h5")
    save(path, "a" => A)
    @test load(path, "a") isa BlockSparseMatrix{T} && load(path, "a").values == A.values
    for place in DEVICES
        context = Context(place)
        @test to_host(to_device(X, context)) == X && to_host(to_device(A, context)).values == A.values
        y = to_device(A, context) * to_device(X, context)
        @test y isa DeviceArray{Float32, 2} && to_host(y) == A * X
    end
end
