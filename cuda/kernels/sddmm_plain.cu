/* SPDX-License-Identifier: Apache-2.0
 * Sampled dense times dense for every problem: the reference on the device. Each element of S is one chain of fused
 * multiply-adds, over pairs, batch entries and k, all ascending.
 *
 * A CTA computes a tile of one block, or several small blocks, each by a group of its threads. */
#include "device/bounds.cuh"
#include "device/launch.cuh"
#include "device/tile.cuh"
#include "index_cache.h"
#include "kernels.h"

namespace {

constexpr int DEPTH = 32;

/* The part of a block that a group of threads computes. */
struct piece {
    int64_t id, head;
    int64_t row, col;   /* of X and Y */
    int32_t i, j;       /* in the block */
    int32_t rows, cols; /* of those, that exist */
    bool exists;
};

template <int ROWS, int COLS>
__device__ piece piece_of(const tartan_cuda_sddmm &p, const tartan_cuda_row_index &lists,
                          const tartan_cuda_bounds &bounds, int64_t id, int64_t blocks, int32_t part) {
    piece x = {};
    x.exists = id < blocks;
    if (!x.exists) return x;
    const int32_t row_parts = (p.block_m + ROWS - 1) / ROWS;
    const int64_t list = tartan_cuda_row_of(lists.pointers, p.heads * p.grid_m, id);
    x.id = id;
    x.head = list / p.grid_m;
    x.i = part % row_parts * ROWS;
    x.j = part / row_parts * COLS;
    const int64_t block_row = list % p.grid_m, block_col = lists.cols[id];
    x.row = tartan_cuda_begin(bounds.lines, block_row, p.block_m) + x.i;
    x.col = tartan_cuda_begin(bounds.cols, block_col, p.block_n) + x.j;
    const int32_t rows = tartan_cuda_size(bounds.lines, block_row, p.block_m, p.m) - x.i,
                  cols = tartan_cuda_size(bounds.cols, block_col, p.block_n, p.n) - x.j;
    x.rows = rows < ROWS ? rows : ROWS; /* may be negative: none */
    x.cols = cols < COLS ? cols : COLS;
    return x;
}

template <typename T, int ROWS, int COLS, int EACH, int BLOCKS> struct tile {
    using S = tartan_cuda_sum<T>;
    static constexpr int x_pitch = tartan_cuda_left_pitch<ROWS>, y_pitch = tartan_cuda_right_pitch<COLS>;
    static constexpr int threads = ROWS / EACH * COLS; /* of a block */
    alignas(16) S x[BLOCKS][DEPTH * x_pitch];
    S y[BLOCKS][DEPTH * y_pitch];

    /* Loads products k, k + 1, ... of a pair; zeros where a piece has no element or does not count. */
    __device__ void load(int block, int thread, const piece &part, bool counts,
                         const tartan_cuda_dense &dense_x, const tartan_cuda_dense &dense_y, int64_t x_at,
                         int64_t y_at, int64_t left) {
        tartan_cuda_tile_load<DEPTH, ROWS, threads>(thread, (const T *)dense_x.data + x_at,
                                                    dense_x.col_stride, dense_x.row_stride, left,
                                                    counts ? part.rows : 0, x[block], x_pitch);
        tartan_cuda_tile_load<DEPTH, COLS, threads>(thread, (const T *)dense_y.data + y_at,
                                                    dense_y.row_stride, dense_y.col_stride, left,
                                                    counts ? part.cols : 0, y[block], y_pitch);
    }
};

/* The sums of a thread's elements over all pairs. */
template <typename T, typename S, int ROWS, int COLS, int EACH, int BLOCKS>
__device__ void multiply(const tartan_cuda_sddmm &p, const piece &part, bool counts,
                         tile<T, ROWS, COLS, EACH, BLOCKS> &t, S (&sums)[EACH]) {
    const int block = threadIdx.z, col = threadIdx.x, row = threadIdx.y * EACH;
    const int thread = threadIdx.y * COLS + threadIdx.x;
    for (int32_t n = 0; n < p.pairs; n++) {
        const auto &pair = p.pair[n];
        for (int64_t entry = 0; entry < pair.batch.entries; entry++) {
            const int64_t x_at = part.head * pair.x.head_stride + part.row * pair.x.row_stride +
                                 tartan_cuda_batch_offset(pair.batch, pair.batch.first, entry);
            const int64_t y_at = part.head * pair.y.head_stride + part.col * pair.y.col_stride +
                                 tartan_cuda_batch_offset(pair.batch, pair.batch.second, entry);
            for (int64_t k = 0; k < pair.k; k += DEPTH) {
                const int64_t left = pair.k - k;
                __syncthreads(); /* the last factors have been read */
                t.load(block, thread, part, counts, pair.x, pair.y, x_at + k * pair.x.col_stride,
                       y_at + k * pair.y.row_stride, left);
                __syncthreads();
                if (row < part.rows)
                    tartan_cuda_tile_multiply(t.x[block] + row, t.x_pitch, t.y[block] + col, t.y_pitch,
                                              (int)(left < DEPTH ? left : DEPTH), sums);
            }
        }
    }
}

/* Threads of a CTA. The launch bounds ask for enough CTAs on an SM that registers are not spent on addresses. */
template <int ROWS, int COLS, int EACH, int BLOCKS> constexpr int threads_of() {
    return ROWS / EACH * COLS * BLOCKS;
}

template <typename T, int ROWS, int COLS, int EACH, int BLOCKS>
__global__ void __launch_bounds__((threads_of<ROWS, COLS, EACH, BLOCKS>()),
                                  (512 / threads_of<ROWS, COLS, EACH, BLOCKS>()))
    sddmm_plain(const __grid_constant__ tartan_cuda_sddmm p, const tartan_cuda_row_index lists,
                const tartan_cuda_bounds bounds, int32_t parts, int64_t pieces) {
    using S = tartan_cuda_sum<T>;
    __shared__ tile<T, ROWS, COLS, EACH, BLOCKS> t;
    const S beta = (S)p.beta;
    const int64_t blocks =
        lists.pointers[p.heads * p.grid_m]; /* p.blocks; of a dynamic layout perhaps fewer */
    for (int64_t number = blockIdx.x; number < pieces; number += gridDim.x) {
        const int64_t first = number / parts * BLOCKS;
        if (first >= blocks) break;
        const piece part =
            piece_of<ROWS, COLS>(p, lists, bounds, first + threadIdx.z, blocks, (int32_t)(number % parts));
        const S gate = part.exists ? tartan_cuda_gate<S>(p.gates, part.id) : (S)0;
        const S alpha = gate * (S)p.alpha;
        S sums[EACH] = {};
        /* A CTA of one block may have nothing but padding to do. */
        if (BLOCKS > 1 || (part.rows > 0 && part.cols > 0)) multiply(p, part, gate != 0, t, sums);
        if (!part.exists) continue;
        const int col = threadIdx.x;
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            const int row = threadIdx.y * EACH + r;
            if (part.i + row >= p.block_m || part.j + col >= p.block_n) continue;
            const int64_t at = part.id * p.block_m * p.block_n + (int64_t)(part.i + row) * p.s_m +
                               (int64_t)(part.j + col) * p.s_n;
            const bool padding = row >= part.rows || col >= part.cols;
            tartan_cuda_combine_at<T>(p.values, p.s_dtype, at, padding ? (S)0 : alpha,
                                      padding ? (S)0 : sums[r], padding ? (S)0 : beta);
        }
    }
}

