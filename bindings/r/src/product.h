/* SPDX-License-Identifier: Apache-2.0
 * Block-sparse times dense in one call. */
#ifndef TARTAN_R_PRODUCT_H
#define TARTAN_R_PRODUCT_H

#include "arrays.h"

/* alpha op(a) b + beta c, or alpha b op(a) + beta c; c and gates may be NULL. */
SEXP tartan_r_spmm(SEXP a, SEXP b, SEXP c, SEXP gates, double alpha, double beta, int32_t side, int32_t op);

/* x %*% y, crossprod(x, y) or tcrossprod(x, y) (`verb` 0, 1, 2), where one of the two is a block matrix. A vector is a
 * column or a row, whichever fits: base R's rule. */
SEXP tartan_r_product(SEXP x, SEXP y, int32_t verb);

#endif
