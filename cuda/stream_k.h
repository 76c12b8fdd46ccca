/* SPDX-License-Identifier: Apache-2.0
 * Stream-K and split-K: dividing the k-steps of a list of tiles among CTAs. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_STREAM_K_H
#define TARTAN_CUDA_STREAM_K_H

#include "index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sums of fewer steps are not cut. */
enum { TARTAN_CUDA_FEW_STEPS = 16 };

/* A place in the k-steps of all tiles laid end to end; every tile has the same number of steps. */
typedef struct tartan_cuda_cut {
    int32_t tile, step;
} tartan_cuda_cut;

/* Into how many ranges stream-K cuts the work: one per SM, but no more than gain by sharing a tile. */
int32_t tartan_cuda_parts_of(int64_t tiles, int64_t steps, int32_t processors);

/* How many CTAs of a cluster split the sum of each tile evenly (split-K) and exchange partial sums in shared memory;
 * 1 where stream-K is expected to be faster. */
enum { TARTAN_CUDA_MOST_SHARERS = 4 };
int32_t tartan_cuda_sharers_of(int64_t tiles, int64_t steps, int32_t processors);

/* Cuts the work into `parts` ranges of equal cost: range i is from cuts[i] to cuts[i + 1]. A cut near the edge of a
 * tile moves to the edge. */
void tartan_cuda_cuts_of(const tartan_cuda_tile_index *tiles, int64_t steps, int32_t parts,
                         tartan_cuda_cut *cuts);

#ifdef __cplusplus
}
#endif
#endif
