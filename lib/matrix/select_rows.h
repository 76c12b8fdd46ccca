/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_MATRIX_SELECT_ROWS_H
#define TARTAN_MATRIX_SELECT_ROWS_H

#include "matrix/work.h"

/* The rows of a list of `shape->rows` checked numbers, in all columns, of a matrix whose blocks have one size; `shape` is that of the
 * result, which has `grid_rows` block rows. `blocks` are the block rows of these rows; NULL if blocks have one row. */
tartan_status tartan_i_select_rows(const char *function, tartan_context *context, const tartan_matrix *matrix,
                                   const int64_t *rows, const int32_t *blocks, const tartan_shape *shape,
                                   int64_t grid_rows, tartan_matrix **out);

#endif
