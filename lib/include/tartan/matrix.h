/* SPDX-License-Identifier: Apache-2.0
 * A matrix is a layout with values [blocks, block_rows, block_cols] of one dtype on one device. */
#ifndef TARTAN_MATRIX_H
#define TARTAN_MATRIX_H

#include "tartan/block_mask.h"
#include "tartan/context.h"
#include "tartan/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tartan_matrix tartan_matrix;

/* The order of the elements of a block in memory. */
typedef enum tartan_block_order {
    TARTAN_ROW_MAJOR = 0, /* scipy, C */
    TARTAN_COL_MAJOR = 1, /* R, Julia, PETSc */
} tartan_block_order;

/* Called once, from any thread, when the matrix no longer needs the wrapped values. */
typedef void (*tartan_release)(void *user);

/* Functions that take a context run on its device. The values of their matrices must be in that device's memory
 * (tartan/device.h moves them there), and so are the values of results. On a GPU the work is queued on the context's
 * stream and calls return at once. A call blocks only if it returns numbers to the host, uploads a list of block ids
 * (all functions but copies and casts do), or uses a layout with a ragged edge on that device for the first time,
 * which copies its index sets. None of these calls can be captured in a CUDA graph. Copies of any kind give the same
 * bits on every device (NaN stays NaN); norms agree up to the rounding of their sums in f64. Errors: also HANDLE,
 * UNSUPPORTED (values in other memory), DEVICE, MEMORY (of the host or the device), ARGUMENT (the context is busy in
 * another thread). Functions without a context, and the fill functions, need values in host memory (UNSUPPORTED). */

/* ---- Creation. The caller frees the matrix in *out, which is NULL on failure. A matrix keeps a reference to its
 * layout. Common errors: HANDLE, ARGUMENT (block order), DTYPE, SHAPE, OVERFLOW, MEMORY. ---- */

/* A matrix of zeros. */
TARTAN_API tartan_status tartan_matrix_create(tartan_layout *layout, int32_t dtype, int32_t block_order,
                                              tartan_matrix **out);

/* Wrap the caller's values without a copy: an array [blocks, block_rows, block_cols] with contiguous blocks, each
 * row- or column-major according to the strides. The memory must stay valid until `release(user)` is called or, if
 * release is NULL, as long as the matrix. The padding of ragged blocks may be read but never affects a result. On
 * failure `release` is not called. */
TARTAN_API tartan_status tartan_matrix_wrap(tartan_layout *layout, const tartan_array *values,
                                            tartan_release release, void *user, tartan_matrix **out);

/* tartan_matrix_copy: copies a matrix, which may have a dynamic layout. tartan_matrix_cast: copies it with another
 * dtype (0: the same) and block order. f64 is rounded to a 16-bit type once, to nearest even. */
TARTAN_API tartan_status tartan_matrix_copy(tartan_context *context, const tartan_matrix *matrix,
                                            tartan_matrix **out);
TARTAN_API tartan_status tartan_matrix_cast(tartan_context *context, const tartan_matrix *matrix,
                                            int32_t dtype, int32_t block_order, tartan_matrix **out);

/* Free the matrix, from any thread; NULL is allowed. If other threads are in calls on it, its memory is released
 * when these calls return. No new call may start on it. */
TARTAN_API void tartan_matrix_free(tartan_matrix *matrix);

/* ---- Queries ---- */

/* A new reference to the layout; the caller frees it. */
TARTAN_API tartan_status tartan_matrix_get_layout(const tartan_matrix *matrix, tartan_layout **out);

/* The tartan_dtype and the tartan_block_order; -1 for a bad handle. */
TARTAN_API int32_t tartan_matrix_dtype(const tartan_matrix *matrix);
TARTAN_API int32_t tartan_matrix_block_order(const tartan_matrix *matrix);

/* Describe the values as an array [blocks, block_rows, block_cols], valid until the matrix is freed. */
TARTAN_API tartan_status tartan_matrix_values(tartan_matrix *matrix, tartan_array *out_view);

