/* SPDX-License-Identifier: Apache-2.0
 * Sums for few results that lie side by side, over lines without gaps that don't fill a whole number of units: units reach from line to
 * line. The threads of all CTAs are a multiple of a line, so a thread's elements always belong to the same results. */
#ifndef TARTAN_CUDA_POINTS_SUM_SHORT_CUH
#define TARTAN_CUDA_POINTS_SUM_SHORT_CUH

#include "kernels/points_sum_cut.cuh"

namespace tartan_cuda {
namespace {

struct ShortSum {
    int32_t length, active; /* of a line; threads that sum, a multiple of it */
    int64_t units;
};

/* The results of the elements of a unit that b is for. */
template <typename T>
__device__ __forceinline__ tartan_cuda_sum<T> short_fixed(const tartan_cuda_swept &b, int32_t dtype,
                                                          int64_t result) {
    using S = tartan_cuda_sum<T>;
    if (b.data == nullptr) return 0;
    const int64_t at = result * b.step[TARTAN_CUDA_KEPT][0];
    return b.dtype == dtype ? tartan_cuda_to<S>(((const T *)b.data)[at]) : ((const S *)b.data)[at];
}

template <class F, typename T, int FULL>
__global__ void __launch_bounds__(THREADS, 2)
    points_sum_short(const __grid_constant__ tartan_cuda_sweep s, const int32_t row, const Cut c,
                     const ShortSum of) {
    using S = tartan_cuda_sum<T>;
    constexpr int N = PER<T>, BATCH = F::ALONE ? 4 : 2;
    __shared__ double room[THREADS * N];
    const int32_t thread = threadIdx.x, dtype = s.array[OF_Y_GRAD].dtype;
    const int64_t step = (int64_t)gridDim.x * of.active;
    int64_t unit = (int64_t)blockIdx.x * of.active + thread;
    if (thread >= of.active) unit = of.units;
    S fixed[N];
    EACH_OF(N) fixed[i] = short_fixed<T>(s.array[OF_B], dtype, (thread * N + i) % of.length);
    double sum[N] = {};
    for (; unit < of.units; unit += BATCH * step) {
        Unit<T> in[FULL][BATCH];
#pragma unroll
        for (int k = 0; k < FULL; k++)
#pragma unroll
            for (int u = 0; u < BATCH; u++) {
                in[k][u] = {};
                if (unit + u * step < of.units)
                    in[k][u] = ((const Unit<T> *)s.array[k].data)[unit + u * step];
            }
        S x[F::IN][BATCH * N], terms[BATCH * N];
#pragma unroll
        for (int k = 0; k < F::IN; k++) EACH_OF(BATCH * N)
        x[k][i] = k < FULL ? in[k < FULL ? k : 0][i / N].get(i % N) : k == OF_B ? fixed[i % N] : (S)0;
        F::terms(row, x, terms);
        EACH_OF(BATCH * N) {
            if (unit + i / N * step < of.units) sum[i % N] += (double)terms[i];
        }
    }
    EACH_OF(N) if (thread < of.active) room[thread * N + i] = sum[i];
    __syncthreads();
    double mine = 0;
    if (thread < of.active) EACH_OF(N) mine += room[thread + i * of.active];
    __syncthreads();
    room[thread] = mine;
    __syncthreads();
    if (thread >= of.length) return;
    mine = 0;
    for (int32_t n = thread; n < of.active; n += of.length) mine += room[n];
    /* The elements after the last unit. */
    const int64_t all = s.axes[TARTAN_CUDA_SUMMED].elements * of.length;
    for (int64_t n = of.units * N; n < all && blockIdx.x == 0; n++) {
        if (n % of.length != thread) continue;
        S x[F::IN][1], term[1];
#pragma unroll
        for (int k = 0; k < F::IN; k++)
            x[k][0] = k < FULL    ? tartan_cuda_to<S>(((const T *)s.array[k].data)[n])
                      : k == OF_B ? short_fixed<T>(s.array[OF_B], dtype, thread)
                                  : (S)0;
        F::terms(row, x, term);
        mine += (double)term[0];
    }
    if (c.slices == 1)
        store_result(s, c, thread, mine);
    else
        c.partial[(int64_t)blockIdx.x * of.length + thread] = mine;
}

/* How many arrays of units it reads; 0: it can't. */
inline int32_t short_sum_reads(const tartan_cuda_sweep &s) {
    const int32_t dtype = s.array[OF_Y_GRAD].dtype, full = s.array[OF_A].data != nullptr ? 2 : 1;
    const int64_t length = s.axes[TARTAN_CUDA_KEPT].elements;
    bool can = s.unit == 1 && s.inner == TARTAN_CUDA_KEPT && s.axes[TARTAN_CUDA_KEPT].ndim == 1 &&
               s.axes[TARTAN_CUDA_SUMMED].ndim == 1 && length > 1 && length <= THREADS;
    for (int32_t i = 0; i < RESULT && can; i++) {
        const tartan_cuda_swept &a = s.array[i];
        const int64_t next = a.step[TARTAN_CUDA_KEPT][0], line = a.step[TARTAN_CUDA_SUMMED][0];
        if (i < full)
            can = a.data != nullptr && a.dtype == dtype && next == 1 && line == length &&
                  (uintptr_t)a.data % 16 == 0;
        else
            can = a.data == nullptr ||
                  (i == OF_B && line == 0 && (a.dtype == dtype || a.dtype == tartan_i_sum_dtype(dtype)));
    }
    return can ? full : 0;
}

/* The CTAs of short sums are slices. */
inline ShortSum short_sum_of(const tartan_cuda_sweep &s, Cut *c) {
    ShortSum of = {(int32_t)c->kept, 0, 0};
    of.active = THREADS / of.length * of.length;
    of.units =
        s.axes[TARTAN_CUDA_SUMMED].elements * of.length * tartan_cuda_bytes_of(s.array[OF_Y_GRAD].dtype) / 16;
    const int64_t turns = (of.units + of.active - 1) / of.active;
    c->slices = turns / (2 * TURNS) < MOST_SLICES ? turns / (2 * TURNS) : MOST_SLICES;
    if (c->slices < 1) c->slices = 1;
    c->tiles = 1;
    return of;
}

/* ---- A result for each line ---- */

constexpr int MOST_BYTES = 64, LINES_ENOUGH = 1 << 16; /* of a line; lines */

/* Sums over lines of up to MOST_BYTES that follow each other: a thread has a line, and the threads of a CTA load their lines together. */
template <class F, typename T, int FULL>
__global__ void __launch_bounds__(THREADS, 2)
    points_sum_rows(const __grid_constant__ tartan_cuda_sweep s, const int32_t row, const Cut c) {
    using S = tartan_cuda_sum<T>;
    constexpr int N = PER<T>, SOME = 8;
    __shared__ uint4 room[FULL * THREADS * MOST_BYTES / 16];
    const int32_t thread = threadIdx.x, length = (int32_t)s.axes[TARTAN_CUDA_SUMMED].elements,
                  units = THREADS * length / N;
    const int64_t all = c.kept * length, tiles = (c.kept + THREADS - 1) / THREADS;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
#pragma unroll
        for (int k = 0; k < FULL; k++)
            for (int32_t u = thread; u < units; u += THREADS) {
                const int64_t at = tile * units + u;
                if ((at + 1) * N <= all)
                    room[k * units + u] = ((const uint4 *)s.array[k].data)[at];
                else
                    for (int e = 0; e < N && at * N + e < all; e++)
                        ((T *)room)[(k * units + u) * N + e] = ((const T *)s.array[k].data)[at * N + e];
            }
        __syncthreads();
        const int64_t line = tile * THREADS + thread;
        if (line < c.kept) {
            const S fixed = short_fixed<T>(s.array[OF_B], s.array[OF_Y_GRAD].dtype, line);
            double sum = 0;
#pragma unroll 1
            for (int32_t first = 0; first < length; first += SOME) {
                S x[F::IN][SOME], terms[SOME];
#pragma unroll
                for (int k = 0; k < F::IN; k++) EACH_OF(SOME) {
                        x[k][i] = k == OF_B ? fixed : (S)0;
                        if (k < FULL && first + i < length)
                            x[k][i] = tartan_cuda_to<S>(
                                ((const T *)room)[k * units * N + thread * length + first + i]);
                    }
                F::terms(row, x, terms);
                EACH_OF(SOME) {
                    if (first + i < length) sum += (double)terms[i];
                }
            }
            store_result(s, c, line, sum);
        }
        __syncthreads(); /* the room was read */
    }
}

/* How many arrays of units it reads; 0: it can't. */
inline int32_t row_sum_reads(const tartan_cuda_sweep &s) {
    const int32_t dtype = s.array[OF_Y_GRAD].dtype, full = s.array[OF_A].data != nullptr ? 2 : 1;
    const int64_t length = s.axes[TARTAN_CUDA_SUMMED].elements;
    bool can = s.unit == 1 && s.inner == TARTAN_CUDA_SUMMED && s.axes[TARTAN_CUDA_KEPT].ndim == 1 &&
               s.axes[TARTAN_CUDA_SUMMED].ndim == 1 && length * tartan_cuda_bytes_of(dtype) <= MOST_BYTES &&
               s.axes[TARTAN_CUDA_KEPT].elements >= LINES_ENOUGH;
    for (int32_t i = 0; i < RESULT && can; i++) {
        const tartan_cuda_swept &a = s.array[i];
        const int64_t next = a.step[TARTAN_CUDA_SUMMED][0], line = a.step[TARTAN_CUDA_KEPT][0];
        if (i < full)
            can = a.data != nullptr && a.dtype == dtype && next == 1 && line == length &&
                  (uintptr_t)a.data % 16 == 0;
        else
            can = a.data == nullptr ||
                  (i == OF_B && next == 0 && (a.dtype == dtype || a.dtype == tartan_i_sum_dtype(dtype)));
    }
    return can ? full : 0;
}

} // namespace
} // namespace tartan_cuda

#endif
