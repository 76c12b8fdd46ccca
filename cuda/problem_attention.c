/* SPDX-License-Identifier: Apache-2.0
 * The problems of attention. */
#include "problem.h"

#include "backend/operation.h"

static tartan_cuda_tensor tensor_of(const tartan_array *a) {
    if (a == NULL) return (tartan_cuda_tensor){0};
    return (tartan_cuda_tensor){.data = a->data,
                                .dtype = a->dtype,
                                .batch = a->strides[0],
                                .head = a->strides[1],
                                .token = a->strides[2],
                                .element = a->ndim == 4 ? a->strides[3] : 0};
}

static void take_bias(const tartan_i_attention *in, tartan_cuda_attention *out) {
    const tartan_array *bias = in->bias;
    if (bias == NULL) return;
    const bool slopes = in->bias_kind == TARTAN_I_BIAS_SLOPES;
    out->bias_kind = (int32_t)in->bias_kind;
    out->bias = bias->data;
    if (in->bias_kind == TARTAN_I_BIAS_DENSE) {
        out->bias_batch = bias->shape[0] > 1 ? bias->strides[0] : 0;
        out->bias_head = bias->shape[1] > 1 ? bias->strides[1] : 0;
        out->bias_query = bias->strides[2];
        out->bias_element = bias->strides[3];
        return;
    }
    out->bias_head = slopes || bias->shape[0] > 1 ? bias->strides[0] : 0;
    out->bias_element = slopes ? 0 : bias->strides[1];
    out->bias_reach = in->bias_kind == TARTAN_I_BIAS_DISTANCE ? bias->shape[1] / 2 : 0;
}

static tartan_status attention_of(const tartan_host *host, const tartan_i_attention *in,
                                  tartan_cuda_attention *out) {
    const tartan_shape *s = &in->layout->shape;
    *out = (tartan_cuda_attention){
        .dtype = in->q->dtype,
        .sum_dtype = in->q->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32,
        .batch = in->q->shape[0],
        .heads = in->q->shape[1],
        .kv_heads = in->k->shape[1],
        .tq = in->q->shape[2],
        .tk = in->k->shape[2],
        .d = in->q->shape[3],
        .dv = in->v->shape[3],
        .q = tensor_of(in->q),
        .k = tensor_of(in->k),
        .v = tensor_of(in->v),
        .layout_heads = s->heads,
        .layout_entry = s->heads == 1                 ? 0
                        : in->by_batch                ? 1
                        : s->heads == in->q->shape[1] ? 0
                                                      : in->q->shape[1],
        .layout_head = s->heads > 1 && !in->by_batch,
        .blocks = in->layout->blocks,
        .grid_q = in->layout->grid_rows,
        .grid_k = in->layout->grid_cols,
        .block_q = (int32_t)s->block_rows,
        .block_k = (int32_t)s->block_cols,
        .scale = in->scale,
        .softcap = in->softcap,
        .causal = in->causal,
        .query_offset = in->query_offset,
        .causal_from = in->causal_from,
        .block_mask = in->block_mask,
        .dropout = in->dropout,
        .seed = in->seed,
        .any_order = in->any_order,
        .layout = in->layout,
    };
    take_bias(in, out);
    return tartan_cuda_figures_get(host, in->layout, &out->figures);
}

tartan_status tartan_cuda_attention_forward_of(const tartan_host *host, const tartan_context *context,
                                               const void *of, void *to) {
    const tartan_op_attention_forward *op = of;
    tartan_cuda_attention_forward *out = to;
    (void)context;
    PASS(attention_of(host, &op->in, &out->in));
    out->sinks = op->sinks != NULL ? op->sinks->data : NULL;
    out->sinks_element = op->sinks != NULL ? op->sinks->strides[0] : 0;
    out->out = tensor_of(op->out);
    out->lse = tensor_of(op->lse);
    out->nothing = out->in.batch == 0 || out->in.heads == 0 || out->in.tq == 0;
    return TARTAN_OK;
}

