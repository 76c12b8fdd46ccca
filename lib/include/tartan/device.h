/* SPDX-License-Identifier: Apache-2.0
 * Memory of a context's device, and copies in and out. All of it works on a CPU context too, where the memory is
 * the host's: programs need no second form.
 *
 * Any context of the device may work with the memory, and any thread may free it at any time, also after the context that
 * made it: calls begin after earlier work of other contexts that they depend on, and memory is given back after all
 * work on it (context.h, "Order between contexts"). */
#ifndef TARTAN_DEVICE_H
#define TARTAN_DEVICE_H

#include "tartan/linalg.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A dense array that owns its memory on a device. */
typedef struct tartan_buffer tartan_buffer;

/* ---- Buffers. Each maker hands one over in *out, NULL on failure. Common errors: HANDLE, DTYPE, SHAPE,
 * OVERFLOW, MEMORY (of the host or the device), ARGUMENT (order; the context at work in another thread), DEVICE.
 * ---- */

/* A buffer of zeros with the given lengths (0 to TARTAN_MAX_NDIM of them), contiguous in the block order's sense:
 * TARTAN_ROW_MAJOR (last index fastest) or TARTAN_COL_MAJOR (first index fastest). */
TARTAN_API tartan_status tartan_buffer_create(tartan_context *context, int32_t dtype, const int64_t *lengths,
                                              int64_t nlengths, int32_t order, tartan_buffer **out);

/* A copy of `array`, which is in host memory or on a device of the context's kind. Column-major sources (first index
 * fastest, no gaps) give a column-major buffer, all others a row-major one. The source may be changed as soon
 * as the call returns where it was host memory. Sources on a device with other strides go by way of the host,
 * which waits for the context's earlier work. Errors: also UNSUPPORTED (memory of another kind of device). */
TARTAN_API tartan_status tartan_buffer_from_array(tartan_context *context, const tartan_array *array,
                                                  tartan_buffer **out);

/* Copies the buffer into `array`, host memory of the same shape and dtype and any strides, when the work asked
 * for before has ended; waits for that. Errors: also UNSUPPORTED (array, or buffer, on another device),
 * ARGUMENT (repeating strides, array overlaps the buffer), SHAPE, DTYPE. */
TARTAN_API tartan_status tartan_buffer_to_array(tartan_context *context, const tartan_buffer *buffer,
                                                tartan_array *array);

/* Before another library works with memory of Tartan's: its later work on `stream` (of device `device_id`; see
 * tartan_context_wait_stream) begins after the earlier work of all contexts with the memory that `array` is in. Nothing to
 * do for other memory. What the library does then is for the caller to order (tartan_context_wait_stream). Errors: HANDLE,
 * DTYPE, ARGUMENT, UNSUPPORTED (a graph is being captured), DEVICE. */
TARTAN_API tartan_status tartan_array_signal_stream(const tartan_array *array, int32_t device_id,
                                                    int64_t stream);

/* Lends the memory as an array: valid until the buffer is freed. */
TARTAN_API tartan_status tartan_buffer_view(tartan_buffer *buffer, tartan_array *out_view);

/* Frees the buffer from any thread at any time; NULL is allowed. */
TARTAN_API void tartan_buffer_free(tartan_buffer *buffer);

