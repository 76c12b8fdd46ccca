/* SPDX-License-Identifier: Apache-2.0
 * Attention, fused or softmax alone: what its entries of the schema can't say. */
#include "core/array.h"
#include "ops/checks.h"

#include <math.h>

/* What the operations of fused attention share; they name it alike. */
#define INPUTS(op)                                                                                           \
    (tartan_i_attention) {                                                                                   \
        .layout = (op)->layout, .q = (op)->q, .k = (op)->k, .v = (op)->v, .block_mask = (op)->block_mask,    \
        .bias = (op)->bias, .bias_kind = (tartan_i_bias)(op)->bias_kind, .scale = (op)->scale,               \
        .softcap = (op)->softcap, .by_batch = (op)->by_batch, .causal = (op)->causal,                        \
        .query_offset = (op)->query_offset, .causal_from = (op)->causal_from, .dropout = (op)->dropout,      \
        .seed = (op)->seed, .any_order = !(op)->deterministic                                                \
    }

static tartan_status check_heads(const char *function, const tartan_i_attention *in) {
    const int64_t heads = in->q->shape[1], kv_heads = in->k->shape[1], of_layout = in->layout->shape.heads;
    CHECK_IN(function, kv_heads > 0 ? heads % kv_heads == 0 : heads == 0, SHAPE,
             "k has %" PRId64 " heads, expected a divisor of the %" PRId64 " of q", kv_heads, heads);
    if (in->by_batch) {
        CHECK_IN(function, of_layout == in->q->shape[0] || of_layout == 1, SHAPE,
                 "layout has %" PRId64 " heads, expected %" PRId64
                 ", one for each batch entry, since options has by_batch",
                 of_layout, in->q->shape[0]);
        return TARTAN_OK;
    }
    int64_t entries = 0;
    const bool counted = tartan_i_multiply(in->q->shape[0], heads, &entries);
    CHECK_IN(function, of_layout == 1 || of_layout == heads || (counted && of_layout == entries), SHAPE,
             "layout has %" PRId64 " heads, expected 1, %" PRId64 " (heads of q) or %" PRId64
             " (heads of all batch entries)",
             of_layout, heads, entries);
    return TARTAN_OK;
}

static tartan_status check_bias(const char *function, const tartan_i_attention *in) {
    const tartan_array *bias = in->bias;
    CHECK_IN(function, (in->bias_kind != TARTAN_I_BIAS_NONE) == (bias != NULL), ARGUMENT, "%s",
             bias != NULL
                 ? "bias is given, but options does not say what it holds, expected bias_kind=slopes, "
                   "bias_kind=distance, bias_kind=block or bias_kind=dense"
                 : "options has bias_kind, but the array bias is NULL");
    if (bias == NULL) return TARTAN_OK;
    const int64_t heads = in->q->shape[1], blocks = in->layout->blocks;
    const bool has_heads = in->layout->shape.heads > 1; /* whose blocks have numbers of their own */
    char text[TARTAN_I_SHAPE_TEXT];
    if (in->bias_kind == TARTAN_I_BIAS_SLOPES) {
        CHECK_IN(function, bias->ndim == 1, SHAPE,
                 "bias has shape %s, expected [%" PRId64 "] (one slope for each head)",
                 tartan_i_shape_text(bias, text), heads);
        return TARTAN_OK;
    }
    if (in->bias_kind == TARTAN_I_BIAS_DENSE) {
        const int64_t batch = in->q->shape[0];
        const bool fits = bias->ndim == 4 && (bias->shape[0] == batch || bias->shape[0] == 1) &&
                          (bias->shape[1] == heads || bias->shape[1] == 1);
        CHECK_IN(function, fits, SHAPE,
                 "bias has shape %s, expected [%" PRId64 " or 1, %" PRId64 " or 1, %" PRId64 ", %" PRId64
                 "], a number for each score",
                 tartan_i_shape_text(bias, text), batch, heads, in->q->shape[2], in->k->shape[2]);
        return TARTAN_OK;
    }
    const bool plane = bias->ndim == 2 && (bias->shape[0] == heads || bias->shape[0] == 1);
    if (in->bias_kind == TARTAN_I_BIAS_DISTANCE)
        CHECK_IN(function, plane && bias->shape[1] % 2 == 1, SHAPE,
                 "bias has shape %s, expected [%" PRId64 " or 1, an odd number of distances]",
                 tartan_i_shape_text(bias, text), heads);
    else
        CHECK_IN(function, plane && bias->shape[1] == blocks && !(has_heads && bias->shape[0] != 1), SHAPE,
                 "bias has shape %s, expected [%s, %" PRId64 "], a number for each block",
                 tartan_i_shape_text(bias, text), has_heads ? "1" : "heads or 1", blocks);
    return TARTAN_OK;
}

static tartan_status check_visibility(const char *function, const tartan_i_attention *in) {
    CHECK_IN(function, in->causal || in->causal_from == 0, ARGUMENT,
             "options has causal_from, which needs causal=1");
    CHECK_IN(function, in->causal || in->query_offset == 0 || in->bias != NULL, ARGUMENT,
             "options has query_offset, which needs causal=1%s", in->q != NULL ? " or a bias" : "");
    return TARTAN_OK;
}

static tartan_status check(const char *function, tartan_i_attention *in) {
    if (isnan(in->scale)) in->scale = in->q->shape[3] > 0 ? 1 / sqrt((double)in->q->shape[3]) : 1;
    PASS(check_heads(function, in));
    PASS(check_visibility(function, in));
    return check_bias(function, in);
}

static tartan_status check_same(const char *function, const tartan_array *out_grad, const tartan_array *out) {
    CHECK_IN(function, out_grad->dtype == out->dtype, DTYPE, "out_grad is of %s, expected %s (as out)",
             tartan_dtype_name(out_grad->dtype), tartan_dtype_name(out->dtype));
    return TARTAN_OK;
}

tartan_status tartan_i_check_attention_forward(tartan_op *any, const tartan_context *context) {
    tartan_op_attention_forward *op = &any->attention_forward;
    (void)context;
    op->in = INPUTS(op);
    return check(op->function, &op->in);
}

tartan_status tartan_i_check_attention_backward(tartan_op *any, const tartan_context *context) {
    tartan_op_attention_backward *op = &any->attention_backward;
    (void)context;
    op->in = INPUTS(op);
    PASS(check(op->function, &op->in));
    return check_same(op->function, op->out_grad, op->out);
}

tartan_status tartan_i_check_attention_bias_gradient(tartan_op *any, const tartan_context *context) {
    tartan_op_attention_bias_gradient *op = &any->attention_bias_gradient;
    (void)context;
    op->in = INPUTS(op);
    PASS(check(op->function, &op->in));
    PASS(check_same(op->function, op->out_grad, op->out));
    CHECK_IN(op->function, op->bias_grad != NULL || op->sinks_grad != NULL, ARGUMENT,
             "bias_grad and sinks_grad are NULL, expected at least one of them");
    return TARTAN_OK;
}

tartan_status tartan_i_check_block_softmax(tartan_op *any, const tartan_context *context) {
    tartan_op_block_softmax *op = &any->block_softmax;
    (void)context;
    op->in = (tartan_i_attention){.layout = op->x->layout,
                                  .block_mask = op->block_mask,
                                  .scale = op->scale,
                                  .causal = op->causal,
                                  .query_offset = op->query_offset,
                                  .causal_from = op->causal_from};
    return check_visibility(op->function, &op->in);
}
