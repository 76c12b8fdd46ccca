/* SPDX-License-Identifier: Apache-2.0
 * The stages of conv_pieces: copies of pixels and weights into shared memory, and the products of a step. */
#ifndef TARTAN_CUDA_CONV_PIECES_MULTIPLY_CUH
#define TARTAN_CUDA_CONV_PIECES_MULTIPLY_CUH

#include "device/ptx_tf32.cuh"
#include "device/ptx_wgmma.cuh"
#include "kernels/attention_descriptor.cuh"
#include "kernels/conv_pieces_places.cuh"

namespace tartan_cuda {
namespace conv_pieces {
namespace {

/* Whether wgmma multiplies, on Hopper. */
template <class Products, int kGroup>
constexpr bool kWarpgroups = sizeof(typename Products::Element) == 2   ? kGroup >= 32
                             : sizeof(typename Products::Element) == 4 ? kGroup >= 64
                                                                       : false;

template <class Products, int kGroup_> struct Form {
    static constexpr int kGroup = kGroup_;
    static constexpr int kParts =
        Products::kByParts ? 2 : 1; /* tiles of weights: all, and what is left of each */
    static constexpr int kCtas = sizeof(typename Products::Word) == 8 ? 1
                                 : kGroup <= 32                       ? 3
                                                                      : 2;   /* on an SM */
    static constexpr int kWeights = kPositions * kRow; /* where they begin in a stage */
    static constexpr int kStage = (kPositions + kParts * kGroup) * kRow, kStages = 3;
    static constexpr int kPitch = kGroup + 16 / (int)sizeof(typename Products::Sum); /* of results */
    static constexpr int kResults = kPositions * kPitch * (int)sizeof(typename Products::Sum);
    static constexpr int kShared = kStages * kStage > kResults ? kStages *kStage : kResults;
};

/* Which fragments of 16 positions and 8 slots a warp has. With wgmma a warp has 16 positions; else warps divide the positions and,
 * from 32 slots on, halve the slots. */
template <class Products, int kGroup> struct Warps {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    static constexpr bool kByWarpgroups = kWarpgroups<Products, kGroup>;
#else
    static constexpr bool kByWarpgroups = false;
#endif
    static constexpr int kWide = !kByWarpgroups && kGroup >= 32 ? 2 : 1, kHigh = 8 / kWide;
    static constexpr int kRows = kPositions / kHigh / 16, kCols = kGroup / kWide / 8;
    static constexpr int kSums = 4 * kRows * kCols; /* of a thread: [kRows][kCols][4] */
};

/* Where a thread's copies go: one piece in rows at a fixed distance, a multiple of 8, with which the swizzle repeats. */
template <int kBytes, int kLoaders> struct PixelCopies {
    static constexpr int kPieces = kRow / kBytes, kApart = kLoaders / kPieces, kEach = kPositions / kApart;
    static_assert(kApart % 8 == 0, "the swizzle of a row is that of its number by 8");
};

/* Starts the copies of the pixels of a step. */
template <int kBytes>
__device__ __forceinline__ void load_pixels(const PieceImage &x, const Places &s, int4 piece, uint32_t to) {
    using Copies = PixelCopies<kBytes, kThreads>;
    const uint32_t c = threadIdx.x % Copies::kPieces, first = threadIdx.x / Copies::kPieces;
    const uint32_t unit = c * kBytes / 16, rest = c * kBytes % 16;
    const int32_t offset = x.offset(piece) + piece.w;
    const uint32_t spots = shared_offset(s.spots + first);
    to += first * kRow + ((unit ^ (first & 7)) << 4) + rest;
#pragma unroll
    for (int i = 0; i < Copies::kEach; i++) {
        const int4 spot = shared_load_int4(spots + i * Copies::kApart * (uint32_t)sizeof(int4));
        const bool there = x.has(spot, piece);
        copy_async<kBytes>(to + i * Copies::kApart * kRow,
                           x.data + (int64_t)(there ? spot.w + offset : 0) * kBytes, there ? kBytes : 0);
    }
}

/* A thread's copies of the weights of steps. */
template <int kGroup, int kParts> struct WeightCopies {
    static constexpr int kEach = (kGroup * 8 + kThreads - 1) / kThreads, kApart = kThreads / 8;
    const char *from;
    int64_t each; /* bytes of a step */
    uint32_t to;
    int32_t rows; /* from the thread's first row on that exist */

    __device__ __forceinline__ WeightCopies(const Args &a, int32_t first_step, int32_t chunk) {
        const int32_t row = (int32_t)threadIdx.x / 8, unit = threadIdx.x % 8;
        each = (int64_t)a.list.form.width * kRow;
        to = (uint32_t)(row * kRow + 16 * unit);
        rows = min(kGroup, a.list.form.width - chunk * kGroup) - row;
        from = (const char *)a.packed + first_step * each * kParts + 16 * unit +
               (rows > 0 ? (int64_t)(chunk * kGroup + row) * kRow : 0);
    }
    __device__ __forceinline__ void load(uint32_t stage) {
#pragma unroll
        for (int part = 0; part < kParts; part++) {
#pragma unroll
            for (int i = 0; i < kEach; i++) {
                if (kGroup % kApart != 0 && (int)threadIdx.x / 8 >= kGroup) break;
                const bool there = rows > i * kApart;
                copy_async<16>(stage + to + (part * kGroup + i * kApart) * kRow,
                               from + (there ? i * kApart * kRow : 0), there ? 16 : 0);
            }
            from += each;
        }
    }
};

/* A lane's part of fragments of rows of 128 bytes, whose pieces are swizzled: addresses differ from step to step in bits that the
 * swizzle changes by exclusive or. kRight: two right factors of 8 rows instead of a left one of 16. */
template <bool kRight> __device__ __forceinline__ uint32_t lane_address(int row) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t at = row + lane % 8 + 8 * (kRight ? lane / 16 : lane / 8 % 2),
                   half = kRight ? lane / 8 % 2 : lane / 16;
    return at * kRow + ((half ^ (at & 7)) << 4);
}

/* 16 rows of positions, words 8 * step to 8 * step + 7; `from`: of rows that are `row` rows further on. */
template <class Products>
__device__ __forceinline__ void load_rows(uint32_t from, uint32_t lane_at, int row, int step,
                                          typename Products::Word (&a)[4]) {
    if constexpr (sizeof(typename Products::Word) == 4) {
        load_pieces<false>(a, from + (lane_at ^ (uint32_t)(32 * step)));
    } else {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const int at = row + lane / 4 + 8 * (w % 2), word = 8 * step + lane % 4 + 4 * (w / 2);
            shared_load(a[w], from + at * kRow + (uint32_t)((word / 2) ^ (at & 7)) * 16 + word % 2 * 8);
        }
    }
}

/* 16 rows of slots: two fragments. */
template <class Products>
__device__ __forceinline__ void load_cols(uint32_t from, uint32_t lane_at, int row, int step,
                                          typename Products::Word (&b)[2][2]) {
    if constexpr (sizeof(typename Products::Word) == 4) {
        uint32_t words[4];
        load_pieces<false>(words, from + (lane_at ^ (uint32_t)(32 * step)));
        b[0][0] = words[0], b[0][1] = words[1], b[1][0] = words[2], b[1][1] = words[3];
    } else {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const int at = row + lane / 4 + 8 * (w / 2), word = 8 * step + lane % 4 + 4 * (w % 2);
            shared_load(b[w / 2][w % 2],
                        from + at * kRow + (uint32_t)((word / 2) ^ (at & 7)) * 16 + word % 2 * 8);
        }
    }
}

