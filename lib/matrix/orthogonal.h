/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_MATRIX_ORTHOGONAL_H
#define TARTAN_MATRIX_ORTHOGONAL_H

#include <stdint.h>

/* Replaces `count` vectors of `length` >= count numbers, one after the other in memory, by the orthonormal
 * vectors Q of their QR decomposition with a positive diagonal of R, by Householder reflections. `work` has
 * room for 2 * count numbers. The same bits on every machine: all sums have one fixed order. */
void tartan_i_orthogonalise(double *vectors, int64_t length, int64_t count, double *work);

#endif
