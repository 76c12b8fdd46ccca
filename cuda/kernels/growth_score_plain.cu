/* SPDX-License-Identifier: Apache-2.0
 * The growth score: reduces X and Y to norms over the rows and columns of each block, in f64 and in order, then
 * multiplies these densely: one chain for each score over pairs and k, as on the CPU. */
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
            if (p.norm == TARTAN_NORM_L2)
                norm = __dadd_rn(norm, __dmul_rn(value, value));
            else if (!(fabs(value) <= norm) && !isnan(norm)) /* keep a NaN */
                norm = fabs(value);
        }
        if (p.norm == TARTAN_NORM_L2) norm = sqrt(norm);
        norms[n / p.k * p.products + p.first + k] = tartan_cuda_to<tartan_cuda_sum<T>>(norm);
    }
}

struct product {
    int64_t rows, cols, products; /* x [rows][products], y [cols][products] */
    double scale, beta;
    int64_t row_stride, col_stride; /* of the score */
};

template <typename S>
__global__ void __launch_bounds__(THREADS)
    multiply(const product p, const S *x, const S *y, S *score, int64_t col_pieces, int64_t pieces) {
    constexpr int x_pitch = tartan_cuda_left_pitch<SIDE>, y_pitch = tartan_cuda_right_pitch<SIDE>;
    __shared__ S tile_x[DEPTH * x_pitch], tile_y[DEPTH * y_pitch];
    const int thread = threadIdx.x, i = thread / SIDE, j = thread % SIDE;
    for (int64_t number = blockIdx.x; number < pieces; number += gridDim.x) {
        const int64_t row = number / col_pieces * SIDE, col = number % col_pieces * SIDE;
        S sums[1] = {0};
        for (int64_t done = 0; done < p.products; done += DEPTH) {
            const int64_t left = p.products - done;
            __syncthreads(); /* the last factors have been read */
            tartan_cuda_tile<DEPTH, SIDE, THREADS>(true, thread, [&](int k, int n) {
                const bool in_x = k < left && row + n < p.rows, in_y = k < left && col + n < p.cols;
                tile_x[k * x_pitch + n] = in_x ? x[(row + n) * p.products + done + k] : (S)0;
                tile_y[k * y_pitch + n] = in_y ? y[(col + n) * p.products + done + k] : (S)0;
            });
            __syncthreads();
            tartan_cuda_tile_multiply(tile_x + i, x_pitch, tile_y + j, y_pitch,
                                      (int)(left < DEPTH ? left : DEPTH), sums);
        }
        if (row + i >= p.rows || col + j >= p.cols) continue;
        S *to = score + (row + i) * p.row_stride + (col + j) * p.col_stride;
        const S scaled = (S)p.scale * sums[0], beta = (S)p.beta;
        const S value = beta == 0 ? scaled : fma(beta, *to, scaled);
        *to = isfinite(value) ? value : (S)0;
    }
}

/* Reduces all operands of one side. */
template <typename T>
tartan_status reduce_side(const char *function, tartan_cuda_queue *queue, const problem *p, bool is_y,
                          int64_t products, tartan_cuda_sum<T> *norms) {
    reduction r = {};
    r.lines = is_y ? p->cols : p->rows;
    r.group = is_y ? p->block_cols : p->block_rows;
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
    p.rows = g->grid_rows;
    p.cols = g->grid_cols;
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
    if (status == TARTAN_OK) {
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
