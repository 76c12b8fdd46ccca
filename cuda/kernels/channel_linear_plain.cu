/* SPDX-License-Identifier: Apache-2.0
 * Gain, bias and ReLU of an array. A thread takes neighbours in memory, 16 bytes of x if they lie together. */
#include "kernels.h"
#include "kernels/channel_linear.cuh"

namespace tartan_cuda {
namespace channel_linear {
namespace {

constexpr int THREADS = 256;

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) linear(const __grid_constant__ Walk a) {
    using S = tartan_cuda_sum<T>;
    const bool along = a.w.by_channel;
    const int64_t channels = along ? a.w.channels / V : a.w.channels,
                  positions = along ? a.w.positions : a.w.positions / V, all = channels * positions;
    const int64_t in_image = along ? 1 : a.w.length[a.w.ndim - 1] / V; /* units of a line */
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * THREADS) {
        /* Channels, or the last dimension, go fastest; then the other of both. */
        int64_t number = e, channel, position;
        if (along) {
            channel = take_remainder(&number, channels) * V;
            position = number;
        } else {
            const int64_t unit = take_remainder(&number, in_image);
            channel = take_remainder(&number, channels);
            position = (number * in_image + unit) * V;
        }
        int64_t at[TARTAN_CUDA_WALKED];
        const int32_t edge_class = find_position(a, position, at);
        S x[V], gain[V], bias[V];
        read_values<T, V>(a.w.array[0], at[0] + channel * a.w.array[0].channel, x);
        if (along)
            factors_of<V, 1>(a, edge_class, channel, gain, bias);
        else
            factors_of<V, 0>(a, edge_class, channel, gain, bias);
#pragma unroll
        for (int i = 0; i < V; i++) {
            const S y = a.w.bias_first ? product_of(gain[i], sum_of(x[i], bias[i]))
                                       : sum_of(product_of(gain[i], x[i]), bias[i]);
            x[i] = a.w.relu && y <= 0 ? (S)0 : y;
        }
        write_values<T, V>(a.w.array[1], at[1] + channel * a.w.array[1].channel, x);
    }
}

} // namespace
} // namespace channel_linear
} // namespace tartan_cuda

tartan_status tartan_cuda_channel_linear_plain(const char *function, tartan_cuda_queue *queue,
                                               const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_channel_linear *)problem;
    Walk a;
    PASS(walk_start(function, queue, &p->walk, &a));
    return by_width(a.w, [&](auto tag, auto width) {
        constexpr int V = decltype(width)::value;
        const int64_t units = a.w.channels * a.w.positions / V;
        return tartan_cuda_launch(
            function, queue, channel_linear::linear<typename decltype(tag)::type, V>,
            tartan_cuda_grid((units + channel_linear::THREADS - 1) / channel_linear::THREADS),
            dim3(channel_linear::THREADS), a);
    });
}
