/* SPDX-License-Identifier: Apache-2.0
 * Elements in device memory: their types by dtype, conversion to the type of their sums and back. */
#ifndef TARTAN_CUDA_ELEMENT_CUH
#define TARTAN_CUDA_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <type_traits>

#include "problem.h"

/* The type in which sums over T are kept. */
template <typename T> using tartan_cuda_sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

/* Whether T is an 8-bit type, and the toolkit's name of it. */
template <typename T>
inline constexpr bool tartan_cuda_is_f8 =
    std::is_same_v<T, __nv_fp8_e4m3> || std::is_same_v<T, __nv_fp8_e5m2>;
template <typename T>
inline constexpr __nv_fp8_interpretation_t tartan_cuda_f8_kind =
    std::is_same_v<T, __nv_fp8_e4m3> ? __NV_E4M3 : __NV_E5M2;

/* `x` as another type, rounded once to nearest even. */
template <typename To, typename From> __device__ __forceinline__ To tartan_cuda_to(From x) {
    if constexpr (std::is_same_v<To, From>) {
        return x;
    } else if constexpr (std::is_same_v<From, __half>) {
        return tartan_cuda_to<To>(__half2float(x));
    } else if constexpr (std::is_same_v<From, __nv_bfloat16>) {
        return tartan_cuda_to<To>(__bfloat162float(x));
    } else if constexpr (tartan_cuda_is_f8<From>) {
        return tartan_cuda_to<To>(
            __half2float(__half(__nv_cvt_fp8_to_halfraw(x.__x, tartan_cuda_f8_kind<From>))));
    } else if constexpr (tartan_cuda_is_f8<To>) {
        To result;
        if constexpr (std::is_same_v<From, double>)
            result.__x = __nv_cvt_double_to_fp8(x, __NV_NOSAT, tartan_cuda_f8_kind<To>);
        else
            result.__x = __nv_cvt_float_to_fp8(x, __NV_NOSAT, tartan_cuda_f8_kind<To>);
        return result;
    } else if constexpr (std::is_same_v<To, __half>) {
        if constexpr (std::is_same_v<From, double>)
            return __double2half(x);
        else
            return __float2half_rn(x);
    } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
        if constexpr (std::is_same_v<From, double>)
            return __double2bfloat16(x);
        else
            return __float2bfloat16_rn(x);
    } else {
        return (To)x;
    }
}

/* Several neighbours, moved in one access. */
template <typename T, int COUNT> struct alignas(sizeof(T) * COUNT) tartan_cuda_pack { T at[COUNT]; };

/* A type as a function argument. */
template <typename T> struct tartan_cuda_type { using type = T; };

/* f(tartan_cuda_type<T>()) with the element type T of a dtype of 16 bits or more, on the host and in kernels. */
#pragma nv_exec_check_disable
template <typename F> __host__ __device__ __forceinline__ auto tartan_cuda_by_dtype(int32_t dtype, F f) {
    switch (dtype) {
    case TARTAN_F64:
        return f(tartan_cuda_type<double>());
    case TARTAN_F32:
        return f(tartan_cuda_type<float>());
    case TARTAN_F16:
        return f(tartan_cuda_type<__half>());
    default:
        return f(tartan_cuda_type<__nv_bfloat16>());
    }
}

/* The same for any dtype. */
#pragma nv_exec_check_disable
template <typename F> __host__ __device__ __forceinline__ auto tartan_cuda_by_any_dtype(int32_t dtype, F f) {
    switch (dtype) {
    case TARTAN_F8E4M3:
        return f(tartan_cuda_type<__nv_fp8_e4m3>());
    case TARTAN_F8E5M2:
        return f(tartan_cuda_type<__nv_fp8_e5m2>());
    default:
        return tartan_cuda_by_dtype(dtype, f);
    }
}

/* *c = alpha * sum + beta * *c, by fma(beta, *c, alpha * sum); *c is not read if beta is 0. */
template <typename Out, typename S>
__device__ __forceinline__ void tartan_cuda_combine(Out *c, S alpha, S sum, S beta) {
    const S scaled = alpha * sum;
    *c = tartan_cuda_to<Out>(beta == 0 ? scaled : fma(beta, tartan_cuda_to<S>(*c), scaled));
}

/* The same for element `at` of `data`, of `dtype`: 16-bit factors may have f32 output, 8-bit ones f32, f16 or bf16. */
template <typename T, typename S>
__device__ __forceinline__ void tartan_cuda_combine_at(void *data, int32_t dtype, int64_t at, S alpha, S sum,
                                                       S beta) {
    if (sizeof(T) <= 2 && dtype == TARTAN_F32) {
        tartan_cuda_combine((S *)data + at, alpha, sum, beta);
    } else if constexpr (tartan_cuda_is_f8<T>) {
        if (dtype == TARTAN_F16)
            tartan_cuda_combine((__half *)data + at, alpha, sum, beta);
        else
            tartan_cuda_combine((__nv_bfloat16 *)data + at, alpha, sum, beta);
    } else {
        tartan_cuda_combine((T *)data + at, alpha, sum, beta);
    }
}

/* The gate of a block, rounded to the type of the sums; 1 if there are no gates. */
template <typename S>
__device__ __forceinline__ S tartan_cuda_gate(const tartan_cuda_block_scalars &gates, int64_t id) {
    if (gates.data == nullptr) return 1;
    return gates.dtype == TARTAN_F64 ? (S)((const double *)gates.data)[id * gates.stride]
                                     : (S)((const float *)gates.data)[id * gates.stride];
}

#endif
