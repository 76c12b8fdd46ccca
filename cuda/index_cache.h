/* SPDX-License-Identifier: Apache-2.0
 * The index sets of a layout on a device, built on first use and kept in the layout as plans. */
#ifndef TARTAN_CUDA_INDEX_CACHE_H
#define TARTAN_CUDA_INDEX_CACHE_H

#include "queue.h"

/* The first use copies from the host and waits, so it cannot be captured in a graph (UNSUPPORTED); later uses cost
 * nothing. `group` is at least 1. A dynamic layout has index sets of its own (index_dynamic.h): `entries` is only a
 * bound there, the pointers in device memory tell the number. */
tartan_status tartan_cuda_index_get_rows(const char *function, tartan_cuda_queue *queue,
                                         const tartan_layout *layout, bool by_columns,
                                         tartan_cuda_row_index *out);
/* Of any layout. */
tartan_status tartan_cuda_index_get_bounds(const char *function, tartan_cuda_queue *queue,
                                           const tartan_layout *layout, bool by_columns,
                                           tartan_cuda_bounds *out);
tartan_status tartan_cuda_index_get_groups(const char *function, tartan_cuda_queue *queue,
                                           const tartan_layout *layout, bool by_columns, int32_t group,
                                           tartan_cuda_group_index *out);

/* The groups of sub-blocks (index.h) of a layout that is not dynamic. */
tartan_status tartan_cuda_index_get_sub_groups(const char *function, tartan_cuda_queue *queue,
                                               const tartan_layout *layout, bool by_columns,
                                               const tartan_cuda_sub_blocks *sub, int32_t group,
                                               tartan_cuda_group_index *out);

/* The tiles of a group index by block rows of that layout, which must not be dynamic. The form of a
 * group differs only in `entries` and `each`. */
tartan_status tartan_cuda_index_get_tiles(const char *function, tartan_cuda_queue *queue,
                                          const tartan_layout *layout, const tartan_cuda_group_index *groups,
                                          const tartan_cuda_tile_form *form, tartan_cuda_tile_index *out);

/* An in-block mask, kept in the mask as a plan. */
tartan_status tartan_cuda_index_get_block_mask(const char *function, tartan_cuda_queue *queue,
                                               const tartan_block_mask *block_mask, bool transposed,
                                               tartan_cuda_block_mask *out);

/* Tables of other kinds, made on the host and kept in a layout that is not dynamic. */
typedef struct tartan_cuda_made {
    int32_t *values; /* copied to the device */
    int64_t size;    /* at least 1 */
    int64_t *facts;  /* stay in host memory; or NULL. Both are allocated by host->allocate */
} tartan_cuda_made;
typedef tartan_status tartan_cuda_making(const tartan_host *host, const tartan_layout *layout,
                                         const void *user, tartan_cuda_made *out);

/* The tables that `make` makes of `user` on first use. (make, variant) is their key. */
tartan_status tartan_cuda_index_get_tables(const char *function, tartan_cuda_queue *queue,
                                           const tartan_layout *layout, int32_t variant,
                                           tartan_cuda_making *make, const void *user,
                                           const int32_t **out_values, const int64_t **out_facts);

#endif
