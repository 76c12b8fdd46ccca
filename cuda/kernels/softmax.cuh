/* SPDX-License-Identifier: Apache-2.0
 * What the threads of a line compute together, and how results follow from it, for softmax, cross entropy and their gradients. */
#ifndef TARTAN_CUDA_SOFTMAX_CUH
#define TARTAN_CUDA_SOFTMAX_CUH

#include <cooperative_groups.h>

#include "kernels.h"
#include "kernels/bits.cuh"
#include "kernels/exponent.cuh"
#include "kernels/swept.cuh"

namespace tartan_cuda {
namespace {

namespace cg = cooperative_groups;

enum { X = TARTAN_CUDA_CLASSES_X, OTHER, OUT, LABELS, FACTOR, LSE, ARRAYS };
constexpr int MOST_THREADS = 512, MOST_WARPS = MOST_THREADS / 32, MOST_CTAS = 8;

/* Which threads share a line: `threads` in each of `ctas` CTAs. A CTA has `at_once` lines, or a part of one. */
struct Team {
    int32_t threads, at_once, ctas;
    int64_t rounds;
};

template <typename S> constexpr S NONE = -(S)INFINITY;

/* ---- What the threads of a line know together ---- */

template <typename S> struct Room { S of_warp[2][3][MOST_WARPS], of_cta[2][3][MOST_CTAS]; };

/* COUNT numbers of each thread become COUNT numbers of the line: the first is a maximum if `first_is_max`, the others are sums. */
template <typename S> struct Meeting {
    const Team &team;
    Room<S> &room;
    int turn = 0;
    bool begun = false;

    /* To be called before the numbers of a line are loaded: no CTA may write to another that has not begun. */
    __device__ __forceinline__ void begin() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (team.ctas > 1) cg::this_cluster().barrier_arrive();
#endif
    }

    /* Each warp by itself; `parts` is a power of 2. */
    template <int COUNT, typename J, typename G>
    static __device__ __forceinline__ void put_together(S (&x)[COUNT], int32_t parts, J join, G of) {
        const int32_t mine = (int32_t)threadIdx.x & (parts - 1);
#pragma unroll
        for (int k = 0; k < COUNT; k++) x[k] = of(k, mine);
        for (int32_t step = 1; step < parts; step *= 2)
#pragma unroll
            for (int k = 0; k < COUNT; k++) x[k] = join(k, x[k], __shfl_xor_sync(~0u, x[k], step));
    }

