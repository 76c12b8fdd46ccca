/* SPDX-License-Identifier: Apache-2.0
 * How results of spmm_wgmma.cu leave by the copy engine: 16 bits each, one direction contiguous. A warpgroup has 64 x 256
 * of them, four boxes of 64 x 64. It leaves them in shared memory, in two halves, and goes on with the next tile;
 * asking for a copy takes a thread hundreds of cycles while loads are on their way, so other warps do that. */
#ifndef TARTAN_CUDA_SPMM_BOXES_CUH
#define TARTAN_CUDA_SPMM_BOXES_CUH

#include "kernels/spmm_problem.cuh"

namespace tartan_cuda {

namespace {

/* A warpgroup's 64 x 64 results of 16 bits, the copy engine's box: [row][128 bytes] or, where the columns of C are
 * contiguous, [column][128 bytes], with its swizzle. x: the warp's sums, 16 rows. */
template <Factor kFactor>
__device__ __forceinline__ void fill_box(uint32_t room, bool by_cols, const float *x) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    if (by_cols) {
        const uint32_t at =
            room + (lane / 16 * 8 + lane % 8) * 128 + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
        for (int p = 0; p < 8; p += 2, x += 8)
            store_matrices_transposed(at + p * 8 * 128, pack<kFactor>(x[0], x[1]), pack<kFactor>(x[2], x[3]),
                                      pack<kFactor>(x[4], x[5]), pack<kFactor>(x[6], x[7]));
    } else {
        const uint32_t at = room + (16 * warp + lane % 16) * 128, piece = lane / 16 ^ lane % 8;
#pragma unroll
        for (int p = 0; p < 8; p += 2, x += 8)
            store_matrices(at + (p ^ piece) * 16, pack<kFactor>(x[0], x[1]), pack<kFactor>(x[2], x[3]),
                           pack<kFactor>(x[4], x[5]), pack<kFactor>(x[6], x[7]));
    }
}

/* A warpgroup leaves its sums. False where they are to be stored otherwise, since some are not finite and need a
 * second look. `stage`: the tile's last one; `tiles` have been left before. */
template <Factor kFactor, int kRows>
__device__ __forceinline__ bool leave_boxes(const Problem &p, const Ring<kRows> &ring, uint32_t stage,
                                            uint32_t tiles, float (&d)[128]) {
    const uint32_t warpgroup = threadIdx.x / 128 - 1;
    const bool odd = p.repairs && warpgroup_any(1 + warpgroup, any_not_finite(d));
    if (p.c.alpha != 1) {
#pragma unroll
        for (int i = 0; i < 128; i++) d[i] *= odd ? 1 : p.c.alpha;
    }
    /* The others may be reading the stage still: all of B, or, of a stage of several slots, parts of it between ours. */
    consumer_barrier();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (tiles > 0) barrier_wait(ring.cleared(half), (tiles - 1) % 2);
        if (!odd)
            as_half<kFactor>(p.c.dtype, [&](auto type) {
#pragma unroll
                for (int box = 2 * half; box < 2 * half + 2; box++)
                    fill_box<type.value>(ring.box(stage, warpgroup, box), p.c.smooth == kSmoothCols,
                                         d + 32 * box);
            });
        if (threadIdx.x % 128 == 0) *ring.odd(warpgroup, half) = odd;
        shared_fence_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.left(half));
    }
    return !odd;
}

struct Corner {
    int32_t row, col, head, entry; /* of a tile */
};

