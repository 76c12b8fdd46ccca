/* SPDX-License-Identifier: Apache-2.0
 * Bias and dropout on Hopper, in separate instances of the kernels. Dropout uses the same random numbers on all backends:
 * word (j & 1) of the lower half (j & 8: the upper half) of the Philox words of (query, 16 keys and j % 8 / 2), so that one
 * block of random words is what a thread needs for 4 of its scores. */
#ifndef TARTAN_CUDA_ATTENTION_EXTRAS_CUH
#define TARTAN_CUDA_ATTENTION_EXTRAS_CUH

#include <Random123/philox.h>

#include "core/random.h"
#include "kernels/attention_lists.cuh"

namespace tartan_cuda {

namespace {

inline bool has_extras(const tartan_cuda_attention &in) {
    return in.bias != nullptr || in.dropout > 0;
}

/* ---- One pair ---- */

/* The bias of a score before it is scaled. `id`: of the block. */
__device__ __forceinline__ float bias_of(const AttentionLists &p, int32_t head, int32_t id, int32_t query,
                                         int32_t key) {
    const AttentionExtras &x = p.extras;
    if (x.bias == nullptr) return 0;
    const float *all = x.bias + head * x.bias_head;
    if (x.bias_kind == TARTAN_I_BIAS_BLOCK) return all[id * x.bias_element] * x.per_scale;
    const int64_t distance = (int64_t)key - query - p.query_offset;
    if (x.bias_kind == TARTAN_I_BIAS_SLOPES) return *all * (float)distance * x.per_scale;
    return all[(min(max(distance, -x.reach), x.reach) + x.reach) * x.bias_element] * x.per_scale;
}

__device__ __forceinline__ philox4x32_ctr_t dropout_words(const AttentionExtras &x, int64_t index,
                                                          int32_t key) {
    const philox4x32_key_t seed = {{(uint32_t)x.seed, (uint32_t)((uint64_t)x.seed >> 32)}};
    const philox4x32_ctr_t place = {{(uint32_t)(key / 16 * 4 + key % 8 / 2), (uint32_t)index,
                                     (uint32_t)((uint64_t)index >> 32), TARTAN_I_STREAM_DROPOUT}};
    return philox4x32_R(10, place, seed);
}

/* The number of a query among all of them, which random words depend on. */
__device__ __forceinline__ int64_t number_of(const AttentionExtras &x, int32_t entry, int32_t head,
                                             int32_t query) {
    return (entry * x.heads + head) * x.queries + query;
}

__device__ __forceinline__ bool is_dropped(const AttentionLists &p, int32_t entry, int32_t head,
                                           int32_t query, int32_t key) {
    const AttentionExtras &x = p.extras;
    if (x.drop == 0) return false;
    const philox4x32_ctr_t words = dropout_words(x, number_of(x, entry, head, query), key);
    return words.v[(key & 1) + (key & 8) / 4] < x.drop;
}

/* ---- The scores that a thread holds: columns 8 f + 2 q and the next one of rows `row` and `row` + 8 ---- */

/* The column of fragment f, element 0. */
template <class Step>
__device__ __forceinline__ int32_t column_of(const AttentionLists &p, const Step *step, int f) {
    const int32_t slot = p.parts > 1 ? 0 : 8 * f >> p.shift_columns;
    const int32_t ahead = p.parts > 1 ? 8 * f : 8 * f & (p.block_columns - 1);
    return step->first[slot] + ahead + 2 * ((int32_t)threadIdx.x % 4);
}

__device__ __forceinline__ bool begins_slot(const AttentionLists &p, int f) {
    return f == 0 || (p.slots > 1 && (8 * f & (p.block_columns - 1)) == 0);
}

/* How much further key - query is in element i of a fragment than in element 0. */
template <bool kByKeys> __device__ __forceinline__ constexpr int32_t further(int i) {
    return kByKeys ? i / 2 * 8 - i % 2 : i % 2 - i / 2 * 8;
}

/* Adds the bias to scores that are not scaled yet. */
template <bool kByKeys, class Step, int kCount>
__device__ __forceinline__ void add_bias(const AttentionLists &p, const Step *step, int32_t row,
                                         int32_t first_row, float (&s)[kCount]) {
    const AttentionExtras &x = p.extras;
    if (x.bias == nullptr) return;
    const float *all = x.bias + step->head * x.bias_head;
    const int32_t line = (row - first_row) >> p.shift_rows, line8 = (row + 8 - first_row) >> p.shift_rows;
    if (x.bias_kind == TARTAN_I_BIAS_BLOCK) {
#pragma unroll
        for (int f = 0; f < kCount / 4; f++) {
            const int32_t *ids = step->blocks + (p.parts > 1 ? 0 : (8 * f >> p.shift_columns) * p.lines);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int32_t id = ids[r == 0 ? line : line8];
                const float bias = id < 0 ? 0 : all[id * x.bias_element] * x.per_scale;
                s[4 * f + 2 * r] += bias, s[4 * f + 2 * r + 1] += bias;
            }
        }
        return;
    }
    const int32_t offset = (int32_t)p.query_offset;
    if (x.bias_kind == TARTAN_I_BIAS_SLOPES) {
        const float slope = *all * x.per_scale;
        float number = 0; /* key - query - offset of element 0 */
#pragma unroll
        for (int f = 0; f < kCount / 4; f++) {
            if (begins_slot(p, f)) {
                const int32_t column = column_of(p, step, f);
                number = (float)((kByKeys ? row - column : column - row) - offset);
            } else {
                number += kByKeys ? -8 : 8;
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[4 * f + i] = fmaf(slope, number + (float)further<kByKeys>(i), s[4 * f + i]);
        }
        return;
    }
    const int32_t reach = (int32_t)x.reach;
    int32_t distance = 0;
#pragma unroll
    for (int f = 0; f < kCount / 4; f++) {
        if (begins_slot(p, f)) {
            const int32_t column = column_of(p, step, f);
            distance = (kByKeys ? row - column : column - row) - offset;
        } else {
            distance += kByKeys ? -8 : 8;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t at = min(max(distance + further<kByKeys>(i), -reach), reach) + reach;
            s[4 * f + i] = fmaf(all[at * x.bias_element], x.per_scale, s[4 * f + i]);
        }
    }
}

/* Which weights dropout keeps, as bits, row `row` first. */
template <bool kByKeys, class Step>
__device__ __forceinline__ void find_kept(const AttentionLists &p, const Step *step, int32_t row,
                                          int32_t entry, uint32_t (&kept)[Step::kWords / 2]) {
    constexpr int kFragments = Step::kCols / 8, kHalf = 2 * kFragments; /* bits of a row */
    const AttentionExtras &x = p.extras;
#pragma unroll
    for (int w = 0; w < Step::kWords / 2; w++) kept[w] = x.drop == 0 ? ~0u : 0;
    if (x.drop == 0) return;
    const auto keep = [&](int bit, uint32_t word) {
        const uint32_t one = word < x.drop ? 0 : 1u << bit % 32;
        kept[0] |= Step::kWords == 2 || bit < 32 ? one : 0;
        if (Step::kWords == 4) kept[Step::kWords / 2 - 1] |= bit < 32 ? 0 : one;
    };
    if constexpr (kByKeys) { /* a query's words serve keys `row` and `row` + 8 */
#pragma unroll 1
        for (int i = 0; i < kHalf; i++) {
            const int32_t query = column_of(p, step, i / 2) + i % 2;
            const philox4x32_ctr_t words = dropout_words(x, number_of(x, entry, step->head, query), row);
            keep(i, row & 1 ? words.v[1] : words.v[0]);
            keep(i + kHalf, row & 1 ? words.v[3] : words.v[2]);
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < 2 * kFragments; i++) { /* of both rows */
            const int r = i / kFragments, f = i % kFragments;
            const int32_t key = column_of(p, step, f);
            const philox4x32_ctr_t words =
                dropout_words(x, number_of(x, entry, step->head, row + 8 * r), key);
            const int bit = r * kHalf + 2 * f;
            keep(bit, key & 8 ? words.v[2] : words.v[0]);
            keep(bit + 1, key & 8 ? words.v[3] : words.v[1]);
            if (p.block_columns < 16) continue;
            keep(bit + 2, words.v[2]); /* the next fragment has the 8 keys after these */
            keep(bit + 3, words.v[3]);
            i++;
        }
    }
}

/* Sets what is not kept to 0. */
template <int kCount>
__device__ __forceinline__ void drop_weights(const uint32_t (&kept)[kCount / 32], float (&s)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i++) {
        const int half = kCount / 2, at = i % half / 2 * 4 + i / half * 2 + i % 2;
        s[at] = kept[i / 32] & 1u << i % 32 ? s[at] : 0;
    }
}

} // namespace

} // namespace tartan_cuda

#endif
