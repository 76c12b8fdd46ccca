/* SPDX-License-Identifier: Apache-2.0
 * Results for R, and handles. */
#include "glue.h"

#include <string.h>

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
    int64_t count = blocks * rows * cols; /* the matrix is in memory: this does not overflow */
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

/* ---- Handles ---- */

static void free_handle(SEXP handle) {
    void *address = R_ExternalPtrAddr(handle);
    if (address == NULL) return;
    const char *tag = CHAR(PRINTNAME(R_ExternalPtrTag(handle)));
    R_ClearExternalPtr(handle);
    if (strcmp(tag, "tartan_context") == 0) tartan_context_free(address);
    if (strcmp(tag, "tartan_layout") == 0) tartan_layout_free(address);
    if (strcmp(tag, "tartan_matrix") == 0) tartan_matrix_free(address);
    if (strcmp(tag, "tartan_file") == 0) tartan_file_free(address);
    if (strcmp(tag, "tartan_buffer") == 0) tartan_buffer_free(address);
}

SEXP tartan_r_new_handle(const char *tag) {
    SEXP handle = PROTECT(R_MakeExternalPtr(NULL, Rf_install(tag), R_NilValue));
    R_RegisterCFinalizerEx(handle, free_handle, TRUE);
    UNPROTECT(1);
    return handle;
}

static void expect_tag(SEXP x, const char *tag) {
    if (TYPEOF(x) != EXTPTRSXP)
        tartan_r_fail(TARTAN_ERR_HANDLE, "the handle is of type %s, expected a %s", tartan_r_type(x), tag);
    SEXP found = R_ExternalPtrTag(x);
    if (found != Rf_install(tag))
        tartan_r_fail(TARTAN_ERR_HANDLE, "the handle is %s%s, expected a %s",
                      TYPEOF(found) == SYMSXP ? "a " : "",
                      TYPEOF(found) == SYMSXP ? CHAR(PRINTNAME(found)) : "foreign", tag);
}

void *tartan_r_handle(SEXP x, const char *tag) {
    expect_tag(x, tag);
    if (R_ExternalPtrAddr(x) == NULL)
        tartan_r_fail(TARTAN_ERR_HANDLE, "the handle is closed or from a saved session, expected an open %s",
                      tag);
    return R_ExternalPtrAddr(x);
}

SEXP tartan_r_live(SEXP handle, const char *tag) {
    if (handle == R_NilValue) return Rf_ScalarLogical(0);
    expect_tag(handle, tag);
    return Rf_ScalarLogical(R_ExternalPtrAddr(handle) != NULL);
}

SEXP tartan_r_wraps(SEXP handle, SEXP values) {
    if (handle == R_NilValue) return Rf_ScalarLogical(0);
    expect_tag(handle, "tartan_matrix");
    return Rf_ScalarLogical(R_ExternalPtrAddr(handle) != NULL && R_ExternalPtrProtected(handle) == values);
}

/* A matrix around memory that `keeper` holds. */
static SEXP wrap(tartan_layout *layout, const tartan_array *values, SEXP keeper) {
    SEXP handle = PROTECT(tartan_r_new_handle("tartan_matrix"));
    tartan_matrix *matrix = NULL;
    tartan_status status = tartan_matrix_wrap(layout, values, NULL, NULL, &matrix);
    if (status != TARTAN_OK) tartan_r_raise(status);
    R_SetExternalPtrAddr(handle, matrix);
    R_SetExternalPtrProtected(handle, keeper);
    UNPROTECT(1);
    return handle;
}

SEXP tartan_r_matrix(SEXP layout, SEXP values, int32_t dtype) {
    tartan_layout *blocks = tartan_r_handle(layout, "tartan_layout");
    int64_t rows = tartan_layout_block_rows(blocks), cols = tartan_layout_block_cols(blocks);
    int64_t shape[3] = {tartan_layout_blocks(blocks), rows, cols}, strides[3] = {rows * cols, 1, rows};
    if (TYPEOF(values) != (dtype == TARTAN_F64 ? REALSXP : RAWSXP))
        tartan_r_fail(TARTAN_ERR_DTYPE, "values are of type %s, expected %s", tartan_r_type(values),
                      dtype == TARTAN_F64 ? "double" : "raw");
    double bytes = (double)shape[0] * (double)(rows * cols) * (double)tartan_dtype_bytes(dtype);
    double held = (double)XLENGTH(values) * (TYPEOF(values) == REALSXP ? 8 : 1);
    if (bytes != held)
        tartan_r_fail(TARTAN_ERR_SHAPE, "values have %.0f bytes, expected %.0f (%lld blocks of %lld x %lld)",
                      held, bytes, (long long)shape[0], (long long)rows, (long long)cols);
    tartan_array array;
    tartan_status status = tartan_array_init(tartan_r_data(values), dtype, 3, shape, strides, &array);
    if (status != TARTAN_OK) tartan_r_raise(status);
    SEXP handle = wrap(blocks, &array, values);
    MARK_NOT_MUTABLE(values); /* whoever changes the values from now on gets a copy */
    return handle;
}

