/* SPDX-License-Identifier: Apache-2.0
 * Softmax and cross entropy of long lines on clusters. */
#ifndef TARTAN_CUDA_SOFTMAX_CLUSTERS_H
#define TARTAN_CUDA_SOFTMAX_CLUSTERS_H

#include "problem.h"
#include "queue.h"

/* All but the gradient of cross entropy, of lines in f32, f16 or bf16. *done is false where lines are for other kernels. */
tartan_status tartan_cuda_softmax_clusters(const char *function, tartan_cuda_queue *queue,
                                           const tartan_cuda_classes *p, bool *done);

#endif
