/* SPDX-License-Identifier: Apache-2.0
 * The library's views of dense operands and results, in R's memory or on a device. */
#ifndef TARTAN_R_ARRAYS_H
#define TARTAN_R_ARRAYS_H

#include "objects.h"

/* A dense operand: its memory, and its dimension in R's order (rows, columns, batch...). A vector has one. */
typedef struct tartan_r_dense {
    SEXP data; /* doubles, integers (I32), the raw bytes of another dtype, or a DeviceArray */
    int32_t dtype, ndim;
    int64_t dim[TARTAN_MAX_NDIM];
} tartan_r_dense;

/* x itself if it is double or on a device, else converted to double. The caller protects `data`. */
void tartan_r_take_dense(SEXP x, const char *name, tartan_r_dense *out);

/* Indices in R's memory: integers as they are, codes of factors, doubles that are whole numbers. The caller protects `data`. */
void tartan_r_take_indices(SEXP x, const char *name, tartan_r_dense *out);
SEXP tartan_r_integers(SEXP x, const char *name); /* integers, of numbers that are whole */

/* Rounds numbers in R's memory to `dtype`, their matrix's; nothing is converted on a device. */
void tartan_r_convert(tartan_r_dense *x, int32_t dtype);

/* A new result of these dimensions in a place: zeros on a device, uninitialised in R's memory. */
void tartan_r_new_dense(SEXP place, int32_t dtype, int32_t ndim, const int64_t *dim, tartan_r_dense *out);
/* A result that starts as a copy of x. */
void tartan_r_copy_dense(SEXP place, const tartan_r_dense *x, tartan_r_dense *out);
/* The result for the user: doubles, integers, or a DeviceArray. */
SEXP tartan_r_finish(const tartan_r_dense *x);

/* The library's view: the batch first, from the outermost dimension on, then rows and columns, exchanged if
 * `turned`. */
tartan_array *tartan_r_view(const tartan_r_dense *x, int turned, const char *name, tartan_array *out);

/* The library's view of doubles, raw bytes of another dtype or a DeviceArray. */
tartan_array *tartan_r_describe(SEXP data, int32_t dtype, int32_t ndim, const int64_t *shape,
                                const int64_t *strides, const char *name, tartan_array *out);

/* Arguments of the generated functions: a double vector, matrix or array, a DeviceArray, or list(data, dtype,
 * shape, strides), a view of a double or raw vector or a DeviceArray. */
tartan_array *tartan_r_array(SEXP x, const char *name, tartan_array *out);
tartan_array *tartan_r_arrays(SEXP x, const char *name, int64_t *out_count);

/* A number for each block, or NULL: gates in R's memory or on a device. */
tartan_array *tartan_r_gates(SEXP x, const char *name, tartan_array *out);

/* ---- For R code ---- */
/* list(data, dtype, shape, strides) of a dense operand. */
SEXP tartan_r_operand(SEXP x, SEXP name, SEXP dtype, SEXP turned);
/* A result as such a list, new or a copy of `start`; and its value for the user. */
SEXP tartan_r_result(SEXP place, SEXP dim, SEXP dtype);
SEXP tartan_r_result_from(SEXP place, SEXP start, SEXP name);
SEXP tartan_r_result_value(SEXP result);
/* An uninitialised double array of these dimensions; a copy of a vector, to be written in place. */
SEXP tartan_r_new_array(SEXP dim);
SEXP tartan_r_duplicate(SEXP x);
/* Numbers in another dtype, as raw bytes. */
SEXP tartan_r_rounded(SEXP numbers, SEXP dtype);

#endif
