# SPDX-License-Identifier: Apache-2.0
# Dense operands. C uses memory with regular strides in place; other arrays are copied first.

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

# Indices and masks, which matrices can't have.
const Index = Union{Int64, Int32, UInt8}
memory_code(T::Type) = dtype_code(T)
memory_code(::Type{Int64}) = Int32(Raw.TARTAN_I64)
memory_code(::Type{Int32}) = Int32(Raw.TARTAN_I32)
memory_code(::Type{<:Union{UInt8, Bool}}) = Int32(Raw.TARTAN_U8)

const TYPES_BY_CODE = Dict(dtype_code(T) => T for T in (Float64, Float32, Float16, BFloat16, Float8E4M3, Float8E5M2))

function type_of_dtype(code)
    haskey(TYPES_BY_CODE, code) || throw(TartanError(:dtype, "dtype $code has no type in this version of the package"))
    return TYPES_BY_CODE[code]
end

# Arrays with a pointer and regular strides.
const Transposed{P} = Union{Adjoint{<:Any, P}, Transpose{<:Any, P}}
const Permuted = PermutedDimsArray{T, N, P, Q, <:StridedArray} where {T, N, P, Q}
const Described = Union{StridedArray, Transposed{<:StridedVecOrMat}, Permuted}

# Address, size, strides (in elements), and the type and number of the device.
memory(x::StridedArray) = (pointer(x), size(x), strides(x), HOST)
memory(x::Permuted) = (pointer(parent(x)), size(x), strides(x), HOST)
function memory(x::Transposed{<:StridedVecOrMat}) # elements are real, so an adjoint is a transpose
    address, n, s, device = memory(parent(x))
    return length(n) == 1 ? (address, (1, n[1]), (max(1, n[1] * abs(s[1])), s[1]), device) :
                            (address, reverse(n), reverse(s), device)
end
const HOST = (Int32(Raw.TARTAN_CPU), Int32(0))

pad(x::NTuple{N}) where {N} = ntuple(i -> i <= N ? Int64(x[i]) : Int64(0), Val(Raw.TARTAN_MAX_NDIM))

function array_of(address::Ptr{T}, n::NTuple{N}, s::NTuple{N}, device = HOST) where {T, N}
    N <= Raw.TARTAN_MAX_NDIM || too_many_dimensions(N)
    return Raw.tartan_array(Ptr{Cvoid}(address), memory_code(T), device[1], device[2], Int32(N), pad(n), pad(s))
end
@noinline too_many_dimensions(n) =
    throw(TartanError(:shape, "an array has $n dimensions, expected at most $(Raw.TARTAN_MAX_NDIM)"))

# The order of dimensions in C: `as_it_is` for values and lists; `as_matrix` for operands [batch..., rows,
# cols]. A vector is a column; the batch dimensions, in Julia the last ones, come first, in reverse order.
as_it_is(n, s) = (n, s)
as_matrix(n::NTuple{1}, s) = ((n[1], 1), (s[1], max(1, n[1] * abs(s[1]))))
as_matrix(n::NTuple{2}, s) = (n, s)
function as_matrix(n::NTuple{N}, s) where {N}
    order = ntuple(i -> i <= N - 2 ? N + 1 - i : i - N + 2, Val(N))
    return (map(i -> n[i], order), map(i -> s[i], order))
end

# Structs of index arrays are tuples of what C reads.
index_place(x::Array{Int64}) = pointer(x)
index_place(::Nothing) = Ptr{Int64}(C_NULL)
function Raw.c_value(::Type{Raw.tartan_places}, (heads, rows, cols)::Tuple{Any, Any, Any})
    count = Raw.c_length(rows)
    for (name, list) in (("cols", cols), ("heads", heads))
        list === nothing || Raw.c_length(list) == count ||
            throw(TartanError(:shape, "$name has $(Raw.c_length(list)) entries, expected $count (as rows)"))
    end
    return Raw.tartan_places(index_place(heads), index_place(rows), index_place(cols), count)
end
Raw.c_value(::Type{Raw.tartan_compressed}, (pointers, indices, by_column)::Tuple{Any, Any, Bool}) =
    Raw.tartan_compressed(index_place(pointers), Raw.c_length(pointers), index_place(indices), Raw.c_length(indices), by_column)
Raw.c_value(::Type{Raw.tartan_channel_sets}, (channels, offsets, ids)::Tuple{Any, Any, Any}) =
    Raw.tartan_channel_sets(channels, index_place(offsets), Raw.c_length(offsets), index_place(ids), Raw.c_length(ids))

# The descriptor that C gets, and the array, which is kept alive while C uses it.
struct Operand{X}
    owner::X
    array::Raw.tartan_array
end
Raw.c_value(::Type{Raw.tartan_array}, x::Operand) = x.array
Raw.c_owner(x::Operand) = x.owner
@inline Raw.c_struct(::Type{Raw.tartan_array}, x::Tuple) = Raw.c_list(Raw.tartan_array, x) # as many as the call says

@inline function described(arrange, x)
    address, n, s, device = memory(x)
    return Operand(owner(x), array_of(address, arrange(n, s)..., device))
end
owner(x) = x

# An input, in Julia's memory or on a device; copied only if its memory has no regular strides. `T` is the
# expected type, or a union of types.
@inline function input(arrange, x, name, ::Type{T}) where {T}
    expect_type(x, name, T)
    there = device_operand(x)
    there === nothing || return described(arrange, there)
    return described(arrange, x isa Described ? x : collect(x))
end

# An output is never copied: C must write to the caller's memory.
@inline function output(arrange, x, name, ::Type{T}) where {T}
    expect_type(x, name, T)
    there = device_operand(x)
    there === nothing || return described(arrange, there)
    x isa Described || no_strides(x, name)
    return described(arrange, x)
end
@noinline no_strides(x, name) = throw(ArgumentError(
    "$name is a $(typeof(x)), which has no regular strides: expected memory that can be written in place"))

expect_type(x, name, ::Type{T}) where {T} = eltype(x) <: T ? nothing : expect_dtype(x, name, T)
has_code(::Type{T}) where {T} = can_hold(T) || isdefined(Core, :BFloat16) && T === Core.BFloat16
@noinline function expect_dtype(x, name, T)
    has_code(eltype(x)) && any(S -> S isa DataType && dtype_code(S) == dtype_code(eltype(x)), Base.uniontypes(T)) ||
        throw(ArgumentError("$name has element type $(eltype(x)), expected $(join(Base.uniontypes(T), " or "))"))
    return nothing
end

gate_input(::Nothing) = nothing
gate_input(x) = input(as_it_is, x, "gates", Union{Float32, Float64})

# An input for `*`: converted if the matrix's type represents it without loss.
function promoted(x::AbstractArray{S}, name, ::Type{T}) where {S, T}
    S === T && return x
    promote_type(S, T) === T || throw(ArgumentError(
        "$name has element type $S, which $T cannot hold: convert one of the factors"))
    y = convert(Array{T}, x)
    S <: Integer && any(i -> y[i] != x[i], eachindex(y, x)) && throw(ArgumentError(
        "$name has integers that $T cannot hold: convert one of the factors"))
    return y
end
