/* SPDX-License-Identifier: Apache-2.0
 * Element-wise work on the stored blocks of a matrix in R's memory. */
#ifndef TARTAN_R_ELEMENTS_H
#define TARTAN_R_ELEMENTS_H

#include "objects.h"

enum { TARTAN_R_ELEMENTS = 0, TARTAN_R_ROWS = 1, TARTAN_R_COLS = 2 };

/* A number for each stored element, as an array [block rows, block columns, blocks]: by its place in the dense matrix,
 * first index fastest (TARTAN_R_ELEMENTS), by its row or by its column. Too few numbers are recycled, as R does. Padding
 * gets `padding`. */
SEXP tartan_r_spread(SEXP layout, SEXP numbers, int32_t along, double padding);

#endif
