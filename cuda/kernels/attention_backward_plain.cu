/* SPDX-License-Identifier: Apache-2.0
 * Attention, backward, for every problem: the reference on the device. Three kernels: delta; the gradients of keys and
 * values, whose CTAs own up to 32 keys of a block column and walk its queries, one after another for the heads that share
 * the keys; and the gradient of queries, whose CTAs own queries and walk the keys. Both compute the scores again, so that
 * no sum needs another CTA.
 *
 * Source: Dao, "FlashAttention-2" (2023), algorithm 2. */
#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/attention_gradient_plain.cuh"

namespace tartan_cuda {
namespace attention {
namespace {

struct Args : Given {
    tartan_cuda_tensor q_grad, k_grad, v_grad;
};

/* ---- Delta ---- */

enum { kDeltaThreads = 256 };

/* A warp for each query. */
template <typename S>
__global__ void __launch_bounds__(kDeltaThreads) delta(const __grid_constant__ Given a, int64_t queries) {
    const tartan_cuda_attention &p = a.c.p;
    constexpr int kWarps = kDeltaThreads / 32;
    for (int64_t n = (int64_t)blockIdx.x * kWarps + threadIdx.x / 32; n < queries;
         n += (int64_t)gridDim.x * kWarps) {
        const int64_t i = n % p.tq, head = n / p.tq % p.heads, entry = n / p.tq / p.heads;
        const Tokens<S> out(a.out, entry, head), grad(a.out_grad, entry, head);
        S sum = 0;
        for (int64_t e = threadIdx.x % 32; e < p.dv; e += 32)
            sum =
                fma(out.at(i * out.token + e * out.element), grad.at(i * grad.token + e * grad.element), sum);
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        if (threadIdx.x % 32 == 0) ((S *)a.delta)[n] = sum;
    }
}

template <typename S, int kCols>
__device__ __forceinline__ void store(const Args &a, const Piece &x, int64_t head,
                                      const tartan_cuda_tensor &to, int64_t d, S scale,
                                      const S (&sums)[kEach][kCols / kAcross]) {
#pragma unroll
    for (int r = 0; r < kEach; r++) {
        const int own = threadIdx.x / kAcross * kEach + r;
        if (own >= x.rows) continue;
        const int64_t at = x.entry * to.batch + head * to.head + (x.row + own) * to.token;
        tartan_cuda_by_sum<S>(to.dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
#pragma unroll
            for (int n = 0; n < kCols / kAcross; n++) {
                const int64_t e = x.first + n / kEach * kStrip + threadIdx.x % kAcross * kEach + n % kEach;
                if (e < d) ((T *)to.data)[at + e * to.element] = tartan_cuda_to<T>(scale * sums[r][n]);
            }
        });
    }
}

/* ---- The gradient of queries ---- */

template <typename S, int kRows, int kCols>
__global__ void __launch_bounds__(threads_of<kRows>(), at_once<kRows>(sizeof(S) == 8 ? 256 : 512))
    query_grad(const __grid_constant__ Args a) {
    constexpr int kThreads = threads_of<kRows>();
    __shared__ Shared<S, kRows> s;
    static_assert(kRows <= kOthers, "the table has what is known of the own queries");
    const tartan_cuda_attention &p = a.c.p;
    for (int32_t turn = 0; number_of(turn) < a.cut.pieces; turn++) {
        __syncthreads(); /* the last piece has been read */
        if (threadIdx.x == 0) s.piece = queries_of(a.c, a.cut, a.lists, number_of(turn), kCols);
        __syncthreads();
        const Piece &x = s.piece;
        if (x.rows == 0) continue;
        for (int i = threadIdx.x; i < kRows; i += kThreads)
            fetch_query(a, x, i < x.rows ? x.row + i : (int64_t)-1, i, s);
        const Pairs<S, kRows, false> pairs = {a.c, x, s};
        S sums[kEach][kCols / kAcross] = {};
        for (int64_t done = 0; done < x.others; done += kOthers) {
            __syncthreads(); /* the last tile's table has been read */
            look_up<kThreads>(a.lists, done, p.block_k, p.tk, s);
            __syncthreads();
            bool any;
            const uint32_t seen = pairs.visible(&any);
            if (!__syncthreads_or(any)) continue;
            const bool whole = __syncthreads_and(seen == (1u << kEach * kEach) - 1);
            S scores[kEach][kEach], grads[kEach][kEach];
            multiply<kThreads>(Tokens<S>(p.q, x.entry, x.head), Tokens<S>(p.k, x.entry, x.kv), x, p.d, s,
                               scores);
            multiply<kThreads>(Tokens<S>(a.out_grad, x.entry, x.head), Tokens<S>(p.v, x.entry, x.kv), x, p.dv,
                               s, grads);
            differentiate<true>(pairs, seen, scores, grads);
            put_weights(grads, s);
            accumulate<kThreads, kCols>(Tokens<S>(p.k, x.entry, x.kv), x.first, p.d, done, !whole, s, sums);
        }
        store<S, kCols>(a, x, x.head, a.q_grad, p.d, (S)p.scale, sums);
    }
}

/* ---- The gradients of keys and values ---- */

/* Goes on to a head, and to the part of its list whose queries see the piece's keys. */
__device__ __forceinline__ void find_queries(const Args &a, int64_t head, Piece &x) {
    const tartan_cuda_attention &p = a.c.p;
    x.head = head;
    if (a.lists.pointers == nullptr) return;
    const int32_t *at = a.lists.pointers + layout_head_of(p, x.entry, head) * p.grid_k + x.line;
    x.end = at[1];
    x.begin = find_first(at[0], at[1], [&](int32_t i) {
        const int64_t end =
            ((int64_t)a.lists.cols[i] + 1) * p.block_q; /* queries of later tokens see more keys */
        return limit_of(p, (end < p.tq ? end : p.tq) - 1) > x.row;
    });
    x.others = (int64_t)(x.end - x.begin) * p.block_q;
}

template <typename S, int kRows, int kCols>
__global__ void __launch_bounds__(threads_of<kRows>(),
                                  at_once<kRows>(sizeof(S) == 8 || kRows < 32 ? 256 : 384))
    key_grads(const __grid_constant__ Args a) {
    constexpr int kThreads = threads_of<kRows>();
    __shared__ Shared<S, kRows> s;
    const tartan_cuda_attention &p = a.c.p;
    for (int32_t turn = 0; number_of(turn) < a.cut.pieces; turn++) {
        __syncthreads(); /* the last piece has been read */
        if (threadIdx.x == 0)
            s.piece = piece_of(a.cut, number_of(turn), false, p.kv_heads, p.block_k, p.tk, kCols);
        __syncthreads();
        Piece &x = s.piece;
        if (x.rows == 0) continue;
        S k_sums[kEach][kCols / kAcross] = {}, v_sums[kEach][kCols / kAcross] = {};
        for (int64_t i = 0; i < a.c.group; i++) {
            __syncthreads(); /* the last head's list has been read */
            if (threadIdx.x == 0) find_queries(a, x.kv * a.c.group + i, x);
            __syncthreads();
            const Pairs<S, kRows, true> pairs = {a.c, x, s};
            for (int64_t done = 0; done < x.others; done += kOthers) {
                __syncthreads(); /* the last tile's table has been read */
                look_up<kThreads>(a.lists, done, p.block_q, p.tq, s);
                for (int i = threadIdx.x; i < kOthers; i += kThreads) /* each thread those it has entered */
                    fetch_query(a, x, s.token[i], i, s);
                __syncthreads();
                bool any;
                const uint32_t seen = pairs.visible(&any);
                if (!__syncthreads_or(any)) continue;
                const bool whole = __syncthreads_and(seen == (1u << kEach * kEach) - 1);
                S scores[kEach][kEach], grads[kEach][kEach];
                multiply<kThreads>(Tokens<S>(p.k, x.entry, x.kv), Tokens<S>(p.q, x.entry, x.head), x, p.d, s,
                                   scores);
                multiply<kThreads>(Tokens<S>(p.v, x.entry, x.kv), Tokens<S>(a.out_grad, x.entry, x.head), x,
                                   p.dv, s, grads);
                differentiate<true>(pairs, seen, scores, grads);
                put_weights(scores, s);
                accumulate<kThreads, kCols>(Tokens<S>(a.out_grad, x.entry, x.head), x.first, p.dv, done,
                                            !whole, s, v_sums);
                __syncthreads(); /* the weights have been read */
                put_weights(grads, s);
                accumulate<kThreads, kCols>(Tokens<S>(p.q, x.entry, x.head), x.first, p.d, done, !whole, s,
                                            k_sums);
            }
        }
        store<S, kCols>(a, x, x.kv, a.k_grad, p.d, (S)p.scale, k_sums);
        store<S, kCols>(a, x, x.kv, a.v_grad, p.dv, (S)1, v_sums);
    }
}

/* ---- On the host ---- */

/* Elements of a key or a value, whichever has more: the gradients of both are divided alike. */
int64_t most_of(const tartan_cuda_attention &p) {
    return p.d > p.dv ? p.d : p.dv;
}

template <typename S, int kRows, int kCols>
tartan_status start_query_grad(const char *function, tartan_cuda_queue *queue, Args *a) {
    const tartan_cuda_attention *p = &a->c.p;
    a->cut = cut_of(kRows, p->block_q, p->grid_q, p->heads, p->batch, p->d, kCols);
    if (a->cut.pieces == 0) return TARTAN_OK;
    return tartan_cuda_launch(function, queue, query_grad<S, kRows, kCols>, tartan_cuda_grid(a->cut.pieces),
                              dim3(threads_of<kRows>()), *a);
}

template <typename S, int kRows, int kCols>
tartan_status start_key_grads(const char *function, tartan_cuda_queue *queue, Args *a) {
    const tartan_cuda_attention *p = &a->c.p;
    a->cut = cut_of(kRows, p->block_k, p->grid_k, p->kv_heads, p->batch, most_of(*p), kCols);
    if (a->cut.pieces == 0) return TARTAN_OK;
    return tartan_cuda_launch(function, queue, key_grads<S, kRows, kCols>, tartan_cuda_grid(a->cut.pieces),
                              dim3(threads_of<kRows>()), *a);
}

/* The elements of a token that a CTA takes. */
template <typename S, int kRows>
tartan_status start_query_grad(const char *function, tartan_cuda_queue *queue, Args *a) {
    if (a->c.p.d <= 64) return start_query_grad<S, kRows, 64>(function, queue, a);
    return start_query_grad<S, kRows, 128>(function, queue, a);
}
template <typename S, int kRows>
tartan_status start_key_grads(const char *function, tartan_cuda_queue *queue, Args *a) {
    if constexpr (sizeof(S) < 8)
        if (most_of(a->c.p) > 64) return start_key_grads<S, kRows, 128>(function, queue, a);
    return start_key_grads<S, kRows, 64>(function, queue, a);
}

template <typename S>
tartan_status start(const char *function, tartan_cuda_queue *queue, const tartan_cuda_row_index &by_rows,
                    const tartan_cuda_row_index &by_cols, Args *a) {
    PASS(start_delta(function, queue, a));
    a->lists = by_cols;
    const tartan_status status = a->c.p.block_k <= 16 ? start_key_grads<S, 16>(function, queue, a)
                                                      : start_key_grads<S, 32>(function, queue, a);
    PASS(status);
    a->lists = by_rows;
    return a->c.p.block_q <= 16 ? start_query_grad<S, 16>(function, queue, a)
                                : start_query_grad<S, 32>(function, queue, a);
}

} // namespace

tartan_status start_delta(const char *function, tartan_cuda_queue *queue, const Given *a) {
    const int64_t queries = a->c.p.batch * a->c.p.heads * a->c.p.tq;
    if (queries == 0) return TARTAN_OK;
    const int64_t ctas = (queries - 1) / (kDeltaThreads / 32) + 1;
    return tartan_cuda_by_sum_dtype(a->c.p.dtype, [&](auto tag) {
        using S = typename decltype(tag)::type;
        return tartan_cuda_launch(function, queue, delta<S>, tartan_cuda_grid(ctas), dim3(kDeltaThreads), *a,
                                  queries);
    });
}

} // namespace attention
} // namespace tartan_cuda

