/* SPDX-License-Identifier: Apache-2.0
 * Steps and chains of matrices (lib/kernels/steps.def). The row is chosen once for all elements of a thread. */
#ifndef TARTAN_CUDA_STEPS_CUH
#define TARTAN_CUDA_STEPS_CUH

#include "backend/operation_parts.h"
#include "kernels/words.cuh"

namespace {

using S = double; /* of the words */

#define CHAIN(...)
template <int COUNT>
__device__ __forceinline__ void apply_step(int32_t step, double p, double q, double (&xs)[COUNT],
                                           const double (&ys)[COUNT]) {
    using namespace tartan_cuda; /* of the words */
    switch (step) {
#define STEP(name, value)                                                                                    \
    case TARTAN_I_STEP_##name:                                                                               \
        _Pragma("unroll") for (int c = 0; c < COUNT; c++) {                                                  \
            const double x = xs[c], y = ys[c];                                                               \
            (void)y;                                                                                         \
            xs[c] = value;                                                                                   \
        }                                                                                                    \
        break;
#include "kernels/steps.def"
#undef STEP
    }
}
#undef CHAIN

#define STEP(...)
__device__ __forceinline__ double first_of(int32_t chain) {
    using namespace tartan_cuda;
    switch (chain) {
#define CHAIN(name, first, measure, join)                                                                    \
    case TARTAN_I_CHAIN_##name:                                                                              \
        return first;
#include "kernels/steps.def"
#undef CHAIN
    }
    return 0;
}

/* Two chains as one. */
__device__ __forceinline__ double join(int32_t chain, double x, double y) {
    using namespace tartan_cuda;
    switch (chain) {
#define CHAIN(name, first, measure, join)                                                                    \
    case TARTAN_I_CHAIN_##name:                                                                              \
        return join;
#include "kernels/steps.def"
#undef CHAIN
    }
    return y;
}

/* Continues chain y with the first `count` of xs. */
template <int COUNT>
__device__ __forceinline__ void continue_chain(int32_t chain, double u, const double (&xs)[COUNT], int count,
                                               double &y) {
    using namespace tartan_cuda;
    switch (chain) {
#define CHAIN(name, first, measure, join)                                                                    \
    case TARTAN_I_CHAIN_##name:                                                                              \
        _Pragma("unroll") for (int c = 0; c < COUNT; c++) if (c < count) {                                   \
            double x = xs[c];                                                                                \
            x = measure;                                                                                     \
            y = join;                                                                                        \
        }                                                                                                    \
        break;
#include "kernels/steps.def"
#undef CHAIN
    }
}
#undef STEP

} // namespace

#endif
