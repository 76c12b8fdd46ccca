/* SPDX-License-Identifier: Apache-2.0
 * R values as C arguments, and C results as R values. `name` is the argument's name, for error texts. */
#ifndef TARTAN_R_VALUES_H
#define TARTAN_R_VALUES_H

#include "fail.h"

int tartan_r_is_number(SEXP x); /* double or integer, no factor */
int64_t tartan_r_count(SEXP x, const char *name);
int32_t tartan_r_int32(SEXP x, const char *name);
double tartan_r_number(SEXP x, const char *name);
const char *tartan_r_text(SEXP x, const char *name, int optional);
int32_t tartan_r_dtype(SEXP x, const char *name);     /* of its name */
int32_t tartan_r_any_dtype(SEXP x, const char *name); /* of arrays: "int32" and "uint8", too */

/* R's own memory if the types agree, else memory of the call. R's NULL becomes NULL and 0. */
int64_t *tartan_r_counts(SEXP x, const char *name, int64_t *out_count);
double *tartan_r_numbers(SEXP x, const char *name, int64_t *out_count);
uint8_t *tartan_r_bytes(SEXP x, const char *name, int64_t *out_count);
tartan_shape *tartan_r_shape(SEXP x, tartan_shape *out);
/* Structs of index arrays, which are lists in R: (heads or NULL, rows, cols), (pointers, indices, by_column),
 * (channels, offsets, ids). */
tartan_places *tartan_r_places(SEXP x, const char *name, tartan_places *out);
tartan_compressed *tartan_r_compressed(SEXP x, const char *name, tartan_compressed *out);
tartan_channel_sets *tartan_r_channel_sets(SEXP x, const char *name, tartan_channel_sets *out);

/* A number as the shortest decimal text that is exactly this number, with a point whatever the locale; whole numbers up to 2^53
 * without an exponent. */
enum { TARTAN_R_DECIMAL = 32 };
void tartan_r_decimal_of(double value, char text[TARTAN_R_DECIMAL]);
SEXP tartan_r_decimal(SEXP numbers); /* for R code: a text for each number */

SEXP tartan_r_string(const char *text);
/* A new vector of REALSXP or RAWSXP of the length that R asks for, and its memory. */
SEXP tartan_r_new_vector(unsigned type, SEXP length, const char *name);
void *tartan_r_data(SEXP vector);
void tartan_r_counts_to_numbers(SEXP vector); /* int64, written into the memory of doubles */
/* While R copies a text of the library, a holder with a finalizer owns it. */
SEXP tartan_r_new_holder(void);
SEXP tartan_r_take_text(SEXP holder, char *text);
/* A copy of a matrix's values: a double array of dimension (block rows, block columns, blocks), or raw bytes. */
SEXP tartan_r_copy_values(const tartan_array *view);

#endif
