/* SPDX-License-Identifier: Apache-2.0
 * Block-sparse attention: checks of both passes. */
#include "ops/attention_checks.h"
#include "ops/attention_options.h"
#include "ops/operand.h"

#include <math.h>

/* ---- Operands ---- */

static tartan_status check_shape(const char *function, const char *name, const tartan_array *array,
                                 int32_t ndim, const int64_t expected[4], const char *what) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    tartan_array like = {.ndim = ndim};
    bool same = array->ndim == ndim;
    for (int32_t d = 0; d < ndim; d++) {
        like.shape[d] = expected[d];
        same = same && array->shape[d] == expected[d];
    }
    CHECK_IN(function, same, SHAPE, "%s has shape %s, expected %s (%s)", name,
             tartan_i_shape_text(array, text), tartan_i_shape_text(&like, wanted), what);
    return TARTAN_OK;
}

/* An array of [batch, heads, tokens, d] and the dtype of q. */
static tartan_status check_tensor(const char *function, const tartan_context *context, const char *name,
                                  const tartan_array *array, const tartan_array *like, bool output) {
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(function, context, name, array, output));
    CHECK_IN(function, array->ndim == 4, SHAPE, "%s has shape %s, expected [batch, heads, tokens, d]", name,
             tartan_i_shape_text(array, text));
    PASS(tartan_i_operand_wide(function, name, array->dtype));
    CHECK_IN(function, array->dtype != TARTAN_U8 && array->dtype == like->dtype, DTYPE,
             "%s is of %s, expected %s (that of q)", name, tartan_dtype_name(array->dtype),
             tartan_dtype_name(like->dtype));
    return TARTAN_OK;
}

static tartan_status check_inputs(const char *function, const tartan_context *context,
                                  const tartan_i_attention *in) {
    const tartan_array *q = in->q, *k = in->k, *v = in->v;
    const tartan_shape *s = &in->layout->shape;
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(check_tensor(function, context, "q", q, q, false));
    PASS(check_tensor(function, context, "k", k, q, false));
    PASS(check_tensor(function, context, "v", v, q, false));
    CHECK_IN(function, q->shape[2] == s->rows, SHAPE,
             "q has shape %s, expected %" PRId64 " tokens, the rows of the layout",
             tartan_i_shape_text(q, text), s->rows);
    CHECK_IN(function, k->shape[2] == s->cols, SHAPE,
             "k has shape %s, expected %" PRId64 " tokens, the columns of the layout",
             tartan_i_shape_text(k, text), s->cols);
    CHECK_IN(function, k->shape[0] == q->shape[0] && k->shape[3] == q->shape[3], SHAPE,
             "k has shape %s, expected the batch and the head dimension of q, %" PRId64 " and %" PRId64,
             tartan_i_shape_text(k, text), q->shape[0], q->shape[3]);
    PASS(check_shape(function, "v", v, 4, k->shape, "that of k"));
    CHECK_IN(function, k->shape[1] > 0 ? q->shape[1] % k->shape[1] == 0 : q->shape[1] == 0, SHAPE,
             "k has %" PRId64 " heads, expected a divisor of the %" PRId64 " of q", k->shape[1], q->shape[1]);
    int64_t entries = 0;
    const bool counted = tartan_i_multiply(q->shape[0], q->shape[1], &entries);
    CHECK_IN(function, s->heads == 1 || s->heads == q->shape[1] || (counted && s->heads == entries), SHAPE,
             "layout has %" PRId64 " heads, expected 1, %" PRId64 " (those of q) or %" PRId64
             " (those of all batch entries)",
             s->heads, q->shape[1], entries);
    return TARTAN_OK;
}

