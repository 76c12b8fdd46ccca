/* SPDX-License-Identifier: Apache-2.0
 * Copies of matrices whose lines run the wrong way for the copy engine. */
#ifndef TARTAN_CUDA_TURN_H
#define TARTAN_CUDA_TURN_H

#include "queue.h"

/* `lines` lines of `length` contiguous 16-bit elements, for each head and batch entry; strides in elements.
 * Lines begin at multiples of 16 bytes. */
typedef struct tartan_cuda_transpose_source {
    const void *data;
    int64_t lines, length, line_stride;
    int64_t heads, head_stride, entries, entry_stride;
} tartan_cuda_transpose_source;

/* Of a copy as [entries][heads][lines / 64, rounded up][length][64]. */
int64_t tartan_cuda_transposed_bytes(const tartan_cuda_transpose_source *lines);

/* Makes it in `to`; lines that are not there are zeros. */
tartan_status tartan_cuda_transpose_half(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_transpose_source *lines, void *to);

#endif
