# SPDX-License-Identifier: Apache-2.0

# The one owner of a C object. It is freed once: by `close`, or when Julia collects the owner, on any thread.
mutable struct Handle{S}
    address::Threads.Atomic{UInt}
    function Handle(address::Ptr{S}) where {S}
        handle = new{S}(Threads.Atomic{UInt}(UInt(address)))
        finalizer(close, handle)
        return handle
    end
end

free(x::Ptr{Raw.tartan_context}) = Raw.tartan_context_free(x)
free(x::Ptr{Raw.tartan_layout}) = Raw.tartan_layout_free(x)
free(x::Ptr{Raw.tartan_matrix}) = Raw.tartan_matrix_free(x)
free(x::Ptr{Raw.tartan_file}) = Raw.tartan_file_free(x)
free(x::Ptr{Raw.tartan_buffer}) = Raw.tartan_buffer_free(x)

function Base.close(handle::Handle{S}) where {S}
    address = Threads.atomic_xchg!(handle.address, UInt(0))
    address == 0 || free(Ptr{S}(address))
    return nothing
end

Base.isopen(handle::Handle) = handle.address[] != 0

# ccall keeps what cconvert returns alive until C is done with it.
function Base.unsafe_convert(::Type{Ptr{S}}, handle::Handle{S}) where {S}
    address = handle.address[]
    address == 0 && throw(TartanError(:handle, "the $(name_of(S)) is closed"))
    return Ptr{S}(address)
end

name_of(::Type{Raw.tartan_context}) = "Context"
name_of(::Type{Raw.tartan_layout}) = "BlockLayout"
name_of(::Type{Raw.tartan_matrix}) = "BlockSparseMatrix"
name_of(::Type{Raw.tartan_file}) = "BlockFile"
name_of(::Type{Raw.tartan_buffer}) = "DeviceArray"

# Handles have an identity of their own: a copy would be freed twice.
Base.deepcopy_internal(handle::Handle, ::IdDict) =
    throw(ArgumentError("a handle of the C library cannot be copied"))
Serialization.serialize(::AbstractSerializer, ::Handle{S}) where {S} =
    throw(ArgumentError("a $(name_of(S)) cannot be serialized"))
