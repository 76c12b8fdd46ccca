/* SPDX-License-Identifier: Apache-2.0
 * cuBLAS, opened at run time where a context allows it, and never needed. */
#ifndef TARTAN_CUDA_BLAS_H
#define TARTAN_CUDA_BLAS_H

#include "gemm.h"
#include "queue.h"

/* Opens cuBLAS for the queue: queue->blas, or else queue->chip.no_cublas says why it is not there. Errors: MEMORY (its
 * workspace). */
tartan_status tartan_cuda_blas_open(const char *function, tartan_cuda_queue *queue);

/* Gives back what it has; NULL is allowed. */
void tartan_cuda_blas_close(tartan_cuda_blas *blas);

/* The product with the copy of op(A), in the order of the queue. Errors: MEMORY, DEVICE. */
tartan_status tartan_cuda_blas_multiply(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_spmm *p, const tartan_cuda_gemm *g,
                                        const void *copy);

#endif
