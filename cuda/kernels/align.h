/* SPDX-License-Identifier: Apache-2.0
 * Copies of dense operands that tensor maps cannot describe: their lines lie a multiple of 16 bytes apart. */
#ifndef TARTAN_CUDA_ALIGN_H
#define TARTAN_CUDA_ALIGN_H

#include "queue.h"

/* A rows x cols operand with one stride of 1, for each head and batch entry of at most one dimension. */
typedef struct tartan_cuda_alignable {
    tartan_cuda_dense *dense;
    int64_t *batch_stride;
    int64_t rows, cols, heads, entries;
} tartan_cuda_alignable;

/* Copies an operand into scratch memory, *out_scratch, and makes *what.dense and *what.batch_stride those of the copy. Its
 * contiguous index stays; lines are padded by zeros to multiples of 16 bytes or, from 512 bytes on, of 128. The caller frees
 * the scratch memory. */
tartan_status tartan_cuda_align_copy(const char *function, tartan_cuda_queue *queue,
                                     const tartan_cuda_alignable *what, void **out_scratch);

/* The same; but where a tensor map can describe the operand, it stays as it is and *out_scratch is NULL. */
tartan_status tartan_cuda_align(const char *function, tartan_cuda_queue *queue,
                                const tartan_cuda_alignable *what, void **out_scratch);

/* Aligns the factors of all pairs; out_scratch has room for 2 * TARTAN_I_MAX_PAIRS. The caller frees the scratch memory, also
 * after an error. */
tartan_status tartan_cuda_align_pairs(const char *function, tartan_cuda_queue *queue, tartan_cuda_sddmm *p,
                                      void **out_scratch);

#endif
