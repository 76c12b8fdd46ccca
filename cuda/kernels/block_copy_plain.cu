/* SPDX-License-Identifier: Apache-2.0
 * Copies blocks: casts between dtypes and block orders, gathers and scatters by lists. Does not read the padding of
 * ragged blocks, and writes it as zeros. */
#include "backend/operation.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "kernels/blocks.cuh"

namespace {

constexpr int THREADS = 256, STEPS = 4, SIDE = 32, LINES = THREADS / SIDE;

/* Block to_ids[i] (NULL: i) of `to` becomes block from_ids[i] (NULL: i) of `from`; zeros if that is -1. If to_ids[i]
 * is -1, nothing is written. */
struct move {
    side to, from;
    bool transposed;
    /* From one stored block of `from` to the next: with blocks of different sizes, the largest block of a slice may be smaller. */
    int32_t from_elements;
    const int64_t *to_ids, *from_ids;
    int64_t count; /* of the lists */
};

/* The part of a block that both have. */
__device__ int2 common_extent(const move &p, int64_t to, int64_t from) {
    if (from < 0) return make_int2(0, 0);
    const int2 a = extent(p.to, to), b = extent(p.from, from);
    const int rows = p.transposed ? b.y : b.x, cols = p.transposed ? b.x : b.y;
    return make_int2(a.x < rows ? a.x : rows, a.y < cols ? a.y : cols);
}

/* Element by element in the order of `to`. */
template <typename To, typename From> __global__ void __launch_bounds__(THREADS) move_elements(const move p) {
    const int32_t elements = p.to.block_rows * p.to.block_cols;
    const int64_t all = p.count * elements;
    const int32_t from_row = p.transposed ? p.from.col_stride : p.from.row_stride;
    const int32_t from_col = p.transposed ? p.from.row_stride : p.from.col_stride;
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < all;
         n += (int64_t)gridDim.x * THREADS) {
        const int64_t i = n / elements;
        const int32_t at = (int32_t)(n % elements);
        const int64_t to = p.to_ids != nullptr ? p.to_ids[i] : i,
                      from = p.from_ids != nullptr ? p.from_ids[i] : i;
        if (to < 0) continue;
        const int32_t row = p.to.col_stride == 1 ? at / p.to.row_stride : at % p.to.col_stride;
        const int32_t col = p.to.col_stride == 1 ? at % p.to.row_stride : at / p.to.col_stride;
        const int2 e = common_extent(p, to, from);
        To value = tartan_cuda_to<To>(0.0f);
        if (row < e.x && col < e.y)
            value = tartan_cuda_to<To>(
                ((const From *)p.from.values)[from * p.from_elements + row * from_row + col * from_col]);
        ((To *)p.to.values)[to * elements + at] = value;
    }
}

/* Several neighbours at a time: blocks of the same order without padding. */
template <typename To, typename From, int COUNT>
__global__ void __launch_bounds__(THREADS) move_packs(const move p) {
    const int32_t each = p.to.block_rows * p.to.block_cols / COUNT; /* packs of a block */
    const int64_t packs = p.count * each;
    for (int64_t first = (int64_t)blockIdx.x * STEPS * THREADS; first < packs;
         first += (int64_t)gridDim.x * STEPS * THREADS) {
        const int64_t first_i = first / each;
        const int32_t skipped = (int32_t)(first % each);
#pragma unroll
        for (int u = 0; u < STEPS; u++) {
            const int32_t n = u * THREADS + threadIdx.x;
            if (first + n >= packs) break;
            const int64_t i = first_i + (skipped + n) / each;
            const int32_t at = (skipped + n) % each;
            const int64_t to = p.to_ids != nullptr ? p.to_ids[i] : i;
            const int64_t from = p.from_ids != nullptr ? p.from_ids[i] : i;
            if (to < 0) continue;
            tartan_cuda_pack<From, COUNT> x = {};
            if (from >= 0) x = ((const tartan_cuda_pack<From, COUNT> *)p.from.values)[from * each + at];
            tartan_cuda_pack<To, COUNT> y;
#pragma unroll
            for (int c = 0; c < COUNT; c++) y.at[c] = tartan_cuda_to<To>(x.at[c]);
            ((tartan_cuda_pack<To, COUNT> *)p.to.values)[to * each + at] = y;
        }
    }
}

