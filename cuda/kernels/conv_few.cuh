/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of few positions share. They take a few microseconds, so divisions by numbers of the problem count. */
#ifndef TARTAN_CUDA_CONV_FEW_CUH
#define TARTAN_CUDA_CONV_FEW_CUH

#include "conv_few.h"
#include "device/mma_factors.cuh"
#include "kernels/conv_pieces.cuh"
#include "sweep.h"

namespace tartan_cuda {
namespace {

__device__ __forceinline__ int32_t divide(int32_t number, const tartan_cuda_divider &by) {
    return by.factor != 0 ? (int32_t)(__umulhi((uint32_t)number, by.factor) >> by.shift) : number;
}

/* The columns of a filter: taps by lines of blocks. */
struct FewTaps {
    tartan_cuda_divider by_grid, by_kernel[TARTAN_I_DIMS];
    int32_t grid, kernel[TARTAN_I_DIMS], dilation[TARTAN_I_DIMS], before[TARTAN_I_DIMS];

    /* The tap of a column, which becomes the line. */
    __device__ __forceinline__ int32_t take(int32_t &col) const {
        const int32_t tap = divide(col, by_grid);
        col -= tap * grid;
        return tap;
    }
    /* By which a tap shifts positions of `out`. */
    __device__ __forceinline__ int4 shift(int32_t tap) const {
        int32_t by[TARTAN_I_DIMS];
#pragma unroll
        for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
            const int32_t rest = divide(tap, by_kernel[d]);
            by[d] = (tap - rest * kernel[d]) * dilation[d] - before[d];
            tap = rest;
        }
        return make_int4(by[0], by[1], by[2], 0);
    }
};

/* The positions of images. */
struct FewPositions {
    tartan_cuda_divider by_size[TARTAN_I_DIMS];
    int32_t size[TARTAN_I_DIMS];

    /* Position `number`; returns its image. */
    __device__ __forceinline__ int32_t place(int32_t number, int32_t (&at)[TARTAN_I_DIMS]) const {
#pragma unroll
        for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
            const int32_t rest = divide(number, by_size[d]);
            at[d] = number - rest * size[d];
            number = rest;
        }
        return number;
    }
};

inline FewTaps few_taps_of(const tartan_cuda_taps &t, int64_t grid) {
    FewTaps x = {tartan_cuda_divider_of(grid), {}, (int32_t)grid, {}, {}, {}};
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        x.by_kernel[d] = tartan_cuda_divider_of(t.kernel[d]);
        x.kernel[d] = (int32_t)t.kernel[d];
        x.dilation[d] = (int32_t)t.dilation[d], x.before[d] = (int32_t)t.before[d];
    }
    return x;
}

inline FewPositions few_positions_of(const tartan_cuda_image &x) {
    FewPositions p;
    for (int d = 0; d < TARTAN_I_DIMS; d++)
        p.by_size[d] = tartan_cuda_divider_of(x.size[d]), p.size[d] = (int32_t)x.size[d];
    return p;
}

/* Four numbers as 8 bytes of T. */
template <typename T> __device__ __forceinline__ uint2 four_of(const float (&x)[4]) {
    uint2 packed;
    T *const to = (T *)&packed;
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = tartan_cuda_to<T>(x[i]);
    return packed;
}

} // namespace
} // namespace tartan_cuda

#endif
