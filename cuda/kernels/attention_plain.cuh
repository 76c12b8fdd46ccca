/* SPDX-License-Identifier: Apache-2.0
 * What the plain kernels of attention share. A CTA owns up to kRows tokens of one block line, queries or keys, and walks the
 * line's blocks. The tokens of those blocks are numbered through, block after block, and taken kOthers at a time, so that
 * small blocks fill a tile, too. In a tile of pairs each thread has kEach own tokens times kEach others, and in a tile of
 * outputs the same own tokens times 4 neighbouring elements of every 64. */
#ifndef TARTAN_CUDA_ATTENTION_PLAIN_CUH
#define TARTAN_CUDA_ATTENTION_PLAIN_CUH

#include <Random123/philox.h>

#include "core/random.h"
#include "device/launch.cuh"
#include "device/tile.cuh"
#include "index.h"
#include "layout/block_mask.h"

namespace tartan_cuda {
namespace attention {

enum {
    kOthers = 64, /* other tokens of a tile */
    kEach = 4,    /* tokens of a thread, own and others */
    kAcross = kOthers / kEach,
    kStrip = kAcross * kEach, /* elements of an output that neighbouring threads have between them */
};

/* What the kernels are told of a problem beside itself. */
struct Common {
    tartan_cuda_attention p;
    tartan_cuda_block_mask mask; /* words_of is NULL without a block mask */
    int32_t row_words;           /* of the block mask */
    uint32_t drop;               /* a random word below this drops its weight */
    int64_t group;               /* heads of queries for a head of keys */
};

/* How the own tokens are divided. */
struct Cut {
    int32_t rows, chunks; /* own tokens of a CTA, CTAs of a block line */
    int64_t of_head;      /* CTAs of a head */
    int32_t strips;       /* CTAs that share own tokens, each with its part of the elements of a token */
    int64_t pieces;
};

/* The work of a CTA. */
struct Piece {
    int64_t line, row; /* the block line, and the first own token */
    int32_t skipped;   /* own tokens of the line before it */
    int32_t rows;
    int64_t entry, head, kv; /* batch entry, head of the queries, head of the keys */
    int64_t first;           /* element of a token */
    int32_t begin, end;      /* entries of the line's list */
    int64_t others;          /* tokens of those */
};

/* ---- Tokens ---- */

/* The tokens of one batch entry and head. */
template <typename T> struct Tokens {
    using S = tartan_cuda_sum<T>;
    const void *data;
    bool wide; /* of f32, where T has 16 bits */
    int64_t token, element;

    __device__ Tokens(const tartan_cuda_tensor &x, int64_t entry, int64_t head)
        : wide(sizeof(T) == 2 && x.dtype == TARTAN_F32), token(x.token), element(x.element) {
        const int64_t at = entry * x.batch + head * x.head;
        data = wide ? (const void *)((const float *)x.data + at) : (const void *)((const T *)x.data + at);
    }
    __device__ __forceinline__ S at(int64_t offset) const {
        if (sizeof(T) == 2 && wide) return (S)((const float *)data)[offset];
        return tartan_cuda_to<S>(((const T *)data)[offset]);
    }
};

/* Stores element `e` of token `t`. */
template <typename T>
__device__ __forceinline__ void put(const tartan_cuda_tensor &x, int64_t entry, int64_t head, int64_t t,
                                    int64_t e, tartan_cuda_sum<T> value) {
    const int64_t at = entry * x.batch + head * x.head + t * x.token + e * x.element;
    if (sizeof(T) == 2 && x.dtype == TARTAN_F32)
        ((float *)x.data)[at] = (float)value;
    else
        ((T *)x.data)[at] = tartan_cuda_to<T>(value);
}

/* ---- Shared memory ---- */

template <typename S, int kRows> struct Shared {
    enum {
        kDepth = sizeof(S) == 8 ? 16 : 32, /* elements that are multiplied at a time */
        kInner = sizeof(S) == 8 ? 16 : 32, /* other tokens that are added up at a time */
        kPitch = kRows + 4,
        kOtherPitch = kOthers + 4,
        kMostCols = 128,
    };
    union {
        struct {
            alignas(32) S own[kDepth * kPitch]; /* [element][token], as all factors of a sum over elements */
            S other[kDepth * kOtherPitch];
        };
        S values[kInner * kMostCols]; /* [token][element] */
    };
    alignas(32) S weights[kOthers * kPitch]; /* [other][own] */
    S lse[kOthers], delta[kOthers];          /* where the others are queries */
    int64_t token[kOthers];                  /* -1: none */
    int32_t id[kOthers], inside[kOthers];    /* block, and the place in it */
    Piece piece;                             /* here, as registers are short */
};

/* A pair that does not count has this weight, and no other pair has. */
template <typename S> __device__ __forceinline__ S hidden() {
    return -(S)0;
}
/* Whether a weight is hidden(). */
__device__ __forceinline__ bool is_hidden(float weight) {
    return __float_as_uint(weight) == 0x80000000u;
}
__device__ __forceinline__ bool is_hidden(double weight) {
    return __double_as_longlong(weight) == (long long)0x8000000000000000ull;
}
/* The same number, but +0 for -0. */
template <typename S> __device__ __forceinline__ S shown(S weight) {
    return weight == 0 ? (S)0 : weight;
}

/* ---- The division of work ---- */

/* The piece that a CTA takes in turn `turn`. */
__device__ __forceinline__ int64_t number_of(int32_t turn) {
    return (int64_t)turn * gridDim.x + blockIdx.x;
}

/* By `backwards` the last lines come first: with causal attention they have the longest lists. */
__device__ __forceinline__ Piece piece_of(const Cut &w, int64_t number, bool backwards, int64_t heads,
                                          int32_t block, int64_t tokens, int32_t cols) {
    Piece x;
    int64_t at = number % w.of_head, rest = number / w.of_head;
    if (backwards) at = w.of_head - 1 - at;
    x.first = rest % w.strips * cols;
    rest /= w.strips;
    x.head = x.kv = rest % heads;
    x.entry = rest / heads;
    x.line = at / w.chunks;
    x.skipped = (int32_t)(at % w.chunks) * w.rows;
    x.row = x.line * block + x.skipped;
    int64_t rows = block - x.skipped < w.rows ? block - x.skipped : w.rows;
    if (tokens - x.row < rows) rows = tokens - x.row;
    x.rows = rows > 0 ? (int32_t)rows : 0;
    x.begin = x.end = 0;
    x.others = 0;
    return x;
}

/* Keys before this one are visible to the query. */
__device__ __forceinline__ int64_t limit_of(const tartan_cuda_attention &p, int64_t query) {
    if (!p.causal) return p.tk;
    const int64_t limit = query + 1 + p.query_offset;
    return limit > p.causal_from ? limit : p.causal_from;
}

/* The head of the layout whose blocks a head of a batch entry has. */
__device__ __forceinline__ int64_t layout_head_of(const tartan_cuda_attention &p, int64_t entry,
                                                  int64_t head) {
    return entry * p.layout_entry + head * p.layout_head;
}

/* The first entry of [first, last) of a list for which `reached` is true; it stays true from there on. */
template <typename F> __device__ __forceinline__ int32_t find_first(int32_t first, int32_t last, F reached) {
    while (first < last) {
        const int32_t middle = first + (last - first) / 2;
        if (reached(middle))
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}

/* A piece whose own tokens are queries, with the part of its list that they see. */
__device__ __forceinline__ Piece queries_of(const Common &c, const Cut &w, const tartan_cuda_row_index &lists,
                                            int64_t number, int32_t cols) {
    const tartan_cuda_attention &p = c.p;
    Piece x = piece_of(w, number, true, p.heads, p.block_q, p.tq, cols);
    x.kv = x.head / c.group;
    if (lists.pointers == nullptr || x.rows == 0) return x;
    const int32_t *at = lists.pointers + layout_head_of(p, x.entry, x.head) * p.grid_q + x.line;
    const int64_t limit = limit_of(p, x.row + x.rows - 1);
    x.begin = at[0];
    x.end = find_first(at[0], at[1], [&](int32_t i) { return (int64_t)lists.cols[i] * p.block_k >= limit; });
    x.others = (int64_t)(x.end - x.begin) * p.block_k;
    return x;
}

/* Enters the tokens `done`, done + 1, ... of the piece's entries into the table, all threads together. */
template <int kThreads, typename S, int kRows>
__device__ __forceinline__ void look_up(const tartan_cuda_row_index &lists, int64_t done, int32_t block,
                                        int64_t tokens, Shared<S, kRows> &s) {
    for (int i = threadIdx.x; i < kOthers; i += kThreads) {
        const int64_t at = s.piece.begin + (done + i) / block;
        const int32_t inside = (int32_t)((done + i) % block);
        int64_t token = -1;
        int32_t id = 0;
        if (at < s.piece.end) {
            token = (int64_t)lists.cols[at] * block + inside;
            if (token >= tokens) token = -1;
            id = lists.ids != nullptr ? lists.ids[at] : (int32_t)at;
        }
        s.token[i] = token;
        s.id[i] = id;
        s.inside[i] = inside;
    }
}

/* ---- Pairs; those of a thread are numbered own * kEach + other ---- */

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

    /* The pairs that count, as bits. Those of own tokens that do not exist count, too: their results are never stored.
     * *any: there is one of an own token that exists. */
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
        if (c.p.bias_kind == TARTAN_I_BIAS_BLOCK) return all[s.id[other(o)] * c.p.bias_element];
        int64_t distance = key(r, o) - query(r, o) - c.p.query_offset;
        if (c.p.bias_kind == TARTAN_I_BIAS_SLOPES) return *all * (S)distance;
        const int64_t reach = c.p.bias_reach;
        distance = distance < -reach ? -reach : distance > reach ? reach : distance;
        return all[(distance + reach) * c.p.bias_element];
    }

