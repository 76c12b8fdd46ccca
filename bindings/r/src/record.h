/* SPDX-License-Identifier: Apache-2.0
 * What value_and_gradient() follows is recorded in R code (R/gradient.R). Calls with ordinary operands only pay for a look at their
 * classes. */
#ifndef TARTAN_R_RECORD_H
#define TARTAN_R_RECORD_H

#include "fail.h"

/* Whether one of the list's operands is a Tracked. */
int32_t tartan_r_any_tracked(SEXP operands);

/* Calls the R function f with a list of these values. */
SEXP tartan_r_recorded(const char *f, int count, SEXP *values);

#endif
