/* SPDX-License-Identifier: Apache-2.0
 * The gradient with respect to gates. */
#include "ops/operand.h"

tartan_status tartan_gate_gradient(tartan_context *context, const tartan_matrix *w, const tartan_array *gates,
                                   tartan_matrix *dw, tartan_array *out_gate_grad) {
    HOLD_MATRIX(w);
    HOLD_MATRIX(dw);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_matrix(__func__, context, "w", w));
    PASS(tartan_i_operand_matrix(__func__, context, "dw", dw));
    PASS(tartan_i_matrix_check_stays(__func__, "w", w));
    PASS(tartan_i_matrix_check_stays(__func__, "dw", dw));
    PASS(tartan_i_operand_gates(__func__, context, gates, w->layout->blocks));
    PASS(tartan_i_operand_array(__func__, context, "out_gate_grad", out_gate_grad, true));
    PASS(tartan_i_operand_wide(__func__, "w", w->dtype));
    CHECK(dw->dtype == w->dtype, DTYPE, "dw is of %s, expected %s (that of w)", tartan_dtype_name(dw->dtype),
          tartan_dtype_name(w->dtype));
    CHECK(out_gate_grad->dtype == tartan_i_sum_dtype(w->dtype), DTYPE, "out_gate_grad is of %s, expected %s",
          tartan_dtype_name(out_gate_grad->dtype), tartan_dtype_name(tartan_i_sum_dtype(w->dtype)));
    PASS(tartan_i_operand_same_layout(__func__, "dw", dw, "w", w));
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK(out_gate_grad->ndim == 1 && out_gate_grad->shape[0] == w->layout->blocks, SHAPE,
          "out_gate_grad has shape %s, expected [%" PRId64 "] (one for each block)",
          tartan_i_shape_text(out_gate_grad, text), w->layout->blocks);
    const tartan_array w_values = tartan_i_matrix_view(w), dw_values = tartan_i_matrix_view(dw);
    PASS(tartan_i_array_check_apart(__func__, "out_gate_grad", out_gate_grad, "the values of w", &w_values));
    PASS(
        tartan_i_array_check_apart(__func__, "out_gate_grad", out_gate_grad, "the values of dw", &dw_values));
    PASS(tartan_i_array_check_apart(__func__, "out_gate_grad", out_gate_grad, "gates", gates));
    PASS(tartan_i_array_check_apart(__func__, "dw", &dw_values, "the values of w", &w_values));
    PASS(tartan_i_array_check_apart(__func__, "dw", &dw_values, "gates", gates));
    const tartan_op call = {
        .kind = TARTAN_OP_GATE_GRADIENT,
        .gate_gradient = {
            .function = __func__, .w = w, .gates = gates, .dw = dw, .gate_grad = out_gate_grad}};
    return tartan_i_run(context, &call);
}
