/* SPDX-License-Identifier: Apache-2.0
 * R values as C arguments, and C results as R values. */
#include "values.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plain values ---- */

int tartan_r_is_number(SEXP x) {
    return (TYPEOF(x) == REALSXP || TYPEOF(x) == INTSXP) && !Rf_inherits(x, "factor");
}

/* Whole numbers up to 2^53, which doubles represent exactly. */
static int64_t whole(double value, const char *name, R_xlen_t i, R_xlen_t n) {
    if (!(fabs(value) <= 9007199254740992.0) || value != trunc(value)) {
        char place[32] = "";
        if (n > 1) snprintf(place, sizeof place, "[%lld]", (long long)i + 1);
        if (ISNA(value))
            tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s%s is NA, expected a whole number", name, place);
        char text[TARTAN_R_DECIMAL];
        tartan_r_decimal_of(value, text);
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s%s is %s, expected a whole number", name, place, text);
    }
    return (int64_t)value;
}

static double element(SEXP x, R_xlen_t i) {
    if (TYPEOF(x) == REALSXP) return REAL(x)[i];
    return INTEGER(x)[i] == NA_INTEGER ? NA_REAL : INTEGER(x)[i];
}

double tartan_r_number(SEXP x, const char *name) {
    if (!tartan_r_is_number(x) || XLENGTH(x) != 1)
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

int32_t tartan_r_dtype(SEXP x, const char *name) {
    int32_t dtype = TYPEOF(x) == STRSXP && XLENGTH(x) == 1 ? tartan_dtype_of(CHAR(STRING_ELT(x, 0))) : 0;
    if (dtype == 0)
        tartan_r_refuse(TARTAN_ERR_DTYPE, x, name,
                        "\"float64\", \"float32\", \"float16\", \"bfloat16\", \"float8_e4m3fn\" or "
                        "\"float8_e5m2\"");
    return dtype;
}

int32_t tartan_r_any_dtype(SEXP x, const char *name) {
    const char *text = TYPEOF(x) == STRSXP && XLENGTH(x) == 1 ? CHAR(STRING_ELT(x, 0)) : "";
    if (strcmp(text, "int32") == 0) return TARTAN_I32;
    if (strcmp(text, "uint8") == 0) return TARTAN_U8;
    return tartan_r_dtype(x, name);
}

/* ---- Vectors ---- */

static void expect_numbers(SEXP x, const char *name) {
    if (!tartan_r_is_number(x))
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

tartan_shape *tartan_r_shape(SEXP x, tartan_shape *out) {
    static const char *const names[] = {"rows", "cols", "block_rows", "block_cols", "heads"};
    if (!tartan_r_is_number(x) || XLENGTH(x) != 5)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "the frame is of type %s and length %lld, expected 5 numbers",
                      tartan_r_type(x), (long long)Rf_xlength(x));
    int64_t field[5];
    for (int i = 0; i < 5; i++) field[i] = whole(element(x, i), names[i], 0, 1);
    *out = (tartan_shape){field[0], field[1], field[2], field[3], field[4]};
    return out;
}

/* Refuses what is not a list of three. */
static void expect_three(SEXP x, const char *name) {
    if (TYPEOF(x) != VECSXP || XLENGTH(x) != 3)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is of type %s and length %lld, expected a list of 3", name,
                      tartan_r_type(x), (long long)Rf_xlength(x));
}

static void expect_as_many(const char *name, int64_t count, int64_t expected) {
    if (count != expected)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has %lld entries, expected %lld (as rows)", name,
                      (long long)count, (long long)expected);
}

tartan_places *tartan_r_places(SEXP x, const char *name, tartan_places *out) {
    int64_t heads, cols;
    expect_three(x, name);
    out->heads = tartan_r_counts(VECTOR_ELT(x, 0), "heads", &heads);
    out->rows = tartan_r_counts(VECTOR_ELT(x, 1), "rows", &out->count);
    out->cols = tartan_r_counts(VECTOR_ELT(x, 2), "cols", &cols);
    expect_as_many("cols", cols, out->count);
    if (out->heads != NULL) expect_as_many("heads", heads, out->count);
    return out;
}

tartan_compressed *tartan_r_compressed(SEXP x, const char *name, tartan_compressed *out) {
    expect_three(x, name);
    out->pointers = tartan_r_counts(VECTOR_ELT(x, 0), "pointers", &out->npointers);
    out->indices = tartan_r_counts(VECTOR_ELT(x, 1), "indices", &out->nindices);
    out->by_column = Rf_asLogical(VECTOR_ELT(x, 2)) == TRUE;
    return out;
}

