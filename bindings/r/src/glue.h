/* SPDX-License-Identifier: Apache-2.0
 * What the wrapper that SWIG generates needs to turn R values into C arguments and back. Everything that fails
 * raises an R condition by a long jump, so that no function here may hold memory that R does not know. */
#ifndef TARTAN_R_GLUE_H
#define TARTAN_R_GLUE_H

#ifndef R_NO_REMAP
#define R_NO_REMAP
#endif
#include <Rinternals.h>

#include "tartan.h"

/* Raises a condition of the status's class, with the text of tartan_last_error() or that of the call. */
void tartan_r_raise(tartan_status status);
void tartan_r_fail(tartan_status status, const char *format, ...);

/* "double", "S4", ...: what a refusal calls the type of x. */
const char *tartan_r_type(SEXP x);

/* ---- R values as C arguments; `name` is the argument's, for the text of a refusal. ---- */
int64_t tartan_r_count(SEXP x, const char *name);
int32_t tartan_r_int32(SEXP x, const char *name);
double tartan_r_number(SEXP x, const char *name);
const char *tartan_r_text(SEXP x, const char *name, int optional);

/* Memory of the call, or R's own where the types agree. NULL (R's) is NULL and 0. */
int64_t *tartan_r_counts(SEXP x, const char *name, int64_t *out_count);
double *tartan_r_numbers(SEXP x, const char *name, int64_t *out_count);
uint8_t *tartan_r_bytes(SEXP x, const char *name, int64_t *out_count);

/* A double vector, matrix or array, in place: column-major, with further dimensions as the batch; or a list
 * (data, dtype, shape, strides) that says how to see a double or raw vector, or a buffer on a device. */
tartan_array *tartan_r_array(SEXP x, const char *name, tartan_array *out);
tartan_array *tartan_r_arrays(SEXP x, const char *name, int64_t *out_count);
tartan_shape *tartan_r_shape(SEXP x, tartan_shape *out);

/* ---- C results as R values ---- */
SEXP tartan_r_string(const char *text);
/* A new vector of REALSXP or RAWSXP of the length that R asks for, and its memory. */
SEXP tartan_r_new_vector(unsigned type, SEXP length, const char *name);
void *tartan_r_data(SEXP vector);
void tartan_r_counts_to_numbers(SEXP vector);
SEXP tartan_r_new_holder(void);
SEXP tartan_r_take_text(SEXP holder, char *text);
/* A copy of a matrix's values: a double array of dimension (block rows, block columns, blocks), or raw bytes. */
SEXP tartan_r_copy_values(const tartan_array *view);

/* ---- Handles: external pointers with the type's name as tag and a finalizer ---- */
SEXP tartan_r_new_handle(const char *tag);
void *tartan_r_handle(SEXP x, const char *tag);

/* ---- Called from R ---- */
/* The enumerators of the headers: a named integer vector. */
SEXP tartan_r_constants(void);
/* Is the handle open? Raises for what is not a handle of this type. */
SEXP tartan_r_live(SEXP handle, const char *tag);
/* Is the handle an open matrix around exactly these values? */
SEXP tartan_r_wraps(SEXP handle, SEXP values);
/* A matrix around the values, which the handle keeps alive. */
SEXP tartan_r_matrix(SEXP layout, SEXP values, int32_t dtype);
/* A matrix around the memory of a buffer [block rows, block columns, blocks], first index fastest, which the handle
 * keeps alive. */
SEXP tartan_r_device_matrix(SEXP layout, SEXP buffer);
SEXP tartan_r_close(SEXP handle);
/* A double array of this dimension, not initialised; a copy of a vector, to be written in place. */
SEXP tartan_r_new_array(SEXP dim);
SEXP tartan_r_duplicate(SEXP x);

#endif
