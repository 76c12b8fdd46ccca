/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/operand.h"

#include "core/array.h"

tartan_status tartan_i_operand_gates(const char *function, const tartan_context *context,
                                     const tartan_array *gates, int64_t blocks) {
    if (gates == NULL) return TARTAN_OK;
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(function, context, "gates", gates, false));
    CHECK_IN(function, gates->dtype == TARTAN_F32 || gates->dtype == TARTAN_F64, DTYPE,
             "gates is of %s, expected float32 or float64", tartan_dtype_name(gates->dtype));
    CHECK_IN(function, gates->ndim == 1 && gates->shape[0] == blocks, SHAPE,
             "gates has shape %s, expected [%" PRId64 "] (one for each block)",
             tartan_i_shape_text(gates, text), blocks);
    return TARTAN_OK;
}

tartan_status tartan_i_operand_out_dtype(const char *function, const char *name, int32_t out_dtype,
                                         int32_t dtype) {
    const bool half = dtype == TARTAN_F16 || dtype == TARTAN_BF16;
    if (tartan_i_is_f8(dtype)) {
        CHECK_IN(function, out_dtype != TARTAN_F64 && !tartan_i_is_f8(out_dtype), DTYPE,
                 "%s is of %s, expected float32, float16 or bfloat16", name, tartan_dtype_name(out_dtype));
        return TARTAN_OK;
    }
    CHECK_IN(function, out_dtype == dtype || (half && out_dtype == TARTAN_F32), DTYPE,
             "%s is of %s, expected %s%s", name, tartan_dtype_name(out_dtype), tartan_dtype_name(dtype),
             half ? " or float32" : "");
    return TARTAN_OK;
}

tartan_status tartan_i_operand_wide(const char *function, const char *name, int32_t dtype) {
    CHECK_IN(function, !tartan_i_is_f8(dtype), DTYPE,
             "%s is of %s, expected float64, float32, float16 or bfloat16", name, tartan_dtype_name(dtype));
    return TARTAN_OK;
}

tartan_status tartan_i_operand_like(const char *function, const char *name, int32_t dtype,
                                    const char *other_name, int32_t other) {
    PASS(tartan_i_operand_wide(function, name, dtype));
    CHECK_IN(function, tartan_i_sum_dtype(dtype) == tartan_i_sum_dtype(other), DTYPE,
             "%s is of %s, expected %s (%s is of %s)", name, tartan_dtype_name(dtype),
             other == TARTAN_F64 ? "float64" : "float32, float16 or bfloat16", other_name,
             tartan_dtype_name(other));
    return TARTAN_OK;
}

tartan_status tartan_i_operand_on(const char *function, const char *name, const tartan_layout *layout,
                                  const char *of, const char *other_name, const tartan_layout *expected) {
    const bool fixed = !tartan_i_is_dynamic(layout) && !tartan_i_is_dynamic(expected);
    CHECK_IN(function, layout == expected || (fixed && strcmp(layout->identity, expected->identity) == 0),
             LAYOUT, "%s has another layout than %s%s (%s), expected the same blocks (%s)", name, of,
             other_name, tartan_i_is_dynamic(layout) ? "dynamic" : layout->identity,
             tartan_i_is_dynamic(expected) ? "dynamic" : expected->identity);
    return TARTAN_OK;
}

tartan_status tartan_i_operand_same_layout(const char *function, const char *name,
                                           const tartan_matrix *matrix, const char *other_name,
                                           const tartan_matrix *other) {
    return tartan_i_operand_on(function, name, matrix->layout, "", other_name, other->layout);
}

static tartan_status check_pair(const char *function, const tartan_context *context, const tartan_array *x,
                                const tartan_array *y, int32_t dtype, int64_t rows, int64_t cols,
                                int64_t heads) {
    PASS(tartan_i_operand_array(function, context, "x", x, false));
    PASS(tartan_i_operand_array(function, context, "y", y, false));
    CHECK_IN(function, x->dtype == dtype && y->dtype == dtype, DTYPE,
             "x and y are of %s and %s, expected all of %s (that of the first x)",
             tartan_dtype_name(x->dtype), tartan_dtype_name(y->dtype), tartan_dtype_name(dtype));
    PASS(tartan_i_operand_wide(function, "x", dtype));
    PASS(tartan_i_array_check_dims(function, "x", x, rows, -1, "rows of the result", heads));
    PASS(tartan_i_array_check_dims(function, "y", y, -1, cols, "columns of the result", heads));
    PASS(tartan_i_array_check_batch(function, "y", y, "x", x));
    CHECK_IN(function, x->shape[x->ndim - 1] == y->shape[y->ndim - 2], SHAPE,
             "y has %" PRId64 " rows, expected %" PRId64 " (columns of x)", y->shape[y->ndim - 2],
             x->shape[x->ndim - 1]);
    return TARTAN_OK;
}

tartan_status tartan_i_operand_pairs(const char *function, const tartan_context *context,
                                     const tartan_array *x, int64_t nx, const tartan_array *y, int64_t ny,
                                     int64_t rows, int64_t cols, int64_t heads) {
    CHECK_IN(function, nx >= 1 && nx <= TARTAN_I_MAX_PAIRS, ARGUMENT, "nx is %" PRId64 ", expected 1 .. %d",
             nx, TARTAN_I_MAX_PAIRS);
    CHECK_IN(function, ny == nx, ARGUMENT, "ny is %" PRId64 ", expected %" PRId64 " (nx)", ny, nx);
    CHECK_IN(function, x != NULL, HANDLE, "x is NULL, expected %" PRId64 " arrays", nx);
    CHECK_IN(function, y != NULL, HANDLE, "y is NULL, expected %" PRId64 " arrays", ny);
    for (int64_t i = 0; i < nx; i++)
        PASS(check_pair(function, context, &x[i], &y[i], x[0].dtype, rows, cols, heads));
    return TARTAN_OK;
}
