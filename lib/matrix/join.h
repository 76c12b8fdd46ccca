/* SPDX-License-Identifier: Apache-2.0
 * Matrices side by side whose blocks stay as they are. */
#ifndef TARTAN_MATRIX_JOIN_H
#define TARTAN_MATRIX_JOIN_H

#include "matrix/assemble.h"

/* Whether the blocks of all parts stay as they are in a matrix that has the first block size, dtype and order. */
bool tartan_i_joins_whole(const tartan_i_part *parts, int64_t nparts);

/* The matrix of `shape`, which is checked, with whole matrices, each as far down and to the right as its part says. They follow each
 * other in `direction`. */
tartan_status tartan_i_join(const char *function, tartan_context *context, const tartan_shape *shape,
                            int32_t direction, const tartan_i_part *parts, int64_t nparts,
                            tartan_matrix **out);

#endif
