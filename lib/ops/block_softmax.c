/* SPDX-License-Identifier: Apache-2.0
 * Softmax of the rows of a block-sparse matrix, and its gradient. */
#include "ops/attention_options.h"
#include "ops/operand.h"

/* `out` may have the very values of `in`; else they must not overlap. A block of one line is the same in both orders. */
static tartan_status check_apart(const char *function, const char *name, const tartan_matrix *out,
                                 const char *in_name, const tartan_matrix *in) {
    const tartan_array values = tartan_i_matrix_view(out), others = tartan_i_matrix_view(in);
    const tartan_shape *s = &in->layout->shape;
    const bool same_order = out->block_order == in->block_order || s->block_rows == 1 || s->block_cols == 1;
    if (out->values == in->values && out->dtype == in->dtype && same_order) return TARTAN_OK;
    return tartan_i_array_check_apart(function, name, &values, in_name, &others);
}

static tartan_status check_lse(const char *function, const tartan_context *context, const tartan_matrix *x,
                               const tartan_matrix *y, const tartan_array *lse) {
    if (lse == NULL) return TARTAN_OK;
    const tartan_shape *s = &x->layout->shape;
    const tartan_array scores = tartan_i_matrix_view(x), weights = tartan_i_matrix_view(y);
    const int32_t dtype = tartan_i_sum_dtype(x->dtype);
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(function, context, "lse", lse, true));
    CHECK_IN(function, lse->dtype == dtype, DTYPE, "lse is of %s, expected %s", tartan_dtype_name(lse->dtype),
             tartan_dtype_name(dtype));
    CHECK_IN(function, lse->ndim == 2 && lse->shape[0] == s->heads && lse->shape[1] == s->rows, SHAPE,
             "lse has shape %s, expected [%" PRId64 ", %" PRId64 "] (heads and rows of x)",
             tartan_i_shape_text(lse, text), s->heads, s->rows);
    PASS(tartan_i_array_check_apart(function, "lse", lse, "x", &scores));
    return tartan_i_array_check_apart(function, "lse", lse, "y", &weights);
}

tartan_status tartan_block_softmax(tartan_context *context, const tartan_matrix *x, const char *options,
                                   const tartan_block_mask *block_mask, tartan_matrix *y, tartan_array *lse) {
    HOLD_MATRIX(x);
    HOLD_MATRIX(y);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_matrix(__func__, context, "x", x));
    PASS(tartan_i_operand_matrix(__func__, context, "y", y));
    PASS(tartan_i_operand_wide(__func__, "x", x->dtype));
    PASS(tartan_i_operand_like(__func__, "y", y->dtype, "x", x->dtype));
    PASS(tartan_i_operand_same_layout(__func__, "y", y, "x", x));
    tartan_op op = {.kind = TARTAN_OP_BLOCK_SOFTMAX,
                    .block_softmax = {.function = __func__,
                                      .in = {.layout = x->layout, .block_mask = block_mask, .scale = 1},
                                      .x = x,
                                      .y = y,
                                      .lse = lse}};
    tartan_i_attention *in = &op.block_softmax.in;
    PASS(tartan_i_attention_options(__func__, TARTAN_I_OPTIONS_SOFTMAX, options, in));
    PASS(tartan_i_scalar_check(__func__, "scale", in->scale, x->dtype));
    PASS(tartan_i_attention_check_mask(__func__, in));
    PASS(check_apart(__func__, "y", y, "x", x));
    PASS(check_lse(__func__, context, x, y, lse));
    return tartan_i_run(context, &op);
}

tartan_status tartan_block_softmax_gradient(tartan_context *context, const tartan_matrix *y,
                                            const tartan_matrix *dy, double scale, tartan_matrix *dx) {
    HOLD_MATRIX(y);
    HOLD_MATRIX(dy);
    HOLD_MATRIX(dx);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_matrix(__func__, context, "y", y));
    PASS(tartan_i_operand_matrix(__func__, context, "dy", dy));
    PASS(tartan_i_operand_matrix(__func__, context, "dx", dx));
    PASS(tartan_i_operand_wide(__func__, "y", y->dtype));
    PASS(tartan_i_operand_like(__func__, "dy", dy->dtype, "y", y->dtype));
    PASS(tartan_i_operand_like(__func__, "dx", dx->dtype, "y", y->dtype));
    PASS(tartan_i_operand_same_layout(__func__, "dy", dy, "y", y));
    PASS(tartan_i_operand_same_layout(__func__, "dx", dx, "y", y));
    PASS(tartan_i_scalar_check(__func__, "scale", scale, y->dtype));
    const tartan_array weights = tartan_i_matrix_view(y), values = tartan_i_matrix_view(dx);
    PASS(tartan_i_array_check_apart(__func__, "dx", &values, "y", &weights));
    PASS(check_apart(__func__, "dx", dx, "dy", dy));
    const tartan_op op = {
        .kind = TARTAN_OP_BLOCK_SOFTMAX_GRADIENT,
        .block_softmax_gradient = {.function = __func__, .scale = scale, .y = y, .dy = dy, .dx = dx}};
    return tartan_i_run(context, &op);
}
