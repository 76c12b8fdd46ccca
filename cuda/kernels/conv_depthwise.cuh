/* SPDX-License-Identifier: Apache-2.0
 * How the depthwise kernels walk from a position to the next one: in 32 bits, and with divisions for the first one alone. */
#ifndef TARTAN_CUDA_CONV_DEPTHWISE_CUH
#define TARTAN_CUDA_CONV_DEPTHWISE_CUH

#include "kernels/conv_positions.cuh"

namespace tartan_cuda {
namespace conv_depthwise {
namespace {

/* A position of a lattice; image < 0: there is none. */
struct Walk {
    int32_t image, at[TARTAN_I_DIMS];
};

/* Positions of an image at equal distances, from `first` on. */
struct Lattice {
    int32_t size[TARTAN_I_DIMS], first[TARTAN_I_DIMS];
};

/* The positions of a phase of a result, one for each remainder by the strides. */
template <class Args> __device__ __forceinline__ Lattice lattice_of(const Args &a, uint32_t phase) {
    Lattice l;
#pragma unroll
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const int32_t stride = (int32_t)a.to_stride[d], size = (int32_t)a.p.to.size[d];
        l.first[d] = 0, l.size[d] = size;
        if (stride == 1) continue;
        l.first[d] = (int32_t)(phase % (uint32_t)stride);
        phase /= (uint32_t)stride;
        l.size[d] = max((size - l.first[d] + stride - 1) / stride, 0);
    }
    return l;
}

__device__ __forceinline__ Walk begin_walk(const Lattice &l, uint32_t number) {
    Walk w;
#pragma unroll
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        w.at[d] = 0;
        if (l.size[d] <= 1) continue;
        w.at[d] = (int32_t)(number % (uint32_t)l.size[d]);
        number /= (uint32_t)l.size[d];
    }
    w.image = l.size[0] > 0 && l.size[1] > 0 && l.size[2] > 0 ? (int32_t)number : INT32_MIN;
    return w;
}

__device__ __forceinline__ void step_walk(const Lattice &l, Walk &w) {
    if (++w.at[2] < l.size[2]) return;
    w.at[2] = 0;
    if (++w.at[1] < l.size[1]) return;
    w.at[1] = 0;
    if (++w.at[0] < l.size[0]) return;
    w.at[0] = 0;
    w.image++;
}

__device__ __forceinline__ Walk walk_of(const Position &x) {
    return {(int32_t)x.image, {(int32_t)x.at[0], (int32_t)x.at[1], (int32_t)x.at[2]}};
}

} // namespace
} // namespace conv_depthwise
} // namespace tartan_cuda

#endif
