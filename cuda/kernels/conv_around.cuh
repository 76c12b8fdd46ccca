/* SPDX-License-Identifier: Apache-2.0
 * The small kernels that run before and after the kernel of conv_wgmma.cu. */
#ifndef TARTAN_CUDA_CONV_AROUND_CUH
#define TARTAN_CUDA_CONV_AROUND_CUH

#include "kernels/conv_store.cuh"
#include "kernels/conv_turn.cuh"

namespace tartan_cuda {

namespace {

/* ---- Weights ---- */

enum { kConvPackThreads = 256 };

/* Numbers the active windows, by the CTAs from `windows_from` on; false for others. */
__device__ __forceinline__ bool number_windows(const Windows &w, uint32_t windows_from, int32_t *windows_at) {
    if (blockIdx.x < windows_from) return false;
    const int64_t entry = (int64_t)(blockIdx.x - windows_from) * kConvPackThreads + threadIdx.x;
    if (entry < w.lists.pointers[w.lines])
        windows_at[entry] = (int32_t)(tartan_cuda_row_of(w.lists.pointers, w.lines, entry) * w.grid_cols +
                                      w.lists.cols[entry]);
    return true;
}

/* Packs the 8 x 8 weights of each source as 8 rows of 8 channels. A thread has 16 bytes, so that a warp reads few lines of memory
 * even where all CTAs run on the first SMs that the kernel before leaves. Further CTAs number the active windows. */
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
    if (number_windows(w, windows_from, windows_at)) return;
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

/* The same for f32: packs 8 rows of 4 channels, rounded to tf32, or with `parts` as sums of two numbers of tf32, the second of which
 * takes the place of the item that is four further. A thread has a row of an item; neighbouring threads take neighbours in
 * memory. */
__global__ void __launch_bounds__(kConvPackThreads)
    conv_pack_f32(const int32_t *sources, int64_t count, int32_t parts, const uint32_t *values,
                  int32_t to_stride, int32_t from_stride, uint4 *packed, uint32_t windows_from,
                  const __grid_constant__ Windows w, int32_t *windows_at) {
    const int64_t at = (int64_t)blockIdx.x * kConvPackThreads + threadIdx.x;
    const int32_t row = (int32_t)(at % 8);
    const bool slots_first = from_stride != 1;
    /* Channels are neighbours in an item's two sources of the same slots, 8 apart. */
    const int32_t place = (int32_t)(at / 8 % TARTAN_CUDA_CONV_SOURCES),
                  inside = slots_first ? place : place % 2 * 8 + place / 2;
    const int64_t source_at = at / 8 - place + inside;
    const int32_t source = source_at < count ? sources[source_at] : -1; /* of a table: nobody writes it */
    wait_for_kernels_before();
    let_next_kernel_begin(); /* not earlier: it does not wait for the one before this */
    if (number_windows(w, windows_from, windows_at) || source_at >= count) return;
    const int32_t item = (int32_t)(source_at / TARTAN_CUDA_CONV_SOURCES % TARTAN_CUDA_CONV_ITEMS);
    if (parts == 2 && item >= TARTAN_CUDA_CONV_ITEMS / 2) return;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (source >= 0) {
        const uint32_t *from = values + (int64_t)source * 4 + (int64_t)row * to_stride;
        value = slots_first
                    ? make_uint4(from[0], from[from_stride], from[2 * from_stride], from[3 * from_stride])
                    : *(const uint4 *)from;
    }
    const ConvParts x = divide_factor(value.x), y = divide_factor(value.y), z = divide_factor(value.z),
                    u = divide_factor(value.w);
    packed[8 * source_at + row] = make_uint4(x.high, y.high, z.high, u.high);
    if (parts == 2)
        packed[8 * (source_at + TARTAN_CUDA_CONV_ITEMS / 2 * TARTAN_CUDA_CONV_SOURCES) + row] =
            make_uint4(x.low, y.low, z.low, u.low);
}

/* ---- Results that the kernel leaves as sums ---- */

/* The sum of the lists that share it, in order; if it is not finite, that of the stored blocks alone. */
template <typename T>
__device__ __forceinline__ float add_splits(const ConvProblem &g, const float *sums, const Position &x,
                                            int64_t channel) {
    float sum = sums[0];
    for (int32_t i = 1; i < g.form.splits; i++) sum += sums[i * (g.to_split / (int64_t)sizeof(float))];
    return g.form.splits > 1 && sum * 0 != 0 ? exact_result<T>(g, x, (int32_t)channel) : sum;
}

/* Results that are f32 with contiguous channels, sums of several lists; by 16 bytes. `all`: units of these. */
__global__ void __launch_bounds__(256)
    conv_add(const __grid_constant__ ConvProblem g, const __grid_constant__ tartan_cuda_image to,
             const __grid_constant__ ConvEpilogue last, const float *sums, uint32_t all) {
    const uint32_t e = blockIdx.x * 256 + threadIdx.x, units = (uint32_t)g.channels / 4;
    wait_for_kernels_before();
    if (e >= all) return;
    uint32_t number = e / units;
    const uint32_t channel = e % units * 4;
    float4 y = ((const float4 *)sums)[e];
    for (int32_t i = 1; i < g.form.splits; i++) {
        const float4 more = ((const float4 *)((const char *)sums + i * g.to_split))[e];
        y.x += more.x, y.y += more.y, y.z += more.z, y.w += more.w;
    }
    Position x;
    int64_t at = 0;
#pragma unroll
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const uint32_t size = (uint32_t)to.size[d], inside = number % size;
        x.at[d] = inside;
        at += inside * to.step[d];
        number /= size;
    }
    x.image = number;
    at += number * to.entry + channel;
    const bool broken = (y.x * 0 + y.y * 0) + (y.z * 0 + y.w * 0) != 0;
    alignas(16) float values[] = {y.x, y.y, y.z, y.w};
    for (int i = 0; i < 4; i++) {
        if (broken) values[i] = exact_result<float>(g, x, (int32_t)channel + i);
        values[i] = conv_finish<float>(last, 0, channel + i, values[i]);
    }
    *(float4 *)((float *)to.data + at) = *(const float4 *)values;
}

/* [images][d][h][w][channels] of f32 to `to`. */
template <typename T>
__global__ void __launch_bounds__(256)
    conv_last(const __grid_constant__ ConvProblem g, const __grid_constant__ tartan_cuda_conv p,
              const __grid_constant__ ConvEpilogue last, const __grid_constant__ Windows windows,
              bool restricted, const float *sums, int64_t positions) {
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
        const float y =
            conv_finish<float>(last, edge_class_of(last.edges, x), channel,
                               add_splits<T>(g, sums + pixel * p.to.channels + channel, x, channel));
        conv_put<T>(last, p.to.data, p.to.dtype, element_of(p.to, x) + channel * p.to.channel, y);
    }
}

} // namespace

} // namespace tartan_cuda

#endif
