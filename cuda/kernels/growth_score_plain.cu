/* SPDX-License-Identifier: Apache-2.0
 * The growth score: reduces X and Y to norms over the rows and columns of each block, in f64 and in order, then
 * multiplies these densely: one chain for each score over pairs and k, as on the CPU. For norms of the gradient itself, X and Y are
 * copied as they are, and a CTA adds up the squares of a block of their product, in f64. */
#include "backend/operation.h"
#include "device/launch.cuh"
#include "device/tile.cuh"
#include "device_memory.h"
#include "kernels.h"

namespace {

constexpr int SIDE = 16, THREADS = SIDE * SIDE, DEPTH = 32;

using problem = tartan_cuda_growth_score;

/* Norms over groups of `group` lines of one operand, into [groups][products] from column `first` on. */
struct reduction {
    const void *data;
    int64_t line_stride, k_stride;
    int64_t lines, k, products, first;
    int32_t group, norm;
};

template <typename T>
__global__ void __launch_bounds__(THREADS)
    reduce(const reduction p, tartan_cuda_sum<T> *norms, int64_t count) {
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < count;
         n += (int64_t)gridDim.x * THREADS) {
        const int64_t k = n % p.k, line = n / p.k * p.group;
        const int lines = (int)(p.lines - line < p.group ? p.lines - line : p.group);
        const T *from = (const T *)p.data + line * p.line_stride + k * p.k_stride;
        double norm = 0;
#pragma unroll 4
        for (int i = 0; i < lines; i++) {
            const double value = tartan_cuda_to<double>(from[i * p.line_stride]);
            if (p.norm == TARTAN_I_NORM_OF_GRADIENT)
                norm = value; /* of one line */
            else if (p.norm == TARTAN_NORM_L2)
                norm = __dadd_rn(norm, __dmul_rn(value, value));
            else if (!(fabs(value) <= norm) && !isnan(norm)) /* keep a NaN */
                norm = fabs(value);
        }
        if (p.norm == TARTAN_NORM_L2) norm = sqrt(norm);
        norms[n / p.k * p.products + p.first + k] = tartan_cuda_to<tartan_cuda_sum<T>>(norm);
    }
}

struct product {
    int64_t rows, cols, products;   /* x [rows][products], y [cols][products] */
    int64_t block_rows, block_cols; /* for norms of the gradient */
    double scale, beta;
    int64_t row_stride, col_stride; /* of the score */
};

/* The element of the product that thread (i, j) computes in a tile at (row, col). Rows and columns past the ends count as 0. */
template <typename S>
__device__ __forceinline__ S multiply_tile(int64_t products, const S *x, const S *y, int64_t row,
                                           int64_t rows, int64_t col, int64_t cols, S *tile_x, S *tile_y) {
    constexpr int x_pitch = tartan_cuda_left_pitch<SIDE>, y_pitch = tartan_cuda_right_pitch<SIDE>;
    const int thread = threadIdx.x, i = thread / SIDE, j = thread % SIDE;
    S sums[1] = {0};
    for (int64_t done = 0; done < products; done += DEPTH) {
        const int64_t left = products - done;
        __syncthreads(); /* the last factors have been read */
        tartan_cuda_tile<DEPTH, SIDE, THREADS>(true, thread, [&](int k, int n) {
            const bool in_x = k < left && row + n < rows, in_y = k < left && col + n < cols;
            tile_x[k * x_pitch + n] = in_x ? x[(row + n) * products + done + k] : (S)0;
            tile_y[k * y_pitch + n] = in_y ? y[(col + n) * products + done + k] : (S)0;
        });
        __syncthreads();
        tartan_cuda_tile_multiply(tile_x + i, x_pitch, tile_y + j, y_pitch,
                                  (int)(left < DEPTH ? left : DEPTH), sums);
    }
    return sums[0];
}

template <typename S> __device__ __forceinline__ void commit(const product &p, S sum, S *to) {
    const S scaled = (S)p.scale * sum, beta = (S)p.beta;
    const S value = beta == 0 ? scaled : fma(beta, *to, scaled);
    *to = isfinite(value) ? value : (S)0;
}

template <typename S>
__global__ void __launch_bounds__(THREADS)
    multiply(const product p, const S *x, const S *y, S *score, int64_t col_pieces, int64_t pieces) {
    constexpr int x_pitch = tartan_cuda_left_pitch<SIDE>, y_pitch = tartan_cuda_right_pitch<SIDE>;
    __shared__ S tile_x[DEPTH * x_pitch], tile_y[DEPTH * y_pitch];
    const int thread = threadIdx.x, i = thread / SIDE, j = thread % SIDE;
    for (int64_t number = blockIdx.x; number < pieces; number += gridDim.x) {
        const int64_t row = number / col_pieces * SIDE, col = number % col_pieces * SIDE;
        const S sum = multiply_tile(p.products, x, y, row, p.rows, col, p.cols, tile_x, tile_y);
        if (row + i >= p.rows || col + j >= p.cols) continue;
        commit(p, sum, score + (row + i) * p.row_stride + (col + j) * p.col_stride);
    }
}

