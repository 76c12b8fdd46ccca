/* SPDX-License-Identifier: Apache-2.0
 * The plain kernels of attention: pairs of own and other tokens, and the products of a tile. */
#ifndef TARTAN_CUDA_ATTENTION_PLAIN_TILE_CUH
#define TARTAN_CUDA_ATTENTION_PLAIN_TILE_CUH

#include <Random123/philox.h>

#include "core/random.h"
#include "kernels/attention_plain.cuh"

namespace tartan_cuda {
namespace attention {

/* ---- Pairs; a thread numbers its own by own * kEach + other ---- */

/* The pairs of a CTA: its queries and keys by own and other tokens. */
template <typename S, int kRows, bool kOwnKeys> struct Pairs {
    const Common &c;
    const Piece &x;
    const Shared<S, kRows> &s;

    __device__ __forceinline__ int own(int r) const { return threadIdx.x / kAcross * kEach + r; }
    __device__ __forceinline__ int other(int o) const { return threadIdx.x % kAcross * kEach + o; }
    __device__ __forceinline__ int64_t query(int r, int o) const {
        return kOwnKeys ? s.token[other(o)] : x.row + own(r);
    }
    __device__ __forceinline__ int64_t key(int r, int o) const {
        return kOwnKeys ? x.row + own(r) : s.token[other(o)];
    }

    /* Whether the query sees the key; both exist. */
    __device__ __forceinline__ bool sees(int r, int o) const {
        if (key(r, o) >= limit_of(c.p, query(r, o))) return false;
        if (c.mask.words_of == nullptr) return true;
        const int32_t words = c.mask.words_of[s.id[other(o)]];
        if (words < 0) return true;
        const int32_t mine = x.skipped + own(r), its = s.inside[other(o)];
        const int32_t i = kOwnKeys ? its : mine, j = kOwnKeys ? mine : its;
        const int64_t row = (int64_t)words * c.p.block_q + i;
        return c.mask.bits[row * c.row_words + j / 32] >> (j % 32) & 1;
    }

    /* The pairs that count, as bits. Pairs of own tokens that do not exist count, too, since their results are never
     * stored. *any: whether a pair of an own token that exists counts. */
    __device__ __forceinline__ uint32_t visible(bool *any) const {
        uint32_t seen = 0;
        *any = false;
#pragma unroll 1
        for (int r = 0; r < kEach; r++) {
            uint32_t row = 0;
            if (own(r) >= x.rows) {
                row = (1u << kEach) - 1;
            } else {
#pragma unroll
                for (int o = 0; o < kEach; o++)
                    if (s.token[other(o)] >= 0 && sees(r, o)) row |= 1u << o;
                if (row != 0) *any = true;
            }
            seen |= row << (r * kEach);
        }
        return seen;
    }

    /* The pairs whose weights are dropped. */
    __device__ __forceinline__ uint32_t dropped() const {
        uint32_t result = 0;
        const philox4x32_key_t seed = {{(uint32_t)c.p.seed, (uint32_t)((uint64_t)c.p.seed >> 32)}};
        philox4x32_ctr_t words = {}, place = {};
        bool fresh = true;
#pragma unroll 1
        for (int n = 0; n < kEach * kEach; n++) { /* neighbouring keys one after another */
            const int r = kOwnKeys ? n % kEach : n / kEach, o = kOwnKeys ? n / kEach : n % kEach;
            const int64_t i = query(r, o), j = key(r, o);
            if (i < 0 || j < 0) continue;
            const uint64_t index = (uint64_t)((x.entry * c.p.heads + x.head) * c.p.tq + i);
            const uint32_t counter = (uint32_t)(j / 16 * 4 + j % 8 / 2);
            if (fresh || place.v[0] != counter || place.v[1] != (uint32_t)index) {
                place = {{counter, (uint32_t)index, (uint32_t)(index >> 32), TARTAN_I_STREAM_DROPOUT}};
                words = philox4x32_R(10, place, seed);
                fresh = false;
            }
            const uint32_t low = j & 1 ? words.v[1] : words.v[0], high = j & 1 ? words.v[3] : words.v[2];
            if ((j & 8 ? high : low) < c.drop) result |= 1u << (r * kEach + o);
        }
        return result;
    }

    /* What is added to the score of a pair; the other token exists, or is -1. */
    __device__ __forceinline__ S bias(int r, int o) const {
        const S *all = (const S *)c.p.bias + x.head * c.p.bias_head;
        if (c.p.bias_kind == TARTAN_I_BIAS_DENSE) {
            if (own(r) >= x.rows || s.token[other(o)] < 0) return 0;
            return all[x.entry * c.p.bias_batch + query(r, o) * c.p.bias_query +
                       key(r, o) * c.p.bias_element];
        }
        if (c.p.bias_kind == TARTAN_I_BIAS_BLOCK) return all[s.id[other(o)] * c.p.bias_element];
        int64_t distance = key(r, o) - query(r, o) - c.p.query_offset;
        if (c.p.bias_kind == TARTAN_I_BIAS_SLOPES) return *all * (S)distance;
        const int64_t reach = c.p.bias_reach;
        distance = distance < -reach ? -reach : distance > reach ? reach : distance;
        return all[(distance + reach) * c.p.bias_element];
    }

    /* The score of a product; *slope: its derivative with respect to the scaled product. */
    __device__ __forceinline__ S score(S product, int r, int o, S *slope) const {
        S scale = (S)c.p.scale;
        *slope = 1;
        if (c.p.softcap > 0) {
            product = tanh((S)(c.p.scale / c.p.softcap) * product);
            *slope = fma(-product, product, (S)1);
            scale = (S)c.p.softcap;
        }
        return c.p.bias == nullptr ? scale * product : fma(scale, product, bias(r, o));
    }

    /* The products of a tile become its scores. */
    __device__ __forceinline__ void score(S (&sums)[kEach][kEach]) const {
        S slope;
#pragma unroll
        for (int r = 0; r < kEach; r++)
#pragma unroll
            for (int o = 0; o < kEach; o++) sums[r][o] = score(sums[r][o], r, o, &slope);
    }
};

/* ---- Products ---- */

/* Loads `depth` elements of tokens from element `from` on: to[element * pitch + token]; zeros where there is no token or
 * element. 8 neighbouring threads load neighbouring elements, and a warp stores to all banks. */
template <int kCount, int kDepth, int kThreads, typename S, typename F>
__device__ __forceinline__ void load_factors(const Tokens<S> &x, F token_of, int64_t from, int64_t d, S *to,
                                             int pitch) {
    const int lane = threadIdx.x % 8;
    tartan_cuda_by_sum<S>(x.dtype, [&](auto tag) {
        const auto *data = (const typename decltype(tag)::type *)x.data;
#pragma unroll
        for (int i = threadIdx.x / 8; i < kCount; i += kThreads / 8) {
            const int64_t token = token_of(i), at = token * x.token + (from + lane) * x.element;
#pragma unroll
            for (int e = 0; e < kDepth; e += 8)
                to[(lane + e) * pitch + i] =
                    token >= 0 && from + lane + e < d ? tartan_cuda_to<S>(data[at + e * x.element]) : (S)0;
        }
    });
}

/* sums = own tokens times other tokens, over their d elements in ascending order. */
template <int kThreads, typename S, int kRows>
__device__ __forceinline__ void multiply(const Tokens<S> &own, const Tokens<S> &other, const Piece &x,
                                         int64_t d, Shared<S, kRows> &s, S (&sums)[kEach][kEach]) {
    using Four = tartan_cuda_pack<S, kEach>;
    constexpr int kDepth = Shared<S, kRows>::kDepth, kPitch = Shared<S, kRows>::kPitch,
                  kOtherPitch = Shared<S, kRows>::kOtherPitch;
    const int row = threadIdx.x / kAcross * kEach, col = threadIdx.x % kAcross * kEach;
#pragma unroll
    for (int r = 0; r < kEach; r++)
#pragma unroll
        for (int o = 0; o < kEach; o++) sums[r][o] = 0;
    for (int64_t from = 0; from < d; from += kDepth) {
        __syncthreads(); /* what is there has been read */
        load_factors<kRows, kDepth, kThreads>(
            own, [&](int i) { return i < x.rows ? x.row + i : (int64_t)-1; }, from, d, s.own, kPitch);
        load_factors<kOthers, kDepth, kThreads>(
            other, [&](int i) { return s.token[i]; }, from, d, s.other, kOtherPitch);
        __syncthreads();
        const int depth = (int)(d - from < kDepth ? d - from : kDepth);
        for (int first = 0; first < depth; first += 8) /* zeros fill the last 8 */
#pragma unroll
            for (int k = first; k < first + 8; k++) {
                const Four a = *(const Four *)(s.own + k * kPitch + row);
                const Four b = *(const Four *)(s.other + k * kOtherPitch + col);
#pragma unroll
                for (int r = 0; r < kEach; r++)
#pragma unroll
                    for (int o = 0; o < kEach; o++) sums[r][o] = fma(a.at[r], b.at[o], sums[r][o]);
            }
    }
}

/* Stores the weights of the thread's pairs. */
template <typename S, int kRows>
__device__ __forceinline__ void put_weights(const S (&weights)[kEach][kEach], Shared<S, kRows> &s) {
    using Four = tartan_cuda_pack<S, kEach>;
    const int row = threadIdx.x / kAcross * kEach, col = threadIdx.x % kAcross * kEach;
#pragma unroll
    for (int o = 0; o < kEach; o++)
        *(Four *)(s.weights + (col + o) * Shared<S, kRows>::kPitch + row) = {weights[0][o], weights[1][o],
                                                                             weights[2][o], weights[3][o]};
}

/* sums += weights times values; without hidden pairs if they are guarded against. */
template <bool kGuarded, typename S, int kRows, int kCols>
__device__ __forceinline__ void add_values(const Shared<S, kRows> &s, int first, int count,
                                           S (&sums)[kEach][kCols / kAcross]) {
    using Four = tartan_cuda_pack<S, kEach>;
    const int row = threadIdx.x / kAcross * kEach, col = threadIdx.x % kAcross * kEach;
#pragma unroll 4
    for (int k = 0; k < count; k++) {
        const Four w = *(const Four *)(s.weights + (first + k) * Shared<S, kRows>::kPitch + row);
#pragma unroll
        for (int strip = 0; strip < kCols / kStrip; strip++) {
            const Four v = *(const Four *)(s.values + k * kCols + strip * kStrip + col);
#pragma unroll
            for (int r = 0; r < kEach; r++) {
                const bool counts = !kGuarded || !is_hidden(w.at[r]);
#pragma unroll
                for (int e = 0; e < kEach; e++) {
                    S &sum = sums[r][strip * kEach + e];
                    if (counts) sum = fma(w.at[r], v.at[e], sum);
                }
            }
        }
    }
}

/* sums += the stored weights times elements `from`, from + 1, ... of the piece's others `done`, done + 1, ... */
template <int kThreads, int kCols, typename S, int kRows>
__device__ __forceinline__ void accumulate(const Tokens<S> &x, int64_t from, int64_t d, int64_t done,
                                           bool guarded, Shared<S, kRows> &s,
                                           S (&sums)[kEach][kCols / kAcross]) {
    constexpr int kInner = Shared<S, kRows>::kInner;
    static_assert(kCols <= Shared<S, kRows>::kMostCols, "room for the values");
    const int count = s.piece.others - done < kOthers ? (int)(s.piece.others - done) : kOthers;
    for (int first = 0; first < count; first += kInner) {
        __syncthreads(); /* the weights are there, and the last values have been read */
        tartan_cuda_by_sum<S>(x.dtype, [&](auto tag) {
            const auto *data = (const typename decltype(tag)::type *)x.data;
#pragma unroll 4
            for (int n = threadIdx.x; n < kInner * kCols; n += kThreads) {
                const int64_t token = s.token[first + n / kCols], e = from + n % kCols;
                s.values[n] =
                    token >= 0 && e < d ? tartan_cuda_to<S>(data[token * x.token + e * x.element]) : (S)0;
            }
        });
        __syncthreads();
        const int here = count - first < kInner ? count - first : kInner;
        if (guarded)
            add_values<true, S, kRows, kCols>(s, first, here, sums);
        else
            add_values<false, S, kRows, kCols>(s, first, here, sums);
    }
}

} // namespace attention
} // namespace tartan_cuda

#endif