/* ---- The products of a step ---- */

/* By mma.sync. `to`: the thread's sums, or the step's, which are then added to them. */
template <class Products, int kGroup>
__device__ __forceinline__ void
multiply_by_warps(uint32_t pixels, uint32_t weights, int row, int col,
                  typename Products::Sum (&to)[Warps<Products, kGroup>::kSums]) {
    using W = Warps<Products, kGroup>;
    using Word = typename Products::Word;
    constexpr int kSteps = kRow / 8 / (int)sizeof(Word);
    auto &sums = *(typename Products::Sum(*)[W::kRows][W::kCols][4])to;
    const uint32_t left = lane_address<false>(row), right = lane_address<true>(col);
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
        Word a[W::kRows][4], b[W::kCols][2];
#pragma unroll
        for (int i = 0; i < W::kRows; i++) load_rows<Products>(pixels + 16 * i * kRow, left, row, step, a[i]);
#pragma unroll
        for (int j = 0; j < W::kCols; j += 2)
            load_cols<Products>(weights + 8 * j * kRow, right, col, step, *(Word(*)[2][2]) & b[j]);
        if constexpr (Products::kByParts) {
            Word b_low[W::kCols][2];
#pragma unroll
            for (int j = 0; j < W::kCols; j += 2)
                load_cols<Products>(weights + (kGroup + 8 * j) * kRow, right, col, step,
                                    *(Word(*)[2][2]) & b_low[j]);
            multiply_parts(sums, a, b, b_low);
        } else {
            multiply_fragments<Products>(sums, a, b);
        }
    }
}

/* Begins the products of a warpgroup's 64 positions by wgmma; `to` must not be read until they have ended. kPin: products that began
 * before have ended. */
template <class Products, int kGroup, bool kPin = true>
__device__ __forceinline__ void begin_by_warpgroup(uint32_t pixels, uint32_t weights, int row,
                                                   float (&to)[Warps<Products, kGroup>::kSums]) {
    constexpr int kSteps = kRow / 32;
    const uint64_t right = k_major<uint64_t>(weights);
    if constexpr (!Products::kByParts) {
        const uint64_t left = k_major<uint64_t>(pixels + (uint32_t)(row / 64 * 64) * kRow);
        if constexpr (kPin) wgmma_pin(to);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; step++) {
            using T = typename Products::Element;
            if constexpr (sizeof(T) == 4)
                wgmma_tf32_shared<kGroup>(to, left + 2 * step, right + 2 * step, 1);
            else
                wgmma_shared<std::is_same_v<T, __half> ? Factor::f16 : Factor::bf16, kGroup>(
                    to, left + 2 * step, right + 2 * step, 1);
        }
    } else {
        Factors a[kSteps], low[kSteps];
        const uint32_t lane_at = lane_address<false>(row);
#pragma unroll
        for (int step = 0; step < kSteps; step++)
            load_pieces<false>(a[step].x, pixels + (lane_at ^ (uint32_t)(32 * step)));
#pragma unroll
        for (int step = 0; step < kSteps; step++)
#pragma unroll
            for (int w = 0; w < 4; w++) low[step].x[w] = Products::low(a[step].x[w]);
        wgmma_pin(to);
        wgmma_fence();
        const uint64_t right_low = right + (uint32_t)(kGroup * kRow / 16);
#pragma unroll
        for (int step = 0; step < kSteps; step++) {
            wgmma_tf32<kGroup, 0>(to, low[step], right + 2 * step, step > 0);
            wgmma_tf32<kGroup, 0>(to, a[step], right_low + 2 * step, 1);
            wgmma_tf32<kGroup, 0>(to, a[step], right + 2 * step, 1);
        }
    }
    wgmma_commit();
}

} // namespace
} // namespace conv_pieces
} // namespace tartan_cuda

#endif
