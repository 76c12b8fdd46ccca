/* SPDX-License-Identifier: Apache-2.0
 * The values of products of two block-sparse matrices, for multiply.c. */
#ifndef TARTAN_OPS_MULTIPLY_H
#define TARTAN_OPS_MULTIPLY_H

#include "matrix/work.h"

/* Blocks that a kernel cannot read in place are copied as f64 once, if these many elements hold all of them. */
enum { TARTAN_I_COPIED_ELEMENTS = 1 << 25 };

/* Whether tartan_i_multiply_small takes C = A B: blocks of few numbers, all in one order. */
bool tartan_i_multiply_is_small(const tartan_matrix *a, const tartan_matrix *b);

/* Fills C, whose layout has the blocks that A and B give. */
tartan_status tartan_i_multiply_small(const char *function, tartan_context *context, const tartan_matrix *a,
                                      const tartan_matrix *b, tartan_matrix *c);

#endif
