/* SPDX-License-Identifier: Apache-2.0
 * Failing, and R values as C arguments. */
#include "glue.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- Failing ---- */

static void raise_condition(tartan_status status, const char *text) {
    SEXP package = PROTECT(Rf_mkString("tartan"));
    SEXP space = PROTECT(R_FindNamespace(package));
    SEXP code = PROTECT(Rf_ScalarInteger(status));
    SEXP message = PROTECT(tartan_r_string(text));
    SEXP call = PROTECT(Rf_lang3(Rf_install(".tartan_stop"), code, message));
    Rf_eval(call, space); /* does not return */
    UNPROTECT(5);
}

void tartan_r_raise(tartan_status status) {
    raise_condition(status, tartan_last_error());
}

void tartan_r_fail(tartan_status status, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    raise_condition(status, text);
}

/* ---- Plain values ---- */

static int is_number(SEXP x) {
    return (TYPEOF(x) == REALSXP || TYPEOF(x) == INTSXP) && !Rf_inherits(x, "factor");
}

const char *tartan_r_type(SEXP x) {
    return Rf_type2char(TYPEOF(x));
}

/* Whole numbers up to 2^53: what doubles count exactly. */
static int64_t whole(double value, const char *name, R_xlen_t i, R_xlen_t n) {
    if (!(fabs(value) <= 9007199254740992.0) || value != trunc(value)) {
        char place[32] = "";
        if (n > 1) snprintf(place, sizeof place, "[%lld]", (long long)i + 1);
        if (ISNA(value))
            tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s%s is NA, expected a whole number", name, place);
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s%s is %.15g, expected a whole number", name, place, value);
    }
    return (int64_t)value;
}

static double element(SEXP x, R_xlen_t i) {
    if (TYPEOF(x) == REALSXP) return REAL(x)[i];
    return INTEGER(x)[i] == NA_INTEGER ? NA_REAL : INTEGER(x)[i];
}

double tartan_r_number(SEXP x, const char *name) {
    if (!is_number(x) || XLENGTH(x) != 1)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is of type %s and length %lld, expected one number", name,
                      tartan_r_type(x), (long long)Rf_xlength(x));
    return element(x, 0);
}

int64_t tartan_r_count(SEXP x, const char *name) {
    return whole(tartan_r_number(x, name), name, 0, 1);
}

int32_t tartan_r_int32(SEXP x, const char *name) {
    int64_t value = tartan_r_count(x, name);
    if (value < INT32_MIN || value > INT32_MAX)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is %lld, expected at most %d", name, (long long)value,
                      INT32_MAX);
    return (int32_t)value;
}

const char *tartan_r_text(SEXP x, const char *name, int optional) {
    if (optional && x == R_NilValue) return NULL;
    if (TYPEOF(x) != STRSXP || XLENGTH(x) != 1)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is of type %s and length %lld, expected one string", name,
                      tartan_r_type(x), (long long)Rf_xlength(x));
    if (STRING_ELT(x, 0) == NA_STRING)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is NA, expected a string", name);
    return Rf_translateCharUTF8(STRING_ELT(x, 0));
}

/* ---- Vectors ---- */

static void expect_numbers(SEXP x, const char *name) {
    if (!is_number(x))
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is of type %s, expected numbers", name, tartan_r_type(x));
}

int64_t *tartan_r_counts(SEXP x, const char *name, int64_t *out_count) {
    *out_count = 0;
    if (x == R_NilValue) return NULL;
    expect_numbers(x, name);
    R_xlen_t n = XLENGTH(x);
    int64_t *counts = (int64_t *)R_alloc(n > 0 ? (size_t)n : 1, sizeof *counts);
    for (R_xlen_t i = 0; i < n; i++) counts[i] = whole(element(x, i), name, i, n);
    *out_count = n;
    return counts;
}

