/* SPDX-License-Identifier: Apache-2.0
 * The device part of spmm_swapped.cu for tf32: both warpgroups multiply the same tile, each warp a piece of 32 columns, which
 * it loads into registers (device/swapped.cuh). */
#ifndef TARTAN_CUDA_SPMM_SWAPPED_TF32_CUH
#define TARTAN_CUDA_SPMM_SWAPPED_TF32_CUH

#include "device/repair.cuh"
#include "device/swapped.cuh"
#include "kernels/spmm_swapped_feed.cuh"

namespace tartan_cuda {

namespace {

/* Sizes for block rows of kRows rows. */
template <int kRows> struct SwappedForm32 {
    static constexpr int kLine = 32, kPieces = kConsumerWarps, kCols = kPieces * kLine;
    static constexpr int kReaders = kConsumerWarps;
    static constexpr uint32_t kBytesA = kRows * kStageBytes, kStage = kBytesA + kCols * kStageBytes;
    static constexpr int kStages = kRows <= 104 ? 5 : 4;
    static constexpr uint32_t kBarriers = kStages * kStage;
    static constexpr uint32_t kBoard = kBarriers + 16 * (kStages + kTiles + 2);
    static constexpr uint32_t kLists = kBoard + kTiles * sizeof(Tile);
    static constexpr uint32_t kShared = kLists + kTiles * 2 * 32 * sizeof(int32_t);
    static_assert(kShared <= 227 * 1024, "shared memory of a CTA");
};

/* Multiplies `stages` stages, at least one, into d (overwritten). The last of a block column has fewer k. */
template <int kRows>
__device__ __forceinline__ void consume_tf32(const Problem &p, const SwappedRing<SwappedForm32<kRows>> &ring,
                                             PipelineState<SwappedForm32<kRows>::kStages> &state,
                                             int32_t stages, float (&d)[kRows]) {
    const uint32_t lane = threadIdx.x % 32, piece_bytes = 32 * kStageBytes;
    const uint32_t mine = (threadIdx.x / 32 - 4) * piece_bytes + lane % 4 * kStageBytes +
                          (columns_of_lane() ^ lane % 4) * 16 + upper_first() * 8;
    Factors factors[kFactorSets][2];
    int32_t part = 0;
    for (int32_t s = 0; s < stages; s++) {
        const int32_t steps = ++part == p.parts ? p.rest_steps : kSteps;
        if (part == p.parts) part = 0;
        barrier_wait(ring.full(state.at), state.parity);
        const SwappedStage stage = {p.feed_a.descriptor + (ring.a(state.at) >> 4), ring.b(state.at) + mine};
        load_factors(stage.b, factors[0]);
        if (steps == 4)
            pairs_of_stage<kRows, 4>(p.feed_a, p.feed_b, stage, piece_bytes, s > 0, factors, d);
        else if (steps == 3)
            pairs_of_stage<kRows, 3>(p.feed_a, p.feed_b, stage, piece_bytes, s > 0, factors, d);
        else if (steps == 2)
            pairs_of_stage<kRows, 2>(p.feed_a, p.feed_b, stage, piece_bytes, s > 0, factors, d);
        else
            pairs_of_stage<kRows, 1>(p.feed_a, p.feed_b, stage, piece_bytes, s > 0, factors, d);
        wgmma_wait<0>();
        if (lane == 0) barrier_arrive(ring.empty(state.at));
        state.next();
    }
}

/* What a warp stores if its tile has no blocks. */
__device__ __forceinline__ void store_zeros_32(const Target &c) {
    for (int32_t row = 0; row < c.rows; row++)
        if ((int32_t)threadIdx.x % 32 < c.cols)
            combine(c.data, TARTAN_F32, row * c.row_stride + threadIdx.x % 32 * c.col_stride, 0, c.beta);
}

/* Recomputes and stores the results of a warp, from column `col` of the matrix on. */
__device__ __noinline__ void repair_32(const Problem &p, const Tile &t, const Target &c, int64_t col) {
    Terms terms;
    terms.cols = p.cols + t.begin, terms.ids = p.ids + t.begin;
    terms.entries = t.end - t.begin;
    terms.group = 1;
    terms.block = p.block;
    terms.id_elements = p.id_elements;
    terms.values = p.values;
    terms.a_row = p.a_row, terms.a_k = p.a_k;
    terms.k = p.k;
    terms.b = p.b + (t.head * p.b_head + t.entry * p.b_batch + col * p.b_col) * p.element_bytes;
    terms.b_row = p.b_row, terms.b_col = p.b_col;
    store_exact<float>(c, [&](int32_t row, int32_t *inside) {
        *inside = row;
        return terms;
    });
}

template <int kRows>
__device__ __forceinline__ void multiply_tf32(const Problem &p,
                                              const SwappedRing<SwappedForm32<kRows>> &ring) {
    PipelineState<SwappedForm32<kRows>::kStages> state;
    PipelineState<kTiles> tiles;
    Tile t;
    while (take_tile(ring, tiles, &t)) {
        const int32_t stages = stages_of(p, t);
        const int64_t col = t.col + 32 * (threadIdx.x / 32 - 4), cols = p.n - col;
        Target c = p.c;
        c.rows = (int32_t)min(p.m - t.row, (int64_t)p.tile_rows), c.cols = (int32_t)min(cols, (int64_t)32);
        c.data = (float *)c.data + t.head * p.c_head + t.entry * p.c_batch + t.row * c.row_stride +
                 col * c.col_stride;
        if (stages == 0) {
            store_zeros_32(c);
            continue;
        }
        float d[kRows];
        consume_tf32(p, ring, state, stages, d);
        if (cols <= 0) continue; /* past the edge of C */
        float probe = 0;         /* NaN if a sum is not finite */
#pragma unroll
        for (int i = 0; i < kRows; i++) probe = fmaf(d[i], 0.f, probe);
        if (p.repairs && __any_sync(~0u, probe != 0))
            repair_32(p, t, c, col);
        else
            store_swapped<kRows>(c, d);
    }
}

template <int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    spmm_swapped_tf32(const __grid_constant__ Problem p, const __grid_constant__ SwappedMaps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    const SwappedRing<SwappedForm32<kRows>> ring = {shared, shared_address(shared)};
    if (threadIdx.x == 0) {
        tensor_prefetch(p.whole_blocks > 0 ? &maps.a : &maps.a_last);
        tensor_prefetch(p.whole_blocks > 0 ? &maps.b_rest : &maps.b_last);
        ring.init();
    }
    __syncthreads();
    if (threadIdx.x / 32 != 1)
        wait_for_kernels_before(); /* the second warp waits once it has its first tile */
    if (threadIdx.x < 128) {
        registers_lower<kProducerRegisters>();
        if (threadIdx.x < 32)
            produce_swapped(p, ring, maps);
        else if (threadIdx.x < 64)
            schedule(p, ring, SwappedForm32<kRows>::kCols);
    } else {
        registers_raise<kConsumerRegisters>();
        multiply_tf32(p, ring);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
