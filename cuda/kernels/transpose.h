/* SPDX-License-Identifier: Apache-2.0
 * Transposed copies of operands whose contiguous index makes narrow TMA boxes. */
#ifndef TARTAN_CUDA_TRANSPOSE_H
#define TARTAN_CUDA_TRANSPOSE_H

#include "queue.h"

/* `lines` lines of `length` contiguous 16-bit elements, for each head and batch entry; strides in elements. Lines are
 * aligned to 16 bytes. */
typedef struct tartan_cuda_transpose_source {
    const void *data;
    int64_t lines, length, line_stride;
    int64_t heads, head_stride, entries, entry_stride;
} tartan_cuda_transpose_source;

/* The bytes of a copy [entries][heads][lines / 64, rounded up][length][64]. */
int64_t tartan_cuda_transposed_bytes(const tartan_cuda_transpose_source *from);

/* Writes it to `to`; lines that do not exist are zeros. */
tartan_status tartan_cuda_transpose_half(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_transpose_source *from, void *to);

#endif
