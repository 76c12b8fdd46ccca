# SPDX-License-Identifier: Apache-2.0
# Dynamic layouts: masks and scores on a device change their blocks.

"""
    BlockLayout(mask, block, context; capacity = 0, shape = nothing)

A dynamic layout: its blocks come from `mask` (as above, in Julia's memory) and change with [`update!`](@ref),
for instance in every step of a computation. The context's device builds the index sets in the order of the
context's queue; Julia does not wait. A mask may have at most `capacity` blocks (0: all positions). `nblocks`
returns the capacity, which is also the number of gates and of blocks of values. A mask with more blocks gives
an empty layout, and `to_host(layout, context)` then throws.

`DeviceBlockSparseMatrix{T}(layout, context)` makes matrices on it for the products. Other functions that need
the blocks throw; `to_host` makes ordinary layouts and matrices.

    context = Context("cpu")                   # or "cuda"
    changing = BlockLayout([true false; true true], 32, context)
    S = DeviceBlockSparseMatrix{Float64}(changing, context)
    sddmm!(S, to_device(ones(64, 3), context), to_device(ones(3, 64), context))
    update!(changing, [false false; false true], context)
    to_host(S * to_device(ones(64), context))
    to_host(changing, context)
"""
function BlockLayout(mask::Mask, block::Sizes, context::Context; capacity::Real = 0, shape = nothing)
    frame, bytes = frame_and_bytes(mask, block, shape)
    return BlockLayout(Raw.tartan_layout_from_device_mask(context, frame, mask_operand(frame, bytes), whole(capacity, "capacity")))
end

function mask_operand(frame, bytes)
    rows, cols = grid_of(frame)
    return Operand(bytes, Raw.tartan_array(Ptr{Cvoid}(pointer(bytes)), Raw.TARTAN_U8, HOST..., 3, pad((frame.heads, rows, cols)),
                                           pad((rows * cols, cols, 1))))
end

"""
    update!(layout, mask, context)

Give a dynamic layout the blocks of a new mask. Later work sees them in all matrices on the layout; their
values do not move. Return the layout.
"""
function update!(layout::BlockLayout, mask::Mask, context::Context)
    frame, bytes = frame_and_bytes(mask, blocksize(layout), size(layout))
    Raw.tartan_layout_update_device_mask(context, layout, mask_operand(frame, bytes))
    return layout
end

const Scores = Union{AbstractMatrix{<:Real}, AbstractArray{<:Real, 3}}

"""
    BlockLayout(scores, k, block, context; shape = nothing)

A dynamic layout of the `k` blocks of largest score in each block row of each head, which [`update!`](@ref)`(layout, scores, k,
context)` chooses again. `scores` is (block rows, block columns) or has heads as its third dimension, in Julia's memory. Ties go
to the smaller block column, `NaN` counts as infinity, and blocks of score `-Inf` are never chosen, which hides the future in
causal attention. The capacity is `k` (at most all block columns) for every block row of every head.

    chosen = BlockLayout([3 1 -Inf; 2 2 2], 2, 8, Context("cpu"))
    block_mask(to_host(chosen, Context("cpu")))
"""
function BlockLayout(scores::Scores, k::Real, block::Sizes, context::Context; shape = nothing)
    frame, operand = frame_and_scores(scores, block, shape)
    return BlockLayout(Raw.tartan_layout_from_device_scores(context, frame, operand, whole(k, "k")))
end

"""
    update!(layout, scores, k, context)

Give a dynamic layout the `k` blocks of largest score in each block row; it must have room for them. Return the layout.
"""
function update!(layout::BlockLayout, scores::Scores, k::Real, context::Context)
    _, operand = frame_and_scores(scores, blocksize(layout), size(layout))
    Raw.tartan_layout_update_device_scores(context, layout, operand, whole(k, "k"))
    return layout
end

# The frame around scores, and the scores in row-major order for C, which refuses those of another grid.
function frame_and_scores(scores::Scores, block, shape)
    x = dense_input(scores)
    rows, cols, heads = size(x, 1), size(x, 2), size(x, 3)
    if shape === nothing
        n = pair(block, "block")
        shape = (Base.Checked.checked_mul(rows, n[1]), Base.Checked.checked_mul(cols, n[2]))
    end
    by_row = permutedims(reshape(x, rows, cols, heads), (2, 1, 3))
    array = array_of(pointer(by_row), (heads, rows, cols), (rows * cols, cols, 1))
    return frame_of(shape, block, heads), Operand(by_row, array)
end

"""
    to_host(layout, context)

Wait for earlier work on the layout and return an ordinary layout of its current blocks; return an ordinary layout unchanged.

    to_host(BlockLayout(trues(2, 2), 8, Context("cpu")), Context("cpu"))
"""
to_host(layout::BlockLayout, context::Context) = BlockLayout(Raw.tartan_layout_to_host(context, layout))

"""
    DeviceBlockSparseMatrix{T}(layout, context)

A zero matrix on the context's device.
"""
function DeviceBlockSparseMatrix{T}(layout::BlockLayout, context::Context) where {T}
    n = (nblocks(layout), blocksize(layout)...)
    buffer = Raw.tartan_buffer_create(context, dtype_code(T), Int64[reverse(n)...], Raw.TARTAN_COL_MAJOR)
    matrix = try
        view = Raw.tartan_buffer_view(buffer)
        # C needs [block, row, column]; blocks are column-major inside, as in Julia.
        values = array_of(Ptr{T}(view.data), n, (n[2] * n[3], 1, n[2]), (view.device_type, view.device_id))
        Raw.tartan_matrix_wrap(layout, values, Raw.address_of_tartan_buffer_free[], Ptr{Cvoid}(buffer))
    catch
        Raw.tartan_buffer_free(buffer)
        rethrow()
    end
    return device_matrix(T, matrix, layout, context)
end
