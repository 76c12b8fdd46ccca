/* SPDX-License-Identifier: Apache-2.0
 * Blocks moved and measured. */
#ifndef TARTAN_CUDA_BLOCKS_H
#define TARTAN_CUDA_BLOCKS_H

#include "queue.h"

/* Blocks in device memory, [blocks][block_rows * block_cols], inside in `order` (tartan_block_order). */
typedef struct tartan_cuda_blocks {
    void *values;
    int32_t dtype, order;
    const tartan_layout *layout;
} tartan_cuda_blocks;

/* Block i of `to` becomes block sources[i] of `from` (sources NULL: block i; -1: zeros), its rows and columns
 * exchanged if `transposed`. Converts, rounding once; the padding of `from` is not read, that of `to` becomes zero.
 * `sources` and `targets` are device memory. */
tartan_status tartan_cuda_blocks_gather(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_blocks *to, const tartan_cuda_blocks *from,
                                        const int64_t *sources, bool transposed);

/* Block targets[i] of `to` becomes block i of `from`, for each block i of `from`; -1: it goes nowhere. No target
 * may occur twice; the other blocks of `to` stay. */
tartan_status tartan_cuda_blocks_scatter(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_blocks *to, const tartan_cuda_blocks *from,
                                         const int64_t *targets);

/* The same blocks in another dtype or block order: a gather of all. */
tartan_status tartan_cuda_blocks_cast(const char *function, tartan_cuda_queue *queue,
                                      const tartan_cuda_blocks *to, const tartan_cuda_blocks *from);

/* The norm (tartan_norm) of every block, in f64, into out [blocks] in device memory; NaN where a block has one. */
tartan_status tartan_cuda_blocks_norms(const char *function, tartan_cuda_queue *queue,
                                       const tartan_cuda_blocks *from, int32_t norm, double *out);

#endif
