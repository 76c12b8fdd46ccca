/* SPDX-License-Identifier: Apache-2.0
 * What normalisation along lines and its gradient share. A line belongs to some threads, each of which keeps SLOTS of its elements in
 * registers. Longer lines take several rounds of loads, and are then read once for each pass over them. */
#ifndef TARTAN_CUDA_NORMS_CUH
#define TARTAN_CUDA_NORMS_CUH

#include "kernels.h"
#include "kernels/bits.cuh"
#include "kernels/words.cuh"

namespace tartan_cuda {
namespace {

constexpr int WARPS = 32; /* of a CTA, at most */
constexpr int MOST = 32 * WARPS,
              MOST_OF_ANY = 512; /* threads of a CTA where they keep lines, and elsewhere */

struct Lines {
    int32_t threads; /* of a line: a power of two */
    int32_t at_once; /* lines of a CTA */
    int32_t rounds;
    bool across;    /* the lanes of a warp have 32 lines; else they have one, or a part or several of one */
    int64_t groups; /* of at_once lines */
};

template <typename S> Lines lines_of(const tartan_cuda_norm &p, int32_t most_threads) {
    Lines c = {};
    c.across = p.sweep.inner == TARTAN_CUDA_KEPT && p.lines > 1 && p.length > 1;
    const int32_t most = c.across ? most_threads / 32 : most_threads;
    c.threads = 1;
    while (c.threads < most && (int64_t)c.threads * SLOTS<S> < p.length) c.threads *= 2;
    c.at_once = c.across ? 32 : c.threads < THREADS ? THREADS / c.threads : 1;
    c.rounds = (int32_t)((p.length - 1) / ((int64_t)c.threads * SLOTS<S>)+1);
    c.groups = (p.lines + c.at_once - 1) / c.at_once;
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
    if (c.across) return {thread / 32, thread % 32, 0, c.threads};
    const int32_t line = thread / c.threads;
    return {thread % c.threads, line, line * c.threads / 32, c.threads / 32};
}

/* Units of a line that threads keep are counted in 32 bits. */
template <bool WIDE> using Number = std::conditional_t<WIDE, int32_t, int64_t>;

/* The unit, or element, of group or slot i in a round, of `each` of them. */
template <bool WIDE>
__device__ __forceinline__ Number<WIDE> number_of(const Lines &c, const Share &me, int32_t round, int each,
                                                  int i) {
    return ((Number<WIDE>)round * each + i) * c.threads + me.part;
}

/* f(group or slot, number) for those units, or elements, of a share that exist. */
template <typename S, bool WIDE, typename F>
__device__ __forceinline__ void each_number(const tartan_cuda_sweep &s, const Lines &c, const Share &me,
                                            int32_t round, F f) {
    const bool once = access_of<S, WIDE>(s) == AT_ONCE;
#pragma unroll
    for (int i = 0; i < (WIDE ? GROUPS : SLOTS<S>); i++) {
        const Number<WIDE> number = number_of<WIDE>(c, me, round, WIDE ? (once ? 1 : GROUPS) : SLOTS<S>, i);
        if (number < s.axes[TARTAN_CUDA_SUMMED].elements && !(WIDE && i > 0 && once)) f(i, number);
    }
}

/* The position in the line of slot i. */
template <typename S, bool WIDE>
__device__ __forceinline__ Number<WIDE> position_of(const tartan_cuda_sweep &s, const Lines &c,
                                                    const Share &me, int32_t round, int i) {
    if (!WIDE) return number_of<WIDE>(c, me, round, SLOTS<S>, i);
    if (access_of<S, WIDE>(s) == AT_ONCE) return number_of<WIDE>(c, me, round, 1, 0) * SLOTS<S> + i;
    return number_of<WIDE>(c, me, round, GROUPS, i / HALF<S>) * HALF<S> + i % HALF<S>;
}

/* The bits of array `a`, whose line begins at `base`; 0 for elements that do not exist. */
template <typename S, bool WIDE>
__device__ __forceinline__ void load_share(const tartan_cuda_sweep &s, const tartan_cuda_swept &a,
                                           const Lines &c, const Share &me, int32_t round, int64_t base,
                                           Bits &bits) {
    const int64_t step = a.step[TARTAN_CUDA_SUMMED][0];
    bits = {};
    each_number<S, WIDE>(s, c, me, round, [&](int i, Number<WIDE> number) {
        if constexpr (WIDE)
            load_group(a, bytes_of<S>(a.dtype), access_of<S, WIDE>(s), i, base + number * step, bits);
        else
            load_slot<S>(a, bytes_of<S>(a.dtype), i, base + number * step, bits);
    });
}

template <typename S, bool WIDE>
__device__ __forceinline__ void store_share(const tartan_cuda_sweep &s, const tartan_cuda_swept &a,
                                            const Lines &c, const Share &me, int32_t round, int64_t base,
                                            const S (&x)[SLOTS<S>]) {
    const int64_t step = a.step[TARTAN_CUDA_SUMMED][0];
    Bits bits;
    convert_back<S>(x, a.dtype, access_of<S, WIDE>(s), bits);
    each_number<S, WIDE>(s, c, me, round, [&](int i, Number<WIDE> number) {
        if constexpr (WIDE)
            store_group(a, bytes_of<S>(a.dtype), access_of<S, WIDE>(s), i, base + number * step, bits);
        else
            store_slot<S>(a, bytes_of<S>(a.dtype), i, base + number * step, bits);
    });
}

/* Numbers of the positions of a share; `missing` where there are none. */
template <typename S, bool WIDE>
__device__ __forceinline__ void load_numbers(const tartan_cuda_line_numbers &from, S missing,
                                             const tartan_cuda_norm &p, const Lines &c, const Share &me,
                                             int32_t round, S (&x)[SLOTS<S>]) {
#pragma unroll
    for (int i = 0; i < SLOTS<S>; i++) {
        const int64_t position = position_of<S, WIDE>(p.sweep, c, me, round, i);
        x[i] = from.data != nullptr && position < p.length
                   ? __ldg((const S *)from.data + position * from.stride)
                   : missing;
    }
}

/* Offsets of a line in all arrays. */
template <int COUNT>
__device__ __forceinline__ void find_line(const tartan_cuda_sweep &s, int64_t line, int64_t (&at)[COUNT]) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) at[k] = 0;
    add_offsets(s, TARTAN_CUDA_KEPT, line, at);
}

