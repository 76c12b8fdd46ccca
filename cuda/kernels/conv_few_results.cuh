/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of convolutions of few positions share: the positions of a CTA, and its results, which a cluster adds up. */
#ifndef TARTAN_CUDA_CONV_FEW_RESULTS_CUH
#define TARTAN_CUDA_CONV_FEW_RESULTS_CUH

#include "device/ptx.cuh"
#include "kernels/conv_few.cuh"
#include "kernels/conv_pieces_places.cuh"

namespace tartan_cuda {
namespace conv_few {
namespace {

constexpr int kPositions = TARTAN_CUDA_FEW_POSITIONS;

struct FewConv : conv_pieces::Args {
    FewPositions to_places;
    FewTaps taps;
    tartan_cuda_divider by_splits;

    /* By which a tap shifts positions of `to`. */
    __device__ __forceinline__ int4 shift_of(int32_t tap) const {
        const int4 shift = taps.shift(tap);
        return p.adjoint ? make_int4(-shift.x, -shift.y, -shift.z, 0) : shift;
    }
};

struct Places {
    int4 spots[kPositions]; /* as in conv_pieces */
    int64_t to[kPositions];
    int32_t edge_class[kPositions];
};

/* kSteps: pieces are those of the image, since taps lead to positions that strides divide. */
template <bool kSteps>
__device__ __forceinline__ void find_place(const FewConv &a, int32_t number, Places &s, int i) {
    Position x;
    int32_t at[TARTAN_I_DIMS];
    x.image = a.to_places.place(number, at);
    for (int d = 0; d < TARTAN_I_DIMS; d++) x.at[d] = at[d];
    const bool there = number < (int32_t)a.positions;
    int4 spot = make_int4(at[0] * (int32_t)a.from_stride[0], at[1] * (int32_t)a.from_stride[1],
                          at[2] * (int32_t)a.from_stride[2], 0);
    spot.w = (int32_t)x.image * a.from_pieces.entry + (kSteps ? 0 : a.from_pieces.offset(spot));
    s.spots[i] = there ? spot : make_int4(INT32_MIN, INT32_MIN, INT32_MIN, 0);
    s.to[i] = there ? element_of(a.p.to, x) : conv_pieces::kNowhere;
    s.edge_class[i] = there ? edge_class_of(a.last.edges, x) : 0;
}

/* Whether a shifted position of an input gradient meets one of `from`, whose steps are strides, and where. */
__device__ __forceinline__ bool step_back(const FewConv &a, int4 spot, int4 shift, int32_t *at) {
    const int32_t place[TARTAN_I_DIMS] = {spot.x + shift.x, spot.y + shift.y, spot.z + shift.z};
    bool there = true;
    *at = spot.w + shift.w;
#pragma unroll
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        const uint32_t stride = (uint32_t)a.p.taps.stride[d], number = (uint32_t)place[d] / stride;
        there = there & (place[d] >= 0) & (number < a.from_pieces.size[d]) &
                (number * stride == (uint32_t)place[d]);
        *at += (int32_t)number * a.from_pieces.step[d];
    }
    return there;
}

/* Adds up the sums [position][TARTAN_CUDA_FEW_SUM_PITCH(kSlots)] at `base` of all CTAs of the cluster, in the order of ranks, and stores the
 * results: `left` slots from first_slot on. */
template <typename T, int kSlots, int kThreads>
__device__ __forceinline__ void store_results(const FewConv &a, const Places &s, uint32_t base, int32_t rank,
                                              int32_t first_position, int32_t first_slot, int32_t left) {
    for (int32_t e = rank * kThreads + (int32_t)threadIdx.x; e < kPositions * kSlots / 4;
         e += a.splits * kThreads) {
        const int32_t row = e / (kSlots / 4), col = e % (kSlots / 4) * 4;
        if (col >= left || s.to[row] == conv_pieces::kNowhere) continue;
        const uint32_t place = base + (uint32_t)(row * TARTAN_CUDA_FEW_SUM_PITCH(kSlots) + col) * 4;
        float sum[4] = {};
#pragma unroll 4
        for (int32_t other = 0; other < a.splits; other++) {
            const float4 x = cluster_load_16(cluster_address(place, (uint32_t)other));
            sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
        }
        const int32_t count = min(4, left - col), slot = first_slot + col;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i < count && !isfinite(sum[i]))
                sum[i] = conv_pieces::exact_sum<float>(a, first_position + row, 0, slot + i);
            sum[i] = conv_finish<float>(a.last, s.edge_class[row], slot + min(i, count - 1), sum[i]);
        }
        const int64_t at = s.to[row] + slot * a.p.to.channel;
        if (a.wide && count == 4) {
            *(uint2 *)((T *)a.p.to.data + at) = four_of<T>(sum);
            continue;
        }
#pragma unroll 1
        for (int32_t i = 0; i < count; i++)
            put(a, at + i * a.p.to.channel, i == 0 ? sum[0] : i == 1 ? sum[1] : i == 2 ? sum[2] : sum[3]);
    }
}

/* All but the splits. */
inline tartan_status few_conv_of(const char *function, tartan_cuda_queue *queue, const tartan_cuda_conv *p,
                                 FewConv *a) {
    void *map;
    PASS(results_of(function, queue, p, a, &map)); /* there are no windows, so there is no map */
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        a->from_stride[d] = p->adjoint ? 1 : (uint32_t)p->taps.stride[d];
        a->to_stride[d] = 1; /* positions are not taken by their remainders */
    }
    a->tiles = (a->positions + kPositions - 1) / kPositions;
    a->from_pieces = piece_image_of(p->from, 8);
    a->to_places = few_positions_of(p->to);
    a->taps = few_taps_of(p->taps, p->from_slots.grid);
    a->wide = p->to.dtype == p->dtype && conv_pieces::stores_wide(p->to, a->last, 8);
    return TARTAN_OK;
}

inline bool steps_back(const tartan_cuda_conv &p) {
    return p.adjoint && p.taps.stride[0] * p.taps.stride[1] * p.taps.stride[2] > 1;
}

} // namespace
} // namespace conv_few
} // namespace tartan_cuda

#endif
