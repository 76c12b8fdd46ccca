/* SPDX-License-Identifier: Apache-2.0
 * Single elements of matrices by their positions: read, written, added to. */
#include "backend/operation.h"
#include "device/launch.cuh"
#include "kernels/elements.cuh"

namespace {

constexpr int THREADS = 256;

struct work {
    int64_t count;
    double alpha;
    operand from, to; /* without values if there is no such matrix */
    const int64_t *sources, *targets;
    double *numbers;
};

__global__ void __launch_bounds__(THREADS) elements(const work p) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.count;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t source = p.sources != nullptr ? p.sources[i] : -1;
        double x[1] = {};
        if (source >= 0) load(p.from.values, p.from.dtype, source, x);
        if (p.to.values == nullptr) {
            p.numbers[i] = x[0];
        } else if (p.targets[i] >= 0) {
            x[0] = source < 0 ? p.numbers[i] : __dadd_rn(__dmul_rn(p.alpha, x[0]), p.numbers[i]);
            store((void *)p.to.values, p.to.dtype, p.targets[i], x, 1);
        }
    }
}

} // namespace

tartan_status tartan_cuda_elements_plain(const char *function, tartan_cuda_queue *queue,
                                         const void *problem) {
    const tartan_op_elements *e = (const tartan_op_elements *)problem;
    /* Without blocks there is nothing to write; all sources are -1 then. */
    if (e->count == 0 || (e->to != nullptr && e->to->layout->blocks == 0)) return TARTAN_OK;
    work p = {e->count, e->alpha, {}, {}, e->sources, e->targets, (double *)e->numbers->data};
    if (e->from != nullptr) p.from = operand_of(e->from, {}, nullptr);
    if (e->to != nullptr) p.to = operand_of(e->to, {}, nullptr);
    return tartan_cuda_launch(function, queue, elements, tartan_cuda_grid((p.count - 1) / THREADS + 1),
                              dim3(THREADS), p);
}