SEXP tartan_r_device_matrix(SEXP layout, SEXP buffer) {
    tartan_array memory;
    tartan_status status = tartan_buffer_view(tartan_r_handle(buffer, "tartan_buffer"), &memory);
    if (status != TARTAN_OK) tartan_r_raise(status);
    if (memory.ndim != 3)
        tartan_r_fail(TARTAN_ERR_SHAPE, "the buffer has %d dimensions, expected 3", memory.ndim);
    tartan_array values = memory; /* C counts the blocks first */
    for (int i = 0; i < 3; i++) {
        values.shape[i] = memory.shape[(i + 2) % 3];
        values.strides[i] = memory.strides[(i + 2) % 3];
    }
    return wrap(tartan_r_handle(layout, "tartan_layout"), &values, buffer);
}

SEXP tartan_r_close(SEXP handle) {
    if (TYPEOF(handle) == EXTPTRSXP) free_handle(handle);
    return R_NilValue;
}

/* ---- For the package's R code ---- */

SEXP tartan_r_new_array(SEXP dim) {
    SEXP sizes = PROTECT(Rf_coerceVector(dim, REALSXP));
    double count = 1;
    for (R_xlen_t i = 0; i < XLENGTH(sizes); i++) {
        double size = REAL(sizes)[i];
        if (!(size >= 0 && size <= INT32_MAX))
            tartan_r_fail(TARTAN_ERR_OVERFLOW, "the result has a dimension of %.0f, R arrays have at most %d",
                          size, INT32_MAX);
        count *= size;
    }
    if (count > 4503599627370496.0) /* R_XLEN_T_MAX */
        tartan_r_fail(TARTAN_ERR_OVERFLOW, "the result has %.0f elements, R vectors have at most 2^52",
                      count);
    SEXP array = PROTECT(Rf_allocVector(REALSXP, (R_xlen_t)count));
    if (XLENGTH(sizes) > 1) Rf_setAttrib(array, R_DimSymbol, PROTECT(Rf_coerceVector(dim, INTSXP)));
    UNPROTECT(XLENGTH(sizes) > 1 ? 3 : 2);
    return array;
}

SEXP tartan_r_duplicate(SEXP x) {
    return Rf_duplicate(x);
}

SEXP tartan_r_constants(void) {
    static const struct {
        const char *name;
        int value;
    } constants[] = {
        {"float64", TARTAN_F64},
        {"float32", TARTAN_F32},
        {"float16", TARTAN_F16},
        {"bfloat16", TARTAN_BF16},
        {"float8_e4m3fn", TARTAN_F8E4M3},
        {"float8_e5m2", TARTAN_F8E5M2},
        {"uint8", TARTAN_U8},
        {"max", TARTAN_NORM_MAX},
        {"l1", TARTAN_NORM_L1},
        {"l2", TARTAN_NORM_L2},
        {"row", TARTAN_BY_ROW},
        {"column", TARTAN_BY_COLUMN},
        {"morton", TARTAN_BY_MORTON},
        {"left", TARTAN_LEFT},
        {"right", TARTAN_RIGHT},
        {"layout", TARTAN_KIND_LAYOUT},
        {"matrix", TARTAN_KIND_MATRIX},
        {"row_major", TARTAN_ROW_MAJOR},
        {"col_major", TARTAN_COL_MAJOR},
        {"plain", TARTAN_KEEP_PLAIN},
        {"compressed", TARTAN_KEEP_COMPRESSED},
        {"abi", TARTAN_ABI_VERSION},
    };
    int n = (int)(sizeof constants / sizeof *constants);
    SEXP values = PROTECT(Rf_allocVector(INTSXP, n)), names = PROTECT(Rf_allocVector(STRSXP, n));
    for (int i = 0; i < n; i++) {
        INTEGER(values)[i] = constants[i].value;
        SET_STRING_ELT(names, i, Rf_mkChar(constants[i].name));
    }
    Rf_setAttrib(values, R_NamesSymbol, names);
    UNPROTECT(2);
    return values;
}