static void take_bias_gradient(const tartan_op_attention_bias_gradient *op,
                               tartan_cuda_attention_bias_gradient *out) {
    const tartan_array *grad = op->bias_grad;
    if (grad == NULL) return;
    const int64_t layout_heads = out->in.layout_heads;
    const bool by_block = op->in.bias_kind == TARTAN_I_BIAS_BLOCK && layout_heads > 1;
    bool by_entry = by_block && op->in.by_batch; /* a group has the heads of a batch entry */
    out->bias_grad = grad->data;
    out->plane_heads = out->planes = grad->shape[0];
    out->columns = out->width = grad->ndim > 1 ? grad->shape[1] : 1;
    out->plane_stride = grad->strides[0];
    out->number_stride = grad->ndim > 1 ? grad->strides[1] : 0;
    if (op->in.bias_kind == TARTAN_I_BIAS_DENSE) {
        out->plane_heads = grad->shape[1];
        out->planes = grad->shape[0] * grad->shape[1];
        out->columns = grad->shape[3];
        out->width = grad->shape[2] * grad->shape[3];
        out->plane_batch_stride = grad->strides[0];
        out->plane_stride = grad->strides[1];
        out->row_stride = grad->strides[2];
        out->number_stride = grad->strides[3];
        by_entry = grad->shape[0] > 1 && grad->shape[1] == 1;
    }
    out->groups = by_block ? layout_heads : out->planes;
    out->member_first = by_entry ? out->in.heads : 1;
    out->member_step = by_entry ? 1 : out->groups;
}

tartan_status tartan_cuda_attention_bias_gradient_of(const tartan_host *host, const tartan_context *context,
                                                     const void *of, void *to) {
    const tartan_op_attention_bias_gradient *op = of;
    tartan_cuda_attention_bias_gradient *out = to;
    (void)context;
    *out = (tartan_cuda_attention_bias_gradient){0};
    PASS(attention_of(host, &op->in, &out->in));
    out->out = tensor_of(op->out);
    out->lse = tensor_of(op->lse);
    out->out_grad = tensor_of(op->out_grad);
    take_bias_gradient(op, out);
    if (op->sinks_grad != NULL) {
        out->sinks = op->sinks->data;
        out->sinks_element = op->sinks->strides[0];
        out->sinks_grad = op->sinks_grad->data;
        out->sinks_grad_element = op->sinks_grad->strides[0];
    }
    out->nothing = out->planes * out->width == 0 && (op->sinks_grad == NULL || out->in.heads == 0);
    return TARTAN_OK;
}

tartan_status tartan_cuda_attention_backward_of(const tartan_host *host, const tartan_context *context,
                                                const void *of, void *to) {
    const tartan_op_attention_backward *op = of;
    tartan_cuda_attention_backward *out = to;
    (void)context;
    PASS(attention_of(host, &op->in, &out->in));
    out->out = tensor_of(op->out);
    out->lse = tensor_of(op->lse);
    out->out_grad = tensor_of(op->out_grad);
    out->q_grad = tensor_of(op->q_grad);
    out->k_grad = tensor_of(op->k_grad);
    out->v_grad = tensor_of(op->v_grad);
    /* Without heads of q nothing sees the keys, and their gradients are 0. */
    out->nothing = out->in.batch == 0 || out->in.kv_heads == 0 || out->in.tq + out->in.tk == 0;
    return TARTAN_OK;
}

tartan_status tartan_cuda_attention_merge_of(const tartan_host *host, const tartan_context *context,
                                             const void *of, void *to) {
    const tartan_op_attention_merge *op = of;
    tartan_cuda_attention_merge *out = to;
    (void)host;
    (void)context;
    *out = (tartan_cuda_attention_merge){
        .batch = op->out->shape[0],
        .heads = op->out->shape[1],
        .tokens = op->out->shape[2],
        .d = op->out->shape[3],
        .sum_dtype = op->lse_a->dtype,
        .out_a = tensor_of(op->out_a),
        .lse_a = tensor_of(op->lse_a),
        .out_b = tensor_of(op->out_b),
        .lse_b = tensor_of(op->lse_b),
        .out = tensor_of(op->out),
        .lse = tensor_of(op->lse),
    };
    out->nothing = out->batch == 0 || out->heads == 0 || out->tokens == 0;
    return TARTAN_OK;
}
