/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_MATRIX_SELECT_PARTS_H
#define TARTAN_MATRIX_SELECT_PARTS_H

#include "matrix/work.h"

/* Lists of checked rows and columns, with the blocks that these are of: NULL for rows: all; for blocks: they have one row (or column),
 * or all rows are meant. `shape` is that of the result. */
typedef struct tartan_i_selection {
    const tartan_matrix *from;
    const int64_t *rows, *cols;
    const int32_t *row_blocks, *col_blocks;
    tartan_shape shape;
} tartan_i_selection;

/* The selection, if no block of the result has rows or columns of several blocks; the blocks of the matrix have one size, and there is
 * a list of columns. */
tartan_status tartan_i_select_parts(const char *function, tartan_context *context,
                                    const tartan_i_selection *of, int64_t grid_rows, int64_t grid_cols,
                                    tartan_matrix **out);

#endif
