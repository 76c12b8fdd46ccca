/* SPDX-License-Identifier: Apache-2.0
 * Softmax, cross entropy and gradients of softmax along long lines, which clusters keep in registers. */
#ifndef TARTAN_CUDA_SOFTMAX_HELD_H
#define TARTAN_CUDA_SOFTMAX_HELD_H

#include "problem.h"
#include "queue.h"

/* Softmax without a mask, its logarithm or cross entropy, of lines in f32, f16 or bf16. *done is false where lines are for other kernels. */
tartan_status tartan_cuda_softmax_held(const char *function, tartan_cuda_queue *queue,
                                       const tartan_cuda_classes *p, bool *done);
/* Gradients of softmax or of its logarithm. */
tartan_status tartan_cuda_softmax_gradient_held(const char *function, tartan_cuda_queue *queue,
                                                const tartan_cuda_classes *p, bool *done);

#endif
