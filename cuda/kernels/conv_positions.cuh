/* SPDX-License-Identifier: Apache-2.0
 * Positions of images as the plain kernels of convolution number them, active windows, and how taps lead from one image to the
 * other. */
#ifndef TARTAN_CUDA_CONV_POSITIONS_CUH
#define TARTAN_CUDA_CONV_POSITIONS_CUH

#include "conv_tables.h"
#include "device/launch.cuh"
#include "device_memory.h"

namespace tartan_cuda {

/* A position of an image; image < 0: there is none. */
struct Position {
    int64_t image, at[TARTAN_I_DIMS];
};

/* The active windows of an image. */
struct Windows {
    tartan_cuda_active of;
    tartan_cuda_row_index lists; /* of the layout */
    int64_t lines;               /* heads * grid_rows of the layout */
    int64_t grid_cols, all;      /* windows of an image */
    int64_t positions;           /* of a window */
    const uint8_t *map;          /* [images * all] whether a window is active; or NULL */
};

__device__ __forceinline__ Position position_of(int64_t number, const int64_t *size) {
    Position x;
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        x.at[d] = number % size[d];
        number /= size[d];
    }
    x.image = number;
    return x;
}

/* Position `number` of all active windows, one after the other. */
__device__ __forceinline__ Position window_position(const Windows &w, int64_t number, const int64_t *size) {
    const int64_t entry = number / w.positions;
    Position x = {-1, {}};
    if (entry >= w.lists.pointers[w.lines]) return x;
    const int64_t line = tartan_cuda_row_of(w.lists.pointers, w.lines, entry);
    int64_t window = line * w.grid_cols + w.lists.cols[entry], inside = number % w.positions;
    bool there = true;
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        x.at[d] = w.of.offset[d] + window % w.of.count[d] * w.of.stride[d] + inside % w.of.size[d];
        there = there && x.at[d] >= 0 && x.at[d] < size[d];
        window /= w.of.count[d];
        inside /= w.of.size[d];
    }
    if (there) x.image = window;
    return x;
}

/* Whether a position is in an active window; always if there is no map. */
__device__ __forceinline__ bool is_active(const Windows &w, const Position &x) {
    if (w.map == nullptr) return true;
    int64_t window = x.image;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        const int64_t from = x.at[d] - w.of.offset[d];
        if (from < 0 || from % w.of.stride[d] >= w.of.size[d] || from / w.of.stride[d] >= w.of.count[d])
            return false;
        window = window * w.of.count[d] + from / w.of.stride[d];
    }
    return w.map[window] != 0;
}

/* The input position that tap `tap` joins with an output position, or with `adjoint` the other way round; false if there is
 * none in an image of `size`. */
__device__ __forceinline__ bool step_tap(const tartan_cuda_taps &t, bool adjoint, const int64_t *tap,
                                         const Position &from, const int64_t *size, Position *out) {
    out->image = from.image;
    bool there = true;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        const int64_t shift = tap[d] * t.dilation[d] - t.before[d];
        int64_t at = adjoint ? from.at[d] - shift : from.at[d] * t.stride[d] + shift;
        if (adjoint) {
            there = there && at >= 0 && at % t.stride[d] == 0;
            at /= t.stride[d];
        }
        there = there && at >= 0 && at < size[d];
        out->at[d] = at;
    }
    return there;
}

__device__ __forceinline__ int64_t element_of(const tartan_cuda_image &image, const Position &x) {
    return x.image * image.entry + x.at[0] * image.step[0] + x.at[1] * image.step[1] +
           x.at[2] * image.step[2];
}

namespace {

__global__ void __launch_bounds__(256) conv_mark(const __grid_constant__ Windows w, uint8_t *map) {
    const int64_t count = w.lists.pointers[w.lines];
    for (int64_t entry = blockIdx.x * 256 + threadIdx.x; entry < count; entry += (int64_t)gridDim.x * 256)
        map[tartan_cuda_row_of(w.lists.pointers, w.lines, entry) * w.grid_cols + w.lists.cols[entry]] = 1;
}

/* The windows of `of`, with a map in *scratch, which the caller gives back, if `marked`. */
inline tartan_status windows_of(const char *function, tartan_cuda_queue *queue, const tartan_cuda_active &of,
                                bool marked, Windows *out, void **scratch) {
    *out = {};
    if (of.layout == nullptr) return TARTAN_OK;
    const tartan_layout *l = of.layout;
    out->of = of;
    out->lines = l->shape.heads * l->grid_rows;
    out->grid_cols = l->grid_cols;
    out->all = l->grid_rows * l->grid_cols;
    out->positions = of.size[0] * of.size[1] * of.size[2];
    if (l->blocks > 0) PASS(tartan_cuda_index_get_rows(function, queue, l, false, &out->lists));
    if (!marked) return TARTAN_OK;
    const int64_t bytes = l->shape.heads * out->all;
    PASS(tartan_cuda_scratch(function, queue, bytes + 1, scratch));
    out->map = (const uint8_t *)*scratch;
    PASS(tartan_cuda_check(function, cudaMemsetAsync(*scratch, 0, (size_t)bytes + 1, queue->stream),
                           "clearing a map of windows"));
    if (l->blocks == 0) return TARTAN_OK;
    return tartan_cuda_launch(function, queue, conv_mark, tartan_cuda_grid((l->blocks + 255) / 256),
                              dim3(256), *out, (uint8_t *)*scratch);
}

} // namespace

} // namespace tartan_cuda

#endif
