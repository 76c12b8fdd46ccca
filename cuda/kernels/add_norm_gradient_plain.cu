/* SPDX-License-Identifier: Apache-2.0
 * Gradients of norms of sums, in segments of lines, with activations. */
#include "kernels/activations.cuh"
#include "kernels/norms_gradient_flow.cuh"

namespace tartan_cuda {
namespace {

struct AddedGradient : Activation {
    static constexpr bool ADDS = true;
    int64_t segments, stats_step;
};

tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_add_norm_gradient *p) {
    AddedGradient more = {};
    more.activation = p->activation, more.segments = p->segments, more.stats_step = p->stats_step;
    return tartan_cuda_by_dtype(p->of.in.sweep.array[X].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        bool fits; /* tartan_cuda_whole_refuses sees to it */
        return run_gradient_flow<T>(function, queue, &p->of, gradient_lines_of<T>(p->of.in), more, &fits);
    });
}

} // namespace
} // namespace tartan_cuda

#define ADD_NORM(name)                                                                                       \
    tartan_status tartan_cuda_add_##name##_gradient_plain(const char *function, tartan_cuda_queue *queue,    \
                                                          const void *problem) {                             \
        return tartan_cuda::run(function, queue, (const tartan_cuda_add_norm_gradient *)problem);            \
    }
ADD_NORM(layer_norm)
ADD_NORM(rms_norm)
