# SPDX-License-Identifier: Apache-2.0
# Dynamic layouts: masks on a device change their blocks.

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

Gives a dynamic layout the blocks of a new mask. Later work sees them in all matrices on the layout; their
values do not move. Returns the layout.
"""
function update!(layout::BlockLayout, mask::Mask, context::Context)
    frame, bytes = frame_and_bytes(mask, blocksize(layout), size(layout))
    Raw.tartan_layout_update_device_mask(context, layout, mask_operand(frame, bytes))
    return layout
end

"""
    to_host(layout, context)

Waits for earlier work on the layout and returns an ordinary layout of its current blocks; an ordinary layout
is returned as it is.

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
