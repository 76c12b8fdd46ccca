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
Base.eps(::Type{BFloat16}) = reinterpret(BFloat16, 0x3c00)
Base.show(io::IO, x::BFloat16) = print(io, "BFloat16(", Float32(x), ")")
