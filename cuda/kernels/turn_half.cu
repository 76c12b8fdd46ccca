/* SPDX-License-Identifier: Apache-2.0
 * Transposes 16-bit Y in parts of 64 k. Bound by memory, 4 bytes an element: a tile of 64 x 128 is read in
 * rows of 256 bytes and written in lines of 128. */
#include "turn.h"

#include "../device/launch.cuh"

namespace {

enum { kThreads = 256, kTileK = 64, kTileN = 128, kPitch = kTileN + 2 };

struct TurnHalf {
    const char *from;
    uint16_t *to;
    int64_t k, n, row_bytes, head_bytes, entry_bytes;
    int64_t tiles_k, tiles_n, heads, entries;
};

/* 8 neighbours of a row, zeros beyond the matrix. Rows begin at multiples of 16 bytes, but need not end
 * there. */
__device__ __forceinline__ uint4 load_8(const char *row, int64_t left) {
    uint4 value = {0, 0, 0, 0};
    if (left >= 8) return *(const uint4 *)row;
    for (int64_t i = 0; i < left; i++) ((uint16_t *)&value)[i] = ((const uint16_t *)row)[i];
    return value;
}

__global__ void __launch_bounds__(kThreads) turn_half(const __grid_constant__ TurnHalf p) {
    __shared__ uint32_t tile[kTileK * kPitch / 2];
    const int32_t thread = threadIdx.x;
    const int64_t of_matrix = p.tiles_k * p.tiles_n, all = of_matrix * p.heads * p.entries;
    for (int64_t at = blockIdx.x; at < all; at += gridDim.x) {
        const int64_t matrix = at / of_matrix, rest = at % of_matrix;
        const int64_t tile_k = rest / p.tiles_n, k0 = tile_k * kTileK, n0 = rest % p.tiles_n * kTileN;
        const char *from = p.from + matrix % p.heads * p.head_bytes + matrix / p.heads * p.entry_bytes;
        uint4 value[4];
#pragma unroll
        for (int i = 0; i < 4; i++) { /* 16 threads read a row of the tile */
            const int64_t k = k0 + thread / 16 + 16 * i, n = n0 + thread % 16 * 8;
            value[i] = load_8(from + k * p.row_bytes + 2 * n, k < p.k ? p.n - n : 0);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t *to = tile + (thread / 16 + 16 * i) * (kPitch / 2) + thread % 16 * 4;
            to[0] = value[i].x, to[1] = value[i].y, to[2] = value[i].z, to[3] = value[i].w;
        }
        __syncthreads();
        uint16_t *to = p.to + ((matrix * p.tiles_k + tile_k) * p.n + n0) * kTileK;
#pragma unroll
        for (int i = 0; i < 4; i++) { /* 8 threads write a line */
            const int32_t n = thread / 8 + 32 * i, k = thread % 8 * 8;
            uint16_t line[8];
#pragma unroll
            for (int j = 0; j < 8; j++) line[j] = ((const uint16_t *)tile)[(k + j) * kPitch + n];
            if (n0 + n < p.n)
                *(uint4 *)(to + n * kTileK +
                           k) = {line[0] | (uint32_t)line[1] << 16, line[2] | (uint32_t)line[3] << 16,
                                 line[4] | (uint32_t)line[5] << 16, line[6] | (uint32_t)line[7] << 16};
        }
        __syncthreads();
    }
}

} // namespace

tartan_status tartan_cuda_turn_half(const char *function, tartan_cuda_queue *queue,
                                    const tartan_cuda_sddmm *p, int32_t number, void *to) {
    const auto &pair = p->pair[number];
    const TurnHalf t = {(const char *)pair.y.data,
                        (uint16_t *)to,
                        pair.k,
                        p->n,
                        2 * pair.y.row_stride,
                        p->heads > 1 ? 2 * pair.y.head_stride : 0,
                        pair.batch.entries > 1 ? 2 * pair.batch.second[0] : 0,
                        (pair.k + kTileK - 1) / kTileK,
                        (p->n + kTileN - 1) / kTileN,
                        p->heads,
                        pair.batch.entries};
    return tartan_cuda_launch(function, queue, turn_half,
                              tartan_cuda_grid(t.tiles_k * t.tiles_n * t.heads * t.entries), dim3(kThreads),
                              t);
}
