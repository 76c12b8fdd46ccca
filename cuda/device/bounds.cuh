/* SPDX-License-Identifier: Apache-2.0
 * Where blocks begin, and how many elements they have: blocks of one size, the last of which may be cut, or of
 * different sizes. */
#ifndef TARTAN_CUDA_BOUNDS_CUH
#define TARTAN_CUDA_BOUNDS_CUH

#include <stdint.h>

/* The first row (column) of block row (column) `i`. bounds: NULL if all have the size `block`. */
__device__ __forceinline__ int64_t tartan_cuda_begin(const int32_t *bounds, int64_t i, int32_t block) {
    return bounds != nullptr ? bounds[i] : i * block;
}

/* How many rows (columns) it has, of `all` of the matrix. */
__device__ __forceinline__ int32_t tartan_cuda_size(const int32_t *bounds, int64_t i, int32_t block,
                                                    int64_t all) {
    if (bounds != nullptr) return bounds[i + 1] - bounds[i];
    const int64_t left = all - i * block;
    return left < block ? (int32_t)left : block;
}

#endif
