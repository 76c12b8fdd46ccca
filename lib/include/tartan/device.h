/* SPDX-License-Identifier: Apache-2.0
 * Memory on a context's device, and copies to and from it. All functions also work with a CPU context, whose memory
 * is the host's, so programs need no separate code path.
 *
 * Any context of the device may use the memory, and any thread may free it at any time, even after the context that
 * allocated it. Calls start after the earlier work of other contexts that they depend on, and memory is released
 * after all work on it (context.h, "Order between contexts"). */
#ifndef TARTAN_DEVICE_H
#define TARTAN_DEVICE_H

#include "tartan/context.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A dense array that owns its memory on a device. */
typedef struct tartan_buffer tartan_buffer;

/* ---- Buffers. The caller frees the buffer in *out, which is NULL on failure. Common errors: HANDLE, DTYPE, SHAPE,
 * OVERFLOW, MEMORY (host or device), ARGUMENT (order; the context is busy in another thread), DEVICE. ---- */

/* Create a contiguous buffer of zeros with the given lengths (0 to TARTAN_MAX_NDIM of them), in TARTAN_ROW_MAJOR
 * order (last index fastest) or TARTAN_COL_MAJOR order (first index fastest). */
TARTAN_API tartan_status tartan_buffer_create(tartan_context *context, int32_t dtype, const int64_t *lengths,
                                              int64_t nlengths, int32_t order, tartan_buffer **out);

/* Copy `array`, which is in host memory or on a device of the context's kind, to a new buffer. A contiguous
 * column-major source gives a column-major buffer, any other a row-major one. A source in host memory may be changed
 * as soon as the call returns. A source on a device that is not contiguous is copied through the host, which waits
 * for the context's earlier work. Errors: also UNSUPPORTED (memory of another kind of device). */
TARTAN_API tartan_status tartan_buffer_from_array(tartan_context *context, const tartan_array *array,
                                                  tartan_buffer **out);

/* Wait for all earlier work on the buffer, then copy it to `array`, which is in host memory, has the same shape
 * and dtype, and any strides. Errors: also UNSUPPORTED (array, or buffer, on another device), ARGUMENT (strides that
 * repeat elements; array overlaps the buffer), SHAPE, DTYPE. */
TARTAN_API tartan_status tartan_buffer_to_array(tartan_context *context, const tartan_buffer *buffer,
                                                tartan_array *array);

/* Call these before and after another library uses Tartan's memory on `stream` of device `device_id` (see
 * tartan_context_wait_stream). Signal makes later work of the stream start after the earlier work of all contexts on
 * the memory of `array`. Wait makes later work of all contexts on that memory, and its release, start after the
 * earlier work of the stream. For memory that Tartan did not allocate they do nothing. Errors: HANDLE, DTYPE,
 * ARGUMENT, UNSUPPORTED (a graph is being captured), DEVICE. */
TARTAN_API tartan_status tartan_array_signal_stream(const tartan_array *array, int32_t device_id,
                                                    int64_t stream);
TARTAN_API tartan_status tartan_array_wait_stream(const tartan_array *array, int32_t device_id,
                                                  int64_t stream);

/* Describe the buffer's memory as an array, valid until the buffer is freed. */
TARTAN_API tartan_status tartan_buffer_view(tartan_buffer *buffer, tartan_array *out_view);

/* Free the buffer, from any thread; NULL is allowed. If other threads are in calls on its memory, it is released
 * when these calls return. No new call may start on it. */
TARTAN_API void tartan_buffer_free(tartan_buffer *buffer);

/* ---- Dynamic layouts: new blocks in every step ----
 * Kernels build the index sets on the device from a mask or scores in device memory, in the order of the context's
 * queue; the host does not wait. The index sets have room for `capacity` blocks. tartan_layout_blocks returns the
 * capacity, and every matrix on the layout has values [capacity, block_rows, block_cols] and gates [capacity]. Create
 * such a matrix with tartan_matrix_wrap around memory of the layout's device. Block ids are in row-major order as
 * always, so the values of the current blocks come first; values past them are ignored and never written. A mask with
 * more blocks than the capacity gives an empty layout: products are zero, and tartan_layout_to_host fails.
 *
 * tartan_spmm, tartan_sddmm, tartan_block_softmax, its gradient and the attention functions with a layout take
 * dynamic layouts on contexts of the same device, and choose kernels as if `capacity` blocks were scattered evenly.
 * tartan_matrix_copy, tartan_matrix_to_device and tartan_matrix_to_host take matrices on them. All other functions
 * that need the blocks refuse them (UNSUPPORTED).
 *
 * As with an ordinary layout, the first operation allocates and builds the index sets that its kernel needs, and
 * waits. From then on each new mask, and each choice by scores, rebuilds them without waiting. Run each operation
 * once; after that, updates of the layout and the operations can be captured in a CUDA graph.
 *
 * A mask is a contiguous row-major array of TARTAN_U8, [grid_rows, grid_cols] if heads is 1, else [heads, grid_rows,
 * grid_cols]; every non-zero byte is a block. A mask on the context's device is read in the order of the queue, so
 * later work of the queue may overwrite it. A mask in host memory may be changed as soon as the call returns. ---- */

