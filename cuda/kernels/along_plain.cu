/* SPDX-License-Identifier: Apache-2.0
 * The largest numbers of lines, and elements of lines by their indices. A line belongs to a warp or a CTA, or is computed as
 * line_parts.cuh says; with indices that lie side by side, it belongs to a thread. */
#include "kernels.h"
#include "kernels/along.cuh"
#include "kernels/line_parts.cuh"
#include "kernels/order.cuh"

namespace tartan_cuda {
namespace {

__device__ __forceinline__ void set_index(const Along &p, int64_t at, int64_t place) {
    const tartan_cuda_swept &a = p.lines.sweep.array[INDICES];
    if (a.data == nullptr) return;
    if (a.dtype == TARTAN_I64)
        ((int64_t *)a.data)[at] = place + p.base;
    else if (a.dtype == TARTAN_I32)
        ((int32_t *)a.data)[at] = (int32_t)(place + p.base);
    else
        ((uint8_t *)a.data)[at] = (uint8_t)(place + p.base);
}

/* ---- The largest number ---- */

template <typename K> struct Largest {
    K key;
    int64_t place;
    __device__ __forceinline__ void meet(K other, int64_t other_place) {
        if (other > key || (other == key && other_place < place)) key = other, place = other_place;
    }
};

template <typename T>
__device__ __forceinline__ void set_largest(const Along &p, const int64_t (&at)[LINE_ARRAYS], int64_t place) {
    using S = tartan_cuda_sum<T>;
    const T x = ((const T *)p.lines.sweep.array[WHOLE].data)[at[WHOLE] + place * p.lines.step[WHOLE]];
    set_number(p.lines.sweep.array[VALUES], at[VALUES], tartan_cuda_to<S>(x));
    set_index(p, at[INDICES], place);
}

template <typename T, int OF_LINE>
__global__ void __launch_bounds__(OF_LINE < THREADS ? THREADS : OF_LINE)
    find_largest(const __grid_constant__ Along p) {
    using K = typename Order<T>::Key;
    __shared__ Largest<K> of_warp[32];
    each_line<OF_LINE>(p.lines, [&](int64_t line, int thread) {
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        Largest<K> most = {0, INT64_MAX};
        each_element<OF_LINE>((const T *)p.lines.sweep.array[WHOLE].data + at[WHOLE], p.lines.n,
                              p.lines.step[WHOLE], thread, [&](int64_t i, T x) {
                                  const K key = Order<T>::key(x);
                                  if (key > most.key) most.key = key, most.place = i;
                              });
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            most.meet(__shfl_xor_sync(~0u, most.key, step), __shfl_xor_sync(~0u, most.place, step));
        if constexpr (OF_LINE > 32) {
            __syncthreads();
            if (thread % 32 == 0) of_warp[thread / 32] = most;
            __syncthreads();
            for (int w = 0; thread == 0 && w < OF_LINE / 32; w++) most.meet(of_warp[w].key, of_warp[w].place);
        }
        if (thread == 0) set_largest<T>(p, at, most.place);
    });
}

/* For line_parts.cuh. */
template <typename T> struct LargestLines {
    using Numbers = T;
    using S = tartan_cuda_sum<T>;
    using Sum = Largest<typename Order<S>::Key>;
    static constexpr bool HAS_SUMS = true, MAY_WRITE = false, UNITS = sizeof(T) < 8;
    static constexpr int INPUTS = 1, CTAS = 3;

    Along p;
    int64_t lines, n;

    struct At {
        int64_t at[LINE_ARRAYS];
        Cells<T> in[1];
    };
    struct Items {
        S x[BATCH];
    };
    struct Known {};

    __host__ __device__ const tartan_cuda_swept &input(int) const { return p.lines.sweep.array[WHOLE]; }
    __host__ __device__ bool writes() const { return false; }
    bool has_units() const { return tartan_cuda::has_units(p.lines.sweep, WHOLE, p.lines.step[WHOLE], n); }
    bool follow_each_other() const {
        return tartan_cuda::follow_each_other(p.lines.sweep, WHOLE, p.lines.step[WHOLE], n);
    }

    __device__ __forceinline__ At at(int64_t line) const {
        At a;
        find_line(p.lines, line, a.at);
        a.in[0] = Cells<T>(p.lines.sweep.array[WHOLE], a.at[WHOLE], p.lines.step[WHOLE]);
        return a;
    }
    __device__ __forceinline__ Sum nothing() const { return {0, INT64_MAX}; }
    __device__ __forceinline__ void begin(At &, Sum &, bool) const {}
    template <int EACH>
    __device__ __forceinline__ void load(const At &a, const Places<EACH> &places, int count,
                                         Items &items) const {
        a.in[0].load(places, count, items.x);
    }
    template <int EACH>
    __device__ __forceinline__ void add(const At &, Sum &s, const Items &items, const Places<EACH> &places,
                                        int count) const {
        Sum most = {0, 0};
        EACH_OF(BATCH) {
            const auto key = i < count ? Order<S>::key(items.x[i]) : 0;
            if (key > most.key) most.key = key, most.place = i;
        }
        if (most.key > s.key) s = {most.key, places[(int)most.place]};
    }
    __device__ __forceinline__ void join(Sum &s, const Sum &other) const { s.meet(other.key, other.place); }
    __device__ __forceinline__ Known end(const At &a, const Sum &s, bool first) const {
        if (first) set_largest<T>(p, a.at, s.place);
        return {};
    }
};

template <typename T>
tartan_status run_largest(const char *function, tartan_cuda_queue *queue, const Along &p) {
    if (go_by_parts(p.lines)) {
        const LargestLines<T> op = {p, p.lines.count, p.lines.n};
        return are_short(op) ? run_short(function, queue, op)
                             : run_parts(function, queue, op, lie_across(p.lines), (int32_t)sizeof(T));
    }
    return by_length(p.lines, [&](auto threads, dim3 grid, dim3 block) {
        return tartan_cuda_launch(function, queue, find_largest<T, decltype(threads)::value>, grid, block, p);
    });
}

/* ---- Elements by their indices ---- */

/* A thread has an element of y. ACROSS: neighbours are in other lines. */
template <bool ACROSS> __global__ void __launch_bounds__(THREADS) take(const __grid_constant__ Along p) {
    const int64_t all = p.lines.count * p.k, by = ACROSS ? p.lines.count : p.k;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * THREADS) {
        /* Division of 64 bits takes more instructions than all the rest. */
        const int64_t whole = all <= UINT32_MAX ? (uint32_t)i / (uint32_t)by : i / by, rest = i - whole * by;
        const int64_t line = ACROSS ? rest : whole, e = ACROSS ? whole : rest;
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        const int64_t place = place_of(p, at, e);
        const double value = place < 0 ? (double)NAN
                                       : number_at<double>(p.lines.sweep.array[WHOLE],
                                                           at[WHOLE] + place * p.lines.step[WHOLE]);
        set_number(p.lines.sweep.array[VALUES], at[VALUES] + e * p.lines.step[VALUES], value);
    }
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_reduce_max_plain(const char *function, tartan_cuda_queue *queue,
                                           const void *problem) {
    const auto *op = (const tartan_op_reduce_max *)problem;
    Along p = {};
    p.lines = lines_of(op->x, {{op->x, ALONG}, {op->indices, PER_LINE}, {op->y, PER_LINE}});
    p.base = op->base;
    if (p.lines.count == 0) return TARTAN_OK;
    return tartan_cuda_by_dtype(op->x->dtype, [&](auto tag) {
        return run_largest<typename decltype(tag)::type>(function, queue, p);
    });
}

tartan_status tartan_cuda_take_along_plain(const char *function, tartan_cuda_queue *queue,
                                           const void *problem) {
    const auto *op = (const tartan_op_take_along *)problem;
    Along p = {};
    p.lines = lines_of(op->y, {{op->x, ALONG}, {op->indices, ALONG}, {op->y, ALONG}});
    p.lines.n = op->x->shape[op->x->ndim - 1];
    p.k = op->y->shape[op->y->ndim - 1], p.base = op->base;
    const int64_t all = p.lines.count * p.k;
    if (all == 0) return TARTAN_OK;
    const bool across = p.k == 1 || lie_across(p.lines);
    return tartan_cuda_launch(function, queue, across ? take<true> : take<false>,
                              tartan_cuda_grid((all + THREADS - 1) / THREADS), dim3(THREADS), p);
}
