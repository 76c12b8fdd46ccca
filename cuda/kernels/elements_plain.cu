/* SPDX-License-Identifier: Apache-2.0
 * Single elements of matrices by their positions: read, written, added to. */
#include "device/launch.cuh"
#include "kernels/elements.cuh"

namespace {

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) elements(const tartan_cuda_elements p) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.count;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t source = p.sources != nullptr ? p.sources[i] : -1;
        double x[1] = {};
        if (source >= 0) load(p.from.values, p.from.dtype, source, x);
        if (!p.writes) {
            p.numbers[i] = x[0];
        } else if (p.targets[i] >= 0) {
            x[0] = source < 0 ? p.numbers[i] : __dadd_rn(__dmul_rn(p.alpha, x[0]), p.numbers[i]);
            store(p.to.values, p.to.dtype, p.targets[i], x, 1);
        }
    }
}

} // namespace

tartan_status tartan_cuda_elements_plain(const char *function, tartan_cuda_queue *queue,
                                         const void *problem) {
    const tartan_cuda_elements *p = (const tartan_cuda_elements *)problem;
    return tartan_cuda_launch(function, queue, elements, tartan_cuda_grid((p->count - 1) / THREADS + 1),
                              dim3(THREADS), *p);
}
