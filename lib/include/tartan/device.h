/* SPDX-License-Identifier: Apache-2.0
 * Memory on a context's device, and copies to and from it. Everything here also works with a CPU context, whose
 * memory is the host's, so programs need no separate code path.
 *
 * Any context of the device may use the memory, and any thread may free it at any time, also after the context that
 * allocated it was freed. Calls start after the earlier work of other contexts that they depend on, and memory is
 * released after all work on it (context.h, "Order between contexts"). */
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

/* A buffer of zeros with the given lengths (0 to TARTAN_MAX_NDIM of them), contiguous, in TARTAN_ROW_MAJOR order
 * (last index fastest) or TARTAN_COL_MAJOR order (first index fastest). */
TARTAN_API tartan_status tartan_buffer_create(tartan_context *context, int32_t dtype, const int64_t *lengths,
                                              int64_t nlengths, int32_t order, tartan_buffer **out);

/* A copy of `array`, which is in host memory or on a device of the context's kind. A contiguous column-major source
 * gives a column-major buffer, any other a row-major one. A source in host memory may be changed as soon as the
 * call returns. A source on a device that is not contiguous is copied by way of the host, which waits for the
 * context's earlier work. Errors: also UNSUPPORTED (memory of another kind of device). */
TARTAN_API tartan_status tartan_buffer_from_array(tartan_context *context, const tartan_array *array,
                                                  tartan_buffer **out);

/* Waits for all earlier work on the buffer, then copies it into `array`: host memory of the same shape and dtype,
 * any strides. Errors: also UNSUPPORTED (array, or buffer, on another device), ARGUMENT (repeating strides, array
 * overlaps the buffer), SHAPE, DTYPE. */
TARTAN_API tartan_status tartan_buffer_to_array(tartan_context *context, const tartan_buffer *buffer,
                                                tartan_array *array);

/* Call these before and after another library uses Tartan's memory on `stream` (of device `device_id`; see
 * tartan_context_wait_stream). Signal: later work of the stream starts after the earlier work of all contexts on the memory
 * that `array` is in. Wait: later work of all contexts on that memory, and its release, start after the earlier work of the
 * stream. For other memory there is nothing to do. Errors: HANDLE, DTYPE, ARGUMENT, UNSUPPORTED (a graph is being
 * captured), DEVICE. */
TARTAN_API tartan_status tartan_array_signal_stream(const tartan_array *array, int32_t device_id,
                                                    int64_t stream);
TARTAN_API tartan_status tartan_array_wait_stream(const tartan_array *array, int32_t device_id,
                                                  int64_t stream);

/* Describes the buffer's memory as an array, which is valid until the buffer is freed. */
TARTAN_API tartan_status tartan_buffer_view(tartan_buffer *buffer, tartan_array *out_view);

/* Frees the buffer from any thread; NULL is allowed. If other threads are in calls on its memory, it is released when
 * these have returned; no call may start with it any more. */
TARTAN_API void tartan_buffer_free(tartan_buffer *buffer);

/* ---- Dynamic layouts: new blocks in every step. ----
 * Kernels build the index sets on the device from a mask or from scores there, in the order of the context's queue; the
 * host does not wait. The index sets have room for `capacity` blocks. tartan_layout_blocks returns the capacity, and it is
 * the length of the values [capacity, block_rows, block_cols] and gates [capacity] of every matrix on the layout.
 * Make such a matrix with tartan_matrix_wrap around memory of the layout's device. Block ids are in row-major order
 * as always, so the values of the current blocks come first; values past them are ignored and never written. A mask
 * with more blocks than the capacity gives an empty layout: products are zero, and tartan_layout_to_host fails.
 *
 * tartan_spmm, tartan_sddmm, tartan_block_softmax, its gradient and the functions of attention that have a layout take
 * dynamic layouts on contexts of the same device, and choose kernels as if `capacity` blocks were scattered evenly.
 * tartan_matrix_copy, tartan_matrix_to_device and tartan_matrix_to_host take matrices on them. All other functions that
 * need the blocks refuse them (UNSUPPORTED). As
 * with an ordinary layout, the first operation allocates and builds the index sets that its kernel needs, and waits; from
 * then on each new mask, and each choice by scores, rebuilds them without waiting. So run each operation once; then
 * updates of the layout and the operations can be captured in a CUDA graph.
 *
 * A mask is a contiguous row-major array of TARTAN_U8, [grid_rows, grid_cols] if heads is 1, else [heads,
 * grid_rows, grid_cols]; any non-zero byte is a block. A mask on the context's device is read in the order of the
 * queue, so later work of the queue may overwrite it. A mask in host memory may be changed as soon as the call
 * returns. ---- */

