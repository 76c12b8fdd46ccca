/* SPDX-License-Identifier: Apache-2.0
 * Exponentials of softmax. */
#ifndef TARTAN_CUDA_EXPONENT_CUH
#define TARTAN_CUDA_EXPONENT_CUH

namespace tartan_cuda {
namespace {

/* e^x; f32 by powers of 2, which the processor has. */
__device__ __forceinline__ float exponential(float x) {
    return exp2f(x * 1.4426950408889634074f);
}
__device__ __forceinline__ double exponential(double x) {
    return exp(x);
}

/* x scale - shift, exactly 0 where shift is x scale as it was rounded: the largest number of a line. */
__device__ __forceinline__ float exponent(float x, float scale, float shift) {
    return __fmul_rn(x, scale) - shift;
}
__device__ __forceinline__ double exponent(double x, double scale, double shift) {
    return __dmul_rn(x, scale) - shift;
}

} // namespace
} // namespace tartan_cuda

#endif
