/* SPDX-License-Identifier: Apache-2.0
 * Matrices of elements: made from lists of elements, read and written element by element, cut, joined and rebuilt at
 * any boundary. Results stay block-sparse, and unless it says otherwise, their layout follows from the layouts of the
 * operands, never from their values. Values keep their bits where the dtype stays, NaN payloads included. The padding of
 * ragged blocks is zero.
 *
 * A context lends its threads; no result depends on their number. Values must be in host memory. A call that fails
 * leaves its operands as they were. Matrices and layouts in *out are the caller's to free.
 * Common errors: HANDLE, SHAPE, DTYPE, ARGUMENT (also: the context is busy in another thread), LAYOUT (an index out of
 * range), UNSUPPORTED (values on a device, dynamic layouts), OVERFLOW, MEMORY. */
#ifndef TARTAN_STRUCTURE_H
#define TARTAN_STRUCTURE_H

#include "tartan/context.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- From elements: the matrix and its layout, all blocks that hold at least one of the elements, in time in
 * proportion to the elements and to the rows. heads must be 1; dtype 0 means that of the values. ---- */

/* What becomes of an element that is given more than once. */
typedef enum tartan_duplicates {
    TARTAN_DUPLICATES_REFUSED = 0, /* LAYOUT */
    TARTAN_DUPLICATES_ADDED = 1,   /* in the order given, each sum rounded to the dtype of the matrix */
} tartan_duplicates;

/* From coordinates (COO) and values [n] in any order. */
TARTAN_API tartan_status tartan_matrix_from_elements(tartan_context *context, const tartan_shape *shape,
                                                     const int64_t *entry_rows, int64_t nentry_rows,
                                                     const int64_t *entry_cols, int64_t nentry_cols,
                                                     const tartan_array *values, int32_t duplicates,
                                                     int32_t dtype, int32_t block_order, tartan_matrix **out);

/* From compressed rows (CSR; by_column 0) or columns (CSC; by_column 1): pointers [rows + 1] or [cols + 1] from 0,
 * indices (the columns or rows) and values [n], in any order within a row or column. */
TARTAN_API tartan_status tartan_matrix_from_compressed(tartan_context *context, const tartan_shape *shape,
                                                       int32_t by_column, const int64_t *pointers,
                                                       int64_t npointers, const int64_t *indices,
                                                       int64_t nindices, const tartan_array *values,
                                                       int32_t duplicates, int32_t dtype, int32_t block_order,
                                                       tartan_matrix **out);

/* ---- Elements. An element is given by head, row and column, of which `heads` may be NULL with nheads = 0: all in
 * head 0. ---- */

/* Reads elements into values [n], of any dtype; those that are not stored are 0. */
TARTAN_API tartan_status tartan_matrix_get_elements(const tartan_matrix *matrix, const int64_t *heads,
                                                    int64_t nheads, const int64_t *entry_rows,
                                                    int64_t nentry_rows, const int64_t *entry_cols,
                                                    int64_t nentry_cols, tartan_array *values);

/* Writes values [n] to elements in place or, if `add` is not 0, adds them. Of an element that is given more than once,
 * the last value stays; all of them are added. A zero where nothing is stored is ignored. Errors: also LAYOUT (another
 * number where nothing is stored). */
TARTAN_API tartan_status tartan_matrix_set_elements(tartan_matrix *matrix, const int64_t *heads,
                                                    int64_t nheads, const int64_t *entry_rows,
                                                    int64_t nentry_rows, const int64_t *entry_cols,
                                                    int64_t nentry_cols, const tartan_array *values,
                                                    int32_t add);

/* The layout and every block that holds one of the elements; the layout itself (a new reference) if it has them all.
 * tartan_matrix_project then gives a matrix room for the elements. */
TARTAN_API tartan_status tartan_layout_add_elements(tartan_layout *layout, const int64_t *heads,
                                                    int64_t nheads, const int64_t *entry_rows,
                                                    int64_t nentry_rows, const int64_t *entry_cols,
                                                    int64_t nentry_cols, tartan_layout **out);

#ifdef __cplusplus
}
#endif
#endif
