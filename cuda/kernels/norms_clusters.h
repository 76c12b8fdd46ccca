/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along long lines on clusters. */
#ifndef TARTAN_CUDA_NORMS_CLUSTERS_H
#define TARTAN_CUDA_NORMS_CLUSTERS_H

#include "problem.h"
#include "queue.h"

/* Lines in f32, f16 or bf16, and the gradient with respect to x. *done is false where lines are for other kernels. */
tartan_status tartan_cuda_norm_clusters(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_norm *p, bool *done);
tartan_status tartan_cuda_norm_gradient_clusters(const char *function, tartan_cuda_queue *queue,
                                                 const tartan_cuda_norm *p, bool *done);

/* All gradients, of lines of whole units of 16 bytes. */
tartan_status tartan_cuda_norm_gradient_held(const char *function, tartan_cuda_queue *queue,
                                             const tartan_cuda_norm_gradient *p, bool *done);

#endif
