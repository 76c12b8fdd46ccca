/* SPDX-License-Identifier: Apache-2.0
 * Depthwise filters of 3, 5 or 7 taps along rows, and neighbouring positions that see neighbouring pixels. A thread has a piece of
 * the result at 8 neighbouring positions; of each row of the filter it keeps the weights in registers while the pixels that these
 * positions see pass by, each loaded and converted once. */
#ifndef TARTAN_CUDA_CONV_DEPTHWISE_ROWS_CUH
#define TARTAN_CUDA_CONV_DEPTHWISE_ROWS_CUH

#include "kernels/conv_depthwise_store.cuh"

namespace tartan_cuda {
namespace conv_depthwise_rows {
namespace {

using conv_depthwise::Lattice;
using conv_depthwise::Walk;
using conv_pieces::Args;

constexpr int kEach = 8; /* positions of a thread */

template <typename T, int kTaps_> struct Form {
    static constexpr int kTaps = kTaps_, kSlots = 16 / (int)sizeof(T);
    /* Registers of the weights, beside those of the sums. */
    static constexpr bool kFew = kTaps * kSlots * (int)sizeof(tartan_cuda_sum<T>) / 4 <= 28;
    static constexpr int kThreads = kFew ? 256 : 384, kCtas = kFew ? 2 : 1;
};

/* Adds what a row of the filter contributes. x: the first pixel that these positions see, which is in column `column`; weights: of
 * the tap that sees it, `next` pieces before that of its neighbour. */
template <class F, typename T, typename S>
__device__ __forceinline__ void add_row(const Args &a, const char *x, int32_t column, const S *weights,
                                        int32_t next, S (&sums)[kEach][F::kSlots]) {
    constexpr int kTaps = F::kTaps, kSlots = F::kSlots, kPixels = kEach + kTaps - 1;
    const uint32_t width = a.from_pieces.size[2];
    const int32_t pitch = 16 * a.from_pieces.step[2];
    alignas(16) S of_tap[kTaps][kSlots];
#pragma unroll
    for (int t = 0; t < kTaps; t++)
#pragma unroll
        for (int i = 0; i < kSlots * (int)sizeof(S) / 16; i++)
            ((uint4 *)of_tap[t])[i] = ((const uint4 *)(weights + t * next * kSlots))[i];
    alignas(16) T pixel[2][kSlots] = {}; /* the next one is loaded while one is multiplied */
    const auto load = [&](int j) {
        if ((uint32_t)(column + j) < width) *(uint4 *)pixel[j % 2] = *(const uint4 *)(x + (int64_t)j * pitch);
    };
    load(0);
#pragma unroll
    for (int j = 0; j < kPixels; j++) {
        if (j + 1 < kPixels) load(j + 1);
        if ((uint32_t)(column + j) >= width) continue;
        S values[kSlots];
#pragma unroll
        for (int i = 0; i < kSlots; i++) values[i] = tartan_cuda_to<S>(pixel[j % 2][i]);
#pragma unroll
        for (int t = 0; t < kTaps; t++) {
            if (j - t < 0 || j - t >= kEach) continue;
#pragma unroll
            for (int i = 0; i < kSlots; i++) sums[j - t][i] = fma(of_tap[t][i], values[i], sums[j - t][i]);
        }
    }
}

template <typename T, int kTaps>
__global__ void __launch_bounds__(Form<T, kTaps>::kThreads, Form<T, kTaps>::kCtas)
    multiply(const __grid_constant__ Args a, int32_t lanes) {
    using F = Form<T, kTaps>;
    using S = tartan_cuda_sum<T>;
    constexpr int kSlots = F::kSlots;
    const int32_t parts = (a.list.form.groups + lanes - 1) / lanes, apart = F::kThreads / lanes,
                  line = (int32_t)threadIdx.x / lanes,
                  group = (int32_t)(blockIdx.x % parts) * lanes + (int32_t)threadIdx.x % lanes;
    if (group >= a.list.form.groups || line >= apart) return;
    const int32_t width = (int32_t)a.p.to.size[2];
    const Lattice lattice = {{(int32_t)a.p.to.size[0], (int32_t)a.p.to.size[1], (width + kEach - 1) / kEach},
                             {}};
    Walk w = conv_depthwise::begin_walk(lattice, (uint32_t)(blockIdx.x / parts) * apart + line);
    if (w.image < 0 || w.image >= a.p.entries) return;
    w.at[2] *= kEach;
    int4 spot =
        make_int4(w.at[0] * (int32_t)a.from_stride[0], w.at[1] * (int32_t)a.from_stride[1], w.at[2], 0);
    spot.w = w.image * a.from_pieces.entry + a.from_pieces.offset(spot);
    /* Taps of an input gradient go the other way. */
    const int32_t next = a.p.adjoint ? -1 : 1, ahead = a.p.adjoint ? kTaps - 1 : 0,
                  end = a.list.lists[group + 1];
    S sums[kEach][kSlots] = {};
    wait_for_kernels_before();
#pragma unroll 1
    for (int32_t e = a.list.lists[group]; e < end; e += kTaps) {
        const int4 piece = a.list.pieces[e + ahead];
        if ((uint32_t)(spot.x + piece.x) >= a.from_pieces.size[0] ||
            (uint32_t)(spot.y + piece.y) >= a.from_pieces.size[1])
            continue;
        const int32_t at = spot.w + piece.w + a.from_pieces.offset(piece);
        add_row<F, T>(a, a.from_pieces.data + (int64_t)at * 16, spot.z + piece.z,
                      (const S *)a.packed + (int64_t)(e + ahead) * kSlots, next, sums);
    }
    const int64_t first_slot = (int64_t)group * kSlots;
    const int32_t slots = (int32_t)min(a.p.to.channels - first_slot, (int64_t)kSlots);
#pragma unroll
    for (int j = 0; j < kEach; j++) {
        if (w.at[2] + j >= width) break;
        const Position x = {w.image, {w.at[0], w.at[1], w.at[2] + j}};
        conv_depthwise::store_sums<T>(a, element_of(a.p.to, x) + first_slot * a.p.to.channel, x, first_slot,
                                      slots, sums[j]);
    }
}

/* ---- On the host ---- */

/* Taps of a row if this kernel takes the filter, else 0; `full`: all slots of all pieces have a weight. */
inline int32_t taps_of(const Args &a, bool full) {
    const tartan_cuda_taps &t = a.p.taps;
    const bool fits = full && !a.restricted && !a.p.per_tap && t.stride[2] == 1 && t.dilation[2] == 1 &&
                      a.list.form.phases == 1 && a.list.form.empty == 0;
    const int32_t wide = (int32_t)t.kernel[2];
    return fits && (wide == 3 || wide == 5 || wide == 7) ? wide : 0;
}

template <typename T, int kTaps>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a) {
    using F = Form<T, kTaps>;
    const int32_t groups = a.list.form.groups, parts = (groups + 31) / 32,
                  lanes = (groups + parts - 1) / parts, apart = F::kThreads / lanes;
    int64_t runs = a.p.entries * a.p.to.size[0] * a.p.to.size[1];
    runs *= (a.p.to.size[2] + kEach - 1) / kEach;
    const cudaError_t error = tartan_cuda_launch_early(
        queue, tartan_cuda_starts_early(queue, a.p.layout), multiply<T, kTaps>,
        dim3((unsigned)((runs + apart - 1) / apart * parts)), dim3(F::kThreads), (size_t)0, a, lanes);
    return tartan_cuda_check(function, error, "starting the kernel conv_depthwise");
}

template <typename T>
tartan_status launch_any(const char *function, tartan_cuda_queue *queue, const Args &a, int32_t taps) {
    return taps == 3   ? launch<T, 3>(function, queue, a)
           : taps == 5 ? launch<T, 5>(function, queue, a)
                       : launch<T, 7>(function, queue, a);
}

} // namespace
} // namespace conv_depthwise_rows
} // namespace tartan_cuda

#endif
