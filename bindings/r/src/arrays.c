/* SPDX-License-Identifier: Apache-2.0 */
#include "arrays.h"

#include <string.h>

static int on_device(SEXP x) {
    return tartan_r_class_of(x) == TARTAN_R_DEVICE_ARRAY;
}

static int64_t count(int32_t ndim, const int64_t *dim) {
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) n *= dim[i];
    return n;
}

static void expect_ndim(R_xlen_t ndim, const char *name) {
    if (ndim > TARTAN_MAX_NDIM)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has %lld dimensions, expected at most %d", name, (long long)ndim,
                      TARTAN_MAX_NDIM);
}

/* ---- Numbers in other dtypes: the library converts them as the values of a layout with one column of blocks ---- */

static SEXP column_layout(int64_t n) {
    enum { rows = 256 };
    int64_t blocks = (n + rows - 1) / rows;
    tartan_shape shape = {n, 1, rows, 1, 1};
    int64_t *pointers = (int64_t *)R_alloc((size_t)blocks + 1, sizeof *pointers);
    int64_t *columns = (int64_t *)R_alloc((size_t)blocks + 1, sizeof *columns);
    for (int64_t i = 0; i <= blocks; i++) {
        pointers[i] = i;
        columns[i] = 0;
    }
    SEXP handle = PROTECT(tartan_r_new_handle("tartan_layout"));
    tartan_layout *layout = NULL;
    tartan_r_check(tartan_layout_from_csr(
        &shape, &(const tartan_compressed){pointers, blocks + 1, columns, blocks, 0}, &layout));
    R_SetExternalPtrAddr(handle, layout);
    UNPROTECT(1);
    return handle;
}

static void column_of(double *numbers, int64_t n, tartan_array *out) {
    int64_t shape[2] = {n, 1}, strides[2] = {1, n};
    tartan_r_check(tartan_array_init(numbers, TARTAN_F64, 2, shape, strides, out));
}

static SEXP rounded(SEXP numbers, int32_t dtype) {
    const void *top = vmaxget();
    int64_t n = XLENGTH(numbers);
    SEXP layout = PROTECT(column_layout(n)), handle = PROTECT(tartan_r_new_handle("tartan_matrix"));
    tartan_array column, values;
    column_of(REAL(numbers), n, &column);
    tartan_matrix *matrix = NULL;
    tartan_r_check(
        tartan_matrix_from_dense(R_ExternalPtrAddr(layout), &column, dtype, TARTAN_COL_MAJOR, &matrix));
    R_SetExternalPtrAddr(handle, matrix);
    tartan_r_check(tartan_matrix_values(matrix, &values));
    SEXP bytes = PROTECT(tartan_r_copy_values(&values));
    tartan_r_close(handle);
    tartan_r_close(layout);
    vmaxset(top);
    UNPROTECT(3);
    return bytes;
}

SEXP tartan_r_rounded(SEXP numbers, SEXP dtype_name) {
    int32_t dtype = tartan_r_any_dtype(dtype_name, "dtype");
    if (dtype == TARTAN_I32) return tartan_r_integers(numbers, "x");
    if (dtype == TARTAN_U8) {
        SEXP bytes = PROTECT(Rf_allocVector(RAWSXP, XLENGTH(numbers)));
        for (R_xlen_t i = 0; i < XLENGTH(numbers); i++) RAW(bytes)[i] = REAL(numbers)[i] != 0;
        UNPROTECT(1);
        return bytes;
    }
    return dtype == TARTAN_F64 ? numbers : rounded(numbers, dtype);
}

/* Raw bytes for the values of column_layout(n). */
static SEXP new_bytes(int64_t n, int32_t dtype) {
    return Rf_allocVector(RAWSXP, (R_xlen_t)((n + 255) / 256 * 256 * tartan_dtype_bytes(dtype)));
}

