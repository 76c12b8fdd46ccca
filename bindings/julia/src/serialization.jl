# SPDX-License-Identifier: Apache-2.0
# What survives a session. Addresses do not, so the data to make an object again are stored, by Serialization (and so to the workers
# of Distributed), and by BSON and JLD2 (ext/). What is on a device, and queues of work, cannot be stored.

# An object as plain data, and the object that was stored as such. The data of all objects are taken before any is written: what
# fails then leaves nothing half written.
function stored_form(layout::BlockLayout)
    isopen(layout) || throw(closed_error(layout.handle))
    layout = known(layout)
    return (size(layout), isvariable(layout) ? layout.bounds : blocksize(layout), heads(layout), coordinates(layout), layout_identity(layout))
end
function restored(::Type{BlockLayout}, (shape, block, count, (rows, cols, of_head), identity))
    layout = block isa Tuple{Vector, Vector} ?
        with_bounds(BlockLayout(length.(block) .- 1, 1, rows, cols; heads = count, block_heads = of_head), block...) :
        BlockLayout(shape, block, rows, cols; heads = count, block_heads = of_head)
    layout_identity(layout) == identity ||
        throw(TartanError(:format, "a stored layout has identity $(layout_identity(layout)), expected $identity"))
    return layout
end

function stored_form(A::BlockSparseMatrix)
    isopen(A) || throw(closed_error(A.handle))
    return (A.layout, A.values)
end
restored(::Type{BlockSparseMatrix{T}}, (layout, values)) where {T} = BlockSparseMatrix(layout, convert(Array{T, 3}, values))

function stored_form(mask::BlockMask)
    isopen(mask) || throw(closed_error(mask.handle))
    index = Vector{Int64}(undef, nblocks(mask.layout))
    bits = Vector{UInt8}(undef, bytes_of_block(mask.layout) * Int(Raw.tartan_block_mask_stored(mask)))
    Raw.tartan_block_mask_get_index(mask, index, bits)
    return (mask.layout, index, bits)
end
restored(::Type{BlockMask}, (layout, index, bits)) = BlockMask(Raw.tartan_block_mask_from_index(layout, index, bits), layout)

function stored_form(c::BlockConv)
    isopen(c) || throw(closed_error(c.handle))
    return c.recipe
end
restored(::Type{BlockConv{D}}, (arguments, options)) where {D} = BlockConv(arguments...; options...)

# The bytes of the file.
function stored_form(file::BlockFile)
    isopen(file) || throw(closed_error(file.handle))
    return mktempdir(place -> (path = joinpath(place, "file.h5"); save(path, file); (read(path),)))
end
restored(::Type{BlockFile}, (bytes,)) = mktempdir(place -> (path = joinpath(place, "file.h5"); write(path, bytes); load(path)))

const Storable = Union{BlockLayout, BlockSparseMatrix, BlockMask, BlockConv, BlockFile}

# The objects inside of an object, whose data are asked for as well.
parts_of(A::BlockSparseMatrix) = (A.layout,)
parts_of(mask::BlockMask) = (mask.layout,)
parts_of(c::BlockConv) = filter(x -> x isa Storable, Tuple(c.recipe[1]))
parts_of(x) = ()

# ---- Serialization ----

function serialize_data(s, x)
    data = try
        foreach(stored_form, parts_of(x))
        stored_form(x)
    catch error
        return refuse(s, error)
    end
    Serialization.serialize_cycle_header(s, x) && return nothing # it was written before
    serialize(s, data)
    return nothing
end
function deserialize_data(s, ::Type{X}) where {X}
    x = restored(X, deserialize(s))
    Serialization.deserialize_cycle(s, x)
    return x
end
# One for each: Serialization has methods for all dictionaries.
for X in Base.uniontypes(Storable)
    @eval Serialization.serialize(s::AbstractSerializer, x::$X) = serialize_data(s, x)
    @eval Serialization.deserialize(s::AbstractSerializer, ::Type{X}) where {X<:$X} = deserialize_data(s, X)
end

Serialization.serialize(s::AbstractSerializer, ::Handle{S}) where {S} = refuse(s, cannot_be_stored(S))
cannot_be_stored(::Type{S}) where {S} = ArgumentError("a $(name_of(S)) cannot be serialized or stored" *
    (S === Raw.tartan_context ? "" : S === Raw.tartan_buffer || S === Raw.tartan_matrix ? " from a device: use to_host" : ""))

# To a file or a buffer nothing more is written. A worker would wait for the rest of a message for ever, so it gets what it can read, and
# the error comes from there.
struct Refused
    error::Exception
end
refuse(s::Serializer, error) = throw(error)
refuse(s::AbstractSerializer, error) = serialize(s, Refused(error))
function Serialization.serialize(s::AbstractSerializer, x::Refused)
    Serialization.serialize_type(s, Refused)
    serialize(s, x.error)
    return nothing
end
Serialization.deserialize(s::AbstractSerializer, ::Type{Refused}) = throw(deserialize(s))

# ---- Packages that write the fields of a struct of another type ----

"""
    Tartan.StoredData{X}

The form of an object of type `X` in a JLD2 file: its data, without addresses.
"""
struct StoredData{X}
    data::Any
end
Base.convert(::Type{StoredData{X}}, x::X) where {X<:Storable} = StoredData{X}(stored_form(x))
Base.convert(::Type{X}, x::StoredData{X}) where {X<:Storable} = restored(X, x.data)
