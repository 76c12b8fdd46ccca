/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of conv_filter_gradient_mma.cu share, and those that list the tiles with active pixels. */
#ifndef TARTAN_CUDA_CONV_FILTER_GRADIENT_TILES_CUH
#define TARTAN_CUDA_CONV_FILTER_GRADIENT_TILES_CUH

#include "kernels/conv_epilogue.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_mma {
namespace {

constexpr int kThreads = 32 * TARTAN_CUDA_JOB_WARPS;

/* The first pixel of a tile; h and w may be negative. */
struct Tile {
    int32_t image, at[TARTAN_I_DIMS];
};

/* A tile that has active pixels, and which ones these are. */
struct ActiveTile {
    Tile tile;
    uint4 active;
};
static_assert(TARTAN_CUDA_JOB_PIXELS == 128, "as many as a uint4 has bits");

struct Problem {
    tartan_cuda_conv_filter_gradient p; /* images with contiguous channels */
    tartan_cuda_conv_job_form form;
    tartan_cuda_conv_job_tables jobs;
    int32_t splits;
    int64_t tiles;          /* of whole images */
    const ActiveTile *list; /* or NULL: all tiles */
    const int32_t *count;   /* tiles of the list */
    Windows windows;
    tartan_cuda_row_index rows; /* of the filter */
    float *sums;                /* [splits][weights] */
    int64_t weights;
};

/* ---- Tiles with active pixels ---- */

/* is_active for coordinates of 32 bits. */
__device__ __forceinline__ bool is_active_pixel(const Windows &w, int32_t image, const int32_t *at) {
    int64_t window = image;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        const int32_t from = at[d] - (int32_t)w.of.offset[d], stride = (int32_t)w.of.stride[d];
        const uint32_t number = (uint32_t)from / (uint32_t)stride;
        if (from < 0 || (int32_t)(from - number * stride) >= w.of.size[d] || number >= w.of.count[d])
            return false;
        window = window * w.of.count[d] + number;
    }
    return w.map[window] != 0;
}

__device__ __forceinline__ Tile tile_of(const Problem &g, int64_t number) {
    const tartan_cuda_conv_job_form &f = g.form;
    Tile t;
    t.at[2] = (int32_t)(number % f.tiles_w) * f.cols + f.origin[1];
    number /= f.tiles_w;
    t.at[1] = (int32_t)(number % f.tiles_h) * f.rows + f.origin[0];
    number /= f.tiles_h;
    t.at[0] = (int32_t)(number % g.p.out.size[0]);
    t.image = (int32_t)(number / g.p.out.size[0]);
    return t;
}

/* Which pixels of each tile are active: a warp takes a tile. */
__global__ void __launch_bounds__(256) mark_tiles(const __grid_constant__ Problem g, uint4 *active) {
    const tartan_cuda_conv_job_form &f = g.form;
    const int32_t lane = threadIdx.x % 32;
    for (int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) / 32; i < g.tiles;
         i += (int64_t)gridDim.x * 8) {
        const Tile t = tile_of(g, i);
        uint32_t words[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int32_t pixel = 32 * k + lane;
            const int32_t at[TARTAN_I_DIMS] = {t.at[0], t.at[1] + pixel / f.cols, t.at[2] + pixel % f.cols};
            words[k] = __ballot_sync(~0u, pixel < f.rows * f.cols && at[1] >= 0 && at[2] >= 0 &&
                                              at[1] < g.p.out.size[1] && at[2] < g.p.out.size[2] &&
                                              is_active_pixel(g.windows, t.image, at));
        }
        if (lane == 0) active[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

/* Lists the tiles that have active pixels, in their order; one CTA. */
__global__ void __launch_bounds__(1024)
    list_tiles(const __grid_constant__ Problem g, const uint4 *active, ActiveTile *list, int32_t *count) {
    __shared__ int32_t of_warp[32];
    const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t listed = 0;
    for (int64_t first = 0; first < g.tiles; first += 1024) {
        const int64_t i = first + threadIdx.x;
        const uint4 words = i < g.tiles ? active[i] : make_uint4(0, 0, 0, 0);
        const bool some = (words.x | words.y | words.z | words.w) != 0;
        const uint32_t those = __ballot_sync(~0u, some);
        if (lane == 0) of_warp[warp] = __popc(those);
        __syncthreads();
        int32_t before = 0, all = 0;
        for (int32_t w = 0; w < 32; w++) {
            before += w < warp ? of_warp[w] : 0;
            all += of_warp[w];
        }
        if (some) list[listed + before + __popc(those & ((1u << lane) - 1))] = {tile_of(g, i), words};
        listed += all;
        __syncthreads(); /* of_warp has been read */
    }
    if (threadIdx.x == 0) *count = listed;
}

} // namespace
} // namespace conv_filter_gradient_mma
} // namespace tartan_cuda

#endif