static tartan_status check_bias(const char *function, const tartan_context *context,
                                const tartan_i_attention *in) {
    const tartan_array *bias = in->bias;
    if (bias == NULL) return TARTAN_OK;
    const int64_t heads = in->q->shape[1], blocks = in->layout->blocks;
    const int32_t dtype = tartan_i_sum_dtype(in->q->dtype);
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(function, context, "bias", bias, false));
    CHECK_IN(function, bias->dtype == dtype, DTYPE, "bias is of %s, expected %s",
             tartan_dtype_name(bias->dtype), tartan_dtype_name(dtype));
    if (in->bias_kind == TARTAN_I_BIAS_SLOPES)
        return check_shape(function, "bias", bias, 1, (const int64_t[4]){heads}, "one slope for each head");
    const bool plane = bias->ndim == 2 && (bias->shape[0] == heads || bias->shape[0] == 1);
    if (in->bias_kind == TARTAN_I_BIAS_DISTANCE) {
        CHECK_IN(function, plane && bias->shape[1] % 2 == 1, SHAPE,
                 "bias has shape %s, expected [%" PRId64 " or 1, an odd number of distances]",
                 tartan_i_shape_text(bias, text), heads);
        return TARTAN_OK;
    }
    const bool fits =
        plane && bias->shape[1] == blocks && (in->layout->shape.heads == 1 || bias->shape[0] == 1);
    CHECK_IN(function, fits, SHAPE, "bias has shape %s, expected [%s, %" PRId64 "], a number for each block",
             tartan_i_shape_text(bias, text), in->layout->shape.heads == 1 ? "heads or 1" : "1", blocks);
    return TARTAN_OK;
}

tartan_status tartan_i_attention_check_sinks(const char *function, const tartan_context *context,
                                             const tartan_i_attention *in, const tartan_array *sinks) {
    if (sinks == NULL) return TARTAN_OK;
    const int32_t dtype = tartan_i_sum_dtype(in->q->dtype);
    PASS(tartan_i_operand_array(function, context, "sinks", sinks, false));
    CHECK_IN(function, sinks->dtype == dtype, DTYPE, "sinks is of %s, expected %s",
             tartan_dtype_name(sinks->dtype), tartan_dtype_name(dtype));
    return check_shape(function, "sinks", sinks, 1, &in->q->shape[1], "one sink for each head");
}

/* lse [batch, heads, tq]. */
static tartan_status check_lse(const char *function, const tartan_context *context,
                               const tartan_i_attention *in, const tartan_array *lse, bool output) {
    const int32_t dtype = tartan_i_sum_dtype(in->q->dtype);
    PASS(tartan_i_operand_array(function, context, "lse", lse, output));
    CHECK_IN(function, lse->dtype == dtype, DTYPE, "lse is of %s, expected %s", tartan_dtype_name(lse->dtype),
             tartan_dtype_name(dtype));
    return check_shape(function, "lse", lse, 3, in->q->shape, "batch, heads and tokens of q");
}

/* out and out_grad. */
static tartan_status check_result(const char *function, const tartan_context *context,
                                  const tartan_i_attention *in, const char *name, const tartan_array *out,
                                  bool output) {
    PASS(tartan_i_operand_array(function, context, name, out, output));
    PASS(tartan_i_operand_out_dtype(function, name, out->dtype, in->q->dtype));
    return check_shape(function, name, out, 4, in->q->shape, "that of q");
}

tartan_status tartan_i_attention_take_inputs(const char *function, const tartan_context *context,
                                             const char *options, tartan_i_attention *in) {
    PASS(tartan_i_operand_layout(function, context, in->layout));
    PASS(check_inputs(function, context, in));
    in->scale = in->q->shape[3] > 0 ? 1 / sqrt((double)in->q->shape[3]) : 1;
    PASS(tartan_i_attention_options(function, TARTAN_I_OPTIONS_ATTENTION, options, in));
    PASS(tartan_i_scalar_check(function, "scale", in->scale, in->q->dtype));
    PASS(tartan_i_attention_check_mask(function, in));
    return check_bias(function, context, in);
}

/* An output may not overlap any input. */
static tartan_status check_apart(const char *function, const char *name, const tartan_array *out,
                                 const tartan_i_attention *in) {
    PASS(tartan_i_array_check_apart(function, name, out, "q", in->q));
    PASS(tartan_i_array_check_apart(function, name, out, "k", in->k));
    PASS(tartan_i_array_check_apart(function, name, out, "v", in->v));
    return tartan_i_array_check_apart(function, name, out, "bias", in->bias);
}

tartan_status tartan_i_attention_check_results(const char *function, const tartan_context *context,
                                               const tartan_i_attention *in,
                                               const tartan_i_attention_results *r) {
    PASS(check_result(function, context, in, "out", r->out, false));
    PASS(check_lse(function, context, in, r->lse, false));
    PASS(check_result(function, context, in, "out_grad", r->out_grad, false));
    CHECK_IN(function, r->out_grad->dtype == r->out->dtype, DTYPE,
             "out_grad is of %s, expected %s (that of out)", tartan_dtype_name(r->out_grad->dtype),
             tartan_dtype_name(r->out->dtype));
    return TARTAN_OK;
}

