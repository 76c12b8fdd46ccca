/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/operand.h"

#include "core/array.h"

tartan_status tartan_i_operand_out_dtype(const char *function, const char *name, int32_t out_dtype,
                                         int32_t dtype) {
    const bool half = dtype == TARTAN_F16 || dtype == TARTAN_BF16;
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
    CHECK_IN(function,
             layout == expected ||
                 (fixed && strcmp(tartan_i_layout_identity(layout), tartan_i_layout_identity(expected)) == 0),
             LAYOUT, "%s has another layout than %s%s (%s), expected the same blocks (%s)", name, of,
             other_name, tartan_i_is_dynamic(layout) ? "dynamic" : tartan_i_layout_identity(layout),
             tartan_i_is_dynamic(expected) ? "dynamic" : tartan_i_layout_identity(expected));
    return TARTAN_OK;
}

tartan_status tartan_i_operand_same_layout(const char *function, const char *name,
                                           const tartan_matrix *matrix, const char *other_name,
                                           const tartan_matrix *other) {
    return tartan_i_operand_on(function, name, matrix->layout, "", other_name, other->layout);
}
