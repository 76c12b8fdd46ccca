/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_k.h"

enum { EDGE_STEPS = 4 }; /* a range never ends so close to the edge of a tile */

/* Costs in k-steps, measured on an H100 and an H200. */
static const double memory_fixup = 18,
                    memory_each = 3; /* partial sums added through memory; for each range */
static const double cluster_start = 4,
                    cluster_each = 2.5; /* a cluster's extra start; partial sums of each CTA */

/* Adding the partial sums of one more range costs about one step, so steps / parts + parts is least at the root. */
int32_t tartan_cuda_parts_of(int64_t tiles, int64_t steps, int32_t processors) {
    if (tiles >= processors) return processors;
    int64_t each = 1;
    if (steps >= TARTAN_CUDA_FEW_STEPS)
        while ((each + 1) * (each + 1) <= steps && each < processors) each++;
    return tiles * each < processors ? (int32_t)(tiles * each) : processors;
}

/* SMs come in GPCs of 16 or 18, so some clusters of three or four cannot be placed. */
int32_t tartan_cuda_sharers_of(int64_t tiles, int64_t steps, int32_t processors) {
    if (tiles == 0 || steps < TARTAN_CUDA_FEW_STEPS) return 1;
    const double parts = (double)tartan_cuda_parts_of(tiles, steps, processors) / (double)tiles;
    double least = (double)steps / parts + memory_fixup + memory_each * parts;
    int32_t best = 1;
    for (int32_t sharers = 2; sharers <= TARTAN_CUDA_MOST_SHARERS; sharers++) {
        const int32_t places = (sharers == 2 ? processors : processors - processors / 16) / sharers;
        if (places == 0) break;
        const int64_t rounds = tartan_i_ceil_div(tiles, places);
        const double cost =
            (double)rounds * ((double)steps / sharers + cluster_start + cluster_each * sharers);
        if (cost >= least) continue;
        least = cost;
        best = sharers;
    }
    return best;
}

void tartan_cuda_cuts_of(const tartan_cuda_tile_index *tiles, int64_t steps, int32_t parts,
                         tartan_cuda_cut *cuts) {
    const int64_t edge = steps < TARTAN_CUDA_FEW_STEPS ? (steps + 1) / 2 : EDGE_STEPS;
    const double all = (double)tiles->costs[tiles->count] * (double)steps;
    int64_t tile = 0;
    cuts[0] = (tartan_cuda_cut){0, 0};
    for (int32_t i = 1; i < parts; i++) {
        const double at = all * i / parts;
        int64_t above = tiles->count; /* find the last tile that starts at or before `at` */
        while (above - tile > 1) {
            const int64_t middle = tile + (above - tile) / 2;
            if ((double)tiles->costs[middle] * (double)steps <= at)
                tile = middle;
            else
                above = middle;
        }
        const int64_t cost = tiles->costs[tile + 1] - tiles->costs[tile];
        const int64_t step = (int64_t)((at - (double)tiles->costs[tile] * (double)steps) / (double)cost);
        if (step < edge)
            cuts[i] = (tartan_cuda_cut){(int32_t)tile, 0};
        else if (steps - step <= edge)
            cuts[i] = (tartan_cuda_cut){(int32_t)tile + 1, 0};
        else
            cuts[i] = (tartan_cuda_cut){(int32_t)tile, (int32_t)step};
    }
    cuts[parts] = (tartan_cuda_cut){(int32_t)tiles->count, 0};
}