/* Free a matrix that the library made in host memory, but leave its values to the caller, who releases them with free() at the
 * address that out_view has. Nothing is copied. The matrix stays as it was if the call fails. Errors: HANDLE, UNSUPPORTED (on
 * a device), ARGUMENT (values that the matrix does not own, or that a call uses). */
TARTAN_API tartan_status tartan_matrix_take_values(tartan_matrix *matrix, tartan_array *out_view);

/* Read one element; 0 if its block is not stored. Errors: HANDLE, ARGUMENT (outside the matrix). */
TARTAN_API tartan_status tartan_matrix_entry(const tartan_matrix *matrix, int64_t head, int64_t row,
                                             int64_t col, double *out_value);

/* Compute the norm (tartan_norm) of every block, [blocks], in f64; NaN if the block contains a NaN. The result is in
 * host memory, so the call waits for the device. Errors: also ARGUMENT (norm; out_norms overlaps the values), SHAPE. */
TARTAN_API tartan_status tartan_matrix_block_norms(tartan_context *context, const tartan_matrix *matrix,
                                                   int32_t norm, double *out_norms, int64_t nout_norms);

/* Check the handle completely and, if `finite` is not 0, that every stored element is finite.
 * Errors: HANDLE, INTERNAL (corrupt), ARGUMENT (not finite; the text names the block). */
TARTAN_API tartan_status tartan_matrix_check(const tartan_matrix *matrix, int32_t finite);

/* ---- Conversion. Dense arrays are [rows, cols], or [heads, rows, cols] if heads > 1. COO and CSR hold elements of
 * one head. dtype 0 means the dtype of the source. ---- */

/* The blocks of `dense` that the layout stores. All other elements are dropped. */
TARTAN_API tartan_status tartan_matrix_from_dense(tartan_layout *layout, const tartan_array *dense,
                                                  int32_t dtype, int32_t block_order, tartan_matrix **out);

/* Write every element of `dense`, with zeros outside the stored blocks. The dtypes may differ. */
TARTAN_API tartan_status tartan_matrix_to_dense(const tartan_matrix *matrix, tartan_array *dense);

/* From the positions of elements (COO) and their values [count]. Errors: also LAYOUT (an element that is repeated,
 * outside the matrix, or in a block that is not stored; see tartan_layout_from_entries). */
TARTAN_API tartan_status tartan_matrix_from_coo(tartan_layout *layout, const tartan_places *places,
                                                const tartan_array *values, int32_t dtype,
                                                int32_t block_order, tartan_matrix **out);

/* From compressed rows of elements (CSR) and their values [nindices]. Errors: as for tartan_matrix_from_coo; ARGUMENT
 * also for by_column. */
TARTAN_API tartan_status tartan_matrix_from_csr(tartan_layout *layout, const tartan_compressed *lists,
                                                const tartan_array *values, int32_t dtype,
                                                int32_t block_order, tartan_matrix **out);

/* From SciPy's BSR: compressed rows of blocks and their values [nindices, block_rows, block_cols] with any strides.
 * The call creates its own layout; heads must be 1. Errors: also LAYOUT (a repeated block), ARGUMENT (by_column). */
TARTAN_API tartan_status tartan_matrix_from_bsr(const tartan_shape *shape, const tartan_compressed *lists,
                                                const tartan_array *values, int32_t block_order,
                                                tartan_matrix **out);

/* Write every stored element, zeros included, row by row to three arrays of tartan_layout_elements elements. */
TARTAN_API tartan_status tartan_matrix_to_coo(const tartan_matrix *matrix, int64_t *out_entry_rows,
                                              int64_t nout_entry_rows, int64_t *out_entry_cols,
                                              int64_t nout_entry_cols, tartan_array *values);
/* The same as CSR: out_row_pointers [rows + 1]. */
TARTAN_API tartan_status tartan_matrix_to_csr(const tartan_matrix *matrix, int64_t *out_row_pointers,
                                              int64_t nout_row_pointers, int64_t *out_cols, int64_t nout_cols,
                                              tartan_array *values);

