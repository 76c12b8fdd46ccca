/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/operand.h"

#include "core/dtype.h"

#include <math.h>
#include <stdio.h>

static tartan_status check_device(const char *function, const tartan_context *context, const char *name,
                                  int32_t type, int32_t id) {
    const tartan_context_options *o = &context->options;
    CHECK_FOR(function, type == o->device_type && (type == TARTAN_CPU || id == o->device_id), UNSUPPORTED,
              "%s is on device %d:%d, expected %d:%d (that of the context)", name, type, id, o->device_type,
              o->device_id);
    return TARTAN_OK;
}

tartan_status tartan_i_operand_near(const char *function, const tartan_context *context, const char *name,
                                    int32_t device_type, int32_t device_id) {
    if (device_type == TARTAN_CPU) return TARTAN_OK;
    return check_device(function, context, name, device_type, device_id);
}

tartan_status tartan_i_operand_layout(const char *function, const tartan_context *context,
                                      const tartan_layout *layout) {
    if (!tartan_i_is_layout(layout)) return tartan_i_fail_handle(function, "layout", layout, "layout");
    if (!tartan_i_is_dynamic(layout)) return TARTAN_OK;
    return check_device(function, context, "layout", layout->device_type, layout->device_id);
}

tartan_status tartan_i_operand_array(const char *function, const tartan_context *context, const char *name,
                                     const tartan_array *array, bool output) {
    PASS(tartan_i_array_check_any(function, name, array, output));
    return check_device(function, context, name, array->device_type, array->device_id);
}

tartan_status tartan_i_operand_matrix(const char *function, const tartan_context *context, const char *name,
                                      const tartan_matrix *matrix) {
    CHECK_FOR(function, tartan_i_is(matrix, TARTAN_I_MATRIX), HANDLE, "%s is %s, expected an open matrix",
              name, matrix == NULL ? "NULL" : "closed or not one of Tartan's");
    return check_device(function, context, name, matrix->device_type, matrix->device_id);
}

tartan_status tartan_i_operand_gates(const char *function, const tartan_context *context,
                                     const tartan_array *gates, int64_t blocks) {
    if (gates == NULL) return TARTAN_OK;
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(function, context, "gates", gates, false));
    CHECK_FOR(function, gates->dtype == TARTAN_F32 || gates->dtype == TARTAN_F64, DTYPE,
              "gates is of %s, expected float32 or float64", tartan_dtype_name(gates->dtype));
    CHECK_FOR(function, gates->ndim == 1 && gates->shape[0] == blocks, SHAPE,
              "gates has shape %s, expected [%" PRId64 "] (one for each block)",
              tartan_i_shape_text(gates, text), blocks);
    return TARTAN_OK;
}

tartan_status tartan_i_operand_scalar(const char *function, const char *name, double value, int32_t dtype) {
    const int32_t sums = tartan_i_sum_dtype(dtype);
    CHECK_FOR(function, sums == TARTAN_F64 ? isfinite(value) : isfinite((float)value), ARGUMENT,
              "%s is %g, expected a number that is finite in %s", name, value, tartan_dtype_name(sums));
    return TARTAN_OK;
}

tartan_status tartan_i_operand_apart(const char *function, const char *out_name, const tartan_array *out,
                                     const char *in_name, const tartan_array *in) {
    CHECK_FOR(function, in == NULL || !tartan_i_array_overlap(out, in), ARGUMENT,
              "%s overlaps %s, expected memory of its own", out_name, in_name);
    return TARTAN_OK;
}

static const char *size_text(int64_t size, const char *any, char text[24]) {
    if (size < 0) return any;
    snprintf(text, 24, "%" PRId64, size);
    return text;
}

tartan_status tartan_i_operand_dims(const char *function, const char *name, const tartan_array *array,
                                    int64_t rows, int64_t cols, const char *why, int64_t heads) {
    char text[TARTAN_I_SHAPE_TEXT], row_text[24], col_text[24];
    const int32_t n = array->ndim;
    CHECK_FOR(function, n >= 2, SHAPE, "%s has shape %s, expected at least 2 dimensions", name,
              tartan_i_shape_text(array, text));
    CHECK_FOR(function,
              (rows < 0 || array->shape[n - 2] == rows) && (cols < 0 || array->shape[n - 1] == cols), SHAPE,
              "%s has shape %s, expected [..., %s, %s] (%s)", name, tartan_i_shape_text(array, text),
              size_text(rows, "rows", row_text), size_text(cols, "cols", col_text), why);
    CHECK_FOR(function, heads == 1 || (n >= 3 && array->shape[n - 3] == heads), SHAPE,
              "%s has shape %s, expected [..., %" PRId64 ", rows, cols] (heads of the layout)", name,
              tartan_i_shape_text(array, text), heads);
    return TARTAN_OK;
}

