/* SPDX-License-Identifier: Apache-2.0
 * Orders of the rows and columns of matrices of elements that gather their entries in few blocks. */
#ifndef TARTAN_REORDER_H
#define TARTAN_REORDER_H

#include "tartan/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reverse Cuthill-McKee: an order of the n rows of a square matrix that brings its entries close to the diagonal. The matrix is given
 * by its compressed rows or columns; the pattern of A + A^T is used. Row i of the reordered matrix is row out_order[i]. Each
 * component starts at a pseudo-peripheral vertex (George and Liu). Ties are broken by degree, then by number, so the order is unique.
 * Errors: HANDLE, SHAPE (lengths), LAYOUT (pointers or indices), MEMORY. */
TARTAN_API tartan_status tartan_reorder_rcm(const tartan_compressed *lists, int64_t *out_order,
                                            int64_t nout_order);

/* Order the rows and columns of dense [rows, cols] so that its large elements gather in few blocks. Row i of the reordered matrix is
 * row out_row_order[i], and column j is column out_col_order[j]. A heuristic maximises the sum of squares in the round(density *
 * grid) blocks of largest norm: it groups rows with similar squares, then columns by the grouped rows, and then exchanges rows and
 * columns between groups as long as the sum grows. The search is limited, so better orders may exist. The result depends on the
 * operands only. Within a block row or column, orders ascend. The call needs at least 16 rows cols bytes of memory.
 * Errors: HANDLE, SHAPE, DTYPE, ARGUMENT (density; an element that is not finite), UNSUPPORTED (heads; device memory), MEMORY. */
TARTAN_API tartan_status tartan_reorder_blocks(const tartan_shape *shape, const tartan_array *dense,
                                               double density, int64_t *out_row_order, int64_t nout_row_order,
                                               int64_t *out_col_order, int64_t nout_col_order);

#ifdef __cplusplus
}
#endif
#endif
