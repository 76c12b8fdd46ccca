/* SPDX-License-Identifier: Apache-2.0
 * What a CTA of conv_pieces has of a convolution, and how it stores its results. */
#ifndef TARTAN_CUDA_CONV_PIECES_STORE_CUH
#define TARTAN_CUDA_CONV_PIECES_STORE_CUH

#include "kernels/conv_pieces_multiply.cuh"

namespace tartan_cuda {
namespace conv_pieces {
namespace {

/* What a CTA has: positions, slots, and steps of a list. */
struct Share {
    int64_t number; /* of its first position */
    int32_t phase, group, chunk;
    int32_t first, steps;
};

__device__ __forceinline__ Share share_of(const Args &a) {
    const tartan_cuda_conv_piece_form &f = a.list.form;
    int64_t number = blockIdx.x;
    Share share;
    share.chunk = (int32_t)(number % f.chunks);
    number /= f.chunks;
    share.group = (int32_t)(number % f.groups);
    number /= f.groups;
    share.phase = (int32_t)(number / a.tiles);
    share.number = number % a.tiles * kPositions;
    const int32_t *const list = a.list.lists + (int64_t)share.phase * f.groups + share.group;
    const int32_t first = list[0] / f.step, steps = list[1] / f.step - first,
                  of_split = (steps + a.splits - 1) / a.splits, before = (int32_t)blockIdx.y * of_split;
    share.first = first + before;
    share.steps = max(min(of_split, steps - before), 0);
    return share;
}

/* What a CTA stores. */
struct Tile {
    int64_t number; /* of its first position */
    int32_t phase;
    int64_t first_slot;
    int32_t slots;
};

template <int kGroup> __device__ __forceinline__ Tile tile_of(const Args &a, const Share &share) {
    const int32_t width = a.list.form.width;
    const int64_t all_slots = a.to.of != nullptr ? a.p.to_slots.grid * a.p.to_slots.edge : a.p.to.channels;
    const int64_t first_slot = (int64_t)share.group * width + (int64_t)share.chunk * kGroup;
    const int64_t left = min(all_slots - first_slot, (int64_t)min(kGroup, width - share.chunk * kGroup));
    return {share.number, share.phase, first_slot, (int32_t)left};
}

/* Stores sums [position][pitch] of a split, 16 bytes of neighbours at a time where they are aligned. */
template <typename S, int kGroup, int kPitch>
__device__ __forceinline__ void store_split(const Args &a, const Places &s, const S *sums, const Tile &t) {
    constexpr int kUnit = 16 / (int)sizeof(S);
    S *const to = (S *)a.sums + blockIdx.y * sums_of(a) + t.first_slot;
    if ((a.p.to_slots.grid * a.p.to_slots.edge | t.first_slot | t.slots) % kUnit == 0) {
        for (int32_t e = threadIdx.x; e < kPositions * (kGroup / kUnit); e += kThreads) {
            const int32_t row = e / (kGroup / kUnit), col = e % (kGroup / kUnit) * kUnit;
            if (col < t.slots && s.to[row] != kNowhere)
                *(uint4 *)(to + s.to[row] + col) = *(const uint4 *)(sums + row * kPitch + col);
        }
        return;
    }
    for (int32_t e = threadIdx.x; e < kPositions * kGroup; e += kThreads) {
        const int32_t row = e / kGroup, col = e % kGroup;
        if (col < t.slots && s.to[row] != kNowhere) to[s.to[row] + col] = sums[row * kPitch + col];
    }
}

/* Stores results [position][pitch] in shared memory, neighbours by neighbouring threads. */
template <typename T, typename S, int kGroup, int kPitch>
__device__ __forceinline__ void store(const Args &a, const Places &s, const S *results, const Tile &t) {
    constexpr int kUnit = 16 / (int)sizeof(T), kUnits = kGroup / kUnit;
    if (a.wide) {
        const int col = (int)threadIdx.x % kUnits * kUnit, count = min(kUnit, t.slots - col);
        for (int row = threadIdx.x / kUnits; count > 0 && row < kPositions; row += kThreads / kUnits) {
            if (s.to[row] == kNowhere) continue;
            alignas(16) S sums[kUnit];
            S probe = 0; /* NaN as soon as one sum is not finite */
#pragma unroll
            for (int i = 0; i < kUnit; i++) sums[i] = results[row * kPitch + col + i];
#pragma unroll
            for (int i = 0; i < kUnit; i++) probe = fma(sums[i], (S)0, probe);
            if (probe != 0)
                for (int i = 0; i < count; i++)
                    if (!isfinite(sums[i]))
                        sums[i] = exact_sum<S>(a, t.number + row, t.phase, t.first_slot + col + i);
            alignas(16) T values[kUnit];
#pragma unroll
            for (int i = 0; i < kUnit; i++)
                values[i] = tartan_cuda_to<T>(
                    a.plain || i >= count
                        ? sums[i]
                        : conv_finish<S>(a.last, s.edge_class[row], t.first_slot + col + i, sums[i]));
            T *const to = (T *)a.p.to.data + s.to[row] + t.first_slot + col;
            if (count == kUnit)
                *(uint4 *)to = *(const uint4 *)values;
            else
                for (int i = 0; i < count; i++) to[i] = values[i];
        }
        return;
    }
    const bool along_slots =
        a.sums != nullptr || tartan_cuda_is_along(a.p.to.channel, a.p.to.step[TARTAN_I_DIMS - 1]);
    for (int32_t e = threadIdx.x; e < kPositions * kGroup; e += kThreads) {
        const int32_t row = along_slots ? e / kGroup : e % kPositions,
                      col = along_slots ? e % kGroup : e / kPositions;
        if (col >= t.slots || s.to[row] == kNowhere) continue;
        const int64_t slot = t.first_slot + col;
        S sum = results[row * kPitch + col];
        if (!isfinite(sum)) sum = exact_sum<S>(a, t.number + row, t.phase, slot);
        if (a.sums != nullptr)
            ((S *)a.sums)[s.to[row] + slot] = sum;
        else
            conv_put<T>(a.last, a.p.to.data, a.p.to.dtype, s.to[row] + slot * a.p.to.channel,
                        conv_finish<S>(a.last, s.edge_class[row], slot, sum));
    }
}

/* Stores the sums of a CTA through `room` in shared memory, which nobody uses any more. `meet` synchronises the kThreads threads. */
template <class Products, int kGroup, class Meet>
__device__ __forceinline__ void
store_sums(const Args &a, const Places &s, const Share &share, uint8_t *room, int row, int col,
           const typename Products::Sum (&sums)[Warps<Products, kGroup>::kSums], Meet meet) {
    using F = Form<Products, kGroup>;
    using W = Warps<Products, kGroup>;
    using S = typename Products::Sum;
    const int lane = threadIdx.x % 32;
    S *const results = (S *)room;
#pragma unroll
    for (int i = 0; i < W::kSums; i++) {
        const int high = i / 4 / W::kCols, wide = i / 4 % W::kCols, w = i % 4;
        results[(row + 16 * high + lane / 4 + w / 2 * 8) * F::kPitch + col + 8 * wide + lane % 4 * 2 +
                w % 2] = sums[i];
    }
    meet();
    const Tile tile = tile_of<kGroup>(a, share);
    if (a.splits > 1) return store_split<S, kGroup, F::kPitch>(a, s, results, tile);
    tartan_cuda_by_sum<S>(a.p.to.dtype, [&](auto tag) {
        store<typename decltype(tag)::type, S, kGroup, F::kPitch>(a, s, results, tile);
    });
}

} // namespace
} // namespace conv_pieces
} // namespace tartan_cuda

#endif
