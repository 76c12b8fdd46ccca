/* SPDX-License-Identifier: Apache-2.0
 * Gradients with respect to long lines that are normalised. */
#include "kernels/norms_held.h"

#include "kernels/line_clusters.cuh"
#include "kernels/norm_gradient_lines.cuh"

tartan_status tartan_cuda_norm_gradient_clusters(const char *function, tartan_cuda_queue *queue,
                                                 const tartan_cuda_norm *p, bool *done) {
    using namespace tartan_cuda;
    const tartan_cuda_swept &x = p->sweep.array[X];
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0) return TARTAN_OK;
    if (!lie_alike(p->sweep, {X, Y_GRAD, X_GRAD})) return TARTAN_OK;
    return by_dtype_of_clusters(x.dtype, [&](auto tag) {
        const NormGradientLines<decltype(tag)> op(*p);
        return run_clusters(function, queue, op, done);
    });
}
