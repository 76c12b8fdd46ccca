/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of channel_linear and its gradient share. */
#ifndef TARTAN_CUDA_CHANNEL_LINEAR_CUH
#define TARTAN_CUDA_CHANNEL_LINEAR_CUH

#include "conv_tables.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device_memory.h"

namespace tartan_cuda {

struct Walk {
    tartan_cuda_walk w;
    tartan_cuda_edge_lists edges;
    int32_t classes;
    int64_t parts; /* positions are shared by so many threads, or warps, for each channel */
};

namespace {

inline tartan_status walk_start(const char *function, tartan_cuda_queue *queue, const tartan_cuda_walk *w,
                                Walk *out) {
    *out = {};
    out->w = *w;
    out->classes = 1;
    if (w->edges == nullptr) return TARTAN_OK;
    out->classes = (int32_t)w->edges->classes;
    return tartan_cuda_edge_lists_of(function, queue, w->conv->layout, &w->geometry,
                                     w->conv->options.transposed, w->edges, &out->edges);
}

/* Divides *number, which is not negative, and returns the remainder. */
__device__ __forceinline__ int64_t take_remainder(int64_t *number, int64_t length) {
    int64_t whole, rest;
    if (((uint64_t)*number | (uint64_t)length) >> 32 == 0) {
        whole = (uint32_t)*number / (uint32_t)length;
        rest = (uint32_t)*number % (uint32_t)length;
    } else {
        whole = *number / length;
        rest = *number % length;
    }
    *number = whole;
    return rest;
}

/* Where position `number` begins in each array, and its edge class. */
__device__ __forceinline__ int32_t find_position(const Walk &a, int64_t number,
                                                 int64_t (&at)[TARTAN_CUDA_WALKED]) {
    int32_t where[TARTAN_I_DIMS] = {0, 0, 0};
    for (int i = 0; i < TARTAN_CUDA_WALKED; i++) at[i] = 0;
    for (int32_t d = a.w.ndim - 1; d >= 0; d--) {
        const int64_t here = d > 0 ? take_remainder(&number, a.w.length[d]) : number;
#pragma unroll
        for (int i = 0; i < TARTAN_CUDA_WALKED; i++) at[i] += here * a.w.array[i].step[d];
        if (a.edges.class_of != nullptr && d > 0) {
            const int32_t of = d + TARTAN_I_DIMS - a.w.ndim; /* the last dimension is w */
#pragma unroll
            for (int i = 0; i < TARTAN_I_DIMS; i++)
                if (i == of) where[i] = (int32_t)here;
        }
    }
    if (a.edges.class_of == nullptr) return 0;
    const tartan_cuda_edge_lists &e = a.edges;
    return e.class_of[(e.line[0][where[0]] * e.lines[1] + e.line[1][where[1]]) * e.lines[2] +
                      e.line[2][where[2]]];
}

/* V neighbours, or one element, of dtype T or f32. */
template <typename T, int V, typename S>
__device__ __forceinline__ void read_values(const tartan_cuda_walked &a, int64_t at, S (&out)[V]) {
    if (sizeof(T) == 2 && a.dtype == TARTAN_F32) {
        const float *from = (const float *)a.data + at;
        if constexpr (V == 1) {
            out[0] = (S)from[0];
        } else {
#pragma unroll
            for (int i = 0; i < V; i += 4) {
                const auto four = *(const tartan_cuda_pack<float, 4> *)(from + i);
#pragma unroll
                for (int j = 0; j < 4 && i + j < V; j++) out[i + j] = (S)four.at[j];
            }
        }
        return;
    }
    const auto all = *(const tartan_cuda_pack<T, V> *)((const T *)a.data + at);
#pragma unroll
    for (int i = 0; i < V; i++) out[i] = tartan_cuda_to<S>(all.at[i]);
}

template <typename T, int V, typename S>
__device__ __forceinline__ void write_values(const tartan_cuda_walked &a, int64_t at, const S (&values)[V]) {
    if (sizeof(T) == 2 && a.dtype == TARTAN_F32) {
        float *to = (float *)a.data + at;
        if constexpr (V == 1) {
            to[0] = (float)values[0];
        } else {
#pragma unroll
            for (int i = 0; i < V; i += 4) {
                tartan_cuda_pack<float, 4> four;
#pragma unroll
                for (int j = 0; j < 4 && i + j < V; j++) four.at[j] = (float)values[i + j];
                *(tartan_cuda_pack<float, 4> *)(to + i) = four;
            }
        }
        return;
    }
    tartan_cuda_pack<T, V> all;
#pragma unroll
    for (int i = 0; i < V; i++) all.at[i] = tartan_cuda_to<T>(values[i]);
    *(tartan_cuda_pack<T, V> *)((T *)a.data + at) = all;
}

/* Gain and bias of V channels from `channel` on, or with STEP 0 of one channel V times. */
template <int V, int STEP, typename S>
__device__ __forceinline__ void factors_of(const Walk &a, int32_t edge_class, int64_t channel, S (&gain)[V],
                                           S (&bias)[V]) {
    const tartan_cuda_channel_scalars &g = a.w.gain, &b = a.w.bias;
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int64_t c = channel + i * STEP;
        gain[i] = g.data != nullptr ? ((const S *)g.data)[edge_class * g.edge_class + c * g.channel] : (S)1;
        bias[i] = b.data != nullptr ? ((const S *)b.data)[edge_class * b.edge_class + c * b.channel] : (S)0;
    }
}

/* Products and sums, each of them rounded, as on the CPU. */
__device__ __forceinline__ float product_of(float a, float b) {
    return __fmul_rn(a, b);
}
__device__ __forceinline__ double product_of(double a, double b) {
    return __dmul_rn(a, b);
}
__device__ __forceinline__ float sum_of(float a, float b) {
    return __fadd_rn(a, b);
}
__device__ __forceinline__ double sum_of(double a, double b) {
    return __dadd_rn(a, b);
}

/* f(tartan_cuda_type<T>(), V) with V elements at once, as a constant. */
template <typename F> inline tartan_status by_width(const tartan_cuda_walk &w, F f) {
    return tartan_cuda_by_dtype(w.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (w.wide) return f(tag, std::integral_constant<int, 16 / (int)sizeof(T)>());
        return f(tag, std::integral_constant<int, 1>());
    });
}

} // namespace

} // namespace tartan_cuda

#endif
