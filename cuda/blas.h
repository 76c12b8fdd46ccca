/* SPDX-License-Identifier: Apache-2.0
 * cuBLAS, opened at run time if a context allows it; never required. */
#ifndef TARTAN_CUDA_BLAS_H
#define TARTAN_CUDA_BLAS_H

#include "gemm.h"
#include "queue.h"

/* Opens cuBLAS for the queue: sets queue->blas, or queue->chip.no_cublas to the reason why not. Errors: MEMORY (its
 * workspace). */
tartan_status tartan_cuda_blas_open(const char *function, tartan_cuda_queue *queue);

/* NULL is allowed. */
void tartan_cuda_blas_close(tartan_cuda_blas *blas);

/* Multiplies with the dense copy of op(A), in the order of the queue. Errors: MEMORY, DEVICE. */
tartan_status tartan_cuda_blas_multiply(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_spmm *p, const tartan_cuda_gemm *g,
                                        const void *copy);

#endif
