/* SPDX-License-Identifier: Apache-2.0
 * Single elements of arrays of a sweep. */
#ifndef TARTAN_CUDA_SWEPT_CUH
#define TARTAN_CUDA_SWEPT_CUH

#include "device/element.cuh"
#include "dtype.h"
#include "sweep.h"

namespace tartan_cuda {
namespace {

__device__ __forceinline__ int64_t index_at(const tartan_cuda_swept &a, int64_t at) {
    return a.dtype == TARTAN_I64   ? ((const int64_t *)a.data)[at]
           : a.dtype == TARTAN_I32 ? ((const int32_t *)a.data)[at]
                                   : ((const uint8_t *)a.data)[at];
}
/* The same of a warp in two steps. Lanes 0 and 1 load a word each, with which nothing is computed, so no thread waits before the second
 * step; what all lanes load alike the compiler moves to uniform registers at once. */
__device__ __forceinline__ uint32_t index_word_at(const tartan_cuda_swept &a, int64_t at, uint32_t lane) {
    if (lane > 1) return 0;
    return a.dtype == TARTAN_I64   ? ((const uint32_t *)a.data)[2 * at + lane]
           : a.dtype == TARTAN_I32 ? ((const uint32_t *)a.data)[at]
                                   : ((const uint8_t *)a.data)[at];
}
__device__ __forceinline__ int64_t index_of(const tartan_cuda_swept &a, uint32_t word) {
    const uint32_t low = __shfl_sync(~0u, word, 0), high = __shfl_sync(~0u, word, 1);
    return a.dtype == TARTAN_I64   ? (int64_t)((uint64_t)high << 32 | low)
           : a.dtype == TARTAN_I32 ? (int32_t)low
                                   : (int64_t)low;
}

template <typename S> __device__ __forceinline__ S number_at(const tartan_cuda_swept &a, int64_t at) {
    return tartan_cuda_by_dtype(a.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return (S)tartan_cuda_to<tartan_cuda_sum<T>>(((const T *)a.data)[at]);
    });
}

template <typename S>
__device__ __forceinline__ void set_number(const tartan_cuda_swept &a, int64_t at, S value) {
    tartan_cuda_by_dtype(a.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        ((T *)a.data)[at] = tartan_cuda_to<T>(value);
    });
}

} // namespace
} // namespace tartan_cuda

#endif
