/* SPDX-License-Identifier: Apache-2.0
 * The problems of what is done for each channel: gain, bias, ReLU, weight normalisation. */
#include "backend/operation.h"
#include "conv/conv.h"
#include "dtype.h"
#include "matrix/matrix.h"
#include "problem.h"

/* ---- Gain, bias, ReLU ---- */

static tartan_cuda_channel_scalars scalars_of(const tartan_array *a) {
    if (a == NULL) return (tartan_cuda_channel_scalars){0};
    const bool classes = a->ndim == 2;
    return (tartan_cuda_channel_scalars){a->data, classes && a->shape[0] > 1 ? a->strides[0] : 0,
                                         a->strides[classes]};
}

static int64_t size_of(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/* Joins dimension d with the one before it, if every array steps through both as one. */
static void join(tartan_cuda_walk *w, int32_t d) {
    const bool both = w->length[d - 1] > 1 && w->length[d] > 1;
    const int32_t kept = w->length[d] > 1 ? d : d - 1; /* its step serves both */
    for (int32_t i = 0; i < TARTAN_CUDA_WALKED; i++) {
        const tartan_cuda_walked *a = &w->array[i];
        if (both && a->data != NULL && a->step[d - 1] != a->step[d] * w->length[d]) return;
    }
    w->length[d - 1] *= w->length[d];
    w->ndim--;
    for (int32_t e = d; e < w->ndim; e++) w->length[e] = w->length[e + 1];
    for (int32_t i = 0; i < TARTAN_CUDA_WALKED; i++) {
        int64_t *step = w->array[i].step;
        step[d - 1] = step[kept];
        for (int32_t e = d; e < w->ndim; e++) step[e] = step[e + 1];
    }
}

/* Whether an array can be read by 16 bytes of the first one's elements, `count` of them. */
static bool is_wide(const tartan_cuda_walk *w, const tartan_cuda_walked *a, int64_t count) {
    const int32_t last = w->ndim - 1;
    if (a->data == NULL) return true;
    bool good = (uintptr_t)a->data % 16 == 0 && (w->by_channel ? a->channel : a->step[last]) == 1;
    for (int32_t d = 0; d < w->ndim; d++)
        if (w->by_channel || d < last) good = good && a->step[d] % count == 0;
    return good && (w->by_channel || a->channel % count == 0);
}

static tartan_cuda_walk walk_of(const tartan_array *arrays[TARTAN_CUDA_WALKED], const tartan_array *gain,
                                const tartan_array *bias, const tartan_i_edges *edges) {
    const tartan_array *x = arrays[0];
    tartan_cuda_walk w = {.dtype = x->dtype,
                          .channels = x->shape[1],
                          .positions = 1,
                          .ndim = x->ndim - 1,
                          .gain = scalars_of(gain),
                          .bias = scalars_of(bias),
                          .edges = edges};
    for (int32_t d = 0; d < w.ndim; d++) {
        w.length[d] = x->shape[d == 0 ? 0 : d + 1];
        w.positions *= w.length[d];
    }
    for (int32_t i = 0; i < TARTAN_CUDA_WALKED; i++) {
        if (arrays[i] == NULL) continue;
        tartan_cuda_walked *a = &w.array[i];
        a->data = arrays[i]->data;
        a->dtype = arrays[i]->dtype;
        a->channel = arrays[i]->strides[1];
        for (int32_t d = 0; d < w.ndim; d++) {
            const int32_t from = d == 0 ? 0 : d + 1;
            a->step[d] = w.length[d] > 1 ? arrays[i]->strides[from] : 0;
        }
    }
    for (int32_t d = w.ndim - 1; edges == NULL && d > 0; d--) join(&w, d);
    const int32_t last = w.ndim - 1;
    w.by_channel = w.length[last] <= 1 ||
                   (w.channels > 1 && size_of(w.array[0].channel) < size_of(w.array[0].step[last]));
    const int64_t count = 16 / tartan_cuda_bytes_of(w.dtype);
    w.wide = (w.by_channel ? w.channels : w.length[last]) % count == 0 && (w.by_channel || edges == NULL);
    for (int32_t i = 0; i < TARTAN_CUDA_WALKED; i++) w.wide = w.wide && is_wide(&w, &w.array[i], count);
    return w;
}

tartan_status tartan_cuda_channel_linear_of(const tartan_host *host, const tartan_context *context,
                                            const void *of, void *to) {
    const tartan_op_channel_linear *op = of;
    tartan_cuda_channel_linear *out = to;
    (void)host;
    (void)context;
    const tartan_array *arrays[TARTAN_CUDA_WALKED] = {op->x, op->y, NULL};
    *out = (tartan_cuda_channel_linear){.walk = walk_of(arrays, op->gain, op->bias, op->edges),
                                        .nothing = tartan_i_array_is_empty(op->x)};
    out->walk.conv = op->conv, out->walk.geometry = op->geometry;
    out->walk.relu = op->relu, out->walk.bias_first = op->bias_first;
    return TARTAN_OK;
}

static tartan_cuda_channel_gradient gradient_of(const tartan_array *a) {
    if (a == NULL) return (tartan_cuda_channel_gradient){0};
    return (tartan_cuda_channel_gradient){a->data, a->ndim == 2, a->ndim == 2 ? a->strides[0] : 0,
                                          a->strides[a->ndim - 1]};
}

tartan_status tartan_cuda_channel_linear_gradient_of(const tartan_host *host, const tartan_context *context,
                                                     const void *of, void *to) {
    const tartan_op_channel_linear_gradient *op = of;
    tartan_cuda_channel_linear_gradient *out = to;
    (void)host;
    (void)context;
    const tartan_array *arrays[TARTAN_CUDA_WALKED] = {op->x, op->y_grad, op->x_grad};
    *out = (tartan_cuda_channel_linear_gradient){.walk = walk_of(arrays, op->gain, op->bias, op->edges),
                                                 .gain_grad = gradient_of(op->gain_grad),
                                                 .bias_grad = gradient_of(op->bias_grad)};
    out->walk.conv = op->conv, out->walk.geometry = op->geometry;
    out->walk.relu = op->relu, out->walk.bias_first = op->bias_first;
    /* Sums over no positions are 0. */
    out->nothing = out->walk.channels == 0 ||
                   (out->walk.positions == 0 && op->gain_grad == NULL && op->bias_grad == NULL);
    return TARTAN_OK;
}

/* ---- Weight normalisation ---- */

static tartan_cuda_filter filter_of(const tartan_matrix *m) {
    if (m == NULL) return (tartan_cuda_filter){0};
    return (tartan_cuda_filter){m->values, m->dtype, (int32_t)tartan_i_block_row_stride(m),
                                (int32_t)tartan_i_block_col_stride(m)};
}

static tartan_cuda_conv_normalize normalize_of(const tartan_conv *conv, const tartan_matrix *filter,
                                               const tartan_matrix *out_grad, const tartan_array *gain,
                                               double epsilon, const tartan_matrix *to) {
    const tartan_layout *l = conv->layout;
    const bool turned = conv->options.transposed;
    return (tartan_cuda_conv_normalize){
        .conv = conv,
        .layout = l,
        .outputs = {turned ? &conv->cols : &conv->rows, turned ? tartan_i_conv_grid(conv) : l->grid_rows,
                    (int32_t)(turned ? l->shape.block_cols : l->shape.block_rows), 0},
        .filter = filter_of(filter),
        .out_grad = filter_of(out_grad),
        .to = filter_of(to),
        .gain = gain != NULL ? gain->data : NULL,
        .gain_stride = gain != NULL ? gain->strides[0] : 0,
        .epsilon = epsilon,
        .nothing = l->blocks == 0};
}

tartan_status tartan_cuda_conv_normalize_of(const tartan_host *host, const tartan_context *context,
                                            const void *of, void *to) {
    const tartan_op_conv_normalize *op = of;
    tartan_cuda_conv_normalize *out = to;
    (void)host;
    (void)context;
    *out = normalize_of(op->conv, op->filter, NULL, op->gain, op->epsilon, op->out);
    return TARTAN_OK;
}

tartan_status tartan_cuda_conv_normalize_gradient_of(const tartan_host *host, const tartan_context *context,
                                                     const void *of, void *to) {
    const tartan_op_conv_normalize_gradient *op = of;
    tartan_cuda_conv_normalize_gradient *out = to;
    (void)host;
    (void)context;
    const tartan_array *gain_grad = op->gain_grad;
    *out = (tartan_cuda_conv_normalize_gradient){
        .in = normalize_of(op->conv, op->filter, op->out_grad, op->gain, op->epsilon, op->filter_grad)};
    if (gain_grad != NULL && gain_grad->shape[0] > 0) {
        out->gain_grad = gain_grad->data;
        out->gain_grad_stride = gain_grad->strides[0];
    }
    out->nothing = out->in.nothing && out->gain_grad == NULL;
    return TARTAN_OK;
}