template <typename T, int ROWS, int COLS, int EACH, int BLOCKS>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sddmm *p,
                     const tartan_cuda_row_index &lists, const tartan_cuda_bounds &bounds) {
    const int32_t parts = ((p->block_m + ROWS - 1) / ROWS) * ((p->block_n + COLS - 1) / COLS);
    const int64_t pieces = ((p->blocks - 1) / BLOCKS + 1) * parts;
    return tartan_cuda_launch(function, queue, sddmm_plain<T, ROWS, COLS, EACH, BLOCKS>,
                              tartan_cuda_grid(pieces), dim3(COLS, ROWS / EACH, BLOCKS), *p, lists, bounds,
                              parts, pieces);
}

} // namespace

tartan_status tartan_cuda_sddmm_plain(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const tartan_cuda_sddmm *p = (const tartan_cuda_sddmm *)problem;
    tartan_cuda_row_index lists;
    tartan_cuda_bounds bounds;
    PASS(tartan_cuda_index_get_rows(function, queue, p->layout, false, &lists));
    PASS(tartan_cuda_index_get_bounds(function, queue, p->layout, false, &bounds));
    const int32_t side = p->block_m > p->block_n ? p->block_m : p->block_n;
    return tartan_cuda_by_dtype(p->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (side <= 2) return launch<T, 2, 2, 1, 32>(function, queue, p, lists, bounds);
        if (side <= 8) return launch<T, 8, 8, 2, 4>(function, queue, p, lists, bounds);
        if (side <= 16) return launch<T, 16, 16, 4, 2>(function, queue, p, lists, bounds);
        if (side <= 32) return launch<T, 32, 32, 8, 1>(function, queue, p, lists, bounds);
        return launch<T, 32, 64, 8, 1>(function, queue, p, lists, bounds);
    });
}