    /* The products of a tile become its scores. */
    __device__ __forceinline__ void score(S (&sums)[kEach][kEach]) const {
        const S scale = (S)c.p.scale;
#pragma unroll
        for (int r = 0; r < kEach; r++)
#pragma unroll
            for (int o = 0; o < kEach; o++)
                sums[r][o] = c.p.bias == nullptr ? scale * sums[r][o] : fma(scale, sums[r][o], bias(r, o));
    }
};

/* ---- Products ---- */

/* Loads `depth` elements of tokens from element `from` on: to[element * pitch + token]; zeros where there is no token or
 * element. 8 neighbouring threads load neighbouring elements, and a warp stores to all banks. */
template <int kCount, int kDepth, int kThreads, typename T, typename S, typename F>
__device__ __forceinline__ void load_factors(const Tokens<T> &x, F token_of, int64_t from, int64_t d, S *to,
                                             int pitch) {
    const int lane = threadIdx.x % 8;
#pragma unroll
    for (int i = threadIdx.x / 8; i < kCount; i += kThreads / 8) {
        const int64_t token = token_of(i), at = token * x.token + (from + lane) * x.element;
#pragma unroll
        for (int e = 0; e < kDepth; e += 8)
            to[(lane + e) * pitch + i] = token >= 0 && from + lane + e < d ? x.at(at + e * x.element) : (S)0;
    }
}

/* sums = own tokens times other tokens, over their d elements in ascending order. */
template <int kThreads, typename T, typename S, int kRows>
__device__ __forceinline__ void multiply(const Tokens<T> &own, const Tokens<T> &other, const Piece &x,
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
template <int kThreads, int kCols, typename T, typename S, int kRows>
__device__ __forceinline__ void accumulate(const Tokens<T> &x, int64_t from, int64_t d, int64_t done,
                                           bool guarded, Shared<S, kRows> &s,
                                           S (&sums)[kEach][kCols / kAcross]) {
    constexpr int kInner = Shared<S, kRows>::kInner;
    static_assert(kCols <= Shared<S, kRows>::kMostCols, "room for the values");
    const int count = s.piece.others - done < kOthers ? (int)(s.piece.others - done) : kOthers;
    for (int first = 0; first < count; first += kInner) {
        __syncthreads(); /* the weights are there, and the last values have been read */
#pragma unroll 4
        for (int n = threadIdx.x; n < kInner * kCols; n += kThreads) {
            const int64_t token = s.token[first + n / kCols], e = from + n % kCols;
            s.values[n] = token >= 0 && e < d ? x.at(token * x.token + e * x.element) : (S)0;
        }
        __syncthreads();
        const int here = count - first < kInner ? count - first : kInner;
        if (guarded)
            add_values<true, S, kRows, kCols>(s, first, here, sums);
        else
            add_values<false, S, kRows, kCols>(s, first, here, sums);
    }
}

/* ---- On the host ---- */

inline Cut cut_of(int32_t most, int32_t block, int64_t grid, int64_t heads, int64_t entries, int64_t d,
                  int32_t cols) {
    Cut w;
    w.chunks = (block + most - 1) / most;
    w.rows = (block + w.chunks - 1) / w.chunks;
    w.of_head = grid * w.chunks;
    w.strips = d > cols ? (int32_t)((d + cols - 1) / cols) : 1;
    w.pieces = w.of_head * w.strips * heads * entries;
    return w;
}

/* Copies the mask to the device if it is not there. */
tartan_status common_of(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention *p,
                        Common *out);

/* The threads of a CTA, and the bound on its registers that lets `threads` of them be on an SM. */
template <int kRows> __host__ __device__ constexpr int threads_of() {
    return kRows / kEach * kAcross;
}
template <int kRows> __host__ __device__ constexpr int at_once(int threads) {
    return threads / threads_of<kRows>();
}

} // namespace attention
} // namespace tartan_cuda

#endif
