/* SPDX-License-Identifier: Apache-2.0
 * Sampled dense times dense. */
#include "ops/operand.h"

tartan_status tartan_sddmm(tartan_context *context, double alpha, const tartan_array *gates,
                           const tartan_array *x, int64_t nx, const tartan_array *y, int64_t ny, double beta,
                           tartan_matrix *s) {
    HOLD_MATRIX(s);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_matrix(__func__, context, "s", s));
    const tartan_shape *shape = &s->layout->shape;
    PASS(tartan_i_operand_gates(__func__, context, gates, s->layout->blocks));
    PASS(tartan_i_operand_pairs(__func__, context, x, nx, y, ny, shape->rows, shape->cols, shape->heads));
    PASS(tartan_i_operand_out_dtype(__func__, "s", s->dtype, x[0].dtype));
    PASS(tartan_i_scalar_check(__func__, "alpha", alpha, x[0].dtype));
    PASS(tartan_i_scalar_check(__func__, "beta", beta, x[0].dtype));
    const tartan_array values = tartan_i_matrix_view(s);
    for (int64_t i = 0; i < nx; i++) {
        PASS(tartan_i_array_check_apart(__func__, "s", &values, "x", &x[i]));
        PASS(tartan_i_array_check_apart(__func__, "s", &values, "y", &y[i]));
    }
    PASS(tartan_i_array_check_apart(__func__, "s", &values, "gates", gates));
    const tartan_op call = {.kind = TARTAN_OP_SDDMM,
                            .sddmm = {.function = __func__,
                                      .alpha = alpha,
                                      .beta = beta,
                                      .pairs = nx,
                                      .x = x,
                                      .y = y,
                                      .gates = gates,
                                      .s = s}};
    return tartan_i_run(context, &call);
}
