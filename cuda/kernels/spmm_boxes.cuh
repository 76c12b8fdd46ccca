/* SPDX-License-Identifier: Apache-2.0
 * The epilogue of spmm_wgmma.cu by TMA: results of 16 bits with one stride of 1. A warpgroup has 64 x 256 of them, four
 * boxes of 64 x 64. It stages them in shared memory, in two halves, and goes on with the next tile. Producer warps drain
 * them, since issuing a TMA store takes a thread hundreds of cycles while loads are in flight. */
#ifndef TARTAN_CUDA_SPMM_BOXES_CUH
#define TARTAN_CUDA_SPMM_BOXES_CUH

#include "kernels/spmm_problem.cuh"

namespace tartan_cuda {

namespace {

/* Stages a warpgroup's results. Returns false if any sum is non-finite; the caller recomputes and stores the tile itself.
 * `stage` is the tile's last one; `tiles` is the number of tiles staged before. */
template <Factor kFactor, int kRows>
__device__ __forceinline__ bool stage_results(const Problem &p, const Ring<kRows> &ring, uint32_t stage,
                                              uint32_t tiles, float (&d)[128]) {
    const uint32_t warpgroup = threadIdx.x / 128 - 1;
    const bool recompute = p.repairs && warpgroup_any(1 + warpgroup, any_not_finite(d));
    if (p.c.alpha != 1) {
#pragma unroll
        for (int i = 0; i < 128; i++) d[i] *= recompute ? 1 : p.c.alpha;
    }
    /* The other warpgroup may still be reading the stage: all of B or, of a stage of several slots, parts of it. */
    consumer_barrier();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (tiles > 0) barrier_wait(ring.drained(half), (tiles - 1) % 2);
        if (!recompute)
            as_half<kFactor>(p.c.dtype, [&](auto type) {
#pragma unroll
                for (int box = 2 * half; box < 2 * half + 2; box++)
                    fill_box<type.value>(ring.box(stage, warpgroup, box), p.c.vectors == kCols16,
                                         d + 32 * box);
            });
        if (threadIdx.x % 128 == 0) *ring.unstaged(warpgroup, half) = recompute;
        shared_fence_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.staged(half));
    }
    return !recompute;
}

struct Corner {
    int32_t row, col, head, entry; /* of a tile */
};

/* Waits until a half is staged and issues its TMA stores. By a warp. */
template <int kRows>
__device__ __forceinline__ void store_half(const Problem &p, const Ring<kRows> &ring,
                                           const CUtensorMap *map_c, const Corner &tile, uint32_t stage,
                                           uint32_t half, uint32_t parity) {
    const uint32_t lane = threadIdx.x % 32, warpgroup = lane / 2 % 2, box = 2 * half + lane % 2;
    const int32_t row = tile.row + (kRows == 128 ? 64 * warpgroup : 0);
    const int32_t col = tile.col + (kRows == 64 ? kTileCols * warpgroup : 0) + 64 * box;
    const bool by_cols = p.c.vectors == kCols16;
    barrier_wait(ring.staged(half), parity);
    if (lane < 4 && col < p.n && !*ring.unstaged(warpgroup, half)) {
        tensor_store_5d(map_c, ring.box(stage, warpgroup, box), by_cols ? row : col, by_cols ? col : row, 0,
                        tile.head, tile.entry);
        bulk_commit();
    }
}

/* Drains one half of every tile, where the halves are staged in different places: a warp for each. */
template <int kRows>
__device__ __forceinline__ void drain_halves(const Problem &p, const Ring<kRows> &ring,
                                             const CUtensorMap *map_c, uint32_t half) {
    constexpr uint32_t kStages = Form<kRows>::kStages;
    PipelineState<kTiles> tiles;
    Tile t;
    for (uint32_t next = 0, parity = 0; take_tile(ring, tiles, &t);) {
        const int32_t stages = stages_of(p, t);
        if (stages == 0) continue;
        const uint32_t stage = (next + stages - 1) % kStages;
        store_half(p, ring, map_c, {(int32_t)t.row, (int32_t)t.col, t.head, t.entry}, stage, half, parity);
        bulk_wait_read<0>();
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            if (half == 0) barrier_arrive(ring.empty(stage), kConsumerWarps);
            barrier_arrive(ring.drained(half));
        }
        next = (stage + 1) % kStages;
        parity ^= 1;
    }
}

/* Where both halves are staged in the tile's last stage, the first warp drains them before it fills the stage again. */
struct Undrained {
    Corner tile;     /* lane s: of the results in stage s */
    uint32_t stages; /* bit s: stage s has results */
    uint32_t parity;
};

template <int kRows>
__device__ __forceinline__ void note_undrained(const Problem &p, Undrained &results, const Tile &t,
                                               uint32_t stage) {
    if (Form<kRows>::kExtraRoom || !p.boxes) return;
    results.stages |= 1u << stage;
    if (threadIdx.x % 32 == stage) results.tile = {(int32_t)t.row, (int32_t)t.col, t.head, t.entry};
}

template <int kRows>
__device__ __forceinline__ void drain_stage(const Problem &p, const Ring<kRows> &ring,
                                            const CUtensorMap *map_c, Undrained &results, uint32_t stage) {
    if (Form<kRows>::kExtraRoom || !(results.stages >> stage & 1)) return;
    results.stages ^= 1u << stage;
    const Corner tile = {__shfl_sync(~0u, results.tile.row, stage), __shfl_sync(~0u, results.tile.col, stage),
                         __shfl_sync(~0u, results.tile.head, stage),
                         __shfl_sync(~0u, results.tile.entry, stage)};
    store_half(p, ring, map_c, tile, stage, 0, results.parity);
    store_half(p, ring, map_c, tile, stage, 1, results.parity);
    results.parity ^= 1;
    bulk_wait_read<0>();
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    barrier_arrive(ring.empty(stage), kConsumerWarps);
    barrier_arrive(ring.drained(0));
    barrier_arrive(ring.drained(1));
}

/* Drains results while waiting for a tile; otherwise consumers and producer deadlock: consumers may wait for staging
 * before they take the tiles that would make room to schedule more. */
template <int kRows>
__device__ __forceinline__ void drain_while_waiting(const Problem &p, const Ring<kRows> &ring,
                                                    const CUtensorMap *map_c, Undrained &results,
                                                    const PipelineState<kTiles> &tiles, uint32_t stage) {
    while (results.stages != 0 && !barrier_test(ring.posted(tiles.at), tiles.parity)) {
        if (!barrier_test(ring.staged(0), results.parity)) continue;
        while (!(results.stages >> stage & 1)) stage = (stage + 1) % Form<kRows>::kStages; /* oldest first */
        drain_stage(p, ring, map_c, results, stage);
    }
}

} // namespace

} // namespace tartan_cuda

#endif
