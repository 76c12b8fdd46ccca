/* SPDX-License-Identifier: Apache-2.0
 * Lines along the last axis of arrays of any strides. A line belongs to the threads of a warp or of a CTA. */
#ifndef TARTAN_CUDA_LINES_CUH
#define TARTAN_CUDA_LINES_CUH

#include <initializer_list>

#include "device/launch.cuh"
#include "kernels/bits.cuh"
#include "kernels/swept.cuh"

namespace tartan_cuda {
namespace {

constexpr int LINE_ARRAYS = 4, LONG = 1024, LONGER = 16384; /* elements of lines */

/* The sweep goes over lines; arrays are placed at their first elements. */
struct Lines {
    int64_t count, n;
    int64_t step[LINE_ARRAYS]; /* along a line */
    tartan_cuda_sweep sweep;
};

/* An array that may be NULL, and what it has: a number for each place of a line, or one for each line; or it is one line for all. */
enum Extent { ALONG, PER_LINE, ONE_LINE };
struct LineArray {
    const tartan_array *array;
    Extent extent;
};

/* Lines of x. The first array says in which order they are gone through. */
inline Lines lines_of(const tartan_array *x, std::initializer_list<LineArray> arrays) {
    Lines p = {1, x->shape[x->ndim - 1], {}, {}};
    tartan_array views[LINE_ARRAYS];
    tartan_cuda_sweeping of = {};
    of.ndim = x->ndim - 1, of.count = LINE_ARRAYS, of.keep_direction = true;
    for (int32_t d = 0; d < of.ndim; d++) of.shape[d] = x->shape[d], p.count *= x->shape[d];
    int i = 0;
    for (const LineArray &a : arrays) {
        if (a.array != nullptr) {
            views[i] = *a.array;
            if (a.extent != PER_LINE) p.step[i] = a.array->strides[--views[i].ndim];
            if (a.extent == ONE_LINE) views[i].ndim = 0;
            of.array[i] = &views[i];
        }
        i++;
    }
    p.sweep = tartan_cuda_sweep_of(&of);
    return p;
}

/* Whether the lines of the first array lie side by side, so that threads with a line each read neighbours in memory. */
inline bool lie_across(const Lines &p) {
    return p.n > 1 && p.count > 1 && p.step[0] != 1 && p.sweep.axes[TARTAN_CUDA_KEPT].ndim > 0 &&
           p.sweep.array[0].step[TARTAN_CUDA_KEPT][0] == 1;
}

/* Whether line_parts.cuh computes the lines: if their elements do not lie one after the other, if they are short, or if they are few and
 * long. */
inline bool go_by_parts(const Lines &p) {
    enum { SHORT = 256, FEW = 256 };
    return p.step[0] != 1 || p.n < SHORT || (p.count < FEW && p.n > 2 * LONGER);
}

/* Where a line begins in each array. */
__device__ __forceinline__ void find_line(const Lines &p, int64_t line, int64_t (&at)[LINE_ARRAYS]) {
#pragma unroll
    for (int k = 0; k < LINE_ARRAYS; k++) at[k] = 0;
    add_offsets(p.sweep, TARTAN_CUDA_KEPT, line, at);
}

/* ---- All elements of a line ---- */

/* Elements before the first address that is a multiple of 16 bytes. */
template <typename T> __device__ __forceinline__ int64_t before_units(const T *x, int64_t n) {
    const int64_t before = (16 - (int64_t)((uintptr_t)x % 16)) % 16 / (int64_t)sizeof(T);
    return before < n ? before : n;
}

/* f(i, x[i]) for a thread's elements of a line: where elements lie side by side, they come in 16-byte accesses. */
template <int THREADS_OF_LINE, typename T, typename F>
__device__ __forceinline__ void each_element(const T *__restrict__ x, int64_t n, int64_t step, int thread,
                                             F f) {
    constexpr int AT_ONCE = 4;
    if (step == 1) {
        const int64_t first = before_units(x, n), units = (n - first) / PER<T>;
        if (thread < first) f((int64_t)thread, x[thread]);
        const auto *const from = (const uint4 *)(x + first);
        for (int64_t u = thread; u < units; u += AT_ONCE * THREADS_OF_LINE) {
            uint4 in[AT_ONCE];
            EACH_OF(AT_ONCE) {
                const int64_t at = u + i * THREADS_OF_LINE;
                if (at < units) in[i] = from[at];
            }
            EACH_OF(AT_ONCE) {
                const int64_t at = u + i * THREADS_OF_LINE;
                if (at < units)
#pragma unroll
                    for (int e = 0; e < PER<T>; e++) f(first + at * PER<T> + e, ((const T *)&in[i])[e]);
            }
        }
        const int64_t last = first + units * PER<T> + thread;
        if (last < n) f(last, x[last]);
    } else {
#pragma unroll 4
        for (int64_t i = thread; i < n; i += THREADS_OF_LINE) f(i, x[i * step]);
    }
}

/* y[i] = f(i, x[i]) */
template <int THREADS_OF_LINE, typename T, typename F>
__device__ __forceinline__ void transform(const T *__restrict__ x, int64_t n, int64_t step,
                                          const tartan_cuda_swept &out, int64_t at, int64_t out_step,
                                          int thread, bool same_dtype, F f) {
    T *const __restrict__ y = (T *)out.data + at;
    if (step == 1 && out_step == 1 && same_dtype && (uintptr_t)x % 16 == (uintptr_t)y % 16) {
        const int64_t first = before_units(x, n), units = (n - first) / PER<T>;
        const auto *const from = (const uint4 *)(x + first);
        auto *const to = (uint4 *)(y + first);
        if (thread < first) y[thread] = tartan_cuda_to<T>(f((int64_t)thread, x[thread]));
#pragma unroll 2
        for (int64_t u = thread; u < units; u += THREADS_OF_LINE) {
            const uint4 in = from[u];
            uint4 result;
#pragma unroll
            for (int e = 0; e < PER<T>; e++)
                ((T *)&result)[e] = tartan_cuda_to<T>(f(first + u * PER<T> + e, ((const T *)&in)[e]));
            to[u] = result;
        }
        const int64_t last = first + units * PER<T> + thread;
        if (last < n) y[last] = tartan_cuda_to<T>(f(last, x[last]));
    } else {
        for (int64_t i = thread; i < n; i += THREADS_OF_LINE)
            set_number(out, at + i * out_step, f(i, x[i * step]));
    }
}

/* Zeros at all places of a line of any dtype. */
template <int THREADS_OF_LINE>
__device__ __forceinline__ void clear_line(const tartan_cuda_swept &out, int64_t at, int64_t n, int64_t step,
                                           int thread) {
    const int bytes = out.dtype == TARTAN_F64 ? 8 : out.dtype == TARTAN_F32 ? 4 : 2;
    if (step == 1) {
        uint16_t *const y =
            (uint16_t *)((char *)out.data + at * bytes); /* zeros are the same in every dtype */
        const int64_t parts = n * (bytes / 2), first = before_units(y, parts), units = (parts - first) / 8;
        if (thread < first) y[thread] = 0;
        auto *const to = (uint4 *)(y + first);
        for (int64_t u = thread; u < units; u += THREADS_OF_LINE) to[u] = make_uint4(0, 0, 0, 0);
        const int64_t last = first + units * 8 + thread;
        if (last < parts) y[last] = 0;
    } else {
        for (int64_t i = thread; i < n; i += THREADS_OF_LINE) set_number(out, at + i * step, 0.0);
    }
}

/* ---- What the threads of a line know together ---- */

template <int THREADS_OF_LINE> __device__ __forceinline__ void line_sync() {
    if constexpr (THREADS_OF_LINE == 32)
        __syncwarp();
    else
        __syncthreads();
}

/* The sum of a number of each thread, in one order; `room` has a number for each warp, and is free afterwards. */
template <int THREADS_OF_LINE> __device__ __forceinline__ double line_sum(double x, double *room) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    if constexpr (THREADS_OF_LINE > 32) {
        if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
        __syncthreads();
        x = 0;
        for (int w = 0; w < THREADS_OF_LINE / 32; w++) x += room[w];
        __syncthreads();
    }
    return x;
}

/* f(number of threads of a line, CTAs): a warp each for short lines, else a CTA. A CTA has THREADS threads at least. */
template <typename F> tartan_status by_length(const Lines &p, F f) {
    const auto with = [&](auto threads) {
        constexpr int OF_LINE = decltype(threads)::value, AT_ONCE = OF_LINE < THREADS ? THREADS / OF_LINE : 1;
        return f(threads, tartan_cuda_grid((p.count + AT_ONCE - 1) / AT_ONCE), dim3(OF_LINE * AT_ONCE));
    };
    if (p.n <= LONG) return with(std::integral_constant<int, 32>());
    if (p.n <= LONGER) return with(std::integral_constant<int, THREADS>());
    return with(std::integral_constant<int, 1024>());
}

/* f(line, thread of it) for the lines of a CTA, one after the other. */
template <int OF_LINE, typename F> __device__ __forceinline__ void each_line(const Lines &p, F f) {
    constexpr int AT_ONCE = OF_LINE < THREADS ? THREADS / OF_LINE : 1;
    for (int64_t line = (int64_t)blockIdx.x * AT_ONCE + threadIdx.x / OF_LINE; line < p.count;
         line += (int64_t)gridDim.x * AT_ONCE)
        f(line, (int)(threadIdx.x % OF_LINE));
}

} // namespace
} // namespace tartan_cuda

#endif
