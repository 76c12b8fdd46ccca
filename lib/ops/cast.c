/* SPDX-License-Identifier: Apache-2.0
 * Arrays in another dtype. */
#include "core/array.h"
#include "ops/checks.h"

/* `word`: 0, any; else the place of a dtype. */
static tartan_status cast(tartan_op *any, const char *function, const char *from_name,
                          const tartan_array *from, const char *to_name, const tartan_array *to,
                          const char *option, int32_t word) {
    CHECK_IN(function, word == 0 || to->dtype == TARTAN_F64 + word - 1, DTYPE,
             "%s is of %s, expected %s, the %s", to_name, tartan_dtype_name(to->dtype),
             tartan_dtype_name(TARTAN_F64 + word - 1), option);
    any->cast = (tartan_op_cast){
        .function = function, .from_name = from_name, .to_name = to_name, .from = from, .to = to};
    return TARTAN_OK;
}

tartan_status tartan_i_check_float_cast(tartan_op *any, const tartan_context *context) {
    const tartan_op_float_cast given = any->float_cast;
    (void)context;
    return cast(any, given.function, "x", given.x, "y", given.y, "dtype", given.dtype);
}

tartan_status tartan_i_check_float_cast_gradient(tartan_op *any, const tartan_context *context) {
    const tartan_op_float_cast_gradient given = any->float_cast_gradient;
    (void)context;
    return cast(any, given.function, "y_grad", given.y_grad, "x_grad", given.x_grad, "gradient_dtype",
                given.gradient_dtype);
}
