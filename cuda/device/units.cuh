/* SPDX-License-Identifier: Apache-2.0
 * Units of V neighbouring elements whose dtype is known at run time, as kernels that move memory load and store them. */
#ifndef TARTAN_CUDA_UNITS_CUH
#define TARTAN_CUDA_UNITS_CUH

#include "device/element.cuh"
#include "device/launch.cuh"

#include <type_traits>

/* f(tartan_cuda_type<T>()) with the element type T of a dtype that is summed in S. */
template <typename S, typename F> __device__ __forceinline__ void tartan_cuda_by_unit(int32_t dtype, F f) {
    if constexpr (sizeof(S) == 8)
        f(tartan_cuda_type<double>());
    else if (dtype == TARTAN_F32)
        f(tartan_cuda_type<float>());
    else if (dtype == TARTAN_F16)
        f(tartan_cuda_type<__half>());
    else
        f(tartan_cuda_type<__nv_bfloat16>());
}

/* Elements at, at + 1, ... of `data`; `at` is a multiple of V. */
template <typename T, int V>
__device__ __forceinline__ tartan_cuda_pack<T, V> tartan_cuda_load_unit(const void *data, int64_t at) {
    return *(const tartan_cuda_pack<T, V> *)((const T *)data + at);
}

/* Stores a pack in whole words. nvcc splits plain assignments, even of uint4, into one store for each member if the
 * members were computed one by one. */
template <typename T, int V>
__device__ __forceinline__ void tartan_cuda_store_pack(T *to, const tartan_cuda_pack<T, V> &pack) {
    constexpr int kBytes = sizeof pack;
    using Word =
        std::conditional_t<kBytes % 16 == 0, uint4,
                           std::conditional_t<kBytes == 8, uint2,
                                              std::conditional_t<kBytes == 4, unsigned int, unsigned short>>>;
    static_assert(kBytes % sizeof(Word) == 0, "whole words");
#pragma unroll
    for (int i = 0; i < (int)(kBytes / sizeof(Word)); i++) {
        Word word;
        memcpy(&word, (const char *)&pack + i * sizeof word, sizeof word);
        __stwb((Word *)to + i, word);
    }
}

/* Stores them, or only the first `count`. */
template <typename T, int V, typename S>
__device__ __forceinline__ void tartan_cuda_store_unit(void *data, int64_t at, const S (&values)[V],
                                                       int32_t count) {
    tartan_cuda_pack<T, V> unit;
#pragma unroll
    for (int v = 0; v < V; v++) unit.at[v] = tartan_cuda_to<T>(values[v]);
    if (count >= V) {
        tartan_cuda_store_pack((T *)data + at, unit);
        return;
    }
#pragma unroll
    for (int v = 0; v < V; v++)
        if (v < count) ((T *)data)[at + v] = unit.at[v];
}

#endif