double *tartan_r_numbers(SEXP x, const char *name, int64_t *out_count) {
    *out_count = 0;
    if (x == R_NilValue) return NULL;
    expect_numbers(x, name);
    R_xlen_t n = XLENGTH(x);
    *out_count = n;
    if (TYPEOF(x) == REALSXP) return REAL(x);
    double *numbers = (double *)R_alloc(n > 0 ? (size_t)n : 1, sizeof *numbers);
    for (R_xlen_t i = 0; i < n; i++) numbers[i] = element(x, i);
    return numbers;
}

uint8_t *tartan_r_bytes(SEXP x, const char *name, int64_t *out_count) {
    if (TYPEOF(x) != RAWSXP && TYPEOF(x) != LGLSXP)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is of type %s, expected logical or raw", name,
                      tartan_r_type(x));
    R_xlen_t n = XLENGTH(x);
    *out_count = n;
    if (TYPEOF(x) == RAWSXP) return RAW(x);
    uint8_t *bytes = (uint8_t *)R_alloc(n > 0 ? (size_t)n : 1, 1);
    for (R_xlen_t i = 0; i < n; i++) {
        if (LOGICAL(x)[i] == NA_LOGICAL)
            tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s[%lld] is NA, expected TRUE or FALSE", name,
                          (long long)i + 1);
        bytes[i] = LOGICAL(x)[i] != 0;
    }
    return bytes;
}

SEXP tartan_r_new_vector(unsigned type, SEXP length, const char *name) {
    int64_t n = tartan_r_count(length, name);
    if (n < 0) tartan_r_fail(TARTAN_ERR_SHAPE, "the length of %s is %lld", name, (long long)n);
    return Rf_allocVector(type, (R_xlen_t)n);
}

void *tartan_r_data(SEXP vector) {
    return TYPEOF(vector) == RAWSXP ? (void *)RAW(vector) : (void *)REAL(vector);
}

void tartan_r_counts_to_numbers(SEXP vector) {
    unsigned char *at = (unsigned char *)REAL(vector);
    for (R_xlen_t i = 0; i < XLENGTH(vector); i++, at += sizeof(int64_t)) {
        int64_t count;
        memcpy(&count, at, sizeof count);
        double number = (double)count;
        memcpy(at, &number, sizeof number);
    }
}

/* ---- Dense operands ---- */

/* The array's elements, counted from the first, must lie inside the `held` bytes of its memory. */
static void check_view(const tartan_array *array, double held, const char *name) {
    double last = 0, bytes = (double)tartan_dtype_bytes(array->dtype);
    int empty = 0;
    for (int32_t i = 0; i < array->ndim; i++) {
        if (array->strides[i] < 0) tartan_r_fail(TARTAN_ERR_SHAPE, "%s has a negative stride", name);
        empty |= array->shape[i] == 0;
        last += (double)(array->shape[i] - 1) * (double)array->strides[i];
    }
    if (!empty && (last + 1) * bytes > held)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has %.0f bytes, expected %.0f", name, held, (last + 1) * bytes);
}

/* Describes a buffer that must hold this dtype; its size. */
static double buffer_bytes(SEXP handle, const char *name, int32_t dtype, tartan_array *out_whole) {
    tartan_status status = tartan_buffer_view(tartan_r_handle(handle, "tartan_buffer"), out_whole);
    if (status != TARTAN_OK) tartan_r_raise(status);
    if (out_whole->dtype != dtype)
        tartan_r_fail(TARTAN_ERR_DTYPE, "%s is %s on its device, expected %s", name,
                      tartan_dtype_name(out_whole->dtype), tartan_dtype_name(dtype));
    double bytes = (double)tartan_dtype_bytes(dtype);
    for (int32_t i = 0; i < out_whole->ndim; i++) bytes *= (double)out_whole->shape[i];
    return bytes;
}

