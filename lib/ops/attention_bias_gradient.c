/* SPDX-License-Identifier: Apache-2.0
 * The gradients of attention's bias and sinks: checks. */
#include "ops/attention_checks.h"
#include "ops/operand.h"

/* A gradient that is asked for: that of an input that is given, whose shape and dtype it has. */
static tartan_status check_gradient(const char *function, const tartan_context *context, const char *name,
                                    const tartan_array *gradient, const char *input_name,
                                    const tartan_array *input) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    if (gradient == NULL) return TARTAN_OK;
    CHECK_IN(function, input != NULL, ARGUMENT, "%s is given, but %s is NULL", name, input_name);
    PASS(tartan_i_operand_array(function, context, name, gradient, true));
    CHECK_IN(function, gradient->dtype == input->dtype, DTYPE, "%s is of %s, expected %s (that of %s)", name,
             tartan_dtype_name(gradient->dtype), tartan_dtype_name(input->dtype), input_name);
    bool same = gradient->ndim == input->ndim;
    for (int32_t d = 0; d < input->ndim; d++) same = same && gradient->shape[d] == input->shape[d];
    CHECK_IN(function, same, SHAPE, "%s has shape %s, expected %s (that of %s)", name,
             tartan_i_shape_text(gradient, text), tartan_i_shape_text(input, wanted), input_name);
    return TARTAN_OK;
}

static tartan_status check_gradients(const char *function, const tartan_context *context,
                                     const tartan_op_attention_bias_gradient *op) {
    const tartan_i_attention_results results = {op->out, op->lse, op->out_grad};
    const tartan_array *bias_grad = op->bias_grad, *sinks_grad = op->sinks_grad;
    CHECK_IN(function, bias_grad != NULL || sinks_grad != NULL, ARGUMENT,
             "bias_grad and sinks_grad are NULL, expected at least one of them");
    PASS(check_gradient(function, context, "bias_grad", bias_grad, "bias", op->in.bias));
    PASS(check_gradient(function, context, "sinks_grad", sinks_grad, "sinks", op->sinks));
    const struct {
        const char *name;
        const tartan_array *array;
    } grads[] = {{"bias_grad", bias_grad}, {"sinks_grad", sinks_grad}};
    for (int i = 0; i < 2; i++) {
        if (grads[i].array == NULL) continue;
        PASS(tartan_i_attention_check_gradient_apart(function, grads[i].name, grads[i].array, &op->in,
                                                     &results));
        PASS(tartan_i_array_check_apart(function, grads[i].name, grads[i].array, "sinks", op->sinks));
    }
    if (bias_grad == NULL || sinks_grad == NULL) return TARTAN_OK;
    return tartan_i_array_check_apart(function, "sinks_grad", sinks_grad, "bias_grad", bias_grad);
}

tartan_status tartan_attention_bias_gradient(tartan_context *context, const tartan_layout *layout,
                                             const tartan_array *q, const tartan_array *k,
                                             const tartan_array *v, const char *options,
                                             const tartan_block_mask *block_mask, const tartan_array *bias,
                                             const tartan_array *sinks, const tartan_array *out,
                                             const tartan_array *lse, const tartan_array *out_grad,
                                             tartan_array *bias_grad, tartan_array *sinks_grad) {
    tartan_op op = {
        .kind = TARTAN_OP_ATTENTION_BIAS_GRADIENT,
        .attention_bias_gradient = {
            .function = __func__,
            .in = {.layout = layout, .q = q, .k = k, .v = v, .block_mask = block_mask, .bias = bias},
            .sinks = sinks,
            .out = out,
            .lse = lse,
            .out_grad = out_grad,
            .bias_grad = bias_grad,
            .sinks_grad = sinks_grad}};
    tartan_i_attention *in = &op.attention_bias_gradient.in;
    const tartan_i_attention_results results = {out, lse, out_grad};
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_attention_take_inputs(__func__, context, options, in));
    PASS(tartan_i_attention_check_sinks(__func__, context, in, sinks));
    PASS(tartan_i_attention_check_results(__func__, context, in, &results));
    PASS(check_gradients(__func__, context, &op.attention_bias_gradient));
    return tartan_i_run(context, &op);
}
