/* SPDX-License-Identifier: Apache-2.0
 * The activations of norms, which are rows of lib/kernels/points.def. */
#ifndef TARTAN_CUDA_ACTIVATIONS_CUH
#define TARTAN_CUDA_ACTIVATIONS_CUH

#include "backend/operation.h"
#include "kernels/points.cuh"

namespace tartan_cuda {
namespace {

/* f(row of the function) for one of these, which is decided once for all numbers of a thread. */
template <typename F> __device__ __forceinline__ void with_activation(int32_t activation, F f) {
    switch (activation) {
    case TARTAN_I_ADD_LAYER_NORM_ACTIVATION_RELU:
        f(std::integral_constant<int32_t, ROW1_relu>());
        break;
    case TARTAN_I_ADD_LAYER_NORM_ACTIVATION_GELU:
        f(std::integral_constant<int32_t, ROW1_gelu>());
        break;
    case TARTAN_I_ADD_LAYER_NORM_ACTIVATION_SILU:
        f(std::integral_constant<int32_t, ROW1_silu>());
        break;
    default:
        break;
    }
}

struct Activation {
    int32_t activation;
    template <typename S, int N> __device__ __forceinline__ void activate(S (&x)[N]) const {
        with_activation(activation, [&](auto row) {
            S in[point1::IN][N], out[point1::OUT][N];
            EACH_OF(N) in[0][i] = x[i];
            point1::apply(decltype(row)::value, in, Parameters<S>{}, out);
            EACH_OF(N) x[i] = out[0][i];
        });
    }
    /* The gradient `g` with respect to results becomes that with respect to arguments x. That of relu is one of its result, which is positive
     * where its argument is. */
    template <typename S, int N>
    __device__ __forceinline__ void differentiate(const S (&x)[N], S (&g)[N]) const {
        with_activation(activation, [&](auto row) {
            S in[point1_gradient::IN][N], out[point1_gradient::OUT][N];
            EACH_OF(N) in[0][i] = g[i], in[1][i] = in[2][i] = x[i];
            point1_gradient::apply(decltype(row)::value, in, Parameters<S>{}, out);
            EACH_OF(N) g[i] = out[0][i];
        });
    }
};

} // namespace
} // namespace tartan_cuda

#endif
