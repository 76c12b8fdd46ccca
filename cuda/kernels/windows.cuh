/* SPDX-License-Identifier: Apache-2.0
 * What gathers and scatters of windows share: one CTA or more for each window, elements in the order of the fast axis. */
#ifndef TARTAN_CUDA_WINDOWS_CUH
#define TARTAN_CUDA_WINDOWS_CUH

#include "device/element.cuh"
#include "device/launch.cuh"
#include "index_cache.h"

namespace {

constexpr int THREADS = 256, SIDE = 32, LINES = THREADS / SIDE, MOST_Y = 65535;

/* One side of a move: [item, channel, step...] in elements. */
struct view {
    void *data;
    int64_t item, channel, step[3];
};

/* Windows of an image and their blocks. */
struct frame {
    view image, blocks;
    int64_t channels;
    int32_t length[3];                               /* of the image */
    int32_t count[3], size[3], stride[3], offset[3]; /* of the windows */
    int64_t lines, grid_rows;                        /* of the layout: all heads; one head */
    const int32_t *pointers, *cols;
};

inline view view_of(const tartan_i_image *image) {
    return {image->data, image->item, image->channel, {image->step[0], image->step[1], image->step[2]}};
}

inline tartan_status frame_of(const char *function, tartan_cuda_queue *queue, const tartan_layout *layout,
                              const tartan_i_windows *windows, const tartan_i_image *image,
                              const tartan_i_image *blocks, frame *out) {
    tartan_cuda_row_index rows;
    PASS(tartan_cuda_index_get_rows(function, queue, layout, false, &rows));
    out->image = view_of(image);
    out->blocks = view_of(blocks);
    out->channels = image->channels;
    for (int d = 0; d < 3; d++) {
        out->length[d] = (int32_t)image->size[d];
        out->count[d] = (int32_t)windows->count[d];
        out->size[d] = (int32_t)windows->size[d];
        out->stride[d] = (int32_t)windows->stride[d];
        out->offset[d] = (int32_t)windows->offset[d];
    }
    out->lines = layout->shape.heads * layout->grid_rows;
    out->grid_rows = layout->grid_rows;
    out->pointers = rows.pointers;
    out->cols = rows.cols;
    return TARTAN_OK;
}

/* Whether neighbours in memory are channels, not positions of the last dimension. */
inline bool by_channel(const tartan_i_image *image) {
    const int64_t channel = image->channel < 0 ? -image->channel : image->channel,
                  step = image->step[2] < 0 ? -image->step[2] : image->step[2];
    if (image->channels == 1 || image->size[2] == 1) return image->size[2] == 1;
    return channel < step;
}

/* Where a window begins. */
struct window {
    int64_t first[3]; /* in the image, perhaps outside of it */
    int64_t image;    /* offset of that position */
    int64_t block;    /* offset of the block */
    bool is;          /* false: past the last window of a dynamic layout */
};

/* By all threads of a CTA. */
__device__ __forceinline__ window window_of(const frame &f, int64_t block) {
    __shared__ int32_t row;
    window w = {};
    w.is = block < f.pointers[f.lines];
    if (!w.is) return w;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) row = (int32_t)tartan_cuda_row_of(f.pointers, f.lines, block);
    __syncthreads();
    const int32_t in_head = (int32_t)(row % f.grid_rows);
    const int32_t at[3] = {in_head / f.count[1], in_head % f.count[1], f.cols[block]};
    w.image = row / f.grid_rows * f.image.item;
    w.block = block * f.blocks.item;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        w.first[d] = f.offset[d] + (int64_t)at[d] * f.stride[d];
        w.image += w.first[d] * f.image.step[d];
    }
    return w;
}

/* A position of a window: offsets of the image and of the block from where the window begins. */
struct place {
    int64_t image, block;
    bool inside; /* of the image */
};
__device__ __forceinline__ place place_of(const frame &f, const window &w, uint32_t i, uint32_t j,
                                          uint32_t k) {
    const uint32_t at[3] = {i, j, k};
    place p = {0, 0, true};
#pragma unroll
    for (int d = 0; d < 3; d++) {
        const int64_t position = w.first[d] + at[d];
        p.inside = p.inside && position >= 0 && position < f.length[d];
        p.image += at[d] * f.image.step[d];
        p.block += at[d] * f.blocks.step[d];
    }
    return p;
}

/* The same for an element of a window, counted with channels or positions of the last dimension fastest. `I` is an unsigned
 * type that can count the elements of a window. */
