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
 * (group 0; cols and ids [capacity], ids NULL where not wanted) or unions (cols [room] and ids [room * group], room the
 * capacity or, where that is less, the positions of all groups' merged lists; order as there). Where the mask has more
 * blocks than the capacity there are none: all pointers are 0. */
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

/* ---- The index sets of a layout whose blocks change; the table's plan functions, see backend.h. ---- */

tartan_status tartan_cuda_sets_create(const char *function, tartan_cuda_queue *queue,
                                      const tartan_layout *layout, void **out_sets);
tartan_status tartan_cuda_sets_plan(const char *function, tartan_cuda_queue *queue, void *sets,
                                    const void *mask);
tartan_status tartan_cuda_sets_fetch(const char *function, tartan_cuda_queue *queue, void *sets,
                                     int64_t *out_blocks, int64_t *out_row_pointers, int32_t *out_block_cols);
void tartan_cuda_sets_release(void *sets);

/* What tartan_cuda_lists_get and tartan_cuda_unions_get (device.h) give for such a layout: counts are of what there is
 * room for. The first use of a set gets its memory, makes it from the row lists and waits; it cannot be
 * captured in a graph (UNSUPPORTED). `group` is a power of two up to TARTAN_CUDA_MAX_DEVICE_GROUP. */
tartan_status tartan_cuda_sets_lists(const char *function, tartan_cuda_queue *queue, void *sets,
                                     bool by_columns, tartan_cuda_lists *out);
tartan_status tartan_cuda_sets_unions(const char *function, tartan_cuda_queue *queue, void *sets,
                                      bool by_columns, int32_t group, tartan_cuda_unions *out);

#endif