static tartan_array *view_of_list(SEXP x, const char *name, tartan_array *out) {
    if (XLENGTH(x) != 4) tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is no dense operand", name);
    SEXP data = VECTOR_ELT(x, 0);
    int32_t dtype = tartan_r_int32(VECTOR_ELT(x, 1), "dtype");
    int64_t nshape, nstrides;
    int64_t *shape = tartan_r_counts(VECTOR_ELT(x, 2), "shape", &nshape);
    int64_t *strides = tartan_r_counts(VECTOR_ELT(x, 3), "strides", &nstrides);
    if (nshape != nstrides || nshape > TARTAN_MAX_NDIM)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has %lld dimensions, expected at most %d", name,
                      (long long)nshape, TARTAN_MAX_NDIM);
    tartan_array whole = {.device_type = TARTAN_CPU};
    double held = 0;
    if (TYPEOF(data) == EXTPTRSXP) {
        held = buffer_bytes(data, name, dtype, &whole);
    } else if (TYPEOF(data) == (dtype == TARTAN_F64 ? REALSXP : RAWSXP)) {
        whole.data = tartan_r_data(data);
        held = (double)XLENGTH(data) * (TYPEOF(data) == REALSXP ? 8 : 1);
    } else {
        tartan_r_fail(TARTAN_ERR_DTYPE, "%s is of type %s", name, tartan_r_type(data));
    }
    tartan_status status = tartan_array_init(whole.data, dtype, (int32_t)nshape, shape, strides, out);
    if (status != TARTAN_OK) tartan_r_raise(status);
    check_view(out, held, name);
    out->device_type = whole.device_type;
    out->device_id = whole.device_id;
    return out;
}

tartan_array *tartan_r_array(SEXP x, const char *name, tartan_array *out) {
    if (TYPEOF(x) == VECSXP) return view_of_list(x, name, out);
    if (TYPEOF(x) != REALSXP)
        tartan_r_fail(TARTAN_ERR_DTYPE, "%s is of type %s, expected double", name, tartan_r_type(x));
    SEXP dim = Rf_getAttrib(x, R_DimSymbol);
    int ndim = dim == R_NilValue ? 1 : (int)XLENGTH(dim);
    if (ndim > TARTAN_MAX_NDIM)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has %d dimensions, expected at most %d", name, ndim,
                      TARTAN_MAX_NDIM);
    int64_t shape[TARTAN_MAX_NDIM], strides[TARTAN_MAX_NDIM], stride = 1;
    for (int i = 0; i < ndim;
         i++) { /* R's third and later dimensions come first, the last of them outermost */
        int at = ndim < 3 ? i : i < 2 ? ndim - 2 + i : ndim - 1 - i;
        shape[at] = dim == R_NilValue ? (int64_t)XLENGTH(x) : INTEGER(dim)[i];
        strides[at] = stride;
        stride *= shape[at];
    }
    tartan_status status = tartan_array_init(REAL(x), TARTAN_F64, ndim, shape, strides, out);
    if (status != TARTAN_OK) tartan_r_raise(status);
    return out;
}

tartan_array *tartan_r_arrays(SEXP x, const char *name, int64_t *out_count) {
    if (TYPEOF(x) != VECSXP)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is of type %s, expected a list", name, tartan_r_type(x));
    R_xlen_t n = XLENGTH(x);
    tartan_array *arrays = (tartan_array *)R_alloc(n > 0 ? (size_t)n : 1, sizeof *arrays);
    for (R_xlen_t i = 0; i < n; i++) tartan_r_array(VECTOR_ELT(x, i), name, &arrays[i]);
    *out_count = n;
    return arrays;
}

tartan_shape *tartan_r_shape(SEXP x, tartan_shape *out) {
    static const char *const names[] = {"rows", "cols", "block_rows", "block_cols", "heads"};
    if (!is_number(x) || XLENGTH(x) != 5)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "the frame is of type %s and length %lld, expected 5 numbers",
                      tartan_r_type(x), (long long)Rf_xlength(x));
    int64_t field[5];
    for (int i = 0; i < 5; i++) field[i] = whole(element(x, i), names[i], 0, 1);
    *out = (tartan_shape){field[0], field[1], field[2], field[3], field[4]};
    return out;
}
