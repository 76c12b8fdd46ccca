# SPDX-License-Identifier: Apache-2.0

"""
    Tartan.BFloat16

The upper half of a `Float32`, a storage type for matrices and dense operands. Arithmetic uses `Float32`, and
so do the sums in the C library. Arrays of `Core.BFloat16` (Julia 1.11 and newer, package BFloat16s) are
accepted as operands.

    Tartan.BFloat16.(rand(Float32, 8, 8))
"""
primitive type BFloat16 <: AbstractFloat 16 end

BFloat16(x::Float32) = round_bfloat16(x)
BFloat16(x::Float64) = round_bfloat16(odd_float32(x))
BFloat16(x::Union{Float16, Integer}) = BFloat16(Float64(x))

# To nearest, ties to even.
function round_bfloat16(x::Float32)
    isnan(x) && return reinterpret(BFloat16, 0x7fc0)
    bits = reinterpret(UInt32, x)
    bits += 0x00007fff + ((bits >> 16) & 0x00000001)
    return reinterpret(BFloat16, (bits >> 16) % UInt16)
end

# Rounded to odd: rounding the result again is the same as rounding x once.
function odd_float32(x::Float64)
    y = Float32(x)
    (Float64(y) == x || !isfinite(x)) && return y
    bits = reinterpret(UInt32, y)
    abs(Float64(y)) > abs(x) && (bits -= 0x00000001)
    return reinterpret(Float32, bits | 0x00000001)
end

bits_of(x::BFloat16) = reinterpret(UInt16, x)

Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(bits_of(x)) << 16)
Base.Float64(x::BFloat16) = Float64(Float32(x))
Base.Float16(x::BFloat16) = Float16(Float32(x))
(::Type{T})(x::BFloat16) where {T<:Integer} = T(Float32(x))
Base.Bool(x::BFloat16) = Bool(Float32(x))

Base.promote_rule(::Type{BFloat16}, ::Type{<:Integer}) = BFloat16
Base.promote_rule(::Type{BFloat16}, ::Type{Float16}) = Float32
Base.promote_rule(::Type{BFloat16}, ::Type{Float32}) = Float32
Base.promote_rule(::Type{BFloat16}, ::Type{Float64}) = Float64

for op in (:+, :-, :*, :/)
    @eval Base.$op(x::BFloat16, y::BFloat16) = BFloat16($op(Float32(x), Float32(y)))
end
for op in (:(==), :<, :<=, :isless)
    @eval Base.$op(x::BFloat16, y::BFloat16) = $op(Float32(x), Float32(y))
end
Base.:-(x::BFloat16) = reinterpret(BFloat16, xor(bits_of(x), 0x8000))
Base.abs(x::BFloat16) = reinterpret(BFloat16, bits_of(x) & 0x7fff)
Base.signbit(x::BFloat16) = bits_of(x) & 0x8000 != 0
Base.isnan(x::BFloat16) = isnan(Float32(x))
Base.isfinite(x::BFloat16) = isfinite(Float32(x))
Base.sqrt(x::BFloat16) = BFloat16(sqrt(Float32(x)))
Base.hash(x::BFloat16, h::UInt) = hash(Float32(x), h)
Base.isinf(x::BFloat16) = isinf(Float32(x))

Base.eps(::Type{BFloat16}) = reinterpret(BFloat16, 0x3c00)
Base.typemax(::Type{BFloat16}) = reinterpret(BFloat16, 0x7f80) # infinity, as of other floating-point types
Base.typemin(::Type{BFloat16}) = reinterpret(BFloat16, 0xff80)
Base.floatmax(::Type{BFloat16}) = reinterpret(BFloat16, 0x7f7f)
Base.floatmin(::Type{BFloat16}) = reinterpret(BFloat16, 0x0080)
Base.maxintfloat(::Type{BFloat16}) = BFloat16(256)
Base.precision(::Type{BFloat16}) = 8
Base.widen(::Type{BFloat16}) = Float32
Base.exponent(x::BFloat16) = exponent(Float32(x))
Base.significand(x::BFloat16) = BFloat16(significand(Float32(x)))
Base.ldexp(x::BFloat16, n::Integer) = BFloat16(ldexp(Float64(x), n))
Base.round(x::BFloat16, mode::RoundingMode) = BFloat16(round(Float32(x), mode))
Base.round(x::BFloat16, mode::RoundingMode{:NearestTiesAway}) = BFloat16(round(Float32(x), mode))
Base.round(x::BFloat16, mode::RoundingMode{:NearestTiesUp}) = BFloat16(round(Float32(x), mode))
Base.trunc(::Type{T}, x::BFloat16) where {T<:Integer} = trunc(T, Float32(x))
Base.round(::Type{T}, x::BFloat16) where {T<:Integer} = round(T, Float32(x))
Base.floor(::Type{T}, x::BFloat16) where {T<:Integer} = floor(T, Float32(x))
Base.ceil(::Type{T}, x::BFloat16) where {T<:Integer} = ceil(T, Float32(x))
Base.rem(x::BFloat16, y::BFloat16) = BFloat16(rem(Float32(x), Float32(y)))
Base.mod(x::BFloat16, y::BFloat16) = BFloat16(mod(Float32(x), Float32(y)))
Base.:^(x::BFloat16, y::BFloat16) = BFloat16(Float32(x)^Float32(y))
Base.:^(x::BFloat16, n::Integer) = BFloat16(Float32(x)^n)
for f in (:exp, :log, :sin, :cos, :tan, :tanh, :log1p, :expm1, :log2, :log10, :exp2, :cbrt, :atan)
    @eval Base.$f(x::BFloat16) = BFloat16($f(Float32(x)))
end

# The next numbers, in the order of the bits; those of the negative ones run the other way.
function Base.nextfloat(x::BFloat16)
    (isnan(x) || x == typemax(BFloat16)) && return x
    bits = bits_of(x)
    return reinterpret(BFloat16, iszero(x) ? 0x0001 : signbit(x) ? bits - 0x0001 : bits + 0x0001)
end
Base.prevfloat(x::BFloat16) = -nextfloat(-x)
Base.eps(x::BFloat16) = isfinite(x) ? max(x, -x) < floatmin(BFloat16) ? reinterpret(BFloat16, 0x0001) :
    BFloat16(ldexp(1.0, exponent(x) - 7)) : reinterpret(BFloat16, 0x7fc0)

# Multiples of 2^-8 in [0, 1), all equally likely, and normal numbers.
Random.Sampler(::Type{<:Random.AbstractRNG}, ::Type{BFloat16}, ::Random.Repetition) = Random.SamplerType{BFloat16}()
Random.rand(rng::Random.AbstractRNG, ::Random.SamplerType{BFloat16}) = BFloat16(Float32(rand(rng, UInt8)) / 256)
Random.randn(rng::Random.AbstractRNG, ::Type{BFloat16}) = BFloat16(randn(rng, Float32))
Base.show(io::IO, x::BFloat16) = print(io, "BFloat16(", Float32(x), ")")
