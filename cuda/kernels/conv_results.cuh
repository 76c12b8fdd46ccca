/* SPDX-License-Identifier: Apache-2.0
 * What the kernels conv_plain and conv_pieces share: which positions they compute, and where results go. Where a channel may have
 * several slots or none, sums go to scratch memory first, and a second kernel adds up the slots of each channel. */
#ifndef TARTAN_CUDA_CONV_RESULTS_CUH
#define TARTAN_CUDA_CONV_RESULTS_CUH

#include "device/by_sum.cuh"
#include "device/tile.cuh"
#include "kernels.h"
#include "kernels/conv_epilogue.cuh"

namespace tartan_cuda {

struct ConvResults {
    tartan_cuda_conv p;
    tartan_cuda_row_index lists; /* of the filter */
    tartan_cuda_channel_lists from, to;
    ConvEpilogue last;
    Windows windows;
    bool restricted;   /* to the windows of `to` */
    void *sums;        /* [positions][slots] or NULL */
    int64_t positions; /* to compute, at most */
};

namespace {

__device__ __forceinline__ Position place(const ConvResults &a, int64_t number) {
    if (number >= a.positions) return {-1, {}};
    return a.restricted ? window_position(a.windows, number, a.p.to.size) : position_of(number, a.p.to.size);
}

__device__ __forceinline__ void tap_places(const tartan_cuda_taps &t, int64_t tap,
                                           int64_t (&at)[TARTAN_I_DIMS]) {
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        at[d] = tap % t.kernel[d];
        tap /= t.kernel[d];
    }
}

/* Stores a result. */
template <typename S> __device__ __forceinline__ void put(const ConvResults &a, int64_t at, S y) {
    tartan_cuda_by_sum<S>(a.p.to.dtype, [&](auto tag) {
        conv_put<typename decltype(tag)::type>(a.last, a.p.to.data, a.p.to.dtype, at, y);
    });
}

/* The results of channels with any number of slots. */
template <typename S>
__global__ void __launch_bounds__(256) conv_gather(const __grid_constant__ ConvResults a) {
    const int64_t slots = a.p.to_slots.grid * a.p.to_slots.edge, all = a.positions * a.p.to.channels;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < all; e += (int64_t)gridDim.x * 256) {
        const int64_t number = e / a.p.to.channels, channel = e % a.p.to.channels;
        const Position x = place(a, number);
        if (x.image < 0) continue;
        S sum = 0;
        for (int32_t i = a.to.first[channel]; i < a.to.first[channel + 1]; i++)
            sum += ((const S *)a.sums)[number * slots + a.to.slot[i]];
        const S y = conv_finish<S>(a.last, edge_class_of(a.last.edges, x), channel, sum);
        put(a, element_of(a.p.to, x) + channel * a.p.to.channel, y);
    }
}

template <typename S>
inline tartan_status launch_gather(const char *function, tartan_cuda_queue *queue, const ConvResults &a) {
    const int64_t all = a.positions * a.p.to.channels;
    return tartan_cuda_launch(function, queue, conv_gather<S>, tartan_cuda_grid((all - 1) / 256 + 1),
                              dim3(256), a);
}

/* All but `sums`. The caller gives *map back, if it is set. */
inline tartan_status results_of(const char *function, tartan_cuda_queue *queue, const tartan_cuda_conv *p,
                                ConvResults *out, void **map) {
    *out = {};
    *map = nullptr;
    out->p = *p;
    if (p->layout->blocks > 0)
        PASS(tartan_cuda_index_get_rows(function, queue, p->layout, p->adjoint, &out->lists));
    PASS(tartan_cuda_channel_lists_get(function, queue, p->layout, !p->adjoint, &p->to_slots, &out->to));
    PASS(tartan_cuda_channel_lists_get(function, queue, p->layout, p->adjoint, &p->from_slots, &out->from));
    tartan_cuda_edge_lists edges;
    PASS(tartan_cuda_edge_lists_get(function, queue, p, &edges));
    out->last = epilogue_of(p, edges);
    out->restricted = p->active.layout != nullptr && !p->active_from;
    out->positions =
        out->restricted ? p->active.layout->blocks * p->active.size[0] * p->active.size[1] * p->active.size[2]
                        : p->entries * p->to.size[0] * p->to.size[1] * p->to.size[2];
    return windows_of(function, queue, p->active, p->active_from, &out->windows, map);
}

} // namespace

} // namespace tartan_cuda

#endif