/* ---- Sums over a line ---- */

/* Bytes of shared memory for `count` sums at a time. */
inline size_t room_of(const Lines &c, int count) {
    return (size_t)count * 2 * WARPS * (c.across ? 32 : 1) * sizeof(double);
}

/* All threads of the line get the sums. `turn` is which half of the room is used: a CTA that is done with a sum may begin the
 * next one while some of its threads still read. */
template <int COUNT>
__device__ __forceinline__ void add_up(double (&x)[COUNT], const Lines &c, const Share &me, double *room,
                                       int &turn) {
    if (!c.across) {
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            if (step >= c.threads) break;
#pragma unroll
            for (int k = 0; k < COUNT; k++) x[k] += __shfl_xor_sync(~0u, x[k], step);
        }
        if (c.threads <= 32) return;
    }
    const int32_t lane = threadIdx.x % 32, columns = c.across ? 32 : 1, column = c.across ? lane : 0;
    double *const half = room + turn * COUNT * WARPS * columns + column;
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        if (c.across || lane == 0) half[(k * WARPS + threadIdx.x / 32) * columns] = x[k];
        x[k] = 0;
    }
    __syncthreads();
    for (int32_t w = me.first_warp; w < me.first_warp + me.warps; w++)
#pragma unroll
        for (int k = 0; k < COUNT; k++) x[k] += half[(k * WARPS + w) * columns];
    turn ^= 1;
}

/* ---- The rows of norms.def ---- */

#define RSQRT(x) rsqrt(x)

enum {
#define NORM(name, ...) ROW_##name,
#include "kernels/norms.def"
#undef NORM
};

/* The factor of a line. */
__device__ __forceinline__ double scale_of(int32_t row, double mean, double n, double p) {
    using S = double;
    switch (row) {
#define NORM(name, centered, epsilon, term, scale, value, gradient)                                          \
    case ROW_##name:                                                                                         \
        return (S)(scale);
#include "kernels/norms.def"
#undef NORM
    }
    return 0;
}

/* g, of the elements of a thread, becomes the gradient with respect to the numbers. Which row it is, is decided once for all of them. */
template <typename S>
__device__ __forceinline__ void gradient_of(int32_t row, const S (&all_z)[SLOTS<S>], S (&all_g)[SLOTS<S>],
                                            S mean_g, S mean_gz, S scale, S n, S p) {
    switch (row) {
#define NORM(name, centered, epsilon, term, factor, value, gradient)                                         \
    case ROW_##name:                                                                                         \
        EACH_SLOT {                                                                                          \
            const S z = all_z[i], g = all_g[i];                                                              \
            all_g[i] = gradient;                                                                             \
        }                                                                                                    \
        break;
#include "kernels/norms.def"
#undef NORM
    }
}

} // namespace
} // namespace tartan_cuda

#endif
