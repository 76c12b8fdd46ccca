/* SPDX-License-Identifier: Apache-2.0
 * Swapped operands, for tf32 where B is row-major. wgmma reads tf32 from shared memory only K-major, which B is not; so
 * it computes C^T = B^T A^T: threads load B into registers, as the left factor of 64 of its columns, and the blocks of A
 * are the right factor, in shared memory, as wide as the tile has rows.
 *
 * The rows of a product may be any columns of B. A warp has pieces of 32 columns, 128 bytes for each k, and two products
 * for each piece: lane l has columns 4 c to 4 c + 3 with c = l / 8 + 4 (l / 4 % 2), as rows l / 4 and l / 4 + 8 of one
 * product and of the other, which has the upper two of them first if c is odd. So, given the TMA's swizzle, the 8-byte
 * loads of sixteen lanes touch all banks, they fill the registers in the order of the products, and the sums of a lane
 * are four neighbours in C: a warp stores lines of 128 bytes.
 *
 * What limits it (H200, 8192, density 0.1, b = 128 and 64): 228 and 208 TFLOP/s of the 350 and 270 that the products
 * alone reach; without stores 275 and 230. */
#ifndef TARTAN_CUDA_SWAPPED_CUH
#define TARTAN_CUDA_SWAPPED_CUH

#include "device/ptx_tf32.cuh"
#include "device/ring.cuh"
#include "device/tile_store.cuh"

namespace tartan_cuda {

enum { kFactorSets = 4 }; /* more than are in flight, and a divisor of the pairs of a stage */

/* Sizes for tiles of kRows rows. */
template <int kRows> struct Swapped {
    static constexpr int kPieces = kRows == 64 ? 2 : 1; /* of a warp */
    static constexpr int kCols = 32 * kPieces;
    static constexpr int kSums = kPieces * kRows;
};

/* Which 16 bytes of a piece's row of 128 a lane has. */
__device__ __forceinline__ uint32_t columns_of_lane() {
    const uint32_t lane = threadIdx.x % 32;
    return lane / 8 + 4 * (lane / 4 % 2);
}

/* Whether a lane's first product takes the upper two of its four columns. */
__device__ __forceinline__ uint32_t upper_first() {
    return columns_of_lane() % 2;
}

/* Loads the factors of both products of a piece, for 8 k. `at` is where the lane's columns of the first product are, at
 * k lane % 4. */
__device__ __forceinline__ void load_factors(uint32_t at, Factors (&out)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint2 x = shared_load_8(at ^ 8 * i),
                    y = shared_load_8((at ^ 64 ^ 8 * i) + 4 * 128); /* 4 k on */
        out[i] = {x.x, x.y, y.x, y.y};
    }
}

/* Where a warp's operands are in a stage: the descriptor of A, the lane's columns of B. */
struct SwappedStage {
    uint64_t a;
    uint32_t b;
};

/* The products of 8 kEights k of a stage, from pair kPair on; a pair is a piece at 8 k. While a pair is in flight, loads the
 * factors of the next; the factors of the first are there already. */
template <int kRows, int kEights, int kPair = 0>
__device__ __forceinline__ void
pairs_of_stage(const Feed &a, const Feed &b, const SwappedStage &stage, uint32_t piece_bytes, bool keep,
               Factors (&factors)[kFactorSets][2], float (&d)[Swapped<kRows>::kSums]) {
    constexpr int kPieces = Swapped<kRows>::kPieces, kNext = kPair + 1;
    constexpr int j = kPair / kPieces, piece = kPair % kPieces;
    wgmma_wait<1>();
    if constexpr (kNext < kEights * kPieces)
        load_factors(stage.b + 16 * b.step[kNext / kPieces] + kNext % kPieces * piece_bytes,
                     factors[kNext % kFactorSets]);
    wgmma_fence();
    wgmma_tf32<kRows, 2 * piece>(d, factors[kPair % kFactorSets][0], stage.a + a.step[j], j > 0 || keep);
    wgmma_tf32<kRows, 2 * piece + 1>(d, factors[kPair % kFactorSets][1], stage.a + a.step[j], j > 0 || keep);
    wgmma_commit();
    if constexpr (kNext < kEights * kPieces)
        pairs_of_stage<kRows, kEights, kNext>(a, b, stage, piece_bytes, keep, factors, d);
}

/* Multiplies `stages` stages into d (overwritten), by one warpgroup. A slot of B has part_k rows of each piece. `keep_last`: does
 * not release the last stage. */