    template <int COUNT, bool FIRST_IS_MAX> __device__ __forceinline__ void operator()(S (&x)[COUNT]) {
        const auto join = [](int k, S a, S b) { return FIRST_IS_MAX && k == 0 ? (a > b ? a : b) : a + b; };
        for (int32_t step = 1; step < 32 && step < team.threads; step *= 2)
#pragma unroll
            for (int k = 0; k < COUNT; k++) x[k] = join(k, x[k], __shfl_xor_sync(~0u, x[k], step));
        if (team.threads <= 32 && team.ctas == 1) return;
        const int32_t warp = threadIdx.x / 32, warps = team.threads > 32 ? team.threads / 32 : 1,
                      first = warp / warps * warps;
        if (team.threads > 32) {
            if (threadIdx.x % 32 == 0)
#pragma unroll
                for (int k = 0; k < COUNT; k++) room.of_warp[turn][k][warp] = x[k];
            __syncthreads();
            put_together<COUNT>(x, warps, join,
                                [&](int k, int32_t i) { return room.of_warp[turn][k][first + i]; });
        }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 /* others have no clusters, and lines a CTA each */
        if (team.ctas > 1) {
            cg::cluster_group cluster = cg::this_cluster();
            if (!begun) cluster.barrier_wait();
            begun = true;
            if ((int32_t)threadIdx.x < team.ctas) {
                Room<S> *const there = cluster.map_shared_rank(&room, (int)threadIdx.x);
#pragma unroll
                for (int k = 0; k < COUNT; k++) there->of_cta[turn][k][cluster.block_rank()] = x[k];
            }
            cluster.sync();
            put_together<COUNT>(x, team.ctas, join,
                                [&](int k, int32_t i) { return room.of_cta[turn][k][i]; });
        }
#endif
        turn ^= 1;
    }
};

/* ---- What a line needs ---- */

template <int KIND>
constexpr bool HAS_OTHER = KIND == TARTAN_CUDA_SOFTMAX_GRADIENT || KIND == TARTAN_CUDA_LOG_SOFTMAX_GRADIENT;
template <int KIND>
constexpr bool HAS_LABEL = KIND == TARTAN_CUDA_CROSS_ENTROPY || KIND == TARTAN_CUDA_CROSS_ENTROPY_GRADIENT;

template <int KIND>
constexpr bool HAS_EXPONENTIALS = KIND == TARTAN_CUDA_SOFTMAX || KIND == TARTAN_CUDA_LOG_SOFTMAX ||
                                  KIND == TARTAN_CUDA_CROSS_ENTROPY; /* sums of them */

/* Numbers of a line, from which `value` computes results. */
template <typename S> struct Line {
    S scale; /* of x in exponents */
    S shift; /* what is subtracted from exponents */
    S first; /* the factor of exponentials or of what takes their place */
    S rest;  /* what is subtracted */
    S own;   /* what is subtracted at the label in addition */
    int64_t label;
    bool is_constant; /* results are `rest` */
};

/* The result for a number; for a cross entropy whose line is not constant, except at the label. `other`: y_grad. */
template <int KIND, bool SHORT, typename S>
__device__ __forceinline__ S value(const Line<S> &l, S x, S other, bool counts) {
    if constexpr (KIND == TARTAN_CUDA_SOFTMAX) {
        return counts ? exponential<SHORT>(exponent(x, l.scale, l.shift)) * l.first : 0;
    } else if constexpr (KIND == TARTAN_CUDA_LOG_SOFTMAX) {
        return exponent(x, l.scale, l.shift) - l.rest;
    } else if constexpr (KIND == TARTAN_CUDA_SOFTMAX_GRADIENT) {
        return l.first * x * (other - l.rest);
    } else if constexpr (KIND == TARTAN_CUDA_LOG_SOFTMAX_GRADIENT) {
        return l.first * fma(-exponential<SHORT>(x), l.rest, other);
    } else {
        return fma(exponential<SHORT>(exponent(x, l.scale, l.shift)), l.first, -l.rest);
    }
}

/* The label of a line; -1: the line is left out, -2: there is no such class. */
__device__ __forceinline__ int64_t label_from(const tartan_cuda_classes &p, int64_t given) {
    const int64_t label = given - p.base;
    return given == p.ignored ? -1 : label >= 0 && label < p.length ? label : -2;
}
__device__ __forceinline__ int64_t label_of(const tartan_cuda_classes &p, int64_t at) {
    return label_from(p, index_at(p.sweep.array[LABELS], at));
}

/* What follows from the label of a cross entropy. `inverse`: the factor that turns exponentials into weights. */
template <typename S>
__device__ __forceinline__ void set_target(const tartan_cuda_classes &p, S factor, S inverse, Line<S> &l) {
    l.is_constant = l.label < 0;
    l.first = inverse * factor;
    l.own = factor * (S)(1 - p.smoothing);
    l.rest = l.label == -1 ? 0 : l.label == -2 ? (S)NAN : factor * (S)(p.smoothing / (double)p.length);
}

/* The loss and the log-sum-exp of a line with these sums, as line_of has them; `own`: the logit of the label. */
template <typename S>
__device__ __forceinline__ void write_loss(const tartan_cuda_classes &p, int64_t loss_at, int64_t lse_at,
                                           const S (&s)[3], int64_t label, S own) {
    const tartan_cuda_sweep &w = p.sweep;
    const S most = s[1] == 0 ? NONE<S> : s[0], rest = log(s[1]);
    S loss = label == -1 ? 0 : (S)NAN;
    if (label >= 0) {
        loss = rest + (S)(1 - p.smoothing) * (most - own);
        if (p.smoothing != 0) loss += (S)p.smoothing * (most - s[2] / (S)p.length);
    }
    ((S *)w.array[OTHER].data)[loss_at] = loss;
    if (w.array[LSE].data != nullptr) ((S *)w.array[LSE].data)[lse_at] = most + rest;
}

/* The factor of a line's slope. */
template <typename S> __device__ __forceinline__ S factor_of(const tartan_cuda_classes &p, int64_t at) {
    const tartan_cuda_swept &weights = p.sweep.array[FACTOR];
    return weights.data == nullptr ? (S)p.scale : (S)p.scale * ((const S *)weights.data)[at];
}

/* After the sums of a line: s[0] is the maximum of exponents, s[1] the sum of exponentials relative to it, s[2] the
 * sum of x; or s[0] is the sum that gradients need. Writes the numbers of the line if `writes`. */
template <int KIND, typename S>
__device__ __forceinline__ Line<S> line_of(const tartan_cuda_classes &p, const int64_t (&at)[ARRAYS],
                                           const S (&s)[3], S own, bool writes) {
    const tartan_cuda_sweep &w = p.sweep;
    Line<S> l = {};
    l.scale = (S)p.scale;
    if constexpr (KIND == TARTAN_CUDA_SOFTMAX) {
        l.shift = s[1] == 0 ? 0 : s[0];
        l.first = s[1] == 0 ? 0 : 1 / s[1];
    } else if constexpr (KIND == TARTAN_CUDA_LOG_SOFTMAX) {
        l.shift = s[0];
        l.rest = log(s[1]);
    } else if constexpr (KIND == TARTAN_CUDA_SOFTMAX_GRADIENT || KIND == TARTAN_CUDA_LOG_SOFTMAX_GRADIENT) {
        l.first = (S)p.scale;
        l.rest = s[0];
    } else if constexpr (KIND == TARTAN_CUDA_CROSS_ENTROPY) {
        l.scale = 1;
        l.shift = s[1] == 0 ? 0 : s[0];
        l.label = label_of(p, at[LABELS]);
        if (writes) write_loss(p, at[OTHER], at[LSE], s, l.label, own);
        set_target(p, factor_of<S>(p, at[FACTOR]), 1 / s[1], l);
    } else {
        l.scale = 1;
        l.shift = ((const S *)w.array[LSE].data)[at[LSE]];
        l.label = label_of(p, at[LABELS]);
        set_target(p, ((const S *)w.array[FACTOR].data)[at[FACTOR]], (S)1, l);
    }
    return l;
}

/* The logit of the label, which the slope may overwrite later. */
template <int KIND, typename S>
__device__ __forceinline__ S own_of(const tartan_cuda_classes &p, const int64_t (&at)[ARRAYS]) {
    if constexpr (KIND != TARTAN_CUDA_CROSS_ENTROPY) return 0;
    const int64_t label = label_of(p, at[LABELS]);
    if (label < 0) return 0;
    return number_at<S>(p.sweep.array[X], at[X] + label * p.sweep.array[X].step[TARTAN_CUDA_SUMMED][0]);
}

/* Combines what the threads have of a line: running sums are rescaled to the common maximum. */
template <typename S> __device__ __forceinline__ void meet_running(Meeting<S> &meet, S (&s)[3]) {
    S most[1] = {s[0]};
    meet.template operator()<1, true>(most);
    S sums[2] = {s[0] == NONE<S> ? s[1] : s[1] * exponential(s[0] - most[0]), s[2]};
    meet.template operator()<2, false>(sums);
    s[0] = most[0], s[1] = sums[0], s[2] = sums[1];
}

__device__ __forceinline__ void find_line(const tartan_cuda_sweep &s, int64_t line, int64_t (&at)[ARRAYS]) {
#pragma unroll
    for (int k = 0; k < ARRAYS; k++) at[k] = 0;
    add_offsets(s, TARTAN_CUDA_KEPT, line, at);
}

} // namespace
} // namespace tartan_cuda

#endif