/* A block of the product at a time. Threads have sums of their own, which are added in a fixed order. */
template <typename S>
__global__ void __launch_bounds__(THREADS)
    gradient(const product p, const S *x, const S *y, S *score, int64_t grid_cols, int64_t blocks) {
    constexpr int x_pitch = tartan_cuda_left_pitch<SIDE>, y_pitch = tartan_cuda_right_pitch<SIDE>;
    __shared__ S tile_x[DEPTH * x_pitch], tile_y[DEPTH * y_pitch];
    __shared__ double squares[THREADS];
    for (int64_t number = blockIdx.x; number < blocks; number += gridDim.x) {
        const int64_t first_row = number / grid_cols * p.block_rows,
                      first_col = number % grid_cols * p.block_cols,
                      rows = min(first_row + p.block_rows, p.rows),
                      cols = min(first_col + p.block_cols, p.cols);
        double sum = 0;
        for (int64_t row = first_row; row < rows; row += SIDE)
            for (int64_t col = first_col; col < cols; col += SIDE) {
                const double value = multiply_tile(p.products, x, y, row, rows, col, cols, tile_x, tile_y);
                sum = __dadd_rn(sum, __dmul_rn(value, value));
            }
        squares[threadIdx.x] = sum;
        for (int half = THREADS / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) squares[threadIdx.x] += squares[threadIdx.x + half];
        }
        if (threadIdx.x == 0)
            commit(p, (S)sqrt(squares[0]),
                   score + number / grid_cols * p.row_stride + number % grid_cols * p.col_stride);
    }
}

/* Reduces all operands of one side. */
template <typename T>
tartan_status reduce_side(const char *function, tartan_cuda_queue *queue, const problem *p, bool is_y,
                          int64_t products, tartan_cuda_sum<T> *norms) {
    reduction r = {};
    r.lines = is_y ? p->cols : p->rows;
    r.group = p->norm == TARTAN_I_NORM_OF_GRADIENT ? 1 : is_y ? p->block_cols : p->block_rows;
    r.products = products;
    r.norm = p->norm;
    for (int32_t i = 0; i < p->pairs; i++, r.first += r.k) {
        const auto &pair = p->pair[i];
        r.data = is_y ? pair.y : pair.x;
        r.k = pair.k;
        r.k_stride = is_y ? pair.y_k : pair.x_k;
        r.line_stride = is_y ? pair.y_col : pair.x_row;
        if (r.k == 0) continue;
        const int64_t count = ((r.lines - 1) / r.group + 1) * r.k;
        PASS(tartan_cuda_launch(function, queue, reduce<T>, tartan_cuda_grid((count - 1) / THREADS + 1),
                                dim3(THREADS), r, norms, count));
    }
    return TARTAN_OK;
}

template <typename T> tartan_status run(const char *function, tartan_cuda_queue *queue, const problem *g) {
    using S = tartan_cuda_sum<T>;
    product p = {};
    const bool of_gradient = g->norm == TARTAN_I_NORM_OF_GRADIENT;
    p.rows = of_gradient ? g->rows : g->grid_rows;
    p.cols = of_gradient ? g->cols : g->grid_cols;
    p.block_rows = g->block_rows, p.block_cols = g->block_cols;
    for (int32_t i = 0; i < g->pairs; i++) p.products += g->pair[i].k;
    p.scale = g->scale;
    p.beta = g->beta;
    p.row_stride = g->score_row;
    p.col_stride = g->score_col;
    void *room;
    const int64_t x_norms = p.rows * p.products, y_norms = p.cols * p.products;
    PASS(tartan_cuda_scratch(function, queue, (x_norms + y_norms) * (int64_t)sizeof(S), &room));
    S *x = (S *)room, *y = x + x_norms;
    tartan_status status = reduce_side<T>(function, queue, g, false, p.products, x);
    if (status == TARTAN_OK) status = reduce_side<T>(function, queue, g, true, p.products, y);
    if (status == TARTAN_OK && of_gradient) {
        const int64_t blocks = g->grid_rows * g->grid_cols;
        status = tartan_cuda_launch(function, queue, gradient<S>, tartan_cuda_grid(blocks), dim3(THREADS), p,
                                    x, y, (S *)g->score, g->grid_cols, blocks);
    } else if (status == TARTAN_OK) {
        const int64_t col_pieces = (p.cols - 1) / SIDE + 1, pieces = ((p.rows - 1) / SIDE + 1) * col_pieces;
        status = tartan_cuda_launch(function, queue, multiply<S>, tartan_cuda_grid(pieces), dim3(THREADS), p,
                                    x, y, (S *)g->score, col_pieces, pieces);
    }
    tartan_cuda_scratch_free(queue, room);
    return status;
}

} // namespace

tartan_status tartan_cuda_growth_score_plain(const char *function, tartan_cuda_queue *queue, const void *of) {
    const problem *p = (const problem *)of;
    return tartan_cuda_by_dtype(
        p->dtype, [&](auto tag) { return run<typename decltype(tag)::type>(function, queue, p); });
}
