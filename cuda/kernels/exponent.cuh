/* SPDX-License-Identifier: Apache-2.0
 * Exponentials of softmax. */
#ifndef TARTAN_CUDA_EXPONENT_CUH
#define TARTAN_CUDA_EXPONENT_CUH

#include "device/ptx_math.cuh"

namespace tartan_cuda {
namespace {

/* e^x; f32 by powers of 2, which the processor has. SHORT: for results of 16 bits, without the steps that keep numbers below 2^-126. */
template <bool SHORT = false> __device__ __forceinline__ float exponential(float x) {
    const float by_2 = x * 1.4426950408889634074f;
    return SHORT ? power_of_2_fast(by_2) : exp2f(by_2);
}
template <bool SHORT = false> __device__ __forceinline__ double exponential(double x) {
    return exp(x);
}

/* x scale - shift; exactly 0 where shift is the rounded x scale, as for the largest number of a line. */
__device__ __forceinline__ float exponent(float x, float scale, float shift) {
    return __fmul_rn(x, scale) - shift;
}
__device__ __forceinline__ double exponent(double x, double scale, double shift) {
    return __dmul_rn(x, scale) - shift;
}

} // namespace
} // namespace tartan_cuda

#endif
