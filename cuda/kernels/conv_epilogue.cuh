/* SPDX-License-Identifier: Apache-2.0
 * The last step of a convolution: gain, bias, edge classes, ReLU, and the old value. */
#ifndef TARTAN_CUDA_CONV_EPILOGUE_CUH
#define TARTAN_CUDA_CONV_EPILOGUE_CUH

#include "device/element.cuh"
#include "kernels/conv_positions.cuh"

namespace tartan_cuda {

struct ConvEpilogue {
    tartan_cuda_channel_scalars gain, bias;
    tartan_cuda_edge_lists edges;
    bool relu, bias_first, add;
};

inline ConvEpilogue epilogue_of(const tartan_cuda_conv *p, const tartan_cuda_edge_lists &edges) {
    return {p->gain, p->bias, edges, p->relu, p->bias_first, p->add};
}

__device__ __forceinline__ int32_t edge_class_of(const tartan_cuda_edge_lists &e, const Position &x) {
    if (e.class_of == nullptr) return 0;
    return e
        .class_of[(e.line[0][x.at[0]] * e.lines[1] + e.line[1][x.at[1]]) * e.lines[2] + e.line[2][x.at[2]]];
}

/* y of the sum at a position; without the old value. */
template <typename S>
__device__ __forceinline__ S conv_finish(const ConvEpilogue &e, int32_t edge_class, int64_t channel, S sum) {
    const S gain = e.gain.data == nullptr
                       ? (S)1
                       : ((const S *)e.gain.data)[edge_class * e.gain.edge_class + channel * e.gain.channel];
    if (e.bias.data != nullptr) {
        const S bias = ((const S *)e.bias.data)[edge_class * e.bias.edge_class + channel * e.bias.channel];
        sum = e.bias_first ? gain * (sum + bias) : gain * sum + bias;
    } else {
        sum *= gain;
    }
    return e.relu && sum < 0 ? (S)0 : sum;
}

/* Writes y to element `at` of `data`, whose dtype is T's or f32. */
template <typename T, typename S>
__device__ __forceinline__ void conv_put(const ConvEpilogue &e, void *data, int32_t dtype, int64_t at, S y) {
    tartan_cuda_combine_at<T>(data, dtype, at, (S)1, y, e.add ? (S)1 : (S)0);
}

} // namespace tartan_cuda

#endif
