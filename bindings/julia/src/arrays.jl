# SPDX-License-Identifier: Apache-2.0
# Dense operands. Any memory with regular strides is described to C as it is; what has none is copied first.

dtype_code(::Type{Float64}) = Int32(Raw.TARTAN_F64)
dtype_code(::Type{Float32}) = Int32(Raw.TARTAN_F32)
dtype_code(::Type{Float16}) = Int32(Raw.TARTAN_F16)
dtype_code(::Type{BFloat16}) = Int32(Raw.TARTAN_BF16)
if isdefined(Core, :BFloat16)
    dtype_code(::Type{Core.BFloat16}) = Int32(Raw.TARTAN_BF16)
end
dtype_code(T::Type) = throw(ArgumentError(
    "element type $T is not one of Tartan's: expected Float64, Float32, Float16 or Tartan.BFloat16"))

type_of_dtype(code) = code == Raw.TARTAN_F64 ? Float64 : code == Raw.TARTAN_F32 ? Float32 :
                      code == Raw.TARTAN_F16 ? Float16 : BFloat16

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

function array_of(address::Ptr{T}, n::Tuple, s::Tuple) where {T}
    length(n) <= Raw.TARTAN_MAX_NDIM ||
        throw(TartanError(:shape, "an array has $(length(n)) dimensions, expected at most $(Raw.TARTAN_MAX_NDIM)"))
    return Raw.tartan_array(Ptr{Cvoid}(address), dtype_code(T), Raw.TARTAN_CPU, 0, length(n), pad(n), pad(s))
end

# The array as it is: for values and lists. Its memory must be kept alive by the caller, as below.
whole_array(x::Described) = array_of(memory(x)...)

# The array as a matrix operand of C, [batch..., rows, cols]: a vector is a column, and the batch dimensions, which
# Julia has last and fastest first, come first and slowest first.
function operand(x::Described)
    address, n, s = memory(x)
    length(n) == 1 && return array_of(address, (n[1], 1), (s[1], max(1, n[1] * abs(s[1]))))
    order = (reverse(3:length(n))..., 1, 2)
    return array_of(address, map(i -> n[i], order), map(i -> s[i], order))
end

same_dtype(S, T) = S === T || dtype_code(S) == dtype_code(T)

function expect_type(x, name, types...)
    any(T -> same_dtype(eltype(x), T), types) ||
        throw(ArgumentError("$name has element type $(eltype(x)), expected $(join(types, " or "))"))
    return nothing
end

# An input of one of the types, copied only where its memory has no regular strides.
function input(x::AbstractArray, name, types...)
    expect_type(x, name, types...)
    return x isa Described ? x : collect(x)
end

# An output is never copied: what is written must arrive where the caller looks.
function output(x::AbstractArray, name, types...)
    expect_type(x, name, types...)
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
gate_input(x::AbstractVector) = input(x, "gates", Float32, Float64)
described(::Nothing) = nothing
described(x) = whole_array(x)

int64s(x) = Int64[whole(i, "index") for i in x]
# Indices from 1 to indices from 0. What is not a valid index stays invalid, for the C library to name.
from_zero(x) = Int64[whole(i, "index") - 1 for i in x]
from_zero(::Nothing) = nothing
from_one!(x::Vector{Int64}) = (x .+= 1; x)