tartan_status tartan_i_operand_batch(const char *function, const char *name, const tartan_array *array,
                                     const char *other_name, const tartan_array *other) {
    char text[TARTAN_I_SHAPE_TEXT], other_text[TARTAN_I_SHAPE_TEXT];
    bool equal = array->ndim == other->ndim;
    for (int32_t d = 0; equal && d < array->ndim - 2; d++) equal = array->shape[d] == other->shape[d];
    CHECK_FOR(function, equal, SHAPE, "%s has shape %s, expected the batch dimensions of %s, %s", name,
              tartan_i_shape_text(array, text), other_name, tartan_i_shape_text(other, other_text));
    return TARTAN_OK;
}

tartan_status tartan_i_operand_out_dtype(const char *function, const char *name, int32_t out_dtype,
                                         int32_t dtype) {
    const bool half = dtype == TARTAN_F16 || dtype == TARTAN_BF16;
    if (tartan_i_is_f8(dtype)) {
        CHECK_FOR(function, out_dtype != TARTAN_F64 && !tartan_i_is_f8(out_dtype), DTYPE,
                  "%s is of %s, expected float32, float16 or bfloat16", name, tartan_dtype_name(out_dtype));
        return TARTAN_OK;
    }
    CHECK_FOR(function, out_dtype == dtype || (half && out_dtype == TARTAN_F32), DTYPE,
              "%s is of %s, expected %s%s", name, tartan_dtype_name(out_dtype), tartan_dtype_name(dtype),
              half ? " or float32" : "");
    return TARTAN_OK;
}

tartan_status tartan_i_operand_wide(const char *function, const char *name, int32_t dtype) {
    CHECK_FOR(function, !tartan_i_is_f8(dtype), DTYPE,
              "%s is of %s, expected float64, float32, float16 or bfloat16", name, tartan_dtype_name(dtype));
    return TARTAN_OK;
}

static tartan_status check_pair(const char *function, const tartan_context *context, const tartan_array *x,
                                const tartan_array *y, int32_t dtype, int64_t rows, int64_t cols,
                                int64_t heads) {
    PASS(tartan_i_operand_array(function, context, "x", x, false));
    PASS(tartan_i_operand_array(function, context, "y", y, false));
    CHECK_FOR(function, x->dtype == dtype && y->dtype == dtype, DTYPE,
              "x and y are of %s and %s, expected all of %s (that of the first x)",
              tartan_dtype_name(x->dtype), tartan_dtype_name(y->dtype), tartan_dtype_name(dtype));
    PASS(tartan_i_operand_wide(function, "x", dtype));
    PASS(tartan_i_operand_dims(function, "x", x, rows, -1, "rows of the result", heads));
    PASS(tartan_i_operand_dims(function, "y", y, -1, cols, "columns of the result", heads));
    PASS(tartan_i_operand_batch(function, "y", y, "x", x));
    CHECK_FOR(function, x->shape[x->ndim - 1] == y->shape[y->ndim - 2], SHAPE,
              "y has %" PRId64 " rows, expected %" PRId64 " (columns of x)", y->shape[y->ndim - 2],
              x->shape[x->ndim - 1]);
    return TARTAN_OK;
}

tartan_status tartan_i_operand_pairs(const char *function, const tartan_context *context,
                                     const tartan_array *x, int64_t nx, const tartan_array *y, int64_t ny,
                                     int64_t rows, int64_t cols, int64_t heads) {
    CHECK_FOR(function, nx >= 1 && nx <= TARTAN_I_MAX_PAIRS, ARGUMENT, "nx is %" PRId64 ", expected 1 .. %d",
              nx, TARTAN_I_MAX_PAIRS);
    CHECK_FOR(function, ny == nx, ARGUMENT, "ny is %" PRId64 ", expected %" PRId64 " (nx)", ny, nx);
    CHECK_FOR(function, x != NULL, HANDLE, "x is NULL, expected %" PRId64 " arrays", nx);
    CHECK_FOR(function, y != NULL, HANDLE, "y is NULL, expected %" PRId64 " arrays", ny);
    for (int64_t i = 0; i < nx; i++)
        PASS(check_pair(function, context, &x[i], &y[i], x[0].dtype, rows, cols, heads));
    return TARTAN_OK;
}
