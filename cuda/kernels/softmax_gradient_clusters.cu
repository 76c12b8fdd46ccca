/* SPDX-License-Identifier: Apache-2.0
 * Gradients of softmax and of its logarithm along long lines. */
#include "kernels/softmax_gradient_clusters.h"

#include "kernels/line_clusters.cuh"
#include "kernels/softmax_parts.cuh"

namespace tartan_cuda {
namespace {

template <int KIND>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_classes &p, bool *done) {
    const tartan_cuda_swept &x = p.sweep.array[X];
    if (!lie_alike(p.sweep, {X, OTHER, OUT})) return TARTAN_OK;
    return by_dtype_of_clusters(x.dtype, [&](auto tag) {
        const ClassLines<KIND, decltype(tag)> op(p);
        return run_clusters(function, queue, op, done);
    });
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_softmax_gradient_clusters(const char *function, tartan_cuda_queue *queue,
                                                    const tartan_cuda_classes *p, bool *done) {
    using namespace tartan_cuda;
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0) return TARTAN_OK;
    return p->kind == TARTAN_CUDA_SOFTMAX_GRADIENT
               ? run<TARTAN_CUDA_SOFTMAX_GRADIENT>(function, queue, *p, done)
               : run<TARTAN_CUDA_LOG_SOFTMAX_GRADIENT>(function, queue, *p, done);
}
