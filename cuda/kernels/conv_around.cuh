/* SPDX-License-Identifier: Apache-2.0
 * The small kernels that run before and after the kernel of conv_wgmma.cu. */
#ifndef TARTAN_CUDA_CONV_AROUND_CUH
#define TARTAN_CUDA_CONV_AROUND_CUH

#include "device/ptx_base.cuh"
#include "kernels/conv_epilogue.cuh"
#include "kernels/conv_turn.cuh"

namespace tartan_cuda {

namespace {

/* ---- Weights ---- */

enum { kConvPackThreads = 256 };

/* Packs the 8 x 8 weights of each source as 8 rows of 8 channels. A thread has 16 bytes, so that a warp reads few lines of memory
 * even where all CTAs run on the first SMs that the kernel before leaves. Further CTAs, `windows_from` on, number the active
 * windows. */
__global__ void __launch_bounds__(kConvPackThreads)
    conv_pack(const int32_t *sources, int64_t count, const uint16_t *values, int32_t to_stride,
              int32_t from_stride, uint4 *packed, uint32_t windows_from, const __grid_constant__ Windows w,
              int32_t *windows_at) {
    /* A place in an item: its 8 slots `eight`, the half of its channels, and a slot or a channel in these. Neighbouring
     * threads take neighbours in memory. */
    constexpr int32_t kItem = 8 * TARTAN_CUDA_CONV_SOURCES;
    __shared__ __align__(16) uint16_t rooms[kConvPackThreads / kItem][2][8][TARTAN_CUDA_CONV_GROUP];
    const bool slots_first = from_stride != 1;
    const int32_t at = threadIdx.x % kItem;
    const int32_t half = slots_first ? at / 64 : at % 2, eight = slots_first ? at % 8 : at / 16,
                  line = slots_first ? at / 8 % 8 : at / 2 % 8;
    const int64_t first =
        ((int64_t)blockIdx.x * kConvPackThreads + threadIdx.x - at) / 8; /* source of the item */
    const int32_t source =
        first < count ? sources[first + 8 * half + eight] : -1; /* of a table: nobody writes it */
    wait_for_kernels_before();
    let_next_kernel_begin(); /* not earlier: it does not wait for the one before this */
    if (blockIdx.x >= windows_from) {
        const int64_t entry = (int64_t)(blockIdx.x - windows_from) * kConvPackThreads + threadIdx.x;
        if (entry < w.lists.pointers[w.lines])
            windows_at[entry] = (int32_t)(tartan_cuda_row_of(w.lists.pointers, w.lines, entry) * w.grid_cols +
                                          w.lists.cols[entry]);
        return;
    }
    uint4 value = make_uint4(0, 0, 0, 0);
    if (source >= 0)
        value = *(const uint4 *)(values + (int64_t)source * 8 +
                                 (int64_t)line * (slots_first ? from_stride : to_stride));
    if (!slots_first) {
        if (first < count) packed[8 * (first + 8 * half + eight) + line] = value;
        return;
    }
    auto &room = rooms[threadIdx.x / kItem];
    *(uint4 *)&room[half][line][8 * eight] = value;
    __syncthreads();
    alignas(16) uint16_t row[8]; /* of slot at % 64, the channels of half at / 64 */
#pragma unroll
    for (int c = 0; c < 8; c++) row[c] = room[at / 64][c][at % 64];
    if (first < count) packed[8 * first + at] = *(const uint4 *)row;
}

/* ---- Results that the kernel leaves as sums ---- */

/* [images][d][h][w][channels] of f32 to `to`. */
template <typename T>
__global__ void __launch_bounds__(256)
    conv_last(const __grid_constant__ tartan_cuda_conv p, const __grid_constant__ ConvEpilogue last,
              const __grid_constant__ Windows windows, bool restricted, const float *sums,
              int64_t positions) {
    const int64_t all = positions * p.to.channels;
    const bool along = tartan_cuda_is_along(p.to.channel, p.to.step[TARTAN_I_DIMS - 1]);
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < all; e += (int64_t)gridDim.x * 256) {
        const int64_t number = along ? e / p.to.channels : e % positions,
                      channel = along ? e % p.to.channels : e / positions;
        const Position x =
            restricted ? window_position(windows, number, p.to.size) : position_of(number, p.to.size);
        if (x.image < 0) continue;
        const int64_t pixel =
            ((x.image * p.to.size[0] + x.at[0]) * p.to.size[1] + x.at[1]) * p.to.size[2] + x.at[2];
        const float y = conv_finish<float>(last, edge_class_of(last.edges, x), channel,
                                           sums[pixel * p.to.channels + channel]);
        conv_put<T>(last, p.to.data, p.to.dtype, element_of(p.to, x) + channel * p.to.channel, y);
    }
}

} // namespace

} // namespace tartan_cuda

#endif
