/* SPDX-License-Identifier: Apache-2.0
 * Rectangles of a matrix, in blocks of the same or another size. */
#ifndef TARTAN_MATRIX_CUT_H
#define TARTAN_MATRIX_CUT_H

#include "matrix/work.h"

/* Blocks of more rows (or columns) than this stay as they are where a cut would have to make them much lower. */
enum { TARTAN_I_SMALL_BLOCK = 4 };

/* The greatest common divisor; of a and 0, a. */
int64_t tartan_i_common_divisor(int64_t a, int64_t b);

/* The cut that begins at (row_begin, col_begin) and has the rows and columns of `shape`, which is the matrix's but for them. */
tartan_status tartan_i_cut(const char *function, tartan_context *context, const tartan_matrix *matrix,
                           int64_t row_begin, int64_t col_begin, tartan_shape *shape, tartan_matrix **out);

/* The same with blocks of `shape`, which is checked. */
tartan_status tartan_i_cut_in(const char *function, tartan_context *context, const tartan_matrix *matrix,
                              int64_t row_begin, int64_t col_begin, const tartan_shape *shape,
                              tartan_matrix **out);

#endif