/* A layout of the mask's blocks. `capacity`: 1 to the number of positions (heads * grid_rows * grid_cols), or 0 for
 * all positions. *out holds one reference, NULL on failure. Errors: HANDLE, ARGUMENT (shape, capacity; the context
 * is busy in another thread), SHAPE (shape; the mask's shape or strides), DTYPE, OVERFLOW, MEMORY (of the host or
 * the device), UNSUPPORTED (a mask on another kind of device, a grid too large for the device, a CUDA graph being
 * captured, a backend without dynamic layouts), DEVICE. */
TARTAN_API tartan_status tartan_layout_from_device_mask(tartan_context *context, const tartan_shape *shape,
                                                        const tartan_array *mask, int64_t capacity,
                                                        tartan_layout **out);

/* A layout of the k >= 1 blocks of largest score in each block row of each head, as attention that chooses blocks of
 * keys needs. Among equal scores the smaller block column wins, NaN counts as infinity, and a block of score -infinity is
 * never chosen, so a row may get fewer than k. The capacity is
 * heads * grid_rows * min(k, grid_cols).
 *   scores   [heads, grid_rows, grid_cols], or [grid_rows, grid_cols] if heads is 1, of f64, f32, f16 or bf16,
 *            contiguous and row-major. Memory and order are as for a mask.
 * The choice is the same on every device. Errors: as tartan_layout_from_device_mask; ARGUMENT also for k < 1. */
TARTAN_API tartan_status tartan_layout_from_device_scores(tartan_context *context, const tartan_shape *shape,
                                                          const tartan_array *scores, int64_t k,
                                                          tartan_layout **out);

/* Rebuilds the index sets in place. Later work of the queue sees the new mask's blocks in all matrices on the
 * layout; their values do not move. No other thread may use the layout during the call. Errors: HANDLE, ARGUMENT
 * (not a dynamic layout; the context), SHAPE, DTYPE, MEMORY, UNSUPPORTED (layout or mask on another device; a mask
 * in host memory while a CUDA graph is captured), DEVICE. */
TARTAN_API tartan_status tartan_layout_update_device_mask(tartan_context *context, tartan_layout *layout,
                                                          const tartan_array *mask);

/* The same for the k largest scores of each block row. It does not matter whether a mask or scores made the layout, nor
 * with which k, if its capacity is at least heads * grid_rows * min(k, grid_cols) (else ARGUMENT). Errors: as
 * tartan_layout_update_device_mask. */
TARTAN_API tartan_status tartan_layout_update_device_scores(tartan_context *context, tartan_layout *layout,
                                                            const tartan_array *scores, int64_t k);

/* Waits for all earlier work on the layout, then makes an ordinary layout of its current blocks. For an ordinary
 * layout it returns one more reference to it. *out holds one reference, NULL on failure. Errors: HANDLE, LAYOUT
 * (the last mask had more blocks than the capacity), ARGUMENT (the context), UNSUPPORTED (a layout of another
 * device), MEMORY, DEVICE. */
TARTAN_API tartan_status tartan_layout_to_host(tartan_context *context, const tartan_layout *layout,
                                               tartan_layout **out);

/* ---- Matrices. The layout is shared, not copied; its index sets are copied to a device on first use. ---- */

/* A copy of the matrix on the context's device, from host memory or any device of its kind. Padding of ragged
 * blocks is copied as it is. Errors: HANDLE, MEMORY, DEVICE, UNSUPPORTED (memory of another kind of device),
 * ARGUMENT (the context is busy in another thread). */
TARTAN_API tartan_status tartan_matrix_to_device(tartan_context *context, const tartan_matrix *matrix,
                                                 tartan_matrix **out);

/* Waits for all earlier work on the matrix, then copies it to host memory. Padding is zero. The copy of a matrix on
 * a dynamic layout has an ordinary layout of the current blocks. Errors: as tartan_matrix_to_device, and as
 * tartan_layout_to_host. */
TARTAN_API tartan_status tartan_matrix_to_host(tartan_context *context, const tartan_matrix *matrix,
                                               tartan_matrix **out);

/* Where the values are: "cpu", "cuda:0", ... NULL for a bad handle. Valid as long as the matrix. */
TARTAN_API const char *tartan_matrix_device(const tartan_matrix *matrix);

#ifdef __cplusplus
}
#endif
#endif