/* ---- Matrices from matrices. Values move with their blocks. ---- */

TARTAN_API tartan_status tartan_matrix_transpose(tartan_context *context, const tartan_matrix *matrix,
                                                 tartan_matrix **out);
TARTAN_API tartan_status tartan_matrix_permute(tartan_context *context, const tartan_matrix *matrix,
                                               const int64_t *row_order, int64_t nrow_order,
                                               const int64_t *col_order, int64_t ncol_order,
                                               tartan_matrix **out);
TARTAN_API tartan_status tartan_matrix_slice(tartan_context *context, const tartan_matrix *matrix,
                                             int64_t row_begin, int64_t row_end, int64_t col_begin,
                                             int64_t col_end, tartan_matrix **out);

/* The values at the blocks of another layout with the same frame. Blocks that the matrix does not store are zero. */
TARTAN_API tartan_status tartan_matrix_project(tartan_context *context, const tartan_matrix *matrix,
                                               tartan_layout *layout, tartan_matrix **out);

/* Block i of the result is block sources[i] of the matrix, or zeros if sources[i] is -1; sources [blocks of layout].
 * The block shapes must agree. Use this after tartan_layout_move. Errors: also LAYOUT (a source out of range). */
TARTAN_API tartan_status tartan_matrix_rearrange(tartan_context *context, const tartan_matrix *matrix,
                                                 tartan_layout *layout, const int64_t *sources,
                                                 int64_t nsources, tartan_matrix **out);

/* The reverse, in place: writes block i of `from` to block targets[i] of the matrix, in the matrix's dtype and block
 * order (rounded once), or skips it if targets[i] is -1. Other blocks keep their values. targets [blocks of `from`],
 * without repeated blocks; the block shapes must agree. Errors: also SHAPE, LAYOUT (a target out of range or
 * repeated), ARGUMENT (`from` overlaps the matrix). */
TARTAN_API tartan_status tartan_matrix_scatter(tartan_context *context, const tartan_matrix *from,
                                               const int64_t *targets, int64_t ntargets,
                                               tartan_matrix *matrix);

/* Set the elements that do not count, and the padding, to zero, in place. Errors: HANDLE, LAYOUT (the mask has
 * another layout), UNSUPPORTED (values on a device). */
TARTAN_API tartan_status tartan_matrix_apply_mask(tartan_matrix *matrix, const tartan_block_mask *block_mask);

/* ---- Initialisation, in place. Padding of ragged blocks becomes zero. A seed of -1 means the next seed of the
 * context. Random numbers come from Philox4x32-10, keyed by the seed, with block and element as counter. They are the
 * same on every machine, up to the last bit of the C library's log, cos and sin.
 * Errors: HANDLE, ARGUMENT (seed, scale not finite), UNSUPPORTED (values on a device), MEMORY. ---- */

TARTAN_API tartan_status tartan_matrix_fill_zero(tartan_matrix *matrix);

/* scale * I in the block at (r, c) if r mod grid_cols == c mod grid_rows, zeros elsewhere. Source:
 * openai/blocksparse, identity_init. */
TARTAN_API tartan_status tartan_matrix_fill_identity(tartan_matrix *matrix, double scale);

/* Give each block column (all its stored blocks together) orthonormal columns times `scale`, or orthonormal rows if
 * it has fewer rows than columns: normal random numbers, orthogonalised by Householder QR in f64 with a positive
 * diagonal of R. */
TARTAN_API tartan_status tartan_matrix_fill_orthogonal(tartan_context *context, tartan_matrix *matrix,
                                                       double scale, int64_t seed);

/* Normal random numbers with standard deviation scale / sqrt(fan-in). The fan-in of a block row is the number of its
 * stored columns, on average cols * density, so y = W x keeps the variance of x. */
TARTAN_API tartan_status tartan_matrix_fill_normal(tartan_context *context, tartan_matrix *matrix,
                                                   double scale, int64_t seed);

#ifdef __cplusplus
}
#endif
#endif
