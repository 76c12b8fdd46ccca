/* SPDX-License-Identifier: Apache-2.0
 * Matrices assembled from rectangles of others, at any boundary. */
#ifndef TARTAN_MATRIX_ASSEMBLE_H
#define TARTAN_MATRIX_ASSEMBLE_H

#include "matrix/work.h"

/* Rows [row_begin, row_end) and columns [col_begin, col_end) of every head of `from`. Element (r, c) of the rectangle goes
 * to (row + r, col + c) of the result. If `factors` is given, it becomes p x q elements instead, from (row + r p, col + c
 * q) on: its products with factors [p, q]. */
typedef struct tartan_i_part {
    const tartan_matrix *from;
    int64_t row_begin, row_end, col_begin, col_end;
    int64_t row, col;
    const double *factors;
    int64_t p, q;
} tartan_i_part;

/* Where the blocks of a result begin: at multiples of the shape's block, or at boundaries, which are checked, on a grid of 1 x 1
 * blocks. */
typedef struct tartan_i_frame {
    tartan_shape shape;
    int64_t grid_rows, grid_cols;
    const int64_t *row_bounds, *col_bounds; /* both or none */
} tartan_i_frame;

/* The matrix of `shape` with the parts, which are checked, inside of it and apart from each other. No part begins or ends
 * above one before it. */
tartan_status tartan_i_assemble(const char *function, tartan_context *context, const tartan_shape *shape,
                                const tartan_i_part *parts, int64_t nparts, int32_t dtype,
                                int32_t block_order, tartan_matrix **out);
tartan_status tartan_i_assemble_in(const char *function, tartan_context *context, const tartan_i_frame *frame,
                                   const tartan_i_part *parts, int64_t nparts, int32_t dtype,
                                   int32_t block_order, tartan_matrix **out);

#endif
