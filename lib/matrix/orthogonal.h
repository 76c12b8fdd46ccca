/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_MATRIX_ORTHOGONAL_H
#define TARTAN_MATRIX_ORTHOGONAL_H

#include <stdint.h>

/* Replaces `count` contiguous vectors of `length` >= count numbers by the orthonormal vectors Q of their QR
 * decomposition with a positive diagonal of R, computed by Householder reflections. `work` has room for 2 * count
 * numbers. All sums have one fixed order, so the bits are the same on every machine. */
void tartan_i_orthogonalise(double *vectors, int64_t length, int64_t count, double *work);

#endif
