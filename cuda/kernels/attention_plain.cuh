/* SPDX-License-Identifier: Apache-2.0
 * What the plain kernels of attention share; attention_plain_tile.cuh has what they do with a tile. A CTA owns up to kRows
 * tokens of one block line, queries or keys, and walks the line's blocks. The tokens of those blocks are numbered through,
 * block after block, and taken kOthers at a time, so that small blocks fill a tile, too. In a tile of pairs each thread has
 * kEach own tokens times kEach others, and in a tile of outputs the same own tokens times 4 neighbouring elements of every
 * 64. */
#ifndef TARTAN_CUDA_ATTENTION_PLAIN_CUH
#define TARTAN_CUDA_ATTENTION_PLAIN_CUH

#include "device/by_sum.cuh"
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

/* What the kernels need besides the problem itself. */
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

/* The tokens of one batch entry and head, with sums of type S. */
template <typename S> struct Tokens {
    const void *data;
    int32_t dtype;
    int64_t token, element;

    __device__ Tokens(const tartan_cuda_tensor &x, int64_t entry, int64_t head)
        : dtype(x.dtype), token(x.token), element(x.element) {
        const int64_t at = entry * x.batch + head * x.head;
        tartan_cuda_by_sum<S>(dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            data = (const T *)x.data + at;
        });
    }
    __device__ __forceinline__ S at(int64_t offset) const {
        return tartan_cuda_element<S>(data, dtype, offset);
    }
};

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

/* The weight of pairs that do not count, and of no others. */
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

/* With `backwards`, the last lines come first: in causal attention they have the longest lists. */
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
