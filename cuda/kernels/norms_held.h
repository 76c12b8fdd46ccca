/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along long lines, which clusters keep on the chip. */
#ifndef TARTAN_CUDA_NORMS_HELD_H
#define TARTAN_CUDA_NORMS_HELD_H

#include "problem.h"
#include "queue.h"

/* Lines in f32, f16 or bf16, and all gradients. Units of arrays count one element. *done is false where lines are for other kernels. */
tartan_status tartan_cuda_norm_held(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm *p,
                                    bool *done);
tartan_status tartan_cuda_norm_gradient_held(const char *function, tartan_cuda_queue *queue,
                                             const tartan_cuda_norm_gradient *p, bool *done);

#endif
