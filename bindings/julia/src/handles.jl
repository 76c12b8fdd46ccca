# SPDX-License-Identifier: Apache-2.0

# The owner of a C object, which is freed once: by `close`, when Julia collects the owner, or, if it is closed
# while calls use it, when the last of them returns. `users` is 2 for each such call, plus 1 once it is
# closed; it does not grow after that. `keep` is Julia memory that C reads as long as the object lives, or what is
# computed once for a layout.
# `bytes` is the C memory of the object, as far as known. `token` marks the one owner, in this process: packages that store objects
# field by field (BSON, JLD2, ...) make others, whose addresses mean nothing.
mutable struct Handle{S}
    address::Ptr{S}
    users::Threads.Atomic{Int}
    keep::Any
    bytes::Int
    token::UInt
    function Handle(address::Ptr{S}, keep = nothing, bytes = 0) where {S}
        handle = new{S}(address, Threads.Atomic{Int}(0), keep, bytes, UInt(0))
        handle.token = token_of(handle)
        finalizer(close, handle)
        bytes == 0 || count_memory(bytes)
        return handle
    end
end

# Julia moves no objects, so the place of the owner is its own. PROCESS is another number in each process.
const PROCESS = Ref{UInt}(0)
@inline token_of(handle::Handle) = PROCESS[] ⊻ reinterpret(UInt, pointer_from_objref(handle))
@inline is_owner(handle::Handle) = handle.token == token_of(handle)

free(x::Ptr{Raw.tartan_context}) = Raw.tartan_context_free(x)
free(x::Ptr{Raw.tartan_layout}) = Raw.tartan_layout_free(x)
free(x::Ptr{Raw.tartan_block_mask}) = Raw.tartan_block_mask_free(x)
free(x::Ptr{Raw.tartan_matrix}) = Raw.tartan_matrix_free(x)
free(x::Ptr{Raw.tartan_file}) = Raw.tartan_file_free(x)
free(x::Ptr{Raw.tartan_buffer}) = Raw.tartan_buffer_free(x)
free(x::Ptr{Raw.tartan_conv}) = Raw.tartan_conv_free(x)
free(x::Ptr{Raw.tartan_sparsifier}) = Raw.tartan_sparsifier_free(x)

@noinline function release(handle::Handle)
    free(handle.address)
    handle.keep = nothing
    Threads.atomic_sub!(C_MEMORY, handle.bytes)
    return nothing
end

function Base.close(handle::Handle)
    is_owner(handle) || return nothing
    Threads.atomic_or!(handle.users, 1) == 0 && release(handle)
    return nothing
end

Base.isopen(handle::Handle) = is_owner(handle) && iseven(handle.users[])

# A call holds the objects that it uses. One that is closed cannot be held, so the last user to leave is known.
@inline function Raw.c_enter(handle::Handle)
    is_owner(handle) || return false
    users = handle.users[]
    while iseven(users)
        seen = Threads.atomic_cas!(handle.users, users, users + 2)
        seen == users && return true
        users = seen
    end
    return false
end
@inline function Raw.c_leave(handle::Handle)
    Threads.atomic_sub!(handle.users, 2) == 3 && release(handle)
    return nothing
end
Raw.c_isopen(handle::Handle) = isopen(handle)
Raw.c_handle(::Type{S}, handle::Handle{S}) where {S} = handle
Raw.c_address(handle::Handle) = handle.address

@noinline function Raw.c_closed(held...)
    for x in held
        Raw.c_isopen(x) || return closed_error(x)
    end
    return closed_error(nothing)
end
closed_error(held::Tuple) = Raw.c_closed(held...)
closed_error(held::Raw.HandleList) = Raw.c_closed(held.list...)
closed_error(handle::Handle{S}) where {S} = TartanError(:handle, is_owner(handle) ? "the $(name_of(S)) is closed" :
    "the $(name_of(S)) is a copy of the fields of one that was made elsewhere, and its address means nothing: expected one that was " *
    "made, or stored by `save`, Serialization, BSON or JLD2, in this version of the package")

name_of(::Type{Raw.tartan_context}) = "Context"
name_of(::Type{Raw.tartan_layout}) = "BlockLayout"
name_of(::Type{Raw.tartan_block_mask}) = "BlockMask"
name_of(::Type{Raw.tartan_matrix}) = "BlockSparseMatrix"
name_of(::Type{Raw.tartan_file}) = "BlockFile"
name_of(::Type{Raw.tartan_buffer}) = "DeviceArray"
name_of(::Type{Raw.tartan_conv}) = "BlockConv"
name_of(::Type{Raw.tartan_sparsifier}) = "Sparsifier"

# Julia's collector does not see C's memory, so it is triggered when much of that was allocated since its last
# run.
const C_MEMORY = Threads.Atomic{Int}(0)
const C_MEMORY_STEP = 1 << 28
const C_MEMORY_LIMIT = Threads.Atomic{Int}(C_MEMORY_STEP)

function count_memory(bytes)
    Threads.atomic_add!(C_MEMORY, bytes) + bytes <= C_MEMORY_LIMIT[] && return nothing
    GC.gc()
    C_MEMORY_LIMIT[] = 2 * C_MEMORY[] + C_MEMORY_STEP
    return nothing
end

# A copy would be freed twice.
Base.deepcopy_internal(::Handle{S}, ::IdDict) where {S} = throw(ArgumentError("a $(name_of(S)) cannot be copied"))
