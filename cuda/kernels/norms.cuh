/* SPDX-License-Identifier: Apache-2.0
 * What normalisation along lines and its gradient share. A line belongs to some threads, which keep it in registers. Longer lines take
 * several rounds of loads, and are then read once for each pass over them. */
#ifndef TARTAN_CUDA_NORMS_CUH
#define TARTAN_CUDA_NORMS_CUH

#include "device/ptx_base.cuh"
#include "device/ptx_mma.cuh"
#include "kernels.h"
#include "kernels/bits.cuh"
#include "kernels/words.cuh"

#include <initializer_list>

namespace tartan_cuda {
namespace {

/* Threads of a CTA, at most: where they keep lines, and where these are too long to keep. */
constexpr int MOST_OF_KEPT = 512, MOST_OF_LONG = 1024;
constexpr int WARPS = MOST_OF_LONG / 32;

struct Lines {
    int32_t threads; /* of a line: a power of two */
    int32_t at_once; /* lines of a CTA */
    int32_t rounds;
    int64_t groups;     /* of at_once lines */
    double per_element; /* 1 / length */
};

/* For threads that have `slots` elements of a line in a round. */
inline Lines lines_of(const tartan_cuda_norm &p, int32_t slots, int32_t most_threads) {
    Lines c = {};
    c.threads = 1;
    while (c.threads < most_threads && (int64_t)c.threads * slots < p.length) c.threads *= 2;
    c.at_once = c.threads < THREADS ? THREADS / c.threads : 1;
    c.rounds = (int32_t)((p.length - 1) / ((int64_t)c.threads * slots) + 1);
    c.groups = (p.lines + c.at_once - 1) / c.at_once;
    c.per_element = 1.0 / (double)p.length;
    return c;
}

inline int32_t threads_of(const Lines &c) {
    return c.threads * c.at_once;
}

/* ---- A thread's share of a line ---- */

struct Share {
    int32_t part, line; /* which of the line's threads it is; which of the CTA's lines */
    int32_t first_warp, warps;
};

__device__ __forceinline__ Share share_of(const Lines &c) {
    const int32_t thread = threadIdx.x;
    const int32_t line = thread / c.threads;
    return {thread % c.threads, line, line * c.threads / 32, c.threads / 32};
}

/* Offsets of a line in all arrays. MANY: the kernel looks up many lines. */
template <bool MANY = false, int COUNT>
__device__ __forceinline__ void find_line(const tartan_cuda_sweep &s, int64_t line, int64_t (&at)[COUNT]) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) at[k] = 0;
    add_offsets<MANY>(s, TARTAN_CUDA_KEPT, line, at);
}

/* ---- Sums over a line ---- */

/* Waits for the threads of a line, whose warps are its own, or of a CTA. */
__device__ __forceinline__ void wait_for_line(const Lines &c, const Share &me) {
    if (c.at_once == 1)
        __syncthreads();
    else
        wait_at_barrier((uint32_t)me.line + 1, (uint32_t)c.threads);
}

/* Bytes of shared memory for `count` sums at a time. */
constexpr size_t room_of(int count) {
    return (size_t)count * 2 * WARPS * sizeof(double);
}

/* All threads of the line get the same sums, V or, where several warps have a line, f64. `turn` says which half of the room is used:
 * a line that is done with a sum may begin the next one while some of its threads still read. */
template <typename V, int COUNT>
__device__ __forceinline__ void add_up(const V (&mine)[COUNT], double (&sum)[COUNT], const Lines &c,
                                       const Share &me, double *room, int &turn) {
    V x[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; k++) x[k] = mine[k];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        if (step >= c.threads) break;
#pragma unroll
        for (int k = 0; k < COUNT; k++) x[k] += __shfl_xor_sync(~0u, x[k], step);
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++) sum[k] = (double)x[k];
    if (c.threads <= 32) return;
    const int32_t lane = threadIdx.x % 32;
    double *const half = room + turn * COUNT * WARPS;
    if (lane == 0)
#pragma unroll
        for (int k = 0; k < COUNT; k++) half[k * WARPS + threadIdx.x / 32] = sum[k];
    wait_for_line(c, me);
    /* A lane for each warp of the line, whose number is a power of two. */
#pragma unroll
    for (int k = 0; k < COUNT; k++) sum[k] = half[k * WARPS + me.first_warp + (lane & (me.warps - 1))];
    for (int32_t step = 1; step < me.warps; step *= 2)
#pragma unroll
        for (int k = 0; k < COUNT; k++) sum[k] += __shfl_xor_sync(~0u, sum[k], step);
    turn ^= 1;
}

/* ---- Lines whose elements lie one after the other ---- */

/* Lines below SHORT elements have a thread each. Fewer than FEW lines of LONG elements or more are so few and long that CTAs share
 * each. */
constexpr int64_t SHORT = 32, FEW = 512, LONG = 32768;
inline bool are_few(const tartan_cuda_norm &p) {
    return p.lines < FEW && p.length >= LONG;
}