static SEXP widened(SEXP bytes, int32_t dtype, SEXP result) {
    const void *top = vmaxget();
    int64_t n = XLENGTH(result);
    SEXP layout = PROTECT(column_layout(n)), name = PROTECT(Rf_mkString(tartan_dtype_name(dtype)));
    SEXP handle = PROTECT(tartan_r_wrap_values(layout, bytes, name));
    tartan_array column;
    column_of(REAL(result), n, &column);
    tartan_r_check(tartan_matrix_to_dense(R_ExternalPtrAddr(handle), &column));
    tartan_r_close(handle);
    tartan_r_close(layout);
    vmaxset(top);
    UNPROTECT(3);
    return result;
}

/* ---- Operands ---- */

void tartan_r_take_dense(SEXP x, const char *name, tartan_r_dense *out) {
    SEXP dim;
    if (on_device(x)) {
        out->data = x;
        out->dtype = tartan_r_dtype_of(x, name);
        dim = R_do_slot(x, Rf_install("size"));
    } else {
        SEXP numbers = x;
        if (IS_S4_OBJECT(x) || TYPEOF(x) == VECSXP) numbers = tartan_r_call(".as_numbers", x);
        PROTECT(numbers);
        if (!tartan_r_is_number(numbers) && TYPEOF(numbers) != LGLSXP)
            tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a numeric matrix");
        out->data = TYPEOF(numbers) == REALSXP ? numbers : Rf_coerceVector(numbers, REALSXP);
        out->dtype = TARTAN_F64;
        dim = Rf_getAttrib(numbers, R_DimSymbol);
        UNPROTECT(1);
    }
    PROTECT(out->data);
    expect_ndim(Rf_xlength(dim), name);
    out->ndim = dim == R_NilValue ? 1 : (int32_t)XLENGTH(dim);
    for (int i = 0; i < out->ndim; i++)
        out->dim[i] = dim == R_NilValue       ? (int64_t)XLENGTH(out->data)
                      : TYPEOF(dim) == INTSXP ? INTEGER(dim)[i]
                                              : (int64_t)REAL(dim)[i];
    UNPROTECT(1);
}

void tartan_r_convert(tartan_r_dense *x, int32_t dtype) {
    if (on_device(x->data) || x->dtype == dtype) return;
    x->data = rounded(x->data, dtype);
    x->dtype = dtype;
}

/* Shape and strides for the library. With `least` = 2 a vector is one column. */
static int32_t shape_of(const tartan_r_dense *x, int32_t least, int turned, int64_t *shape,
                        int64_t *strides) {
    int32_t ndim = x->ndim < least ? least : x->ndim;
    int64_t stride = 1;
    if (ndim == 1) {
        shape[0] = x->dim[0];
        strides[0] = 1;
        return 1;
    }
    for (int i = 0; i < ndim; i++) {
        int at = i < 2 ? ndim - 2 + (turned ? 1 - i : i) : ndim - 1 - i;
        shape[at] = i < x->ndim ? x->dim[i] : 1;
        strides[at] = stride;
        stride *= shape[at];
    }
    return ndim;
}

/* Describes the memory of doubles, raw bytes or a buffer, which must hold this dtype, as an array; returns its
 * bytes. */
static double memory_of(SEXP data, int32_t dtype, const char *name, tartan_array *out) {
    *out = (tartan_array){.device_type = TARTAN_CPU};
    if (dtype == TARTAN_I32 && TYPEOF(data) == INTSXP) {
        out->data = INTEGER(data);
        return (double)XLENGTH(data) * sizeof(int);
    }
    if (TYPEOF(data) == (dtype == TARTAN_F64 ? REALSXP : RAWSXP)) {
        out->data = tartan_r_data(data);
        return (double)XLENGTH(data) * (dtype == TARTAN_F64 ? 8 : 1);
    }
    if (TYPEOF(data) != EXTPTRSXP && !on_device(data))
        tartan_r_fail(TARTAN_ERR_DTYPE, "%s is of type %s", name, tartan_r_type(data));
    tartan_r_check(tartan_buffer_view(tartan_r_as_buffer(data, name), out));
    if (out->dtype != dtype)
        tartan_r_fail(TARTAN_ERR_DTYPE, "%s is %s on its device, expected %s", name,
                      tartan_dtype_name(out->dtype), tartan_dtype_name(dtype));
    double bytes = (double)tartan_dtype_bytes(dtype);
    for (int32_t i = 0; i < out->ndim; i++) bytes *= (double)out->shape[i];
    return bytes;
}