/* Create a layout of the mask's blocks. `capacity` is 1 to the number of positions (heads * grid_rows * grid_cols),
 * or 0 for all positions. *out holds one reference, NULL on failure. Errors: HANDLE, ARGUMENT (shape, capacity; the
 * context is busy in another thread), SHAPE (shape; the mask's shape or strides), DTYPE, OVERFLOW, MEMORY (of the
 * host or the device), UNSUPPORTED (a mask on another kind of device, a grid too large for the device, a CUDA graph
 * being captured, a backend without dynamic layouts), DEVICE. */
TARTAN_API tartan_status tartan_layout_from_device_mask(tartan_context *context, const tartan_shape *shape,
                                                        const tartan_array *mask, int64_t capacity,
                                                        tartan_layout **out);

/* Create a layout of the k >= 1 blocks of largest score in each block row of each head, as needed by attention that
 * chooses blocks of keys. Ties go to the smaller block column, NaN counts as infinity, and a block of score -infinity
 * is never chosen, so a row may get fewer than k blocks. The capacity is heads * grid_rows * min(k, grid_cols).
 *   scores   [heads, grid_rows, grid_cols], or [grid_rows, grid_cols] if heads is 1, of f64, f32, f16 or bf16,
 *            contiguous and row-major. Memory and order are as for a mask.
 * The choice is the same on every device. Errors: as for tartan_layout_from_device_mask; ARGUMENT also for k < 1. */
TARTAN_API tartan_status tartan_layout_from_device_scores(tartan_context *context, const tartan_shape *shape,
                                                          const tartan_array *scores, int64_t k,
                                                          tartan_layout **out);

/* Rebuild the index sets from a new mask, in place. Later work of the queue uses the new mask's blocks in all
 * matrices on the layout; their values do not move. No other thread may use the layout during the call. Errors:
 * HANDLE, ARGUMENT (not a dynamic layout; the context), SHAPE, DTYPE, MEMORY, UNSUPPORTED (layout or mask on another
 * device; a mask in host memory while a CUDA graph is captured), DEVICE. */
TARTAN_API tartan_status tartan_layout_update_device_mask(tartan_context *context, tartan_layout *layout,
                                                          const tartan_array *mask);

/* Rebuild the index sets from the k largest scores of each block row, in place. The layout may have been created
 * from a mask or from scores with any k, if its capacity is at least heads * grid_rows * min(k, grid_cols) (else
 * ARGUMENT). Errors: as for tartan_layout_update_device_mask. */
TARTAN_API tartan_status tartan_layout_update_device_scores(tartan_context *context, tartan_layout *layout,
                                                            const tartan_array *scores, int64_t k);

/* Wait for all earlier work on the layout, then create an ordinary layout of its current blocks. For an ordinary
 * layout it returns a new reference to it. *out holds one reference, NULL on failure. Errors: HANDLE, LAYOUT (the
 * last mask had more blocks than the capacity), ARGUMENT (the context), UNSUPPORTED (a layout of another device),
 * MEMORY, DEVICE. */
TARTAN_API tartan_status tartan_layout_to_host(tartan_context *context, const tartan_layout *layout,
                                               tartan_layout **out);

/* ---- Matrices. The layout is shared, not copied; its index sets are copied to a device on first use. ---- */

/* Copy the matrix to the context's device, from host memory or any device of its kind. Padding of ragged blocks is
 * copied unchanged. Errors: HANDLE, MEMORY, DEVICE, UNSUPPORTED (memory of another kind of device), ARGUMENT (the
 * context is busy in another thread). */
TARTAN_API tartan_status tartan_matrix_to_device(tartan_context *context, const tartan_matrix *matrix,
                                                 tartan_matrix **out);

/* Wait for all earlier work on the matrix, then copy it to host memory. Padding is zero. The copy of a matrix with
 * a dynamic layout has an ordinary layout of the current blocks. Errors: those of tartan_matrix_to_device and
 * tartan_layout_to_host. */
TARTAN_API tartan_status tartan_matrix_to_host(tartan_context *context, const tartan_matrix *matrix,
                                               tartan_matrix **out);

/* The device of the values: "cpu", "cuda:0", ...; NULL for a bad handle. Valid as long as the matrix. */
TARTAN_API const char *tartan_matrix_device(const tartan_matrix *matrix);

#ifdef __cplusplus
}
#endif
#endif
