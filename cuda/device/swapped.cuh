/* SPDX-License-Identifier: Apache-2.0
 * Products of tf32 where B's columns are contiguous. wgmma reads tf32 from shared memory only with the summed index
 * contiguous, which B has not; so the factors are swapped: C^T = B^T A^T. Threads load B into registers, as the factors of
 * 64 of its columns, and the blocks of A are the operand in shared memory, whose width is the rows of the tile.
 *
 * Any column of B may be any row of a product. A warp has pieces of 32 columns, 128 bytes of each k, and two products
 * for each: lane l has the columns 4 c to 4 c + 3 with c = l / 8 + 4 (l / 4 % 2), as rows l / 4 and l / 4 + 8 of one
 * product and of the other, which has the upper two of them first if c is odd. So the loads of 8 bytes of sixteen
 * lanes meet all banks, given the copy engine's swizzle, they fill the registers in the order of the products, and the
 * sums of a lane are four neighbours in C: a warp stores lines of 128 bytes.
 *
 * Measured (H200, 8192, density 0.1): with nothing loaded or stored it multiplies at 350 TFLOP/s (b = 128) and 270
 * (b = 64); with everything at 228 and 208, where storing nothing would give 275 and 230. Without gain: loads of 16
 * bytes, more products under way, stages given back later, results by way of the copy engine. */
#ifndef TARTAN_CUDA_SWAPPED_CUH
#define TARTAN_CUDA_SWAPPED_CUH

#include "device/ring.cuh"
#include "device/tile_store.cuh"

namespace tartan_cuda {

enum { kFactorSets = 4 }; /* more than are in use at a time, and a divisor of a stage's pairs */

/* For one of the two forms of tiles. */
template <int kRows> struct Swapped {
    static constexpr int kCols = Form<kRows>::kCols / kConsumerWarps; /* of a warp */
    static constexpr int kPieces = kCols / 32;
};

/* The 16 bytes of a piece's row of 128 that are a lane's. */
__device__ __forceinline__ uint32_t columns_of_lane() {
    const uint32_t lane = threadIdx.x % 32;
    return lane / 8 + 4 * (lane / 4 % 2);
}

/* Whether a lane's first product has the upper two of its four columns. */
__device__ __forceinline__ uint32_t upper_first() {
    return columns_of_lane() % 2;
}

/* The factors of a piece at 8 k, for both products. `at` is where this lane's columns of the first product are, at k
 * lane % 4. */
__device__ __forceinline__ void load_factors(uint32_t at, Factors (&out)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint2 x = shared_load_8(at ^ 8 * i),
                    y = shared_load_8((at ^ 64 ^ 8 * i) + 4 * 128); /* 4 k on */
        out[i] = {x.x, x.y, y.x, y.y};
    }
}

/* What a warp needs of the stage that it multiplies: where its blocks and its own columns are. */
struct SwappedStage {
    uint64_t a;
    uint32_t b;
};

/* A stage's products, in pairs: of a piece at 8 k. While a pair is under way, the factors of the one after the next are
 * loaded; those of the first are there already. */
template <int kRows, int kPair>
__device__ __forceinline__ void pairs_of_stage(const Feed &a, const Feed &b, const SwappedStage &stage,
                                               uint32_t piece_bytes, bool keep,
                                               Factors (&factors)[kFactorSets][2], float (&d)[128]) {
    constexpr int kPieces = Swapped<kRows>::kPieces, kNext = kPair + 1;
    constexpr int j = kPair / kPieces, piece = kPair % kPieces;
    wgmma_wait<1>();
    if constexpr (kNext < kSteps * kPieces)
        load_factors(stage.b + 16 * b.step[kNext / kPieces] + kNext % kPieces * piece_bytes,
                     factors[kNext % kFactorSets]);
    wgmma_fence();
    wgmma_tf32<kRows, 2 * piece>(d, factors[kPair % kFactorSets][0], stage.a + a.step[j], j > 0 || keep);
    wgmma_tf32<kRows, 2 * piece + 1>(d, factors[kPair % kFactorSets][1], stage.a + a.step[j], j > 0 || keep);
    wgmma_commit();
    if constexpr (kNext < kSteps * kPieces)
        pairs_of_stage<kRows, kNext>(a, b, stage, piece_bytes, keep, factors, d);
}

