/* SPDX-License-Identifier: Apache-2.0
 * Errors as R conditions. They leave by a long jump, so callers may not hold memory that R does not manage. */
#ifndef TARTAN_R_FAIL_H
#define TARTAN_R_FAIL_H

#ifndef R_NO_REMAP
#define R_NO_REMAP
#endif
#include <Rinternals.h>

#include "tartan.h"

/* Raises a condition of the status's class, with the text of tartan_last_error(). */
void tartan_r_raise(tartan_status status);
void tartan_r_check(tartan_status status); /* the same, unless it is TARTAN_OK */

/* The same with a given text. */
void tartan_r_fail(tartan_status status, const char *format, ...);

/* Refuses the argument `name`, whose value is x: "x is 1, expected a BlockMatrix". */
void tartan_r_refuse(tartan_status status, SEXP x, const char *name, const char *expected);

/* The type of x for error texts: "double", "S4", ... */
const char *tartan_r_type(SEXP x);

/* Evaluates f(x), where f is a function of the package's R code. */
SEXP tartan_r_call(const char *f, SEXP x);

#endif
