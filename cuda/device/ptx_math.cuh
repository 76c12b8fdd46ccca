/* SPDX-License-Identifier: Apache-2.0
 * Approximate functions that CUDA C++ has no name for. Source: PTX ISA 9.0, section "floating-point instructions". */
#ifndef TARTAN_CUDA_PTX_MATH_CUH
#define TARTAN_CUDA_PTX_MATH_CUH

namespace tartan_cuda {

/* 1 / x with an error of at most one unit, for |x| from 2^-126 to 2^126; 0 for an infinity. */
__device__ __forceinline__ float reciprocal_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 2^x with an error of at most two units; results below 2^-126 are 0. */
__device__ __forceinline__ float power_of_2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

} // namespace tartan_cuda

#endif
