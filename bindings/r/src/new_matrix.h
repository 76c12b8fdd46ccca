/* SPDX-License-Identifier: Apache-2.0
 * New block matrices. */
#ifndef TARTAN_R_NEW_MATRIX_H
#define TARTAN_R_NEW_MATRIX_H

#include "objects.h"

/* A BlockMatrix in R's memory around values that nobody else has and that fit; names may be NULL. methods::new would check its
 * slots, which takes ten times as long as a small product. */
SEXP tartan_r_matrix_around(SEXP values, SEXP layout, SEXP dtype, SEXP names);

/* The BlockLayout of a handle of the library, which the object keeps; the BlockMatrix of a handle, whose values are copied once and
 * which is closed. Without a layout (NULL) the result has its own. */
SEXP tartan_r_take_layout(SEXP handle);
SEXP tartan_r_take_matrix(SEXP handle, SEXP layout, SEXP names);

/* A matrix of zeros at a place; a NULL place is R's memory. */
SEXP tartan_r_new_matrix(SEXP place, SEXP layout, int32_t dtype, SEXP names);

/* A copy of a matrix where it is. */
SEXP tartan_r_copied(SEXP matrix);

#endif
