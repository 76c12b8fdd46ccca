/* SPDX-License-Identifier: Apache-2.0
 * Weight normalisation of filters, and its gradients: a warp has an output channel of a set. Sums are kept in f64. */
#ifndef TARTAN_CUDA_CONV_NORMALIZE_CUH
#define TARTAN_CUDA_CONV_NORMALIZE_CUH

#include "conv/conv.h"
#include "conv_tables.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device_memory.h"

namespace tartan_cuda {
namespace {

constexpr int kNormalizeThreads = 256;

struct Normalize {
    tartan_cuda_conv_normalize p;
    tartan_cuda_conv_set_tables sets;
    tartan_cuda_channel_lists channels; /* of outputs */
    bool turned;                        /* outputs are columns */
    int32_t other;                      /* edge of a block on the other side */
    int64_t block;                      /* weights of a block */
    double *gain_sums;                  /* [items][outputs of a block], or NULL */
};

/* Calls f(offset of weight, in each matrix by its strides) for the lane's share of the weights of an output. */
template <typename F>
__device__ __forceinline__ void each_weight(const Normalize &n, const int32_t *item, int32_t output, F f) {
    const int32_t *parts = n.sets.parts + 2 * (int64_t)item[0];
    const int64_t all = (int64_t)item[1] * n.other;
    for (int64_t i = threadIdx.x % 32; i < all; i += 32) {
        const int32_t *part = parts + 2 * (i / n.other);
        const int32_t at = (int32_t)(i % n.other);
        if (at < part[1]) f((int64_t)part[0] * n.block, n.turned ? at : output, n.turned ? output : at);
    }
}

__device__ __forceinline__ int64_t place_of(const tartan_cuda_filter &m, int64_t block, int32_t row,
                                            int32_t col) {
    return block + (int64_t)row * m.row + (int64_t)col * m.col;
}

template <typename T>
__device__ __forceinline__ double weight_of(const tartan_cuda_filter &m, int64_t block, int32_t row,
                                            int32_t col) {
    return tartan_cuda_to<double>(((const T *)m.values)[place_of(m, block, row, col)]);
}

__device__ __forceinline__ double sum_of_lanes(double x) {
    for (int32_t step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

template <typename T, bool GRADIENT>
__global__ void __launch_bounds__(kNormalizeThreads) normalize(const __grid_constant__ Normalize n) {
    using S = tartan_cuda_sum<T>;
    const int64_t all = n.sets.items * n.p.outputs.edge;
    for (int64_t e = ((int64_t)blockIdx.x * kNormalizeThreads + threadIdx.x) / 32; e < all;
         e += (int64_t)gridDim.x * (kNormalizeThreads / 32)) {
        const int32_t *item = n.sets.table + 4 * (e / n.p.outputs.edge);
        const int32_t output = (int32_t)(e % n.p.outputs.edge);
        if (output >= item[3]) continue;
        double square = 0, dot = 0;
        each_weight(n, item, output, [&](int64_t block, int32_t row, int32_t col) {
            const double w = weight_of<T>(n.p.filter, block, row, col);
            square += w * w;
            if constexpr (GRADIENT) dot += w * weight_of<T>(n.p.out_grad, block, row, col);
        });
        square = sum_of_lanes(square);
        if constexpr (GRADIENT) dot = sum_of_lanes(dot);
        const int64_t slot = item[2] + output,
                      channel = n.channels.of != nullptr ? n.channels.of[slot] : slot;
        const double gain =
            n.p.gain != nullptr ? (double)((const S *)n.p.gain)[channel * n.p.gain_stride] : 1;
        const bool above = !(square < n.p.epsilon);
        const double most = above ? square : n.p.epsilon, root = sqrt(most), scale = gain / root,
                     pull = above ? gain * dot / most / root : 0;
        if (GRADIENT && n.gain_sums != nullptr && threadIdx.x % 32 == 0) n.gain_sums[e] = dot / root;
        __syncwarp();
        each_weight(n, item, output, [&](int64_t block, int32_t row, int32_t col) {
            const double w = weight_of<T>(n.p.filter, block, row, col);
            double value = scale * w;
            if constexpr (GRADIENT) value = scale * weight_of<T>(n.p.out_grad, block, row, col) - pull * w;
            const int64_t at = place_of(n.p.to, block, row, col);
            if (sizeof(T) == 2 && n.p.to.dtype == TARTAN_F32)
                ((float *)n.p.to.values)[at] = (float)value;
            else
                ((T *)n.p.to.values)[at] = tartan_cuda_to<T>(value);
        });
    }
}

/* Looks up the tables, and clears the results: weights of slots without channels become 0. */
inline tartan_status normalize_start(const char *function, tartan_cuda_queue *queue,
                                     const tartan_cuda_conv_normalize *p, Normalize *n) {
    const tartan_layout *l = p->layout;
    *n = {};
    n->p = *p;
    n->turned = p->conv->options.transposed;
    n->other = (int32_t)(n->turned ? l->shape.block_rows : l->shape.block_cols);
    n->block = l->shape.block_rows * l->shape.block_cols;
    if (l->blocks == 0) return TARTAN_OK;
    PASS(tartan_cuda_conv_sets_get(function, queue, p, &n->sets));
    PASS(tartan_cuda_channel_lists_get(function, queue, l, !n->turned, &p->outputs, &n->channels));
    if (p->to.values == p->filter.values) return TARTAN_OK;
    const int64_t bytes = l->blocks * n->block *
                          (p->to.dtype == TARTAN_F64   ? 8
                           : p->to.dtype == TARTAN_F32 ? 4
                                                       : 2);
    return tartan_cuda_check(function, cudaMemsetAsync(p->to.values, 0, (size_t)bytes, queue->stream),
                             "clearing weights");
}

template <bool GRADIENT>
tartan_status normalize_all(const char *function, tartan_cuda_queue *queue, const Normalize &n) {
    const int64_t warps = n.sets.items * n.p.outputs.edge, each = kNormalizeThreads / 32;
    if (warps == 0) return TARTAN_OK;
    return tartan_cuda_by_dtype(n.p.filter.dtype, [&](auto tag) {
        return tartan_cuda_launch(function, queue, normalize<typename decltype(tag)::type, GRADIENT>,
                                  tartan_cuda_grid((warps + each - 1) / each), dim3(kNormalizeThreads), n);
    });
}

} // namespace
} // namespace tartan_cuda

#endif
