/* SPDX-License-Identifier: Apache-2.0
 * Gradients of softmax along long lines on clusters. */
#ifndef TARTAN_CUDA_SOFTMAX_GRADIENT_CLUSTERS_H
#define TARTAN_CUDA_SOFTMAX_GRADIENT_CLUSTERS_H

#include "problem.h"
#include "queue.h"

/* Gradients of softmax or of its logarithm, of lines in f32, f16 or bf16. *done is false where lines are for other kernels. */
tartan_status tartan_cuda_softmax_gradient_clusters(const char *function, tartan_cuda_queue *queue,
                                                    const tartan_cuda_classes *p, bool *done);

#endif
