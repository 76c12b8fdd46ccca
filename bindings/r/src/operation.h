/* SPDX-License-Identifier: Apache-2.0
 * One call for every operation that the library describes (tartan/operation.h). R functions for them are generated. */
#ifndef TARTAN_R_OPERATION_H
#define TARTAN_R_OPERATION_H

#include "arrays.h"

/* Runs an operation and returns its results: the only one, or a list of them.
 *   op        an entry of .operations, which generate.py writes
 *   inputs    a list of its inputs, NULL where one is left out
 *   options   a list of the values of its options
 *   returns   for each optional result that is not a gradient, whether it is wanted
 * Dimensions are the library's in reverse order: the memory is the same. Operands are used where they are; operands of another
 * dtype in R's memory are converted, and inputs are never written: what an operation updates is copied first. A result that has the
 * shape of an input has its names. */
SEXP tartan_r_run(SEXP op, SEXP inputs, SEXP options, SEXP returns);

/* Runs the operation `name` on operands as R code describes them: a named list in the order of C, of arrays and views (arrays.h),
 * layouts, masks, matrices, convolutions, and NULL for what is left out. Results are among them. */
SEXP tartan_r_run_views(const char *name, SEXP place, SEXP options, SEXP operands);

#endif
