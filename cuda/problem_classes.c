/* SPDX-License-Identifier: Apache-2.0
 * The problems of softmax and of losses of classes. */
#include <string.h>

#include "backend/operation.h"
#include "problem.h"

/* An array of [lines...] as one of [lines..., 1]. */
static tartan_array per_line(const tartan_array *array) {
    tartan_array one = *array;
    one.shape[one.ndim] = 1;
    one.strides[one.ndim++] = 0;
    return one;
}

/* `wide`: x, another array or NULL, and the result or NULL; `narrow`: labels, factors and lse, or NULL, and a substitute for the
 * other array where that is NULL. */
static tartan_cuda_classes classes_of(tartan_cuda_classes_kind kind, const tartan_array *const wide[3],
                                      const tartan_array *const narrow[4]) {
    const tartan_array *x = wide[0];
    tartan_array lines[4];
    tartan_cuda_sweeping of = {
        .ndim = x->ndim, .summed = 1u << (x->ndim - 1), .count = TARTAN_CUDA_SWEPT, .keep_direction = true};
    memcpy(of.shape, x->shape, sizeof of.shape);
    for (int32_t i = 0; i < 3; i++) of.array[i] = wide[i];
    for (int32_t i = 0; i < 4; i++) {
        const int32_t to = i < 3 ? TARTAN_CUDA_CLASSES_LABELS + i : TARTAN_CUDA_CLASSES_OTHER;
        if (narrow[i] == NULL) continue;
        lines[i] = per_line(narrow[i]);
        of.array[to] = &lines[i];
    }
    tartan_cuda_classes p = {.kind = kind,
                             .sum_dtype = x->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32,
                             .lines = 1,
                             .length = x->shape[x->ndim - 1],
                             .scale = 1,
                             .sweep = tartan_cuda_sweep_of(&of)};
    for (int32_t d = 0; d + 1 < x->ndim; d++) p.lines *= x->shape[d];
    p.nothing = p.lines == 0 || (p.length == 0 && kind != TARTAN_CUDA_CROSS_ENTROPY);
    return p;
}

static const tartan_array *const none[4];

tartan_status tartan_cuda_softmax_of(const tartan_host *host, const tartan_context *context, const void *of,
                                     void *to) {
    const tartan_op_softmax *op = of;
    tartan_cuda_classes *out = to;
    (void)host, (void)context;
    *out = classes_of(TARTAN_CUDA_SOFTMAX, (const tartan_array *[]){op->x, op->mask, op->y}, none);
    out->scale = op->scale;
    return TARTAN_OK;
}

tartan_status tartan_cuda_log_softmax_of(const tartan_host *host, const tartan_context *context,
                                         const void *of, void *to) {
    const tartan_op_log_softmax *op = of;
    tartan_cuda_classes *out = to;
    (void)host, (void)context;
    *out = classes_of(TARTAN_CUDA_LOG_SOFTMAX, (const tartan_array *[]){op->x, NULL, op->y}, none);
    out->scale = op->scale;
    return TARTAN_OK;
}

tartan_status tartan_cuda_softmax_gradient_of(const tartan_host *host, const tartan_context *context,
                                              const void *of, void *to) {
    const tartan_op_softmax_gradient *op = of;
    tartan_cuda_classes *out = to;
    (void)host, (void)context;
    *out = classes_of(TARTAN_CUDA_SOFTMAX_GRADIENT, (const tartan_array *[]){op->y, op->y_grad, op->x_grad},
                      none);
    out->scale = op->scale;
    return TARTAN_OK;
}

tartan_status tartan_cuda_log_softmax_gradient_of(const tartan_host *host, const tartan_context *context,
                                                  const void *of, void *to) {
    const tartan_op_log_softmax_gradient *op = of;
    tartan_cuda_classes *out = to;
    (void)host, (void)context;
    *out = classes_of(TARTAN_CUDA_LOG_SOFTMAX_GRADIENT,
                      (const tartan_array *[]){op->y, op->y_grad, op->x_grad}, none);
    out->scale = op->scale;
    return TARTAN_OK;
}

tartan_status tartan_cuda_cross_entropy_of(const tartan_host *host, const tartan_context *context,
                                           const void *of, void *to) {
    const tartan_op_cross_entropy *op = of;
    tartan_cuda_classes *out = to;
    (void)host, (void)context;
    *out = classes_of(TARTAN_CUDA_CROSS_ENTROPY, (const tartan_array *[]){op->logits, NULL, op->slope},
                      (const tartan_array *[]){op->labels, op->weights, op->lse, op->loss});
    out->scale = op->scale, out->smoothing = op->label_smoothing;
    out->base = op->base, out->ignored = op->ignore_index;
    return TARTAN_OK;
}

tartan_status tartan_cuda_cross_entropy_gradient_of(const tartan_host *host, const tartan_context *context,
                                                    const void *of, void *to) {
    const tartan_op_cross_entropy_gradient *op = of;
    tartan_cuda_classes *out = to;
    (void)host, (void)context;
    *out = classes_of(TARTAN_CUDA_CROSS_ENTROPY_GRADIENT,
                      (const tartan_array *[]){op->logits, NULL, op->logits_grad},
                      (const tartan_array *[]){op->labels, op->loss_grad, op->lse, NULL});
    out->smoothing = op->label_smoothing;
    out->base = op->base, out->ignored = op->ignore_index;
    return TARTAN_OK;
}