template <bool CHANNELS, typename I>
__device__ __forceinline__ place element_of(const frame &f, const window &w, I n) {
    I c = 0;
    if (CHANNELS) c = n % (I)f.channels, n /= (I)f.channels;
    const I k = n % (I)f.size[2];
    n /= (I)f.size[2];
    const I j = n % (I)f.size[1];
    n /= (I)f.size[1];
    const I i = CHANNELS ? n : n % (I)f.size[0];
    if (!CHANNELS) c = n / (I)f.size[0];
    place p = place_of(f, w, (uint32_t)i, (uint32_t)j, (uint32_t)k);
    p.image += w.image + (int64_t)c * f.image.channel;
    p.block += w.block + (int64_t)c * f.blocks.channel;
    return p;
}

inline int64_t elements_of(const frame &f) {
    return f.channels * f.size[0] * f.size[1] * f.size[2];
}

inline unsigned pieces(int64_t count, int64_t each) {
    const int64_t all = (count - 1) / each + 1;
    return (unsigned)(all < MOST_Y ? all : MOST_Y);
}

/* f(whether channels are fastest, an index that can count the elements) as template arguments. */
template <typename F> inline auto by_order(bool channels, int64_t elements, F f) {
    const bool small = elements <= INT32_MAX;
    if (channels) return small ? f(std::true_type(), uint32_t()) : f(std::true_type(), uint64_t());
    return small ? f(std::false_type(), uint32_t()) : f(std::false_type(), uint64_t());
}

/* Makes elements of packs of `count` channels, if memory allows. */
inline bool can_pack(const tartan_i_image *image, int count) {
    const int64_t bytes = image->bytes * count;
    const auto fits = [&](int64_t length, int64_t stride) { return length <= 1 || stride % count == 0; };
    return image->channel == 1 && image->channels % count == 0 &&
           (uintptr_t)image->data % (uintptr_t)bytes == 0 && fits(image->count, image->item) &&
           fits(image->size[0], image->step[0]) && fits(image->size[1], image->step[1]) &&
           fits(image->size[2], image->step[2]);
}
inline tartan_i_image packed(const tartan_i_image *image, int count) {
    tartan_i_image p = *image;
    p.bytes *= count;
    p.channels /= count;
    p.item /= count;
    for (int64_t &step : p.step) step /= count;
    return p;
}

/* ---- Moving bits ---- */

/* CLEAR writes zeros to windows of the image, OUTSIDE to the parts of blocks that are outside of the image. */
enum way { GATHER, SCATTER, CLEAR, OUTSIDE };

constexpr bool is_move(way w) {
    return w == GATHER || w == SCATTER;
}

/* Whether all of a window is inside of the image. */
__device__ __forceinline__ bool is_inside(const frame &f, const window &w) {
    bool inside = true;
#pragma unroll
    for (int d = 0; d < 3; d++)
        inside = inside && w.first[d] >= 0 && w.first[d] + f.size[d] <= (int64_t)f.length[d];
    return inside;
}

template <typename T, way WAY> __device__ __forceinline__ void move_one(const frame &f, const place &p) {
    if (WAY == OUTSIDE) {
        if (!p.inside) ((T *)f.blocks.data)[p.block] = T();
    } else if (WAY == GATHER)
        ((T *)f.blocks.data)[p.block] = p.inside ? ((const T *)f.image.data)[p.image] : T();
    else if (p.inside)
        ((T *)f.image.data)[p.image] = WAY == CLEAR ? T() : ((const T *)f.blocks.data)[p.block];
}

template <typename T, way WAY, bool CHANNELS, typename I>
__global__ void __launch_bounds__(THREADS) move_elements(const __grid_constant__ frame f, I elements) {
    const window w = window_of(f, blockIdx.x);
    if (!w.is || (WAY == OUTSIDE && is_inside(f, w))) return;
    const I step = (I)gridDim.y * THREADS;
#pragma unroll 4
    for (I n = (I)blockIdx.y * THREADS + threadIdx.x; n < elements; n += step)
        move_one<T, WAY>(f, element_of<CHANNELS>(f, w, n));
}