/* Asks for the copies of a half when it is there; by a warp. */
template <int kRows>
__device__ __forceinline__ void copy_half(const Problem &p, const Ring<kRows> &ring, const CUtensorMap *map_c,
                                          const Corner &tile, uint32_t stage, uint32_t half,
                                          uint32_t parity) {
    const uint32_t lane = threadIdx.x % 32, warpgroup = lane / 2 % 2, box = 2 * half + lane % 2;
    const int32_t row = tile.row + (kRows == 128 ? 64 * warpgroup : 0);
    const int32_t col = tile.col + (kRows == 64 ? kTileCols * warpgroup : 0) + 64 * box;
    const bool by_cols = p.c.smooth == kSmoothCols;
    barrier_wait(ring.left(half), parity);
    if (lane < 4 && col < p.n && !*ring.odd(warpgroup, half)) {
        tensor_store_5d(map_c, ring.box(stage, warpgroup, box), by_cols ? row : col, by_cols ? col : row, 0,
                        tile.head, tile.entry);
        bulk_commit();
    }
}

/* Where the halves lie in different places, a warp for each. */
template <int kRows>
__device__ __forceinline__ void bring_halves(const Problem &p, const Ring<kRows> &ring,
                                             const CUtensorMap *map_c, uint32_t half) {
    constexpr uint32_t kStages = Form<kRows>::kStages;
    Place<kTiles> tiles;
    Tile t;
    for (uint32_t next = 0, parity = 0; take_tile(ring, tiles, &t);) {
        const int32_t stages = stages_of(p, t);
        if (stages == 0) continue;
        const uint32_t stage = (next + stages - 1) % kStages;
        copy_half(p, ring, map_c, {(int32_t)t.row, (int32_t)t.col, t.head, t.entry}, stage, half, parity);
        bulk_wait_read<0>();
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            if (half == 0) barrier_arrive(ring.empty(stage), kConsumerWarps);
            barrier_arrive(ring.cleared(half));
        }
        next = (stage + 1) % kStages;
        parity ^= 1;
    }
}

/* Where both lie in a stage, the first warp has them brought away when its turn to be filled comes. */
struct Resting {
    Corner tile;     /* lane s: the one whose results lie in stage s */
    uint32_t stages; /* bit s: there are some */
    uint32_t parity;
};

template <int kRows>
__device__ __forceinline__ void rest(const Problem &p, Resting &results, const Tile &t, uint32_t stage) {
    if (Form<kRows>::kRooms || !p.boxes) return;
    results.stages |= 1u << stage;
    if (threadIdx.x % 32 == stage) results.tile = {(int32_t)t.row, (int32_t)t.col, t.head, t.entry};
}

template <int kRows>
__device__ __forceinline__ void bring_away(const Problem &p, const Ring<kRows> &ring,
                                           const CUtensorMap *map_c, Resting &results, uint32_t stage) {
    if (Form<kRows>::kRooms || !(results.stages >> stage & 1)) return;
    results.stages ^= 1u << stage;
    const Corner tile = {__shfl_sync(~0u, results.tile.row, stage), __shfl_sync(~0u, results.tile.col, stage),
                         __shfl_sync(~0u, results.tile.head, stage),
                         __shfl_sync(~0u, results.tile.entry, stage)};
    copy_half(p, ring, map_c, tile, stage, 0, results.parity);
    copy_half(p, ring, map_c, tile, stage, 1, results.parity);
    results.parity ^= 1;
    bulk_wait_read<0>();
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    barrier_arrive(ring.empty(stage), kConsumerWarps);
    barrier_arrive(ring.cleared(0));
    barrier_arrive(ring.cleared(1));
}

/* While no tile is posted, brings results away when they are there: consumers may wait for that before they take the
 * tiles for which there would be room to post more. */
template <int kRows>
__device__ __forceinline__ void bring_meanwhile(const Problem &p, const Ring<kRows> &ring,
                                                const CUtensorMap *map_c, Resting &results,
                                                const Place<kTiles> &tiles, uint32_t stage) {
    while (results.stages != 0 && !barrier_test(ring.posted(tiles.at), tiles.parity)) {
        if (!barrier_test(ring.left(0), results.parity)) continue;
        while (!(results.stages >> stage & 1))
            stage = (stage + 1) % Form<kRows>::kStages; /* the oldest first */
        bring_away(p, ring, map_c, results, stage);
    }
}

} // namespace

} // namespace tartan_cuda

#endif
