# SPDX-License-Identifier: Apache-2.0
# Handles do not survive a session, so the data to make them again is written.

function Serialization.serialize(s::AbstractSerializer, layout::BlockLayout)
    Serialization.serialize_type(s, BlockLayout)
    serialize(s, (size(layout), blocksize(layout), heads(layout), coordinates(layout), layout_identity(layout)))
    return nothing
end

function Serialization.deserialize(s::AbstractSerializer, ::Type{BlockLayout})
    shape, block, count, (rows, cols, of_head), identity = deserialize(s)
    layout = BlockLayout(shape, block, rows, cols; heads = count, block_heads = of_head)
    layout_identity(layout) == identity ||
        throw(TartanError(:format, "a serialized layout has identity $(layout_identity(layout)), expected $identity"))
    return layout
end

function Serialization.serialize(s::AbstractSerializer, A::BlockSparseMatrix)
    isopen(A) || throw(TartanError(:handle, "the BlockSparseMatrix is closed"))
    Serialization.serialize_type(s, typeof(A))
    serialize(s, A.layout)
    serialize(s, A.values)
    return nothing
end

function Serialization.deserialize(s::AbstractSerializer, ::Type{BlockSparseMatrix{T}}) where {T}
    layout = deserialize(s)
    return BlockSparseMatrix(layout, deserialize(s)::Array{T, 3})
end
