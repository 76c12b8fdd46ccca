# SPDX-License-Identifier: Apache-2.0
# Dense operands. Any memory with regular strides is described to C as it is; what has none is copied first.

dtype_code(::Type{Float64}) = Int32(Raw.TARTAN_F64)
dtype_code(::Type{Float32}) = Int32(Raw.TARTAN_F32)
dtype_code(::Type{Float16}) = Int32(Raw.TARTAN_F16)
dtype_code(::Type{BFloat16}) = Int32(Raw.TARTAN_BF16)
if isdefined(Core, :BFloat16)
    dtype_code(::Type{Core.BFloat16}) = Int32(Raw.TARTAN_BF16)
end
dtype_code(::Type{Float8E4M3}) = Int32(Raw.TARTAN_F8E4M3)
dtype_code(::Type{Float8E5M2}) = Int32(Raw.TARTAN_F8E5M2)
dtype_code(T::Type) = throw(ArgumentError("element type $T is not one of Tartan's: expected Float64, Float32, Float16, " *
                                          "Tartan.BFloat16, Tartan.Float8E4M3 or Tartan.Float8E5M2"))

const TYPES_BY_CODE = Dict(dtype_code(T) => T for T in (Float64, Float32, Float16, BFloat16, Float8E4M3, Float8E5M2))

function type_of_dtype(code)
    haskey(TYPES_BY_CODE, code) || throw(TartanError(:dtype, "dtype $code has no type in this version of the package"))
    return TYPES_BY_CODE[code]
end

# What has a pointer and regular strides.
const Transposed{P} = Union{Adjoint{<:Any, P}, Transpose{<:Any, P}}
const Permuted = PermutedDimsArray{T, N, P, Q, <:StridedArray} where {T, N, P, Q}
const Described = Union{StridedArray, Transposed{<:StridedVecOrMat}, Permuted}

# Address, size and strides (in elements).
memory(x::StridedArray) = (pointer(x), size(x), strides(x))
memory(x::Permuted) = (pointer(parent(x)), size(x), strides(x))
function memory(x::Transposed{<:StridedVecOrMat}) # elements are real, so an adjoint is a transpose
    address, n, s = memory(parent(x))
    return length(n) == 1 ? (address, (1, n[1]), (max(1, n[1] * abs(s[1])), s[1])) : (address, reverse(n), reverse(s))
end

pad(x::Tuple) = ntuple(i -> i <= length(x) ? Int64(x[i]) : Int64(0), Raw.TARTAN_MAX_NDIM)

# Type and number of the device that the memory is on.
device_of(x) = (Raw.TARTAN_CPU, 0)

function array_of(address::Ptr{T}, n::Tuple, s::Tuple, device = (Raw.TARTAN_CPU, 0)) where {T}
    length(n) <= Raw.TARTAN_MAX_NDIM ||
        throw(TartanError(:shape, "an array has $(length(n)) dimensions, expected at most $(Raw.TARTAN_MAX_NDIM)"))
    return Raw.tartan_array(Ptr{Cvoid}(address), dtype_code(T), device..., length(n), pad(n), pad(s))
end

# The array as it is: for values and lists. Its memory must be kept alive by the caller, as below.
whole_array(x) = array_of(memory(x)..., device_of(x))

# The array as a matrix operand of C, [batch..., rows, cols]: a vector is a column, and the batch dimensions, which
# Julia has last and fastest first, come first and slowest first.
function operand(x)
    address, n, s = memory(x)
    length(n) == 1 && return array_of(address, (n[1], 1), (s[1], max(1, n[1] * abs(s[1]))), device_of(x))
    order = (reverse(3:length(n))..., 1, 2)
    return array_of(address, map(i -> n[i], order), map(i -> s[i], order), device_of(x))
end

same_dtype(S, T) = S === T || dtype_code(S) == dtype_code(T)

function expect_type(x, name, types...)
    any(T -> same_dtype(eltype(x), T), types) ||
        throw(ArgumentError("$name has element type $(eltype(x)), expected $(join(types, " or "))"))
    return nothing
end

# An input of one of the types, copied only where its memory has no regular strides.
function input(x, name, types...)
    expect_type(x, name, types...)
    there = device_operand(x)
    there === nothing || return there
    return x isa Described ? x : collect(x)
end

# An output is never copied: what is written must arrive where the caller looks.
function output(x, name, types...)
    expect_type(x, name, types...)
    there = device_operand(x)
    there === nothing || return there
    x isa Described || throw(ArgumentError(
        "$name is a $(typeof(x)), which has no regular strides: expected memory that can be written in place"))
    return x
end

# An input for `*`: converted where the matrix's type loses nothing by it.
function promoted(x::AbstractArray{S}, name, ::Type{T}) where {S, T}
    S === T && return x
    promote_type(S, T) === T || throw(ArgumentError(
        "$name has element type $S, which $T cannot hold: convert one of the factors"))
    y = convert(Array{T}, x)
    S <: Integer && any(i -> y[i] != x[i], eachindex(y, x)) && throw(ArgumentError(
        "$name has integers that $T cannot hold: convert one of the factors"))
    return y
end

gate_input(::Nothing) = nothing
gate_input(x) = input(x, "gates", Float32, Float64)
described(::Nothing) = nothing
described(x) = whole_array(x)

int64s(x) = Int64[whole(i, "index") for i in x]
# Indices from 1 to indices from 0. What is not a valid index stays invalid, for the C library to name.
from_zero(x) = Int64[whole(i, "index") - 1 for i in x]
from_zero(::Nothing) = nothing
from_one!(x::Vector{Int64}) = (x .+= 1; x)