/* ---- Layouts whose blocks change: a new mask a step. ----
 * The index sets are made on the device, by kernels, from a mask that is there: asked for in the order of the context's
 * queue, and nobody waits. They have room for so many blocks (`capacity`), which is what tartan_layout_blocks says and
 * the length of the values [capacity, block_rows, block_cols] and gates [capacity] of every matrix on the layout; make
 * such a matrix by tartan_matrix_wrap around memory of the layout's device. Block ids are given out in row-major order
 * as ever, so the first of the values are those of the blocks there are; what is behind them counts for nothing and is
 * not written. A mask with more blocks than there is room for gives no blocks at all: products are then of zeros, and
 * tartan_layout_to_host says so.
 *
 * tartan_spmm and tartan_sddmm take such layouts, on contexts of the same device. Kernels are chosen by what a mask of `capacity` blocks,
 * scattered evenly, would have. tartan_matrix_copy, _to_device and _to_host take matrices on them. All else refuses them
 * (UNSUPPORTED): it knows nothing of the blocks. The first
 * use of a layout by a product, as the first of an ordinary one, gets memory for the index sets that its kernel wants,
 * makes these and waits; from then on they are made with each new mask, and nobody waits. So do each product once, then
 * tartan_layout_update_device_mask and the products can be captured in a CUDA graph.
 *
 * A mask is an array of TARTAN_U8, [grid_rows, grid_cols] where heads is 1, or [heads, grid_rows, grid_cols]; row-major
 * without gaps; any non-zero byte is a block. In memory of the context's device it is read in the order of the queue, so
 * it may be written again by later work of the queue. In host memory it is copied to the device first and may be
 * changed as soon as the call returns. ---- */

/* A layout of the mask's blocks. `capacity`: 1 to the number of positions (heads * grid_rows * grid_cols), or 0 for as
 * many as there are positions. Hands over one reference in *out, NULL on failure. Errors: HANDLE, ARGUMENT (shape,
 * capacity; the context at work in another thread), SHAPE (shape; the mask's shape or strides), DTYPE, OVERFLOW, MEMORY
 * (of the host or the device), UNSUPPORTED (a mask on another kind of device, a grid too large for the device, a CUDA graph
 * being captured), DEVICE. */
TARTAN_API tartan_status tartan_layout_from_device_mask(tartan_context *context, const tartan_shape *shape,
                                                        const tartan_array *mask, int64_t capacity,
                                                        tartan_layout **out);

/* Makes the index sets anew, in place: matrices on the layout have the new mask's blocks from here on, in the order of
 * the queue; their values stay as they are. No other thread may use the layout meanwhile. Errors: HANDLE,
 * ARGUMENT (a layout whose blocks stay; the context), SHAPE, DTYPE, MEMORY, UNSUPPORTED (layout or mask on another
 * device; a mask of the host while a CUDA graph is captured), DEVICE. */
TARTAN_API tartan_status tartan_layout_update_device_mask(tartan_context *context, tartan_layout *layout,
                                                          const tartan_array *mask);

/* An ordinary layout of the blocks there are when the work asked for before has ended; waits for that. An ordinary
 * layout gives one more reference to itself. Hands over one reference in *out, NULL on failure. Errors: HANDLE, LAYOUT
 * (the last mask had more blocks than there is room for), ARGUMENT (the context), UNSUPPORTED (a layout of another
 * device), MEMORY, DEVICE. */
TARTAN_API tartan_status tartan_layout_to_host(tartan_context *context, const tartan_layout *layout,
                                               tartan_layout **out);

/* ---- Matrices. The layout is shared, not copied; its index sets follow on first use. ---- */

/* A copy of the values on the context's device, from host memory or any device of its kind; padding of ragged blocks is copied
 * as it is. Errors: HANDLE, MEMORY, DEVICE, UNSUPPORTED (memory of another kind of device), ARGUMENT
 * (the context is busy in another thread). */
TARTAN_API tartan_status tartan_matrix_to_device(tartan_context *context, const tartan_matrix *matrix,
                                                 tartan_matrix **out);

/* A copy of the values in host memory, taken when the work asked for before has ended; waits for that. Padding is
 * zero. Where the blocks of the layout change, the copy has an ordinary layout of those there are. Errors: as
 * tartan_matrix_to_device, and as tartan_layout_to_host. */
TARTAN_API tartan_status tartan_matrix_to_host(tartan_context *context, const tartan_matrix *matrix,
                                               tartan_matrix **out);

/* Where the values are: "cpu", "cuda:0", ... NULL for a bad handle. Valid as long as the matrix. */
TARTAN_API const char *tartan_matrix_device(const tartan_matrix *matrix);

#ifdef __cplusplus
}
#endif
#endif
