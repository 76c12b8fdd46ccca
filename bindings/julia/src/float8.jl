# SPDX-License-Identifier: Apache-2.0

abstract type Float8 <: AbstractFloat end

"""
    Tartan.Float8E4M3

Eight bits: a sign, 4 bits of exponent and 3 of fraction, up to 448, with NaN but without infinity. A storage type for matrices
and for the dense factor of their products ([`spmm!`](@ref), `*`), whose results are `Float32`. Numbers are rounded once, to
nearest even. Numbers beyond the largest become NaN, so scale them first.

    Tartan.Float8E4M3.(rand(Float32, 8, 8))
"""
primitive type Float8E4M3 <: Float8 8 end

"""
    Tartan.Float8E5M2

Eight bits: the upper half of a `Float16`, up to 57344, with infinities. Otherwise like
[`Tartan.Float8E4M3`](@ref).

    Tartan.Float8E5M2.(rand(Float32, 8, 8))
"""
primitive type Float8E5M2 <: Float8 8 end

# Bits of fraction, least exponent of a normal number, largest number, and the bits of what is larger.
format(::Type{Float8E4M3}) = (3, -6, 448.0, 0x7f)
format(::Type{Float8E5M2}) = (2, -14, 57344.0, 0x7c)

function (::Type{T})(x::Float64) where {T<:Float8}
    fraction, least, largest, beyond = format(T)
    isnan(x) && return reinterpret(T, 0x7f)
    sign = signbit(x) ? 0x80 : 0x00
    size = abs(x)
    isinf(size) && return reinterpret(T, sign | beyond)
    power = size < ldexp(1.0, least) ? least : exponent(size)
    units = round(ldexp(size, fraction - power)) # ties to even; fits, since the power is that of x
    ldexp(units, power - fraction) > largest && return reinterpret(T, sign | beyond)
    # A carry from the fraction correctly increments the exponent.
    return reinterpret(T, sign | UInt8((power - least) << fraction + Int(units)))
end
(::Type{T})(x::Union{Float32, Float16, BFloat16, Integer}) where {T<:Float8} = T(Float64(x))
(::Type{T})(x::Float8) where {T<:Float8} = T(Float64(x))
(::Type{T})(x::T) where {T<:Float8} = x

bits_of(x::Float8) = reinterpret(UInt8, x)

function Base.Float64(x::T) where {T<:Float8}
    fraction, least, largest, _ = format(T)
    bits = Int(bits_of(x) & 0x7f)
    power, rest = bits >> fraction, bits & (1 << fraction - 1)
    size = power == 0 ? ldexp(Float64(rest), least - fraction) : ldexp(1.0 + rest / (1 << fraction), least + power - 1)
    size > largest && (size = T === Float8E5M2 && rest == 0 ? Inf : NaN)
    return signbit(x) ? -size : size
end
Base.Float32(x::Float8) = Float32(Float64(x))
Base.Float16(x::Float8) = Float16(Float64(x))
BFloat16(x::Float8) = BFloat16(Float64(x))
(::Type{T})(x::Float8) where {T<:Integer} = T(Float64(x))
Base.Bool(x::Float8) = Bool(Float64(x))

Base.promote_rule(::Type{T}, ::Type{<:Integer}) where {T<:Float8} = T
Base.promote_rule(::Type{<:Float8}, ::Type{S}) where {S<:Union{Float64, Float32, Float16, BFloat16}} = S
Base.promote_rule(::Type{Float8E4M3}, ::Type{Float8E5M2}) = Float32

for op in (:+, :-, :*, :/)
    @eval Base.$op(x::T, y::T) where {T<:Float8} = T($op(Float64(x), Float64(y)))
end
for op in (:(==), :<, :<=, :isless)
    @eval Base.$op(x::T, y::T) where {T<:Float8} = $op(Float64(x), Float64(y))
end
Base.:-(x::T) where {T<:Float8} = reinterpret(T, xor(bits_of(x), 0x80))
Base.abs(x::T) where {T<:Float8} = reinterpret(T, bits_of(x) & 0x7f)
Base.signbit(x::Float8) = bits_of(x) & 0x80 != 0
Base.isnan(x::Float8) = isnan(Float64(x))
Base.isfinite(x::Float8) = isfinite(Float64(x))
Base.sqrt(x::T) where {T<:Float8} = T(sqrt(Float64(x)))
Base.hash(x::Float8, h::UInt) = hash(Float64(x), h)
Base.eps(::Type{T}) where {T<:Float8} = T(ldexp(1.0, -format(T)[1]))
Base.show(io::IO, x::Float8) = print(io, nameof(typeof(x)), "(", Float32(x), ")")
