/* SPDX-License-Identifier: Apache-2.0
 * Products: block-sparse times dense in one call, and products of dense matrices. */
#ifndef TARTAN_R_PRODUCT_H
#define TARTAN_R_PRODUCT_H

#include "arrays.h"

/* alpha op(a) b + beta c, or alpha b op(a) + beta c; c and gates may be NULL. */
SEXP tartan_r_spmm(SEXP a, SEXP b, SEXP c, SEXP gates, double alpha, double beta, int32_t right,
                   int32_t transpose);

/* x %*% y, crossprod(x, y) or tcrossprod(x, y) (`verb` 0, 1, 2), where one of the two is a block matrix. A vector is a
 * column or a row, whichever fits: base R's rule. */
SEXP tartan_r_product(SEXP x, SEXP y, int32_t verb);

/* tartan_sddmm and tartan_growth_score of lists of views; s and the score are written. */
SEXP tartan_r_sddmm(SEXP place, SEXP x, SEXP y, SEXP gates, double alpha, double beta, SEXP s);
SEXP tartan_r_growth_score(SEXP place, SEXP x, SEXP y, SEXP block, const char *norm, double scale,
                           double beta, SEXP score);

#endif
