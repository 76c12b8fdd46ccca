/* SPDX-License-Identifier: Apache-2.0
 * The problems of softmax and of losses of classes. problem.h includes it. */
#ifndef TARTAN_CUDA_PROBLEM_CLASSES_H
#define TARTAN_CUDA_PROBLEM_CLASSES_H

#include "sweep.h"

typedef enum tartan_cuda_classes_kind {
    TARTAN_CUDA_SOFTMAX,
    TARTAN_CUDA_LOG_SOFTMAX,
    TARTAN_CUDA_SOFTMAX_GRADIENT,
    TARTAN_CUDA_LOG_SOFTMAX_GRADIENT,
    TARTAN_CUDA_CROSS_ENTROPY,
    TARTAN_CUDA_CROSS_ENTROPY_GRADIENT,
} tartan_cuda_classes_kind;

/* The arrays of the sweep, whose kept axes are lines and whose summed one is the positions in a line. The first three have a number
 * for each position, the others one for each line. */
enum {
    TARTAN_CUDA_CLASSES_X, /* x or logits; y of gradients of softmax */
    TARTAN_CUDA_CLASSES_OTHER, /* the mask of softmax, y_grad of gradients of softmax; the loss (one for each line) */
    TARTAN_CUDA_CLASSES_OUT,
    TARTAN_CUDA_CLASSES_LABELS,
    TARTAN_CUDA_CLASSES_FACTOR, /* weights or loss_grad */
    TARTAN_CUDA_CLASSES_LSE,
};

typedef struct tartan_cuda_classes {
    bool nothing;
    tartan_cuda_classes_kind kind;
    int32_t sum_dtype;
    int64_t lines, length;
    double scale, smoothing;
    int64_t base, ignored;
    tartan_cuda_sweep sweep;
} tartan_cuda_classes;

#endif
