/* SPDX-License-Identifier: Apache-2.0
 * What the plain kernels of attention's gradients share: delta, and the gradients of the pairs of a tile. */
#ifndef TARTAN_CUDA_ATTENTION_GRADIENT_PLAIN_CUH
#define TARTAN_CUDA_ATTENTION_GRADIENT_PLAIN_CUH

#include "kernels/attention_plain_tile.cuh"

namespace tartan_cuda {
namespace attention {

/* What gradients read. */
struct Given {
    Common c;
    tartan_cuda_row_index lists; /* by rows, or by columns where keys are owned */
    Cut cut;
    tartan_cuda_tensor out, lse, out_grad;
    void *delta; /* [batch, heads, tq] */
};

/* Computes delta. */
tartan_status start_delta(const char *function, tartan_cuda_queue *queue, const Given *a);

/* Fetches what the table knows of query `token` (-1: none). */
template <typename S, int kRows>
__device__ __forceinline__ void fetch_query(const Given &a, const Piece &x, int64_t token, int i,
                                            Shared<S, kRows> &s) {
    const int64_t in_lse = x.entry * a.lse.batch + x.head * a.lse.head + token * a.lse.token;
    const int64_t in_delta = (x.entry * a.c.p.heads + x.head) * a.c.p.tq + token;
    s.lse[i] = token >= 0 ? ((const S *)a.lse.data)[in_lse] : (S)0;
    s.delta[i] = token >= 0 ? ((const S *)a.delta)[in_delta] : (S)0;
}

/* Products of queries and keys become weights, after dropout. Products of out_grad and v become the gradients of scores
 * or, with kOfProducts, of scaled products. */
template <bool kOfProducts, typename S, int kRows, bool kOwnKeys>
__device__ __forceinline__ void differentiate(const Pairs<S, kRows, kOwnKeys> &pairs, uint32_t seen,
                                              S (&scores)[kEach][kEach], S (&grads)[kEach][kEach]) {
    const tartan_cuda_attention &p = pairs.c.p;
    const uint32_t dropped = p.dropout > 0 ? pairs.dropped() : 0;
    const S kept = (S)(1 / (1 - p.dropout));
#pragma unroll
    for (int r = 0; r < kEach; r++)
#pragma unroll
        for (int o = 0; o < kEach; o++) {
            const int query = kOwnKeys ? pairs.other(o) : pairs.own(r);
            const S lse = pairs.s.lse[query], delta = pairs.s.delta[query];
            const bool counts = seen >> (r * kEach + o) & 1, drops = dropped >> (r * kEach + o) & 1;
            /* A query all of whose scores are -infinity has no weights. */
            S slope;
            const S score = pairs.score(scores[r][o], r, o, &slope);
            const S weight = lse == -(S)INFINITY ? (S)0 : exp(score - lse);
            const S grad = drops ? (S)0 : grads[r][o] * kept;
            scores[r][o] = !counts ? hidden<S>() : drops ? (S)0 : weight * kept;
            const S ds = weight * (grad - delta);
            grads[r][o] = counts ? shown(kOfProducts ? ds * slope : ds) : hidden<S>();
        }
}

} // namespace attention
} // namespace tartan_cuda

#endif
