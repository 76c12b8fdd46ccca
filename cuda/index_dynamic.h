/* SPDX-License-Identifier: Apache-2.0
 * The index sets of dynamic layouts, whose blocks follow masks on the device. */
#ifndef TARTAN_CUDA_INDEX_DYNAMIC_H
#define TARTAN_CUDA_INDEX_DYNAMIC_H

#include "index_mask.h"

/* Made and changed by the backend table's functions (device.h): tartan_cuda_index_create, _update, _fetch, _release.
 *
 * What tartan_cuda_index_get_rows and _get_groups (index_cache.h) give for such a layout. Counts are for the whole
 * capacity. The first use of a set allocates it, builds it from the row index and waits; it cannot be captured in a
 * graph (UNSUPPORTED). `group` is a power of two up to TARTAN_CUDA_MAX_DEVICE_GROUP. */
tartan_status tartan_cuda_dynamic_index_rows(const char *function, tartan_cuda_queue *queue, void *index,
                                             bool by_columns, tartan_cuda_row_index *out);
tartan_status tartan_cuda_dynamic_index_groups(const char *function, tartan_cuda_queue *queue, void *index,
                                               bool by_columns, int32_t group, tartan_cuda_group_index *out);

#endif
