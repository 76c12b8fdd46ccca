# SPDX-License-Identifier: Apache-2.0
# What the extension needs of CUDA.jl. The test provides the memory.
module CUDA

primitive type CuPtr{T} 64 end
struct CuDevice
    handle::Cint
end
mutable struct CuStream
    handle::Ptr{Nothing}
end
device() = CuDevice(0)
deviceid(device::CuDevice = device()) = Int(device.handle)

mutable struct CuArray{T, N} <: AbstractArray{T, N}
    memory::Any
    address::UInt
    dims::NTuple{N, Int}
end
const StridedCuArray{T, N} = CuArray{T, N}
const MAKE = Ref{Any}(nothing) # (T, dims) -> (memory, address)
CuArray{T}(dims::NTuple{N, Int}) where {T, N} = CuArray{T, N}(MAKE[](T, dims)..., dims)
Base.size(x::CuArray) = x.dims
Base.strides(x::CuArray) = Base.size_to_strides(1, size(x)...)
Base.pointer(x::CuArray{T}) where {T} = reinterpret(CuPtr{T}, x.address)
Base.getindex(x::CuArray, i::Int...) = error("scalar indexing of a CuArray")
Base.similar(x::CuArray, ::Type{T}, dims::NTuple{N, Int}) where {T, N} = CuArray{T}(dims)
device(x::CuArray) = CuDevice(0)

export CuArray

end