/* Adds up `stages` stages into d (overwritten), by one warpgroup. A slot of B has part_k rows of each piece. */
template <int kRows>
__device__ __forceinline__ void consume_swapped(const Ring<kRows> &ring, Place<Form<kRows>::kStages> &place,
                                                const Feed &a, const Feed &b, int32_t part_k, bool gathers,
                                                int32_t stages, float (&d)[128]) {
    const uint32_t lane = threadIdx.x % 32, piece_bytes = part_k * 128;
    const uint32_t mine = (threadIdx.x / 32 - 4) * Swapped<kRows>::kPieces * piece_bytes + lane % 4 * 128 +
                          (columns_of_lane() ^ lane % 4) * 16 + upper_first() * 8;
    Factors factors[kFactorSets][2];
    if (stages == 0) {
#pragma unroll
        for (int i = 0; i < 128; i++) d[i] = 0;
    }
    for (int32_t s = 0; s < stages; s++) {
        barrier_wait(ring.full(place.at), place.parity);
        if (gathers) shared_fence_async();
        const SwappedStage stage = {a.descriptor + (ring.a(place.at) >> 4), ring.b(place.at) + mine};
        load_factors(stage.b, factors[0]);
        pairs_of_stage<kRows, 0>(a, b, stage, piece_bytes, s > 0, factors, d);
        /* The stage is given back at once: the other warpgroup's products fill the gap. */
        wgmma_wait<0>();
        if (lane == 0) barrier_arrive(ring.empty(place.at));
        place.next();
    }
}

/* Four neighbours of row i / 2 * 8 + i % 2 + 2 (lane % 4) of a piece, as they lie in memory. */
template <int kRows> __device__ __forceinline__ float4 sums_of(const float (&d)[128], int piece, int i) {
    const float *x = &d[piece * kRows + i / 2 * 4 + i % 2], *y = x + kRows / 2;
    return upper_first() ? float4{y[0], y[2], x[0], x[2]} : float4{x[0], x[2], y[0], y[2]};
}

__device__ __forceinline__ float4 times(float alpha, float4 x) {
    return {alpha * x.x, alpha * x.y, alpha * x.z, alpha * x.w};
}

/* Four neighbours of a row, of which `left` are there. */
__device__ __forceinline__ void store_quad(float *to, const Target &t, float4 sums, int32_t left) {
    if (t.smooth == kSmoothQuads && left >= 4) {
        if (t.beta != 0) {
            const float4 old = *(const float4 *)to;
            sums = {fmaf(t.beta, old.x, sums.x), fmaf(t.beta, old.y, sums.y), fmaf(t.beta, old.z, sums.z),
                    fmaf(t.beta, old.w, sums.w)};
        }
        *(float4 *)to = sums;
        return;
    }
    if (left > 0) combine(to, TARTAN_F32, 0, sums.x, t.beta);
    if (left > 1) combine(to, TARTAN_F32, t.col_stride, sums.y, t.beta);
    if (left > 2) combine(to, TARTAN_F32, 2 * t.col_stride, sums.z, t.beta);
    if (left > 3) combine(to, TARTAN_F32, 3 * t.col_stride, sums.w, t.beta);
}

/* All kRows x kCols sums of a warp. */
template <int kRows> __device__ __forceinline__ void store_swapped(const Target &t, const float (&d)[128]) {
    const int32_t first_row = 2 * (threadIdx.x % 4), first_col = 4 * (int32_t)columns_of_lane();
    const bool whole = t.smooth == kSmoothQuads && t.beta == 0 && t.rows == kRows;
#pragma unroll
    for (int piece = 0; piece < Swapped<kRows>::kPieces; piece++) {
        const int32_t col = first_col + 32 * piece, left = t.cols - col;
        float *to = (float *)t.data + first_row * t.row_stride + col * t.col_stride;
        if (whole && left >= 4) {
#pragma unroll
            for (int i = 0; i < kRows / 4; i++)
                __stcs((float4 *)(to + (i / 2 * 8 + i % 2) * t.row_stride), /* leaves L2 to B */
                       times(t.alpha, sums_of<kRows>(d, piece, i)));
        } else {
#pragma unroll
            for (int i = 0; i < kRows / 4; i++) {
                const int32_t row = i / 2 * 8 + i % 2;
                if (first_row + row < t.rows)
                    store_quad(to + row * t.row_stride, t, times(t.alpha, sums_of<kRows>(d, piece, i)), left);
            }
        }
    }
}

} // namespace tartan_cuda

#endif