/* Tiles of 32 positions x 32 channels, where channels are the fast axis of one side and not of the other. */
template <typename T, way WAY, bool IMAGE_BY_CHANNEL>
__global__ void __launch_bounds__(THREADS)
    move_tiles(const __grid_constant__ frame f, int64_t positions, int64_t tiles, int64_t across) {
    __shared__ T tile[SIDE][SIDE + 1]; /* [position][channel] */
    const window w = window_of(f, blockIdx.x);
    if (!w.is) return;
    constexpr bool reads_channels = (WAY == GATHER) == IMAGE_BY_CHANNEL;
    for (int64_t t = blockIdx.y; t < tiles; t += gridDim.y) {
        const int64_t position = t / across * SIDE;
        const int64_t channel = t % across * SIDE;
#pragma unroll
        for (int side = 0; side < 2; side++) { /* read, then write */
            const bool lanes_are_channels = (side == 0) == reads_channels;
#pragma unroll
            for (int line = 0; line < SIDE; line += LINES) {
                const int here = line + (int)threadIdx.y, lane = (int)threadIdx.x;
                const int p = lanes_are_channels ? here : lane, c = lanes_are_channels ? lane : here;
                if (position + p >= positions || channel + c >= f.channels) continue;
                const uint64_t n = (uint64_t)(position + p);
                const uint32_t row = (uint32_t)(n / (uint32_t)f.size[2]),
                               k = (uint32_t)(n % (uint32_t)f.size[2]);
                const place at = place_of(f, w, row / (uint32_t)f.size[1], row % (uint32_t)f.size[1], k);
                const int64_t image = w.image + at.image + (channel + c) * f.image.channel,
                              block = w.block + at.block + (channel + c) * f.blocks.channel;
                if (side == 0 && WAY == GATHER)
                    tile[p][c] = at.inside ? ((const T *)f.image.data)[image] : T();
                else if (side == 0)
                    tile[p][c] = ((const T *)f.blocks.data)[block];
                else if (WAY == GATHER)
                    ((T *)f.blocks.data)[block] = tile[p][c];
                else if (at.inside)
                    ((T *)f.image.data)[image] = tile[p][c];
            }
            __syncthreads();
        }
    }
}

template <typename T, way WAY>
tartan_status move_as(const char *function, tartan_cuda_queue *queue, const frame &f, int64_t blocks,
                      bool image_by_channel, bool blocks_by_channel) {
    const int64_t elements = elements_of(f), positions = elements / f.channels;
    dim3 grid = tartan_cuda_grid(blocks);
    if (is_move(WAY) && sizeof(T) <= 8 && image_by_channel != blocks_by_channel) {
        if constexpr (is_move(WAY) && sizeof(T) <= 8) {
            const int64_t across = (f.channels - 1) / SIDE + 1;
            const int64_t tiles = ((positions - 1) / SIDE + 1) * across;
            grid.y = pieces(tiles, 1);
            return tartan_cuda_launch(function, queue,
                                      image_by_channel ? move_tiles<T, WAY, true> : move_tiles<T, WAY, false>,
                                      grid, dim3(SIDE, LINES), f, positions, tiles, across);
        }
    }
    grid.y = pieces(elements, 4 * THREADS);
    return by_order(image_by_channel, elements, [&](auto channels, auto index) {
        return tartan_cuda_launch(function, queue,
                                  move_elements<T, WAY, decltype(channels)::value, decltype(index)>, grid,
                                  dim3(THREADS), f, (decltype(index))elements);
    });
}

/* Copies windows between an image and blocks, or clears parts of one of them. The image of OUTSIDE, which is not used, may
 * have any strides. */
template <way WAY>
tartan_status move_windows(const char *function, tartan_cuda_queue *queue, const tartan_layout *layout,
                           const tartan_i_windows *windows, const tartan_i_image *image,
                           const tartan_i_image *blocks) {
    const int count = (int)(16 / image->bytes);
    const bool packs =
        (WAY == OUTSIDE || can_pack(image, count)) && (WAY == CLEAR || can_pack(blocks, count));
    const tartan_i_image image_packs = packs ? packed(image, count) : *image,
                         block_packs = packs && WAY != CLEAR ? packed(blocks, count) : *blocks;
    const bool blocks_by = packs || WAY == CLEAR || by_channel(blocks),
               image_by = packs || (WAY == OUTSIDE ? blocks_by : by_channel(image));
    frame f;
    PASS(frame_of(function, queue, layout, windows, &image_packs, &block_packs, &f));
    switch (image_packs.bytes) {
    case 16:
        return move_as<uint4, WAY>(function, queue, f, layout->blocks, image_by, blocks_by);
    case 8:
        return move_as<uint64_t, WAY>(function, queue, f, layout->blocks, image_by, blocks_by);
    case 4:
        return move_as<uint32_t, WAY>(function, queue, f, layout->blocks, image_by, blocks_by);
    default:
        return move_as<uint16_t, WAY>(function, queue, f, layout->blocks, image_by, blocks_by);
    }
}

} // namespace

#endif
