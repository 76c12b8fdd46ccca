/* SPDX-License-Identifier: Apache-2.0
 * Memory of a context's device, copies in and out, and what would run there. All of it works on a CPU context
 * too, where the memory is the host's: programs need no second form.
 *
 * Memory comes from the context's queue and returns to it: it may be freed from any thread, also after the
 * context was freed; work of the same context that was asked for before still finds it. Work of another
 * context does not: sync that one first. */
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

/* A copy of `array`, which is in host memory or on the context's device. Column-major sources (first index
 * fastest, no gaps) give a column-major buffer, all others a row-major one. The source may be changed as soon
 * as the call returns where it was host memory. Sources on the device with other strides go by way of the host,
 * which waits for all work asked for before. Errors: also UNSUPPORTED (memory of another device). */
TARTAN_API tartan_status tartan_buffer_from_array(tartan_context *context, const tartan_array *array,
                                                  tartan_buffer **out);

/* Copies the buffer into `array`, host memory of the same shape and dtype and any strides, when the work asked
 * for before has ended; waits for that. Errors: also UNSUPPORTED (array, or buffer, on another device),
 * ARGUMENT (repeating strides, array overlaps the buffer), SHAPE, DTYPE. */
TARTAN_API tartan_status tartan_buffer_to_array(tartan_context *context, const tartan_buffer *buffer,
                                                tartan_array *array);

/* Lends the memory as an array: valid until the buffer is freed. */
TARTAN_API tartan_status tartan_buffer_view(tartan_buffer *buffer, tartan_array *out_view);

/* Frees the buffer from any thread at any time; NULL is allowed. */
TARTAN_API void tartan_buffer_free(tartan_buffer *buffer);

/* ---- Matrices. The layout is shared, not copied; its index sets follow on first use. ---- */

/* A copy of the values on the context's device, from host memory or from there; padding of ragged blocks is copied
 * as it is. Errors: HANDLE, MEMORY, DEVICE, UNSUPPORTED (memory of another device), ARGUMENT (the context at work
 * in another thread). */
TARTAN_API tartan_status tartan_matrix_to_device(tartan_context *context, const tartan_matrix *matrix,
                                                 tartan_matrix **out);

/* A copy of the values in host memory, taken when the work asked for before has ended; waits for that. Padding is
 * zero. Errors: as tartan_matrix_to_device. */
TARTAN_API tartan_status tartan_matrix_to_host(tartan_context *context, const tartan_matrix *matrix,
                                               tartan_matrix **out);

/* Where the values are: "cpu", "cuda:0", ... NULL for a bad handle. Valid as long as the matrix. */
TARTAN_API const char *tartan_matrix_device(const tartan_matrix *matrix);

/* ---- Asking what would run ---- */

/* What a product would do on this context, as JSON, without doing it: backend, device, kernel, why that one, every
 * kernel that was not taken and why, useful floating-point operations, bytes that must move at least, and the rate
 * expected. `operation` is "spmm" or "sddmm"; the sparse operand has `layout` and `dtype` with row-major blocks;
 * side and op are tartan_spmm's (0 for sddmm); n is the dense operand's other size (spmm) or the summed size
 * (sddmm). Dense operands are taken to be contiguous, row-major and aligned, and the
 * result of 8-bit factors to be bf16. The caller frees the text with
 * tartan_text_free. Errors: HANDLE, ARGUMENT (operation, side, op, n), DTYPE, MEMORY. */
TARTAN_API tartan_status tartan_explain(tartan_context *context, const char *operation,
                                        const tartan_layout *layout, int32_t dtype, int32_t side, int32_t op,
                                        int64_t n, char **out_text);

#ifdef __cplusplus
}
#endif
#endif