tartan_channel_sets *tartan_r_channel_sets(SEXP x, const char *name, tartan_channel_sets *out) {
    expect_three(x, name);
    out->channels = tartan_r_count(VECTOR_ELT(x, 0), "channels");
    out->offsets = tartan_r_counts(VECTOR_ELT(x, 1), "offsets", &out->noffsets);
    out->ids = tartan_r_counts(VECTOR_ELT(x, 2), "ids", &out->nids);
    return out;
}

/* ---- Text ---- */

/* The decimal point of the locale may be any run of characters that are not part of a number in C. */
static void set_point(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        if (strchr("0123456789+-eE", *from) != NULL)
            *to++ = *from;
        else if (to == text || to[-1] != '.')
            *to++ = '.';
    }
    *to = '\0';
}

/* snprintf and strtod use the same locale. */
void tartan_r_decimal_of(double value, char text[TARTAN_R_DECIMAL]) {
    if (!isfinite(value)) {
        const char *word = ISNA(value) ? "NA" : isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf";
        memcpy(text, word, strlen(word) + 1);
    } else if (value == trunc(value) && fabs(value) <= 9007199254740992.0) {
        snprintf(text, TARTAN_R_DECIMAL, "%.0f", value);
    } else {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, TARTAN_R_DECIMAL, "%.*g", digits, value);
            if (strtod(text, NULL) == value) break;
        }
        set_point(text);
    }
}

SEXP tartan_r_decimal(SEXP numbers) {
    R_xlen_t n = XLENGTH(numbers);
    SEXP texts = PROTECT(Rf_allocVector(STRSXP, n));
    for (R_xlen_t i = 0; i < n; i++) {
        char text[TARTAN_R_DECIMAL];
        tartan_r_decimal_of(element(numbers, i), text);
        SET_STRING_ELT(texts, i, Rf_mkChar(text));
    }
    UNPROTECT(1);
    return texts;
}

/* ---- Results ---- */

SEXP tartan_r_string(const char *text) {
    if (text == NULL) return R_NilValue;
    SEXP string = PROTECT(Rf_mkCharCE(text, CE_UTF8));
    SEXP result = Rf_ScalarString(string);
    UNPROTECT(1);
    return result;
}

static void free_text(SEXP holder) {
    tartan_text_free(R_ExternalPtrAddr(holder));
    R_ClearExternalPtr(holder);
}

SEXP tartan_r_new_holder(void) {
    SEXP holder = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, R_NilValue));
    R_RegisterCFinalizerEx(holder, free_text, TRUE);
    UNPROTECT(1);
    return holder;
}

SEXP tartan_r_take_text(SEXP holder, char *text) {
    R_SetExternalPtrAddr(holder, text);
    SEXP result = PROTECT(tartan_r_string(text));
    free_text(holder);
    UNPROTECT(1);
    return result;
}

SEXP tartan_r_copy_values(const tartan_array *view) {
    if (view->device_type != TARTAN_CPU)
        tartan_r_fail(TARTAN_ERR_UNSUPPORTED, "the values are on CUDA device %d, expected host memory",
                      (int)view->device_id);
    int64_t blocks = view->shape[0], rows = view->shape[1], cols = view->shape[2];
    int64_t count = blocks * rows * cols; /* the matrix is in memory, so this does not overflow */
    if (blocks > INT32_MAX)
        tartan_r_fail(TARTAN_ERR_OVERFLOW, "%lld blocks, R counts to %d", (long long)blocks, INT32_MAX);
    if (rows > 1 && cols > 1 && view->strides[1] != 1)
        tartan_r_fail(TARTAN_ERR_INTERNAL, "the values are row-major, expected column-major");
    size_t bytes = (size_t)(count * tartan_dtype_bytes(view->dtype));
    SEXP values = PROTECT(view->dtype == TARTAN_F64 ? Rf_allocVector(REALSXP, (R_xlen_t)count)
                                                    : Rf_allocVector(RAWSXP, (R_xlen_t)bytes));
    if (bytes > 0) memcpy(tartan_r_data(values), view->data, bytes);
    if (view->dtype == TARTAN_F64) {
        SEXP dim = PROTECT(Rf_allocVector(INTSXP, 3));
        INTEGER(dim)[0] = (int)rows;
        INTEGER(dim)[1] = (int)cols;
        INTEGER(dim)[2] = (int)blocks;
        Rf_setAttrib(values, R_DimSymbol, dim);
        UNPROTECT(1);
    }
    UNPROTECT(1);
    return values;
}
