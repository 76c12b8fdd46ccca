/* SPDX-License-Identifier: Apache-2.0
 * The rows of lib/kernels/fused.def. */
#include "kernels.h"
#include "problem.h"

#include "kernels/fused.cuh"

namespace tartan_cuda {
namespace {

template <typename S>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_fused *p) {
    switch (p->row) {
#define FUSED(name, ...)                                                                                     \
    case TARTAN_I_FUSED_##name:                                                                              \
        return launch_fused<fused_##name, S>(function, queue, p);
#include "kernels/fused.def"
#undef FUSED
    }
    return TARTAN_OK;
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_fused_plain(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const auto *p = (const tartan_cuda_fused *)problem;
    return (p->sum_dtype == TARTAN_F64 ? tartan_cuda::run<double> : tartan_cuda::run<float>)(function, queue,
                                                                                             p);
}