/* How many elements an access can move in arrays that step along a line together: as many as 16 bytes hold, or one; 0 if some
 * array's elements do not lie side by side, or dtypes differ. */
inline int32_t each_of(const tartan_cuda_sweep &s, std::initializer_list<int> arrays) {
    const int32_t dtype = s.array[*arrays.begin()].dtype;
    if (s.axes[TARTAN_CUDA_SUMMED].ndim != 1) return 0;
    for (const int i : arrays) {
        const tartan_cuda_swept &a = s.array[i];
        if (a.data == nullptr) continue;
        if (a.dtype != dtype || (s.unit > 1 ? a.next : a.step[TARTAN_CUDA_SUMMED][0]) != 1) return 0;
    }
    return s.unit * tartan_cuda_bytes_of(dtype) == 16 ? s.unit : 1;
}

/* The number of one position; `missing` if there are none. */
template <typename S>
__device__ __forceinline__ S line_number(const tartan_cuda_line_numbers &from, S missing, int64_t i) {
    return from.data == nullptr ? missing : __ldg((const S *)from.data + i * from.stride);
}

/* Numbers of COUNT neighbouring positions. */
template <typename S, int COUNT, typename Number>
__device__ __forceinline__ void load_neighbours(const tartan_cuda_line_numbers &from, S missing, Number first,
                                                S (&x)[COUNT]) {
    const S *const data = (const S *)from.data;
    if (data == nullptr) {
        EACH_OF(COUNT) x[i] = missing;
    } else if (COUNT % PER<S> == 0 && from.stride == 1 && (uintptr_t)data % 16 == 0) {
        EACH_OF(COUNT / PER<S>) {
            const Unit<S> unit = ((const Unit<S> *)(data + first))[i];
#pragma unroll
            for (int k = 0; k < PER<S>; k++) x[i * PER<S> + k] = unit.get(k);
        }
    } else {
        EACH_OF(COUNT) x[i] = __ldg(data + (first + i) * from.stride);
    }
}

/* The units of 16 bytes of ARRAYS arrays, ACCESSES each, that a thread will need for its next STAGES lines are on their way into shared
 * memory while one line is computed. A thread reads what it copied itself, so no thread waits for others. */
template <typename T, int ARRAYS, int ACCESSES, int STAGES> struct Ring {
    Unit<T> *mine;
    int stage;

    __device__ explicit Ring(void *memory) : mine((Unit<T> *)memory + threadIdx.x), stage(0) {}
    static __host__ __device__ size_t bytes(int32_t threads) {
        return (size_t)STAGES * ARRAYS * ACCESSES * threads * sizeof(Unit<T>);
    }

    __device__ __forceinline__ Unit<T> *slot(int of, int array, int u) const {
        return mine + ((of * ARRAYS + array) * ACCESSES + u) * blockDim.x;
    }
    /* Begins to load the units that lie c.threads apart from `from` on, for the line that is `ahead` lines after the present one. */
    __device__ __forceinline__ void load(const Unit<T> *from, int array, int ahead, const Lines &c,
                                         int32_t end) const {
        const int of = (stage + ahead) % STAGES;
#pragma unroll
        for (int u = 0; u < ACCESSES; u++)
            if (u * c.threads < end) copy_async(shared_offset(slot(of, array, u)), from + u * c.threads);
    }
    /* Of the present line, or the one before it if there is a stage more than lines ahead and this. */
    __device__ __forceinline__ void take(Unit<T> (&in)[ACCESSES], int array, int before = 0) const {
        const int of = before == 0 ? stage : (stage + STAGES - before) % STAGES;
#pragma unroll
        for (int u = 0; u < ACCESSES; u++) in[u] = *slot(of, array, u);
    }
    __device__ __forceinline__ void next() {
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
};

/* ---- The rows of norms.def ---- */

enum {
#define NORM(name, ...) ROW_##name,
#include "kernels/norms.def"
#undef NORM
};

/* The factor of a line. */
template <typename S> __device__ __forceinline__ S scale_of(int32_t row, S mean, S n, S p) {
    switch (row) {
#define NORM(name, centered, epsilon, scale, value, gradient)                                                \
    case ROW_##name:                                                                                         \
        return scale;
#include "kernels/norms.def"
#undef NORM
    }
    return 0;
}

/* g, of COUNT elements, becomes the gradient with respect to the numbers. The row is chosen once for all of them. */
template <typename S> struct Gradient {
    int32_t row;
    S mean_g, mean_gz, scale, n, p;

    template <int COUNT> __device__ __forceinline__ void operator()(const S *all_z, S *all_g) const {
        switch (row) {
#define NORM(name, centered, epsilon, factor, value, gradient)                                               \
    case ROW_##name:                                                                                         \
        EACH_OF(COUNT) {                                                                                     \
            const S z = all_z[i], g = all_g[i];                                                              \
            all_g[i] = gradient;                                                                             \
        }                                                                                                    \
        break;
#include "kernels/norms.def"
#undef NORM
        }
    }
};

} // namespace
} // namespace tartan_cuda

#endif
