/* SPDX-License-Identifier: Apache-2.0
 * Two matrices side by side whose blocks stay as they are. */
#ifndef TARTAN_MATRIX_JOIN_H
#define TARTAN_MATRIX_JOIN_H

#include "matrix/work.h"

/* Whether the blocks of both, of which b's begin at (row, col) of the result, stay as they are in it. */
bool tartan_i_joins_whole(const tartan_matrix *a, const tartan_matrix *b, int64_t row, int64_t col);

/* The matrix of `shape`, which is checked, with a at (0, 0) and b at (row, col). */
tartan_status tartan_i_join(const char *function, tartan_context *context, const tartan_shape *shape,
                            const tartan_matrix *a, const tartan_matrix *b, int64_t row, int64_t col,
                            tartan_matrix **out);

#endif
