/* SPDX-License-Identifier: Apache-2.0
 * How the depthwise kernels store their results. */
#ifndef TARTAN_CUDA_CONV_DEPTHWISE_STORE_CUH
#define TARTAN_CUDA_CONV_DEPTHWISE_STORE_CUH

#include "kernels/conv_depthwise.cuh"
#include "kernels/conv_pieces_places.cuh"

namespace tartan_cuda {
namespace conv_depthwise {
namespace {

using conv_pieces::Args;

/* The results of a piece at a position, element `to` of the image. */
template <typename T, typename S, int kSlots>
__device__ __forceinline__ void store_sums(const Args &a, int64_t to, const Position &x, int64_t first_slot,
                                           int32_t slots, S (&sums)[kSlots]) {
    if (!a.plain) {
        const int32_t edge_class = edge_class_of(a.last.edges, x);
#pragma unroll
        for (int i = 0; i < kSlots; i++)
            if (i < slots) sums[i] = conv_finish<S>(a.last, edge_class, first_slot + i, sums[i]);
    }
    if (a.wide && a.p.to.dtype == a.p.from.dtype && slots == kSlots) {
        alignas(16) T values[kSlots];
#pragma unroll
        for (int i = 0; i < kSlots; i++) values[i] = tartan_cuda_to<T>(sums[i]);
        *(uint4 *)((T *)a.p.to.data + to) = *(const uint4 *)values;
        return;
    }
#pragma unroll
    for (int i = 0; i < kSlots; i++)
        if (i < slots) conv_put<T>(a.last, a.p.to.data, a.p.to.dtype, to + i * a.p.to.channel, sums[i]);
}

} // namespace
} // namespace conv_depthwise
} // namespace tartan_cuda

#endif
