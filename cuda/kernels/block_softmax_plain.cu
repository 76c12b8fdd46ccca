/* SPDX-License-Identifier: Apache-2.0
 * Softmax of the rows of a block-sparse matrix: the largest score, the sum of exp(score - largest), then the weights. What
 * threads cannot keep of long rows is read three times, from L2 after the first. */
#include "backend/operation.h"
#include "kernels.h"
#include "kernels/block_softmax.cuh"

namespace tartan_cuda {
namespace softmax {
namespace {

using problem = tartan_op_block_softmax;

struct Args {
    Lines l;
    Values x, y;
    double scale;
    bool causal;
    int64_t query_offset, causal_from;
    tartan_cuda_block_mask mask; /* without words_of: no mask */
    int32_t row_words;
    void *lse;
    int64_t lse_head, lse_row;
};

/* Weights are powers of 2 in f32, as the hardware computes them. */
__device__ __forceinline__ float factor_of(float scale) {
    return scale * 1.44269504088896340736f;
}
__device__ __forceinline__ double factor_of(double scale) {
    return scale;
}
__device__ __forceinline__ float power(float x) {
    return exp2f(x);
}
__device__ __forceinline__ double power(double x) {
    return exp(x);
}
__device__ __forceinline__ float lse_of(float most, float total) {
    return (most + log2f(total)) * 0.693147180559945309417f;
}
__device__ __forceinline__ double lse_of(double most, double total) {
    return most + log(total);
}

/* Columns before this one are visible to the row. */
__device__ __forceinline__ int64_t limit_of(const Args &a, int64_t row) {
    if (!a.causal) return a.l.cols;
    int64_t limit = row + 1 + a.query_offset;
    if (limit < a.causal_from) limit = a.causal_from;
    return limit < a.l.cols ? limit : a.l.cols;
}

/* The visible elements of a unit, as V bits. */
template <int V, bool kChecked>
__device__ __forceinline__ uint32_t seen_of(const Args &a, const Place &x, const Walk &w, int64_t limit) {
    if (w.block >= x.count) return 0;
    if (!kChecked) return (1u << V) - 1;
    uint32_t seen = before<V>(a.l, x, w, limit);
    if (a.mask.words_of == nullptr || seen == 0) return seen;
    const int32_t words = a.mask.words_of[x.begin + w.block];
    if (words < 0) return seen;
    const int64_t row = (int64_t)words * a.l.block_rows + x.inside;
    return seen & a.mask.bits[row * a.row_words + w.unit * V / 32] >> (w.unit * V % 32);
}

/* The scores of a unit; -infinity where an element is not seen. */
template <typename T, int V, typename S>
__device__ __forceinline__ void score(const tartan_cuda_pack<T, V> &unit, uint32_t seen, S factor,
                                      S (&out)[V]) {
#pragma unroll
    for (int v = 0; v < V; v++)
        out[v] = seen >> v & 1 ? factor * tartan_cuda_to<S>(unit.at[v]) : -(S)INFINITY;
}

/* Calls f(score of one unit, its place) for the units that a thread has not kept. */
template <typename S, int V, bool kChecked, typename F>
__device__ __forceinline__ void each_other(const Args &a, const Place &x, Walk w, int64_t limit, S factor,
                                           F f) {
    for (; w.block < x.count; w.step(a.l)) {
        const uint32_t seen = seen_of<V, kChecked>(a, x, w, limit);
        S scores[V];
        tartan_cuda_by_unit<S>(a.x.dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            tartan_cuda_pack<T, V> unit = {};
            if (seen != 0) unit = tartan_cuda_load_unit<T, V>(a.x.data, offset_of<V>(a.x, x, w));
            score(unit, seen, factor, scores);
        });
        f(scores, w);
    }
}

/* Stores the weights of a unit, given exp(score - largest); the padding of the last block is left alone. */
template <typename S, int V, bool kChecked>
__device__ __forceinline__ void store(const Args &a, const Place &x, const Walk &w, int64_t limit, S inverse,
                                      const S (&weights)[V]) {
    const bool broken = kChecked && inverse != inverse; /* then 0 times it is not 0 */
    const uint32_t seen = broken ? seen_of<V, kChecked>(a, x, w, limit) : (1u << V) - 1;
    const int32_t count = kChecked ? __popc(before<V>(a.l, x, w, a.l.cols)) : V;
    S values[V];
#pragma unroll
    for (int v = 0; v < V; v++) values[v] = broken && !(seen >> v & 1) ? (S)0 : weights[v] * inverse;
    tartan_cuda_by_unit<S>(a.y.dtype, [&](auto tag) {
        tartan_cuda_store_unit<typename decltype(tag)::type>(a.y.data, offset_of<V>(a.y, x, w), values,
                                                             count);
    });
}

/* kChecked: some elements of blocks may be hidden, or outside the matrix. */
template <typename S, int V, bool kChecked>
__global__ void __launch_bounds__(kThreads, sizeof(S) == 8 ? 2 : 3) softmax(const __grid_constant__ Args a) {
    constexpr int kKept = (sizeof(S) == 8 ? 16 : 32) / V;
    __shared__ S room[kThreads];
    const S factor = factor_of((S)a.scale);
    for (int64_t piece = blockIdx.x; piece < a.l.pieces; piece += gridDim.x) {
        const Place x = place_of(a.l, piece);
        const int64_t limit = limit_of(a, x.row);
        const Walk first(a.l, x);
        Walk w = first;
        S kept[kKept][V], most = -(S)INFINITY, total = 0;
        tartan_cuda_by_unit<S>(a.x.dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            tartan_cuda_pack<T, V> units[kKept] = {};
            uint32_t seen[kKept];
            w = first;
#pragma unroll
            for (int k = 0; k < kKept; k++, w.step(a.l)) {
                seen[k] = seen_of<V, kChecked>(a, x, w, limit);
                if (seen[k] != 0) units[k] = tartan_cuda_load_unit<T, V>(a.x.data, offset_of<V>(a.x, x, w));
            }
#pragma unroll
            for (int k = 0; k < kKept; k++) score(units[k], seen[k], factor, kept[k]);
        });
        const Walk others = w;
#pragma unroll
        for (int k = 0; k < kKept; k++)
#pragma unroll
            for (int v = 0; v < V; v++) most = fmax(most, kept[k][v]);
        each_other<S, V, kChecked>(a, x, others, limit, factor, [&](const S(&scores)[V], const Walk &) {
#pragma unroll
            for (int v = 0; v < V; v++) most = fmax(most, scores[v]);
        });
        most = reduce(a.l, x, most, room, [](S one, S other) { return fmax(one, other); });
        const S shift = most == -(S)INFINITY ? (S)0 : most; /* without a score, exp(-infinity) must be 0 */
#pragma unroll
        for (int k = 0; k < kKept; k++)
#pragma unroll
            for (int v = 0; v < V; v++) {
                kept[k][v] = power(kept[k][v] - shift);
                total += kept[k][v];
            }
        each_other<S, V, kChecked>(a, x, others, limit, factor, [&](const S(&scores)[V], const Walk &) {
#pragma unroll
            for (int v = 0; v < V; v++) total += power(scores[v] - shift);
        });
        total = reduce(a.l, x, total, room, [](S one, S other) { return one + other; });
        const S inverse = total == 0 ? (S)0 : 1 / total;
        w = first;
#pragma unroll
        for (int k = 0; k < kKept; k++, w.step(a.l))
            if (w.block < x.count) store<S, V, kChecked>(a, x, w, limit, inverse, kept[k]);
        each_other<S, V, kChecked>(a, x, others, limit, factor, [&](S(&scores)[V], const Walk &at) {
#pragma unroll
            for (int v = 0; v < V; v++) scores[v] = power(scores[v] - shift);
            store<S, V, kChecked>(a, x, at, limit, inverse, scores);
        });
        if (a.lse != nullptr && x.exists && x.number == 0)
            ((S *)a.lse)[x.head * a.lse_head + x.row * a.lse_row] =
                total == 0 ? -(S)INFINITY : lse_of(most, total);
    }
}

template <typename S, int V>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const problem *p, Args *a) {
    const tartan_layout *layout = p->x->layout;
    PASS(lines_of(function, queue, layout, a->x, V, (sizeof(S) == 8 ? 16 : 32) / V, &a->l));
    const bool checked = a->causal || a->mask.words_of != nullptr || tartan_i_is_variable(layout) ||
                         layout->shape.cols % layout->shape.block_cols != 0;
    return tartan_cuda_launch(function, queue, checked ? softmax<S, V, true> : softmax<S, V, false>,
                              tartan_cuda_grid(a->l.pieces), dim3(kThreads), *a);
}

} // namespace
} // namespace softmax
} // namespace tartan_cuda

