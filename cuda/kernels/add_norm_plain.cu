/* SPDX-License-Identifier: Apache-2.0
 * Norms of sums, in segments of lines, with activations. */
#include "kernels/activations.cuh"
#include "kernels/norms_flow.cuh"

namespace tartan_cuda {
namespace {

struct AddedNorm : Activation {
    static constexpr bool ADDS = true;
    int64_t segments, stats_step;
};

tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_add_norm *p) {
    AddedNorm more = {};
    more.activation = p->activation, more.segments = p->segments, more.stats_step = p->stats_step;
    tartan_cuda_norm single = p->in;
    single.sweep = tartan_cuda_sweep_one_by_one(&p->in.sweep);
    return tartan_cuda_by_dtype(single.sweep.array[X].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return run_flow<T>(function, queue, single, flow_lines_of<T>(single), more);
    });
}

} // namespace
} // namespace tartan_cuda

#define ADD_NORM(name)                                                                                       \
    tartan_status tartan_cuda_add_##name##_plain(const char *function, tartan_cuda_queue *queue,             \
                                                 const void *problem) {                                      \
        return tartan_cuda::run(function, queue, (const tartan_cuda_add_norm *)problem);                     \
    }
ADD_NORM(layer_norm)
ADD_NORM(rms_norm)