template <int kRows>
__device__ __forceinline__ void consume_swapped(const Ring<kRows> &ring,
                                                PipelineState<Form<kRows>::kStages> &state, const Feed &a,
                                                const Feed &b, int32_t part_k, bool gathers, int32_t stages,
                                                float (&d)[128], bool keep_last) {
    const uint32_t lane = threadIdx.x % 32, piece_bytes = part_k * 128;
    const uint32_t mine = (threadIdx.x / 32 - 4) * Swapped<kRows>::kPieces * piece_bytes + lane % 4 * 128 +
                          (columns_of_lane() ^ lane % 4) * 16 + upper_first() * 8;
    Factors factors[kFactorSets][2];
    if (stages == 0) {
#pragma unroll
        for (int i = 0; i < 128; i++) d[i] = 0;
    }
    for (int32_t s = 0; s < stages; s++) {
        barrier_wait(ring.full(state.at), state.parity);
        if (gathers) shared_fence_async();
        const SwappedStage stage = {a.descriptor + (ring.a(state.at) >> 4), ring.b(state.at) + mine};
        load_factors(stage.b, factors[0]);
        pairs_of_stage<kRows, kSteps>(a, b, stage, piece_bytes, s > 0, factors, d);
        /* Release the stage at once; the other warpgroup's products fill the gap. */
        wgmma_wait<0>();
        if (lane == 0 && !(keep_last && s + 1 == stages)) barrier_arrive(ring.empty(state.at));
        state.next();
    }
}

/* Four neighbours in row i / 2 * 8 + i % 2 + 2 (lane % 4) of a piece, in the order of memory. */
template <int kRows>
__device__ __forceinline__ float4 sums_of(const float (&d)[Swapped<kRows>::kSums], int piece, int i) {
    const float *x = &d[piece * kRows + i / 2 * 4 + i % 2], *y = x + kRows / 2;
    return upper_first() ? float4{y[0], y[2], x[0], x[2]} : float4{x[0], x[2], y[0], y[2]};
}

__device__ __forceinline__ float4 times(float alpha, float4 x) {
    return {alpha * x.x, alpha * x.y, alpha * x.z, alpha * x.w};
}

/* Stores four neighbours of a row, of which `left` exist. */
__device__ __forceinline__ void store_quad(float *to, const Target &t, float4 sums, int32_t left) {
    if (t.vectors == kRowQuads && left >= 4) {
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

/* The epilogue of a warp: stores its kRows x kCols sums. */
template <int kRows>
__device__ __forceinline__ void store_swapped(const Target &t, const float (&d)[Swapped<kRows>::kSums]) {
    const int32_t first_row = 2 * (threadIdx.x % 4), first_col = 4 * (int32_t)columns_of_lane();
    const bool whole = t.vectors == kRowQuads && t.beta == 0 && t.rows == kRows;
#pragma unroll
    for (int piece = 0; piece < Swapped<kRows>::kPieces; piece++) {
        const int32_t col = first_col + 32 * piece, left = t.cols - col;
        float *to = (float *)t.data + first_row * t.row_stride + col * t.col_stride;
        if (whole && left >= 4) {
#pragma unroll
            for (int i = 0; i < kRows / 4; i++)
                __stcs((float4 *)(to + (i / 2 * 8 + i % 2) * t.row_stride), /* keeps L2 for B */
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

/* The same for rows that begin at any address, 32 rows at a time, through kSwappedRoom<kRows> bytes. */
template <int kRows> constexpr uint32_t kSwappedRoom = 32 * Swapped<kRows>::kCols * 4;
template <int kRows>
__device__ __forceinline__ void store_swapped_any(const Target &t, uint32_t room, const float (&d)[128]) {
    constexpr int kUnits = Swapped<kRows>::kCols / 4;
    const uint32_t first_row = 2 * (threadIdx.x % 4), first_unit = columns_of_lane();
#pragma unroll
    for (int first = 0; first < kRows; first += 32) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t line = first_row + i / 2 * 8 + i % 2;
#pragma unroll
            for (int piece = 0; piece < Swapped<kRows>::kPieces; piece++) {
                const float4 sums = times(t.alpha, sums_of<kRows>(d, piece, first / 4 + i));
                shared_store_16(staged_unit<kUnits>(room, line, first_unit + 8 * piece), &sums.x);
            }
        }
        __syncwarp();
        char *to = (char *)t.data + 4 * first * t.row_stride;
        store_lines<uint32_t, kUnits>({room, to, 4 * t.row_stride, min(t.rows - first, 32), t.cols, 0, 1});
    }
}

} // namespace tartan_cuda

#endif
