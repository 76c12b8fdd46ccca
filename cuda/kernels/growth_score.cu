/* SPDX-License-Identifier: Apache-2.0
 * The growth score: X and Y are reduced to norms over the rows and columns of each block, in f64 and in
 * order, and then multiplied densely: one chain for each score over pairs and k, as on the CPU. */
#include "device/launch.cuh"
#include "device/tile.cuh"
#include "device_memory.h"
#include "kernels.h"

namespace {

constexpr int SIDE = 16, THREADS = SIDE * SIDE, DEPTH = 32;

/* Norms over groups of `group` lines of one operand, to [groups][products] from `first` on. */
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
            else if (!(fabs(value) <= norm) && !isnan(norm)) /* a NaN stays */
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
            __syncthreads(); /* the last factors were read */
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

/* All operands of one side to norms. */
template <typename T>
tartan_status reduce_side(tartan_cuda_queue *queue, const tartan_op_growth_score *op, bool is_y,
                          int64_t products, tartan_cuda_sum<T> *norms) {
    reduction r = {};
    r.lines = is_y ? op->shape->cols : op->shape->rows;
    r.group = (int32_t)(is_y ? op->shape->block_cols : op->shape->block_rows);
    r.products = products;
    r.norm = op->norm;
    for (int64_t n = 0; n < op->pairs; n++, r.first += r.k) {
        const tartan_array *a = is_y ? &op->y[n] : &op->x[n];
        r.data = a->data;
        r.k = a->shape[is_y ? 0 : 1];
        r.k_stride = a->strides[is_y ? 0 : 1];
        r.line_stride = a->strides[is_y ? 1 : 0];
        if (r.k == 0) continue;
        const int64_t count = ((r.lines - 1) / r.group + 1) * r.k;
        const tartan_status status =
            tartan_cuda_launch(op->function, queue, reduce<T>, tartan_cuda_grid((count - 1) / THREADS + 1),
                               dim3(THREADS), r, norms, count);
        if (status != TARTAN_OK) return status;
    }
    return TARTAN_OK;
}

template <typename T> tartan_status growth_score(tartan_cuda_queue *queue, const tartan_op_growth_score *op) {
    using S = tartan_cuda_sum<T>;
    product p = {};
    p.rows = op->score->shape[0];
    p.cols = op->score->shape[1];
    for (int64_t n = 0; n < op->pairs; n++) p.products += op->x[n].shape[1];
    p.scale = op->scale;
    p.beta = op->beta;
    p.row_stride = op->score->strides[0];
    p.col_stride = op->score->strides[1];
    void *room;
    const int64_t x_norms = p.rows * p.products, y_norms = p.cols * p.products;
    tartan_status status =
        tartan_cuda_scratch(op->function, queue, (x_norms + y_norms) * (int64_t)sizeof(S), &room);
    if (status != TARTAN_OK) return status;
    S *x = (S *)room, *y = x + x_norms;
    status = reduce_side<T>(queue, op, false, p.products, x);
    if (status == TARTAN_OK) status = reduce_side<T>(queue, op, true, p.products, y);
    if (status == TARTAN_OK) {
        const int64_t col_pieces = (p.cols - 1) / SIDE + 1, pieces = ((p.rows - 1) / SIDE + 1) * col_pieces;
        status = tartan_cuda_launch(op->function, queue, multiply<S>, tartan_cuda_grid(pieces), dim3(THREADS),
                                    p, x, y, (S *)op->score->data, col_pieces, pieces);
    }
    tartan_cuda_scratch_free(queue, room);
    return status;
}

} // namespace

tartan_status tartan_cuda_growth_score(tartan_cuda_queue *queue, const tartan_op_growth_score *op) {
    if (op->score->shape[0] == 0 || op->score->shape[1] == 0) return TARTAN_OK;
    return tartan_cuda_by_dtype(
        op->x[0].dtype, [&](auto tag) { return growth_score<typename decltype(tag)::type>(queue, op); });
}
