/* SPDX-License-Identifier: Apache-2.0
 * Attention, forward, for every problem: the reference on the device. A CTA owns up to 64 queries of a block row and up to
 * 128 elements of their outputs; longer tokens are divided among CTAs that compute the same weights. Tile after tile of
 * keys: scores, a running maximum, weights = exp(scores - maximum), out = out * exp(old maximum - maximum) + weights V.
 *
 * Source: Dao, "FlashAttention-2" (2023), algorithm 1. */
#include "index_cache.h"
#include "kernels.h"
#include "kernels/attention_plain_tile.cuh"

namespace tartan_cuda {
namespace attention {

tartan_status common_of(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention *p,
                        Common *out) {
    *out = {};
    out->p = *p;
    out->group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    out->drop = (uint32_t)(p->dropout * 4294967296.0);
    if (p->block_mask == nullptr || p->blocks == 0) return TARTAN_OK;
    out->row_words = (int32_t)p->block_mask->row_words;
    return tartan_cuda_index_get_block_mask(function, queue, p->block_mask, false, &out->mask);
}

namespace {

struct Args {
    Common c;
    tartan_cuda_row_index lists;
    Cut cut;
    const void *sinks; /* one for each head, or NULL */
    int64_t sinks_element;
    tartan_cuda_tensor out, lse;
};

/* The queries of a thread; kAcross neighbouring threads have the same. */
template <typename S, int kCols> struct Rows {
    S most[kEach];  /* the largest score so far */
    S total[kEach]; /* the sum of the thread's own weights */
    S out[kEach][kCols / kAcross];

    __device__ Rows() {
#pragma unroll
        for (int r = 0; r < kEach; r++) {
            most[r] = -(S)INFINITY;
            total[r] = 0;
#pragma unroll
            for (int e = 0; e < kCols / kAcross; e++) out[r][e] = 0;
        }
    }

    /* Scores of query r become weights. */
    __device__ __forceinline__ void weigh(int r, S (&scores)[kEach], uint32_t seen, uint32_t dropped) {
        S top = most[r];
#pragma unroll
        for (int o = 0; o < kEach; o++)
            if (seen >> o & 1) top = fmax(top, scores[o]);
#pragma unroll
        for (int step = 1; step < kAcross; step *= 2) top = fmax(top, __shfl_xor_sync(~0u, top, step));
        const S shift = top == -(S)INFINITY ? (S)0 : top; /* without a score, exp(-infinity) must be 0 */
        const S factor = exp(most[r] - shift);
        most[r] = top;
        total[r] *= factor;
#pragma unroll
        for (int e = 0; e < kCols / kAcross; e++) out[r][e] *= factor;
#pragma unroll
        for (int o = 0; o < kEach; o++) {
            const bool counts = seen >> o & 1;
            const S weight = counts ? exp(scores[o] - shift) : hidden<S>();
            if (counts) total[r] += weight;
            scores[o] = counts && (dropped >> o & 1) ? (S)0 : weight;
        }
    }
    __device__ __forceinline__ void add_totals() {
#pragma unroll
        for (int r = 0; r < kEach; r++)
#pragma unroll
            for (int step = 1; step < kAcross; step *= 2) total[r] += __shfl_xor_sync(~0u, total[r], step);
    }
};

/* Adds a sink to the sum of weights exp(score - most), and raises `most` to it. Returns the factor for what was summed up
 * with the old one. */
template <typename S> __device__ __forceinline__ S add_sink(S sink, S &most, S &total) {
    const S before = most;
    if (sink == -(S)INFINITY) return 1;
    if (sink > before) most = sink;
    const S factor =
        before == most ? (S)1 : exp(before - most); /* infinities are equal, and their difference NaN */
    total = total * factor + (sink == most ? (S)1 : exp(sink - most));
    return factor;
}

template <typename S, int kCols>
__device__ __forceinline__ void store(const Args &a, const Piece &x, const Rows<S, kCols> &rows) {
    const S kept = (S)(1 - a.c.p.dropout);
    const S sink = a.sinks != nullptr ? ((const S *)a.sinks)[x.head * a.sinks_element] : -(S)INFINITY;
#pragma unroll
    for (int r = 0; r < kEach; r++) {
        const int own = threadIdx.x / kAcross * kEach + r;
        if (own >= x.rows) continue;
        S most = rows.most[r], total = rows.total[r];
        const bool empty = total == 0;
        const S before = add_sink(sink, most, total);
        const bool none = total == 0;
        const S factor = none ? (S)0 : before / (total * kept);
        const int64_t at = x.entry * a.out.batch + x.head * a.out.head + (x.row + own) * a.out.token;
        tartan_cuda_by_sum<S>(a.out.dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
#pragma unroll
            for (int n = 0; n < kCols / kAcross; n++) {
                const int64_t e = x.first + n / kEach * kStrip + threadIdx.x % kAcross * kEach + n % kEach;
                if (e < a.c.p.dv)
                    ((T *)a.out.data)[at + e * a.out.element] =
                        tartan_cuda_to<T>(none ? (S)0 : (empty ? (S)0 : rows.out[r][n]) * factor);
            }
        });
        if (a.lse.data == nullptr || threadIdx.x % kAcross != 0 || x.first != 0) continue;
        ((S *)a.lse.data)[x.entry * a.lse.batch + x.head * a.lse.head + (x.row + own) * a.lse.token] =
            none ? -(S)INFINITY : most + log(total);
    }
}

template <typename S, int kRows, int kCols>
__global__ void __launch_bounds__(threads_of<kRows>(), at_once<kRows>(sizeof(S) == 8 ? 256 : 512))
    forward(const __grid_constant__ Args a) {
    constexpr int kThreads = threads_of<kRows>();
    __shared__ Shared<S, kRows> s;
    const tartan_cuda_attention &p = a.c.p;
    for (int32_t turn = 0; number_of(turn) < a.cut.pieces; turn++) {
        __syncthreads(); /* the last piece has been read */
        if (threadIdx.x == 0) s.piece = queries_of(a.c, a.cut, a.lists, number_of(turn), kCols);
        __syncthreads();
        const Piece &x = s.piece;
        if (x.rows == 0) continue;
        const Pairs<S, kRows, false> pairs = {a.c, x, s};
        Rows<S, kCols> rows;
        for (int64_t done = 0; done < x.others; done += kOthers) {
            __syncthreads(); /* the last tile's table has been read */
            look_up<kThreads>(a.lists, done, p.block_k, p.tk, s);
            __syncthreads();
            bool any;
            const uint32_t seen = pairs.visible(&any);
            if (!__syncthreads_or(any)) continue;
            const bool whole = __syncthreads_and(seen == (1u << kEach * kEach) - 1);
            S scores[kEach][kEach];
            multiply<kThreads>(Tokens<S>(p.q, x.entry, x.head), Tokens<S>(p.k, x.entry, x.kv), x, p.d, s,
                               scores);
            pairs.score(scores);
            const uint32_t dropped = p.dropout > 0 ? pairs.dropped() : 0;
#pragma unroll
            for (int r = 0; r < kEach; r++)
                rows.weigh(r, scores[r], seen >> (r * kEach), dropped >> (r * kEach));
            put_weights(scores, s);
            accumulate<kThreads, kCols>(Tokens<S>(p.v, x.entry, x.kv), x.first, p.dv, done, !whole, s,
                                        rows.out);
        }
        rows.add_totals();
        store<S, kCols>(a, x, rows);
    }
}

template <typename S, int kRows, int kCols>
tartan_status launch(const char *function, tartan_cuda_queue *queue, Args *a) {
    const tartan_cuda_attention *p = &a->c.p;
    a->cut = cut_of(kRows, p->block_q, p->grid_q, p->heads, p->batch, p->dv, kCols);
    return tartan_cuda_launch(function, queue, forward<S, kRows, kCols>, tartan_cuda_grid(a->cut.pieces),
                              dim3(threads_of<kRows>()), *a);
}

template <typename S, int kRows>
tartan_status launch(const char *function, tartan_cuda_queue *queue, Args *a) {
    if (a->c.p.dv <= 64) return launch<S, kRows, 64>(function, queue, a);
    return launch<S, kRows, 128>(function, queue, a);
}

} // namespace
} // namespace attention
} // namespace tartan_cuda

tartan_status tartan_cuda_attention_forward_plain(const char *function, tartan_cuda_queue *queue,
                                                  const void *problem) {
    using namespace tartan_cuda::attention;
    const tartan_cuda_attention_forward *p = (const tartan_cuda_attention_forward *)problem;
    Args a = {};
    a.sinks = p->sinks;
    a.sinks_element = p->sinks_element;
    a.out = p->out;
    a.lse = p->lse;
    PASS(common_of(function, queue, &p->in, &a.c));
    if (p->in.blocks > 0) PASS(tartan_cuda_index_get_rows(function, queue, p->in.layout, false, &a.lists));
    return tartan_cuda_by_sum_dtype(p->in.dtype, [&](auto tag) {
        using S = typename decltype(tag)::type;
        if (p->in.block_q <= 16) return launch<S, 16>(function, queue, &a);
        if constexpr (sizeof(S) == 8)
            return launch<S, 32>(function, queue, &a);
        else if (p->in.block_q <= 32)
            return launch<S, 32>(function, queue, &a);
        else
            return launch<S, 64>(function, queue, &a);
    });
}