/* By tiles (blockIdx.y), transposed in shared memory: large blocks of different orders. */
template <typename To, typename From>
__global__ void __launch_bounds__(THREADS) move_tiles(const move p, int32_t tile_cols) {
    __shared__ From tile[SIDE][SIDE + 1];
    const bool by_row = p.to.col_stride == 1;
    const int32_t elements = p.to.block_rows * p.to.block_cols;
    const int32_t from_row = p.transposed ? p.from.col_stride : p.from.row_stride;
    const int32_t from_col = p.transposed ? p.from.row_stride : p.from.col_stride;
    const int32_t first_row = blockIdx.y / tile_cols * SIDE, first_col = blockIdx.y % tile_cols * SIDE;
    for (int64_t i = blockIdx.x; i < p.count; i += gridDim.x) {
        const int64_t to = p.to_ids != nullptr ? p.to_ids[i] : i,
                      from = p.from_ids != nullptr ? p.from_ids[i] : i;
        if (to < 0) continue;
        const int2 e = common_extent(p, to, from);
        __syncthreads(); /* the last tile was read */
#pragma unroll
        for (int n = 0; n < SIDE; n += LINES) { /* neighbours in `from` */
            const int u = n + threadIdx.y;
            const int32_t row = first_row + (by_row ? threadIdx.x : u),
                          col = first_col + (by_row ? u : threadIdx.x);
            if (row < e.x && col < e.y)
                tile[u][threadIdx.x] =
                    ((const From *)p.from.values)[from * p.from_elements + row * from_row + col * from_col];
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < SIDE; n += LINES) { /* neighbours in `to` */
            const int u = n + threadIdx.y;
            const int32_t row = first_row + (by_row ? u : threadIdx.x),
                          col = first_col + (by_row ? threadIdx.x : u);
            if (row >= p.to.block_rows || col >= p.to.block_cols) continue;
            const bool there = row < e.x && col < e.y;
            ((To *)p.to.values)[to * elements + row * p.to.row_stride + col * p.to.col_stride] =
                there ? tartan_cuda_to<To>(tile[threadIdx.x][u]) : tartan_cuda_to<To>(0.0f);
        }
    }
}

/* ---- Launching ---- */

template <typename To, typename From>
tartan_status launch_move(const char *function, tartan_cuda_queue *queue, const move &p) {
    constexpr int widest = sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From), most = 16 / widest;
    const int32_t elements = p.to.block_rows * p.to.block_cols;
    const int64_t all = p.count * elements;
    const int32_t from_row = p.transposed ? p.from.col_stride : p.from.row_stride;
    const bool same = p.to.row_stride == from_row &&
                      p.to.col_stride == (p.transposed ? p.from.row_stride : p.from.col_stride);
    const bool aligned = (uintptr_t)p.to.values % (sizeof(To) * most) == 0 &&
                         (uintptr_t)p.from.values % (sizeof(From) * most) == 0;
    if (same && aligned && elements % most == 0 && !p.to.ragged && !p.from.ragged)
        return tartan_cuda_launch(function, queue, move_packs<To, From, most>,
                                  tartan_cuda_grid((all / most - 1) / (STEPS * THREADS) + 1), dim3(THREADS),
                                  p);
    if (!same && p.to.block_rows > 16 && p.to.block_cols > 16) {
        const int32_t rows = (p.to.block_rows + SIDE - 1) / SIDE, cols = (p.to.block_cols + SIDE - 1) / SIDE;
        dim3 grid = tartan_cuda_grid(p.count);
        grid.y = (unsigned)(rows * cols);
        return tartan_cuda_launch(function, queue, move_tiles<To, From>, grid, dim3(SIDE, LINES), p, cols);
    }
    return tartan_cuda_launch(function, queue, move_elements<To, From>,
                              tartan_cuda_grid((all - 1) / THREADS + 1), dim3(THREADS), p);
}

} // namespace

tartan_status tartan_cuda_block_copy_plain(const char *function, tartan_cuda_queue *queue,
                                           const void *problem) {
    const tartan_op_block_copy *c = (const tartan_op_block_copy *)problem;
    move p = {};
    p.to_ids = c->targets;
    p.from_ids = c->sources;
    p.transposed = c->transpose;
    p.count = (c->targets != nullptr ? c->from : c->to)->layout->blocks;
    if (p.count == 0) return TARTAN_OK;
    PASS(side_of(function, queue, c->to, &p.to));
    PASS(side_of(function, queue, c->from, &p.from));
    p.from_elements = p.from.block_rows * p.from.block_cols;
    return tartan_cuda_by_any_dtype(c->to->dtype, [&](auto to_tag) {
        return tartan_cuda_by_any_dtype(c->from->dtype, [&](auto from_tag) {
            return launch_move<typename decltype(to_tag)::type, typename decltype(from_tag)::type>(function,
                                                                                                   queue, p);
        });
    });
}
