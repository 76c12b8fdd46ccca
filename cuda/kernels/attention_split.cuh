/* SPDX-License-Identifier: Apache-2.0
 * Split lists in attention_forward_wgmma.cu: where there are fewer tiles of queries than CTAs, as in decoding, each list is
 * cut into parts, whose results and lse are merged by another kernel, in order. */
#ifndef TARTAN_CUDA_ATTENTION_SPLIT_CUH
#define TARTAN_CUDA_ATTENTION_SPLIT_CUH

#include "device/element.cuh"
#include "device/launch.cuh"
#include "kernels/attention_ring.cuh"

namespace tartan_cuda {

namespace {

/* Steps of a part are enough to hide what the part costs. */
enum { kLeastSteps = 4, kMostSplits = 64 };

/* The number of parts for `slots` teams. */
inline int32_t splits_of(const AttentionProblem &p, const tartan_cuda_group_index &u, int64_t layout_heads,
                         int64_t slots) {
    const int64_t lists = u.groups_per_head * layout_heads;
    const int64_t steps = lists > 0 ? (u.entries / lists * p.parts) >> p.shift_slots : 0;
    int64_t splits = p.tiles > 0 ? slots / p.tiles : 1;
    if (splits > steps / kLeastSteps) splits = steps / kLeastSteps;
    return (int32_t)(splits < 1 ? 1 : splits > kMostSplits ? kMostSplits : splits);
}

/* Parts [splits][batch][heads][queries][d] and their lse [splits][batch][heads][queries]. */
struct Merge {
    const float *out, *lse;
    int64_t rows; /* batch * heads * queries */
    int32_t splits, heads, queries, d;
    const float *sinks; /* or NULL */
    int64_t sinks_element;
    tartan_cuda_tensor to_out, to_lse;
};

/* A warp for 32 elements of a query; its lanes have the weights of two parts each. */
__global__ void merge_parts(const Merge m) {
    const int32_t lane = threadIdx.x % 32, pieces = (m.d + 31) / 32;
    const int64_t warp = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32, row = warp / pieces;
    if (row >= m.rows) return;
    const int64_t query = row % m.queries, head = row / m.queries % m.heads,
                  entry = row / m.queries / m.heads;
    const float sink = m.sinks != nullptr ? m.sinks[head * m.sinks_element] : -INFINITY;
    float lse[2], most = sink, total = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        lse[i] = lane + 32 * i < m.splits ? m.lse[(lane + 32 * i) * m.rows + row] : -INFINITY;
        most = fmaxf(most, lse[i]);
    }
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    const auto weight_of = [&](float x) { return x == -INFINITY ? 0.f : x == most ? 1.f : expf(x - most); };
    const float weights[2] = {weight_of(lse[0]), weight_of(lse[1])};
    total = weights[0] + weights[1];
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    total += weight_of(sink);
    const int32_t element = (int32_t)(warp % pieces) * 32 + lane;
    float sum = total != total ? total : 0; /* without keys, too */
#pragma unroll 8
    for (int32_t s = 0; s < m.splits; s++) {
        const float weight = __shfl_sync(~0u, weights[s / 32], s % 32);
        const float part = element < m.d ? m.out[(s * m.rows + row) * m.d + element] : 0;
        if (weight != 0) sum = fmaf(weight / total, part, sum);
    }
    if (element < m.d)
        combine(m.to_out.data, m.to_out.dtype,
                entry * m.to_out.batch + head * m.to_out.head + query * m.to_out.token +
                    element * m.to_out.element,
                sum, 0);
    if (m.to_lse.data != nullptr && warp % pieces == 0 && lane == 0)
        ((float *)m.to_lse.data)[entry * m.to_lse.batch + head * m.to_lse.head + query * m.to_lse.token] =
            most + logf(total);
}

/* Points the problem at parts in `scratch`. */
inline Merge split(AttentionProblem *p, const tartan_cuda_attention_forward *f, int32_t splits,
                   float *scratch) {
    const int64_t rows = (int64_t)p->batch * p->heads * p->rows;
    const Merge m = {scratch,
                     scratch + splits * rows * p->d,
                     rows,
                     splits,
                     p->heads,
                     p->rows,
                     p->d,
                     p->sinks,
                     p->sinks_element,
                     f->out,
                     f->lse};
    p->splits = splits, p->tiles *= splits;
    p->sinks = nullptr;
    p->boxes = false;
    p->out = scratch, p->out_dtype = TARTAN_F32;
    p->out_part = rows * p->d, p->out_element = 1, p->out_token = p->d;
    p->out_head = (int64_t)p->rows * p->d, p->out_batch = p->heads * p->out_head;
    p->lse = scratch + splits * rows * p->d;
    p->lse_part = rows, p->lse_token = 1, p->lse_head = p->rows, p->lse_batch = (int64_t)p->heads * p->rows;
    return m;
}

} // namespace

} // namespace tartan_cuda

#endif
