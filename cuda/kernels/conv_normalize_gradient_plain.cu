/* SPDX-License-Identifier: Apache-2.0
 * The gradients of weight normalisation. Those of gain are added up over the sets of each channel, in their order. */
#include "kernels.h"
#include "kernels/conv_normalize.cuh"

namespace tartan_cuda {
namespace {

template <typename S>
__global__ void __launch_bounds__(256)
    add_gains(const __grid_constant__ Normalize n, int64_t channels, S *to, int64_t stride) {
    for (int64_t c = (int64_t)blockIdx.x * 256 + threadIdx.x; c < channels; c += (int64_t)gridDim.x * 256) {
        double sum = 0;
        if (n.gain_sums != nullptr)
            for (int32_t i = n.sets.first[c]; i < n.sets.first[c + 1]; i++)
                sum += n.gain_sums[n.sets.of_channel[i]];
        to[c * stride] = (S)sum;
    }
}

tartan_status add_all_gains(const char *function, tartan_cuda_queue *queue,
                            const tartan_cuda_conv_normalize_gradient *p, const Normalize &n) {
    const int64_t channels = p->in.outputs.channels->count;
    const dim3 grid = tartan_cuda_grid((channels + 255) / 256);
    if (p->in.filter.dtype == TARTAN_F64)
        return tartan_cuda_launch(function, queue, add_gains<double>, grid, dim3(256), n, channels,
                                  (double *)p->gain_grad, p->gain_grad_stride);
    return tartan_cuda_launch(function, queue, add_gains<float>, grid, dim3(256), n, channels,
                              (float *)p->gain_grad, p->gain_grad_stride);
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_normalize_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                        const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_conv_normalize_gradient *)problem;
    Normalize n;
    PASS(normalize_start(function, queue, &p->in, &n));
    if (p->gain_grad == nullptr) return normalize_all<true>(function, queue, n);
    void *scratch = nullptr;
    const int64_t count = n.sets.items * p->in.outputs.edge;
    if (count > 0) PASS(tartan_cuda_scratch(function, queue, count * (int64_t)sizeof(double), &scratch));
    n.gain_sums = (double *)scratch;
    tartan_status status = normalize_all<true>(function, queue, n);
    if (status == TARTAN_OK) status = add_all_gains(function, queue, p, n);
    if (scratch != nullptr) tartan_cuda_scratch_free(queue, scratch);
    return status;
}
