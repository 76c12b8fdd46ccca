/* SPDX-License-Identifier: Apache-2.0
 * The largest numbers of lines, and elements of lines by their indices. Lines that lie side by side have a thread each, or a row of
 * threads; others a warp or a CTA. */
#include "kernels.h"
#include "kernels/along.cuh"
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

/* Lines side by side: 32 of them, each with blockDim.y threads. */
template <typename T>
__global__ void __launch_bounds__(1024) find_largest_across(const __grid_constant__ Along p) {
    using K = typename Order<T>::Key;
    __shared__ Largest<K> parts[32][32];
    const int64_t groups = (p.lines.count + 31) / 32;
    for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
        const int64_t line = group * 32 + threadIdx.x;
        int64_t at[LINE_ARRAYS] = {};
        Largest<K> most = {0, INT64_MAX};
        if (line < p.lines.count) {
            find_line(p.lines, line, at);
            const T *const x = (const T *)p.lines.sweep.array[WHOLE].data + at[WHOLE];
#pragma unroll 8
            for (int64_t i = threadIdx.y; i < p.lines.n; i += blockDim.y) {
                const K key = Order<T>::key(x[i * p.lines.step[WHOLE]]);
                if (key > most.key) most.key = key, most.place = i;
            }
        }
        __syncthreads();
        parts[threadIdx.y][threadIdx.x] = most;
        __syncthreads();
        if (threadIdx.y > 0 || line >= p.lines.count) continue;
        for (uint32_t y = 1; y < blockDim.y; y++) {
            const Largest<K> other = parts[y][threadIdx.x];
            most.meet(other.key, other.place);
        }
        set_largest<T>(p, at, most.place);
    }
}

template <typename T>
tartan_status run_largest(const char *function, tartan_cuda_queue *queue, const Along &p) {
    if (lie_across(p.lines)) {
        const int parts = p.lines.n >= 256 ? 32 : p.lines.n >= 32 ? 8 : 4;
        return tartan_cuda_launch(function, queue, find_largest_across<T>,
                                  tartan_cuda_grid((p.lines.count + 31) / 32), dim3(32, parts), p);
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