/* The array's elements, counted from the first, must lie inside the `held` bytes of its memory. */
static void expect_inside(const tartan_array *array, double held, const char *name) {
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

tartan_array *tartan_r_describe(SEXP data, int32_t dtype, int32_t ndim, const int64_t *shape,
                                const int64_t *strides, const char *name, tartan_array *out) {
    tartan_array memory;
    double held = memory_of(data, dtype, name, &memory);
    tartan_r_check(tartan_array_init(memory.data, dtype, ndim, shape, strides, out));
    expect_inside(out, held, name);
    out->device_type = memory.device_type;
    out->device_id = memory.device_id;
    return out;
}

tartan_array *tartan_r_view(const tartan_r_dense *x, int turned, const char *name, tartan_array *out) {
    int64_t shape[TARTAN_MAX_NDIM], strides[TARTAN_MAX_NDIM];
    int32_t ndim = shape_of(x, 2, turned, shape, strides);
    return tartan_r_describe(x->data, x->dtype, ndim, shape, strides, name, out);
}

static tartan_array *view_of_list(SEXP x, const char *name, tartan_array *out) {
    if (XLENGTH(x) < 4) tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s is not a dense operand", name);
    int32_t dtype = tartan_r_int32(VECTOR_ELT(x, 1), "dtype");
    int64_t nshape, nstrides;
    int64_t *shape = tartan_r_counts(VECTOR_ELT(x, 2), "shape", &nshape);
    int64_t *strides = tartan_r_counts(VECTOR_ELT(x, 3), "strides", &nstrides);
    expect_ndim(nshape, name);
    if (nshape != nstrides)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has a shape and strides of different length", name);
    return tartan_r_describe(VECTOR_ELT(x, 0), dtype, (int32_t)nshape, shape, strides, name, out);
}

tartan_array *tartan_r_array(SEXP x, const char *name, tartan_array *out) {
    if (TYPEOF(x) == VECSXP) return view_of_list(x, name, out);
    if (TYPEOF(x) != REALSXP && !on_device(x))
        tartan_r_fail(TARTAN_ERR_DTYPE, "%s is of type %s, expected double", name, tartan_r_type(x));
    tartan_r_dense dense;
    tartan_r_take_dense(x, name, &dense);
    int64_t shape[TARTAN_MAX_NDIM], strides[TARTAN_MAX_NDIM];
    int32_t ndim = shape_of(&dense, 1, 0, shape, strides);
    return tartan_r_describe(dense.data, dense.dtype, ndim, shape, strides, name, out);
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

tartan_array *tartan_r_gates(SEXP x, const char *name, tartan_array *out) {
    if (x == R_NilValue) return NULL;
    if (TYPEOF(x) == VECSXP || on_device(x)) return tartan_r_array(x, name, out);
    if (!tartan_r_is_number(x) && TYPEOF(x) != LGLSXP)
        tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a number for each block");
    int64_t n = XLENGTH(x);
    double *numbers =
        TYPEOF(x) == REALSXP ? REAL(x) : (double *)R_alloc(n > 0 ? (size_t)n : 1, sizeof *numbers);
    if (TYPEOF(x) != REALSXP) /* logicals are stored as integers are */
        for (int64_t i = 0; i < n; i++) {
            int value = TYPEOF(x) == INTSXP ? INTEGER(x)[i] : LOGICAL(x)[i];
            numbers[i] = value == NA_INTEGER ? NA_REAL : value;
        }
    tartan_r_check(tartan_array_init(numbers, TARTAN_F64, 1, &n, NULL, out));
    return out;
}

/* ---- Results ---- */

static SEXP new_array(SEXPTYPE type, SEXP dim) {
    SEXP sizes = PROTECT(Rf_coerceVector(dim, REALSXP));
    double elements = 1;
    for (R_xlen_t i = 0; i < XLENGTH(sizes); i++) {
        double size = REAL(sizes)[i];
        if (!(size >= 0 && size <= INT32_MAX))
            tartan_r_fail(TARTAN_ERR_OVERFLOW, "the result has a dimension of %.0f, R arrays have at most %d",
                          size, INT32_MAX);
        elements *= size;
    }
    if (elements > 4503599627370496.0) /* R_XLEN_T_MAX */
        tartan_r_fail(TARTAN_ERR_OVERFLOW, "the result has %.0f elements, R vectors have at most 2^52",
                      elements);
    SEXP array = PROTECT(Rf_allocVector(type, (R_xlen_t)elements));
    if (XLENGTH(sizes) > 1) {
        SEXP whole = PROTECT(Rf_coerceVector(sizes, INTSXP));
        Rf_setAttrib(array, R_DimSymbol, whole);
        UNPROTECT(1);
    }
    UNPROTECT(2);
    return array;
}

SEXP tartan_r_new_array(SEXP dim) {
    return new_array(REALSXP, dim);
}

static SEXP new_host_array(SEXPTYPE type, int32_t ndim, const int64_t *dim) {
    SEXP sizes = PROTECT(Rf_allocVector(REALSXP, ndim));
    for (int i = 0; i < ndim; i++) REAL(sizes)[i] = (double)dim[i];
    SEXP array = new_array(type, sizes);
    UNPROTECT(1);
    return array;
}

/* The S4 object for a buffer. */
static SEXP new_device_array(SEXP handle, SEXP place, int32_t dtype, int32_t ndim, const int64_t *dim) {
    SEXP object = PROTECT(R_do_new_object(PROTECT(R_do_MAKE_CLASS("DeviceArray"))));
    SEXP size = PROTECT(Rf_allocVector(REALSXP, ndim)), name = PROTECT(Rf_mkString(tartan_dtype_name(dtype)));
    for (int i = 0; i < ndim; i++) REAL(size)[i] = (double)dim[i];
    R_do_slot_assign(object, Rf_install("context"), place);
    R_do_slot_assign(object, Rf_install("handle"), handle);
    R_do_slot_assign(object, Rf_install("size"), size);
    R_do_slot_assign(object, Rf_install("dtype"), name);
    UNPROTECT(4);
    return object;
}

void tartan_r_new_dense(SEXP place, int32_t dtype, int32_t ndim, const int64_t *dim, tartan_r_dense *out) {
    *out = (tartan_r_dense){.dtype = dtype, .ndim = ndim};
    memcpy(out->dim, dim, (size_t)ndim * sizeof *dim);
    if (place == R_NilValue) {
        out->data = dtype == TARTAN_F64   ? new_host_array(REALSXP, ndim, dim)
                    : dtype == TARTAN_I32 ? new_host_array(INTSXP, ndim, dim)
                                          : new_bytes(count(ndim, dim), dtype);
        return;
    }
    SEXP handle = PROTECT(tartan_r_new_handle("tartan_buffer"));
    tartan_context *context = tartan_r_as_context(place, "context");
    tartan_buffer *buffer = NULL;
    tartan_status status = tartan_buffer_create(context, dtype, dim, ndim, TARTAN_COL_MAJOR, &buffer);
    if (status == TARTAN_ERR_MEMORY) { /* R counts only its own memory; there may be objects to collect */
        R_gc();
        status = tartan_buffer_create(context, dtype, dim, ndim, TARTAN_COL_MAJOR, &buffer);
    }
    tartan_r_check(status);
    R_SetExternalPtrAddr(handle, buffer);
    out->data = new_device_array(handle, place, dtype, ndim, dim);
    UNPROTECT(1);
}

/* The whole memory as an array, in R's order of dimensions. */
static void whole(const tartan_r_dense *x, const char *name, tartan_array *out) {
    int64_t strides[TARTAN_MAX_NDIM], stride = 1;
    for (int i = 0; i < x->ndim; i++) {
        strides[i] = stride;
        stride *= x->dim[i];
    }
    tartan_r_describe(x->data, x->dtype, x->ndim, x->dim, strides, name, out);
}

void tartan_r_copy_dense(SEXP place, const tartan_r_dense *x, tartan_r_dense *out) {
    *out = *x;
    if (place == R_NilValue) {
        out->data = Rf_duplicate(x->data);
        return;
    }
    SEXP handle = PROTECT(tartan_r_new_handle("tartan_buffer"));
    tartan_context *context = tartan_r_as_context(place, "context");
    tartan_array source;
    whole(x, "c", &source);
    tartan_buffer *buffer = NULL;
    tartan_status status = tartan_buffer_from_array(context, &source, &buffer);
    if (status == TARTAN_ERR_MEMORY) {
        R_gc();
        status = tartan_buffer_from_array(context, &source, &buffer);
    }
    tartan_r_check(status);
    R_SetExternalPtrAddr(handle, buffer);
    out->data = new_device_array(handle, place, x->dtype, x->ndim, x->dim);
    UNPROTECT(1);
}

SEXP tartan_r_finish(const tartan_r_dense *x) {
    if (TYPEOF(x->data) != RAWSXP) return x->data;
    SEXP result = PROTECT(new_host_array(REALSXP, x->ndim, x->dim));
    widened(x->data, x->dtype, result);
    UNPROTECT(1);
    return result;
}

/* ---- For R code ---- */

static SEXP numbers_of(int32_t n, const int64_t *values) {
    SEXP numbers = Rf_allocVector(REALSXP, n);
    for (int i = 0; i < n; i++) REAL(numbers)[i] = (double)values[i];
    return numbers;
}

/* list(data, dtype, shape, strides, dim). */
static SEXP list_of(const tartan_r_dense *x, int32_t least, int turned) {
    int64_t shape[TARTAN_MAX_NDIM], strides[TARTAN_MAX_NDIM];
    int32_t ndim = shape_of(x, least, turned, shape, strides);
    SEXP list = PROTECT(Rf_allocVector(VECSXP, 5));
    SET_VECTOR_ELT(list, 0, x->data);
    SET_VECTOR_ELT(list, 1, Rf_ScalarInteger(x->dtype));
    SET_VECTOR_ELT(list, 2, numbers_of(ndim, shape));
    SET_VECTOR_ELT(list, 3, numbers_of(ndim, strides));
    SET_VECTOR_ELT(list, 4, numbers_of(x->ndim, x->dim));
    UNPROTECT(1);
    return list;
}

SEXP tartan_r_operand(SEXP x, SEXP name, SEXP dtype, SEXP turned) {
    tartan_r_dense dense;
    tartan_r_take_dense(x, tartan_r_text(name, "name", 0), &dense);
    PROTECT(dense.data);
    tartan_r_convert(&dense, tartan_r_dtype(dtype, "dtype"));
    PROTECT(dense.data);
    SEXP list = list_of(&dense, 2, Rf_asLogical(turned) == 1);
    UNPROTECT(2);
    return list;
}

SEXP tartan_r_result(SEXP place, SEXP sizes, SEXP dtype) {
    int64_t ndim;
    const int64_t *dim = tartan_r_counts(sizes, "dim", &ndim);
    expect_ndim(ndim, "the result");
    tartan_r_dense result;
    tartan_r_new_dense(place, tartan_r_any_dtype(dtype, "dtype"), (int32_t)ndim, dim, &result);
    PROTECT(result.data);
    SEXP list = list_of(&result, 1, 0);
    UNPROTECT(1);
    return list;
}

SEXP tartan_r_result_from(SEXP place, SEXP start, SEXP name) {
    tartan_r_dense first, result;
    tartan_r_take_dense(start, tartan_r_text(name, "name", 0), &first);
    PROTECT(first.data);
    tartan_r_copy_dense(place, &first, &result);
    PROTECT(result.data);
    SEXP list = list_of(&result, 1, 0);
    UNPROTECT(2);
    return list;
}

SEXP tartan_r_result_value(SEXP result) {
    SEXP data = VECTOR_ELT(result, 0);
    if (TYPEOF(data) != RAWSXP) return data;
    SEXP value = PROTECT(tartan_r_new_array(VECTOR_ELT(result, 4)));
    widened(data, INTEGER(VECTOR_ELT(result, 1))[0], value);
    UNPROTECT(1);
    return value;
}

SEXP tartan_r_duplicate(SEXP x) {
    return Rf_duplicate(x);
}