tartan_status tartan_cuda_block_softmax_plain(const char *function, tartan_cuda_queue *queue,
                                              const void *of) {
    using namespace tartan_cuda::softmax;
    const problem *p = (const problem *)of;
    const tartan_i_attention &in = p->in;
    if (p->x->layout->shape.rows == 0) return TARTAN_OK;
    Args a = {};
    a.x = values_of(p->x);
    a.y = values_of(p->y);
    a.scale = in.scale;
    a.causal = in.causal;
    a.query_offset = in.query_offset;
    a.causal_from = in.causal_from;
    if (p->lse != nullptr) {
        a.lse = p->lse->data;
        a.lse_head = p->lse->strides[0];
        a.lse_row = p->lse->strides[1];
    }
    if (in.block_mask != nullptr && p->x->layout->blocks > 0) {
        a.row_words = (int32_t)in.block_mask->row_words;
        PASS(tartan_cuda_index_get_block_mask(function, queue, in.block_mask, false, &a.mask));
    }
    const Values all[] = {a.x, a.y};
    const int32_t width = widest(p->x->layout, all, 2);
    if (a.x.dtype == TARTAN_F64)
        return width == 2 ? launch<double, 2>(function, queue, p, &a)
                          : launch<double, 1>(function, queue, p, &a);
    return width == 8   ? launch<float, 8>(function, queue, p, &a)
           : width == 4 ? launch<float, 4>(function, queue, p, &a)
                        : launch<float, 1>(function, queue, p, &a);
}