tartan_status tartan_i_attention_check_gradient_apart(const char *function, const char *name,
                                                      const tartan_array *gradient,
                                                      const tartan_i_attention *in,
                                                      const tartan_i_attention_results *r) {
    PASS(check_apart(function, name, gradient, in));
    PASS(tartan_i_array_check_apart(function, name, gradient, "out", r->out));
    PASS(tartan_i_array_check_apart(function, name, gradient, "lse", r->lse));
    return tartan_i_array_check_apart(function, name, gradient, "out_grad", r->out_grad);
}

/* ---- The passes ---- */

tartan_status tartan_attention_forward(tartan_context *context, const tartan_layout *layout,
                                       const tartan_array *q, const tartan_array *k, const tartan_array *v,
                                       const char *options, const tartan_block_mask *block_mask,
                                       const tartan_array *bias, const tartan_array *sinks, tartan_array *out,
                                       tartan_array *lse) {
    tartan_op op = {
        .kind = TARTAN_OP_ATTENTION_FORWARD,
        .attention_forward = {
            .function = __func__,
            .in = {.layout = layout, .q = q, .k = k, .v = v, .block_mask = block_mask, .bias = bias},
            .sinks = sinks,
            .out = out,
            .lse = lse}};
    tartan_i_attention *in = &op.attention_forward.in;
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_attention_take_inputs(__func__, context, options, in));
    PASS(tartan_i_attention_check_sinks(__func__, context, in, sinks));
    PASS(check_result(__func__, context, in, "out", out, true));
    PASS(check_apart(__func__, "out", out, in));
    PASS(tartan_i_array_check_apart(__func__, "out", out, "sinks", sinks));
    if (lse != NULL) {
        PASS(check_lse(__func__, context, in, lse, true));
        PASS(check_apart(__func__, "lse", lse, in));
        PASS(tartan_i_array_check_apart(__func__, "lse", lse, "sinks", sinks));
        PASS(tartan_i_array_check_apart(__func__, "lse", lse, "out", out));
    }
    return tartan_i_run(context, &op);
}

tartan_status tartan_attention_backward(tartan_context *context, const tartan_layout *layout,
                                        const tartan_array *q, const tartan_array *k, const tartan_array *v,
                                        const char *options, const tartan_block_mask *block_mask,
                                        const tartan_array *bias, const tartan_array *out,
                                        const tartan_array *lse, const tartan_array *out_grad,
                                        tartan_array *q_grad, tartan_array *k_grad, tartan_array *v_grad) {
    tartan_op op = {
        .kind = TARTAN_OP_ATTENTION_BACKWARD,
        .attention_backward = {
            .function = __func__,
            .in = {.layout = layout, .q = q, .k = k, .v = v, .block_mask = block_mask, .bias = bias},
            .out = out,
            .lse = lse,
            .out_grad = out_grad,
            .q_grad = q_grad,
            .k_grad = k_grad,
            .v_grad = v_grad}};
    const tartan_i_attention *in = &op.attention_backward.in;
    const tartan_i_attention_results results = {out, lse, out_grad};
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_attention_take_inputs(__func__, context, options, &op.attention_backward.in));
    PASS(tartan_i_attention_check_results(__func__, context, in, &results));
    const struct {
        const char *name;
        const tartan_array *array, *like;
    } grads[] = {{"q_grad", q_grad, q}, {"k_grad", k_grad, k}, {"v_grad", v_grad, v}};
    for (int i = 0; i < 3; i++) {
        PASS(check_tensor(__func__, context, grads[i].name, grads[i].array, q, true));
        PASS(check_shape(__func__, grads[i].name, grads[i].array, 4, grads[i].like->shape,
                         "that of the input it belongs to"));
        PASS(tartan_i_attention_check_gradient_apart(__func__, grads[i].name, grads[i].array, in, &results));
        for (int j = 0; j < i; j++)
            PASS(tartan_i_array_check_apart(__func__, grads[i].name, grads[i].array, grads[j].name,
                                            grads[j].array));
    }
    return tartan_i_run(context, &op);
}
