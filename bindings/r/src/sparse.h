/* SPDX-License-Identifier: Apache-2.0
 * Block matrices as the Matrix package's sparse matrices. */
#ifndef TARTAN_R_SPARSE_H
#define TARTAN_R_SPARSE_H

#include "objects.h"

/* A float64 BlockMatrix of one head as a dgCMatrix of every stored element or, with `drop`, of those that are not 0. It has no
 * dimnames. If `tolerance` is a number and the matrix is symmetric up to it, as isSymmetric() means it, the result is a dsCMatrix
 * of the upper triangle. */
SEXP tartan_r_to_sparse(SEXP matrix, SEXP drop, SEXP tolerance);

/* Keeps a sparse matrix, in which the Matrix package keeps factors, with a BlockMatrix as long as that has its values, and returns it;
 * and what is kept, or NULL. */
SEXP tartan_r_keep_sparse(SEXP matrix, SEXP sparse);
SEXP tartan_r_kept_sparse(SEXP matrix);

/* Whether a square float64 BlockMatrix of one head is symmetric up to `tolerance`. */
SEXP tartan_r_is_symmetric(SEXP matrix, SEXP tolerance);

/* Whether a CHMfactor has room for the factor of a dsCMatrix of the upper triangle: then its symbolic analysis fits. */
SEXP tartan_r_factor_fits(SEXP factor, SEXP matrix);

#endif
