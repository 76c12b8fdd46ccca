/* SPDX-License-Identifier: Apache-2.0
 * Index sets made on the device from a mask that is there: asked for in the order of the queue, without waiting, so
 * that a new mask a step costs no round trip and can be part of a captured graph. */
#ifndef TARTAN_CUDA_LAYOUT_H
#define TARTAN_CUDA_LAYOUT_H

#include "device.h"

enum {
    TARTAN_CUDA_MAX_INDEXES = 6,
    TARTAN_CUDA_MAX_DEVICE_GROUP = 32, /* lines that are merged on the device: a power of two up to this */
};

/* A mask [heads, grid_rows, grid_cols] in device memory, row-major; any non-zero byte is a block. */
typedef struct tartan_cuda_mask {
    const uint8_t *bytes;
    int32_t heads, grid_rows, grid_cols;
} tartan_cuda_mask;

/* One index set to be made, in the form of problem.h and in device memory with room for `capacity` blocks: lists
 * (group 0; cols and ids [capacity], ids NULL where not wanted) or unions (ids [capacity * group], order as there).
 * Entries beyond the capacity are left out, and pointers end there. */
typedef struct tartan_cuda_index {
    bool by_columns;
    int32_t group;
    int32_t *pointers, *cols, *ids, *order;
} tartan_cuda_index;

/* Makes `count` index sets (1 .. TARTAN_CUDA_MAX_INDEXES), the first of them the row lists, and *blocks, in device
 * memory: the blocks of the mask, which may be more than the capacity. heads * grid_rows and heads * grid_cols are
 * below 2^31, and the tiles of 32 x 32 positions below 2^32. Errors: MEMORY (scratch), DEVICE. */
tartan_status tartan_cuda_index_mask(const char *function, tartan_cuda_queue *queue,
                                     const tartan_cuda_mask *mask, int32_t capacity,
                                     const tartan_cuda_index *indexes, int32_t count, int32_t *blocks);

#endif