tartan_status tartan_cuda_attention_backward_plain(const char *function, tartan_cuda_queue *queue,
                                                   const void *problem) {
    using namespace tartan_cuda::attention;
    const tartan_cuda_attention_backward *p = (const tartan_cuda_attention_backward *)problem;
    if (p->in.d + p->in.dv == 0) return TARTAN_OK;
    tartan_cuda_row_index by_rows = {}, by_cols = {};
    Args a = {};
    a.out = p->out, a.lse = p->lse, a.out_grad = p->out_grad;
    a.q_grad = p->q_grad, a.k_grad = p->k_grad, a.v_grad = p->v_grad;
    PASS(common_of(function, queue, &p->in, &a.c));
    if (p->in.blocks > 0) {
        PASS(tartan_cuda_index_get_rows(function, queue, p->in.layout, false, &by_rows));
        PASS(tartan_cuda_index_get_rows(function, queue, p->in.layout, true, &by_cols));
    }
    const int64_t queries = p->in.batch * p->in.heads * p->in.tq;
    PASS(tartan_cuda_scratch(function, queue, queries * (p->in.dtype == TARTAN_F64 ? 8 : 4), &a.delta));
    const tartan_status status = tartan_cuda_by_sum_dtype(p->in.dtype, [&](auto tag) {
        using S = typename decltype(tag)::type;
        return start<S>(function, queue, by_rows, by_cols, &a);
    });
    tartan_cuda_scratch_free(queue, a.delta);
    return status;
}
