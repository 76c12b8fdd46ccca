/* SPDX-License-Identifier: Apache-2.0
 * The small kernels before and after that of conv_wgmma.cu. */
#ifndef TARTAN_CUDA_CONV_AROUND_CUH
#define TARTAN_CUDA_CONV_AROUND_CUH

#include "device/ptx_base.cuh"
#include "kernels/conv_epilogue.cuh"

namespace tartan_cuda {

namespace {

/* ---- Weights ---- */

/* Packs the 8 x 8 weights of each source as 8 rows of 8 channels; further CTAs, `windows_from` on, number the active
 * windows. */
template <typename T>
__global__ void __launch_bounds__(128)
    conv_pack(const int32_t *sources, int64_t count, const T *values, int32_t to_stride, int32_t from_stride,
              uint4 *packed, uint32_t windows_from, const __grid_constant__ Windows w, int32_t *windows_at) {
    wait_for_kernels_before();
    let_next_kernel_begin(); /* not earlier: it does not wait for the one before this */
    if (blockIdx.x >= windows_from) {
        const int64_t entry = (int64_t)(blockIdx.x - windows_from) * 128 + threadIdx.x;
        if (entry < w.lists.pointers[w.lines])
            windows_at[entry] = (int32_t)(tartan_cuda_row_of(w.lists.pointers, w.lines, entry) * w.grid_cols +
                                          w.lists.cols[entry]);
        return;
    }
    const int64_t i = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (i >= count) return;
    const int32_t source = sources[i];
    alignas(16) T rows[8][8];
#pragma unroll
    for (int r = 0; r < 8; r++) *(uint4 *)rows[r] = make_uint4(0, 0, 0, 0);
    if (source >= 0) {
        const T *at = values + (int64_t)source * 8;
#pragma unroll
        for (int r = 0; r < 8; r++)
            *(uint4 *)rows[r] =
                *(const uint4 *)(at + (int64_t)r * (from_stride == 1 ? to_stride : from_stride));
        if (from_stride != 1) {
#pragma unroll
            for (int r = 0; r < 8; r++)
#pragma unroll
                for (int c = 0; c < r; c++) {
                    const T x = rows[r][c];
                    rows[r][c] = rows[c][r];
                    rows[c][r] = x;
                }
        }
    }
#pragma unroll
    for (int r = 0; r < 8; r++) packed[8 * i + r] = *(const uint4 *)rows[r];
}

/* ---- Pixels ---- */

/* Copies an image of any strides to [images][d][h][w][channels], of which pixels outside of the active windows become 0. A
 * thread has 8 channels. */
__global__ void __launch_bounds__(256)
    conv_turn(const __grid_constant__ tartan_cuda_image from, const __grid_constant__ Windows windows,
              int64_t positions, uint4 *to) {
    const int64_t pieces = from.channels / 8, all = positions * pieces;
    const bool along = from.channel == 1;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < all; e += (int64_t)gridDim.x * 256) {
        const int64_t number = along ? e / pieces : e % positions, piece = along ? e % pieces : e / positions;
        const Position x = position_of(number, from.size);
        alignas(16) uint16_t values[8] = {};
        if (is_active(windows, x)) {
            const uint16_t *at = (const uint16_t *)from.data + element_of(from, x) + 8 * piece * from.channel;
#pragma unroll
            for (int i = 0; i < 8; i++) values[i] = at[i * from.channel];
        }
        to[number * pieces + piece] = *(const uint4 *)values;
    }
}

/* ---- Results that the kernel leaves as sums ---- */

/* [images][d][h][w][channels] of f32 to `to`. */
template <typename T>
__global__ void __launch_bounds__(256)
    conv_last(const __grid_constant__ tartan_cuda_conv p, const __grid_constant__ ConvEpilogue last,
              const __grid_constant__ Windows windows, bool restricted, const float *sums,
              int64_t positions) {
    const int64_t all = positions * p.to.channels;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < all; e += (int64_t)gridDim.x * 256) {
        const int64_t number = e / p.to.channels, channel = e % p.to.channels;
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
