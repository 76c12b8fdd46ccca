/* SPDX-License-Identifier: Apache-2.0
 * Index sets built on the device from a mask in device memory, in the order of the queue and without waiting, so that
 * a new mask in every step costs no round trip and can be part of a captured graph. */
#ifndef TARTAN_CUDA_INDEX_MASK_H
#define TARTAN_CUDA_INDEX_MASK_H

#include "queue.h"

enum {
    TARTAN_CUDA_MAX_INDEXES = 6,       /* built at a time */
    TARTAN_CUDA_MAX_DEVICE_GROUP = 32, /* lines of a group: a power of two up to this */
};

/* A mask [heads, grid_rows, grid_cols] in device memory, row-major; any non-zero byte is a block. */
typedef struct tartan_cuda_mask {
    const uint8_t *bytes;
    int32_t heads, grid_rows, grid_cols;
} tartan_cuda_mask;

/* One index set to build, in the form of index.h, with room for `capacity` blocks in device memory. Group 0 is a row
 * index: cols and ids have [capacity] values; ids may be NULL. Otherwise it is a group index: cols [room] and ids
 * [room * group], where room is the smaller of the capacity and the number of positions of all groups; order as in
 * tartan_cuda_group_index. If the mask has more blocks than the capacity, the index is empty: all pointers are 0. */
typedef struct tartan_cuda_mask_index {
    bool by_columns;
    int32_t group;
    int32_t *pointers, *cols, *ids, *order;
} tartan_cuda_mask_index;

/* Builds `count` index sets (1 .. TARTAN_CUDA_MAX_INDEXES), the first of which is the row index by block rows, and
 * writes *blocks, in device memory: the blocks of the mask, which may be more than the capacity. heads * grid_rows and
 * heads * grid_cols are below 2^31, the 32 x 32 tiles of the mask below 2^32. Errors: MEMORY (scratch), DEVICE. */
tartan_status tartan_cuda_index_from_mask(const char *function, tartan_cuda_queue *queue,
                                          const tartan_cuda_mask *mask, int32_t capacity,
                                          const tartan_cuda_mask_index *indexes, int32_t count,
                                          int32_t *blocks);

#endif
