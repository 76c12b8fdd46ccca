/* SPDX-License-Identifier: Apache-2.0
 * Plain kernels have a form for each type of sums, not of elements: f32, f16 and bf16 have sums of f32, and what kernels do
 * between loading and storing is the same. The dtype is a variable that is equal in all threads. */
#ifndef TARTAN_CUDA_BY_SUM_CUH
#define TARTAN_CUDA_BY_SUM_CUH

#include "device/element.cuh"

/* On the device: f(tartan_cuda_type<T>()) with the element type T of a dtype whose sums are of type S. Call it once for many
 * elements. */
template <typename S, typename F> __device__ __forceinline__ void tartan_cuda_by_sum(int32_t dtype, F f) {
    if constexpr (std::is_same_v<S, double>)
        f(tartan_cuda_type<double>());
    else if (dtype == TARTAN_F32)
        f(tartan_cuda_type<float>());
    else if (dtype == TARTAN_F16)
        f(tartan_cuda_type<__half>());
    else
        f(tartan_cuda_type<__nv_bfloat16>());
}

/* The same for one element: number `at` of `data`. */
template <typename S>
__device__ __forceinline__ S tartan_cuda_element(const void *data, int32_t dtype, int64_t at) {
    if constexpr (std::is_same_v<S, double>) return ((const double *)data)[at];
    if (dtype == TARTAN_F32) return ((const float *)data)[at];
    const uint16_t bits = ((const uint16_t *)data)[at];
    return dtype == TARTAN_F16 ? __half2float(__ushort_as_half(bits)) : __uint_as_float((uint32_t)bits << 16);
}

/* On the host: f(tartan_cuda_type<S>()) with the type S of sums over `dtype`. */
template <typename F> inline auto tartan_cuda_by_sum_dtype(int32_t dtype, F f) {
    return dtype == TARTAN_F64 ? f(tartan_cuda_type<double>()) : f(tartan_cuda_type<float>());
}

#endif
