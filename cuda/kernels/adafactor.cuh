/* SPDX-License-Identifier: Apache-2.0
 * Kernels of Adafactor. A parameter is a matrix of its last two dimensions, cut into tiles, each of which a warp computes:
 *
 *     sum_tiles    sums of squares of the rows and columns of tiles, to scratch memory
 *     fold         means of rows and of columns, one thread each
 *     mean_rows    the mean of the means of rows, one warp for each matrix
 *     measure      sums of x^2, and of p^2, of tiles
 *     finish       from these the step of each parameter, one CTA each
 *     step         moves the parameters
 *
 * A parameter of one dimension is one row, whose columns have one element each; mean_rows and the factor of rows are 1. */
#ifndef TARTAN_CUDA_ADAFACTOR_CUH
#define TARTAN_CUDA_ADAFACTOR_CUH

#include "kernels/many.cuh"

namespace tartan_cuda {
namespace {

constexpr int WARPS = 8, THREADS = 32 * WARPS, LAST_THREADS = 1024;
constexpr int TILE_ROWS = 32, TILE_COLS = 32 * QUAD;

enum { P, G };

/* A parameter as matrices. Columns are nearer to each other in memory than rows wherever the strides allow it. */
struct matrix_tensor {
    void *data[2], *rows_means, *cols_means;
    int64_t matrices, rows, cols;
    int64_t row[2], col[2]; /* strides of P and G */
    int64_t mean_row, mean_col;
    int32_t outer; /* dimensions before the last two, their lengths and strides of P, G and both means */
    int64_t shape[TARTAN_MAX_NDIM - 2], strides[4][TARTAN_MAX_NDIM - 2];
    int64_t row_tiles, col_tiles;
    int32_t lanes; /* of a row in a warp: 1, 2, 4, ..., 32 */
    uint8_t dtypes[2];
    bool flat, swapped; /* of one dimension; rows are what the caller calls columns */
    int32_t first[4];   /* its first CTA in launches by tiles, means, matrices, parameters */
    char *sums;         /* reals [tiles, own rows + own columns]; */
    double *measured;   /* [2, tiles] */
    double *means;      /* [matrices], */
    double *moves;      /* [1], the step */
    __device__ __forceinline__ int64_t tiles() const { return matrices * row_tiles * col_tiles; }
    __device__ __forceinline__ int64_t own_rows() const { return rows < TILE_ROWS ? rows : TILE_ROWS; }
    __device__ __forceinline__ int64_t own_cols() const { return cols < TILE_COLS ? cols : TILE_COLS; }
    __device__ int64_t at(int list, int64_t matrix) const {
        int64_t sum = 0;
        for (int32_t d = outer - 1; d >= 0; d--) {
            sum += matrix % shape[d] * strides[list][d];
            matrix /= shape[d];
        }
        return sum;
    }
};
enum { BY_TILE, BY_MEAN, BY_MATRIX, BY_PARAMETER };

constexpr int ROOM = 58;
struct matrix_tensors {
    int32_t count, chunks[4];
    matrix_tensor tensors[ROOM];
};

struct numbers_of_call {
    double factor, rate, d, epsilon, clip_threshold, relative, weight_decay;
    device_number scale;
    gradient_filter filter;
    __device__ __forceinline__ bool is_skipped() const {
        const double x = scale.get();
        return x == 0 || !isfinite(x);
    }
};
static_assert(sizeof(matrix_tensors) + sizeof(numbers_of_call) < 32764, "parameters of kernels");

__device__ __forceinline__ const matrix_tensor &tensor_of(const matrix_tensors &all, int by) {
    int low = 0, high = all.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (all.tensors[middle].first[by] <= (int)blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return all.tensors[low];
}

/* ---- Tiles ---- */

struct tile {
    int64_t number, matrix, row, col; /* the first row and column */
    int rows, cols;
    int row_in_step, lane,
        steps_by; /* of this thread: its row of those that the warp has at a time, and its quad in that row */
};

__device__ __forceinline__ bool take_tile(const matrix_tensor &t, tile *out) {
    const int64_t number = (int64_t)((int)blockIdx.x - t.first[BY_TILE]) * WARPS + threadIdx.x / 32;
    if (number >= t.tiles()) return false;
    const int64_t in_matrix = number % (t.row_tiles * t.col_tiles), row = in_matrix / t.col_tiles * TILE_ROWS,
                  col = in_matrix % t.col_tiles * TILE_COLS;
    const int lane = (int)threadIdx.x % 32;
    *out = {number,
            number / (t.row_tiles * t.col_tiles),
            row,
            col,
            (int)(t.rows - row < TILE_ROWS ? t.rows - row : TILE_ROWS),
            (int)(t.cols - col < TILE_COLS ? t.cols - col : TILE_COLS),
            lane / t.lanes,
            lane % t.lanes,
            32 / t.lanes};
    return true;
}

/* Up to QUAD neighbours of a row, those beyond the row as 0. */
template <typename S>
__device__ __forceinline__ void load_quad(int32_t dtype, const void *data, int64_t at, int64_t stride,
                                          int count, S (&x)[QUAD]) {
    tartan_cuda_by_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T *from = (const T *)data + at;
        if (stride == 1 && count >= QUAD && (uintptr_t)from % (QUAD * sizeof(T)) == 0) {
            const auto pack = *(const tartan_cuda_pack<T, QUAD> *)from;
#pragma unroll
            for (int k = 0; k < QUAD; k++) x[k] = tartan_cuda_to<S>(pack.at[k]);
            return;
        }
#pragma unroll
        for (int k = 0; k < QUAD; k++) x[k] = k < count ? tartan_cuda_to<S>(from[k * stride]) : (S)0;
    });
}

template <typename S>
__device__ __forceinline__ void store_quad(int32_t dtype, void *data, int64_t at, int64_t stride, int count,
                                           const S (&x)[QUAD]) {
    tartan_cuda_by_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T *to = (T *)data + at;
        if (stride == 1 && count >= QUAD && (uintptr_t)to % (QUAD * sizeof(T)) == 0) {
            tartan_cuda_pack<T, QUAD> pack;
#pragma unroll
            for (int k = 0; k < QUAD; k++) pack.at[k] = tartan_cuda_to<T>(x[k]);
            *(tartan_cuda_pack<T, QUAD> *)to = pack;
            return;
        }
#pragma unroll
        for (int k = 0; k < QUAD; k++)
            if (k < count) to[k * stride] = tartan_cuda_to<T>(x[k]);
    });
}

/* The quad of this thread in row `row` of a tile; count <= 0: it has none. */
template <typename S>
__device__ __forceinline__ void load_gradient(const matrix_tensor &t, const tile &at, int64_t base, int row,
                                              int count, const numbers_of_call &call, S factor,
                                              S (&g)[QUAD]) {
    load_quad(t.dtypes[G], t.data[G], base + (at.row + row) * t.row[G] + (at.col + at.lane * QUAD) * t.col[G],
              t.col[G], count, g);
#pragma unroll
    for (int k = 0; k < QUAD; k++) g[k] = call.filter(g[k]) * factor;
}

template <typename S> __device__ __forceinline__ S *sums_of(const matrix_tensor &t, int64_t tile_number) {
    return (S *)t.sums + tile_number * (t.own_rows() + t.own_cols());
}

template <typename S>
__device__ __forceinline__ void sum_tile(const matrix_tensor &t, const numbers_of_call &call) {
    tile at;
    if (t.flat || !take_tile(t, &at)) return;
    const S factor = (S)(call.factor * call.scale.get());
    const int64_t base = t.at(G, at.matrix);
    const int count = at.cols - at.lane * QUAD;
    S cols[QUAD] = {}, *const out = sums_of<S>(t, at.number);
    for (int first = 0; first < at.rows; first += at.steps_by) {
        const int row = first + at.row_in_step;
        S g[QUAD] = {}, sum = 0;
        if (row < at.rows && count > 0) load_gradient(t, at, base, row, count, call, factor, g);
#pragma unroll
        for (int k = 0; k < QUAD; k++) {
            cols[k] = fma(g[k], g[k], cols[k]);
            sum = fma(g[k], g[k], sum);
        }
        for (int half = t.lanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
        if (at.lane == 0 && row < at.rows) out[row] = sum;
    }
    for (int half = 16; half >= t.lanes; half /= 2)
#pragma unroll
        for (int k = 0; k < QUAD; k++) cols[k] += __shfl_xor_sync(~0u, cols[k], half);
#pragma unroll
    for (int k = 0; k < QUAD; k++)
        if (at.row_in_step == 0 && k < count) out[t.own_rows() + at.lane * QUAD + k] = cols[k];
}

__global__ void __launch_bounds__(THREADS)
    sum_tiles(const __grid_constant__ matrix_tensors all, const __grid_constant__ numbers_of_call call) {
    const matrix_tensor &t = tensor_of(all, BY_TILE);
    if (call.is_skipped()) return;
    if (t.dtypes[P] == TARTAN_F64)
        sum_tile<double>(t, call);
    else
        sum_tile<float>(t, call);
}

/* ---- Means ---- */

/* Number i of the means of rows, then of columns. */
template <typename S>
__device__ __forceinline__ void fold_one(const matrix_tensor &t, int64_t i, const numbers_of_call &call) {
    const int64_t rows = t.flat ? 0 : t.matrices * t.rows;
    const bool is_row = i < rows;
    const int64_t length = is_row ? t.rows : t.cols, j = is_row ? i : i - rows, matrix = j / length,
                  own = j % length;
    double sum = 0;
    if (t.flat) {
        S g[QUAD];
        load_quad(t.dtypes[G], t.data[G], own * t.col[G], t.col[G], 1, g);
        const S x = call.filter(g[0]) * (S)(call.factor * call.scale.get());
        sum = (double)(x * x);
    } else if (is_row) {
        const int64_t first = (matrix * t.row_tiles + own / TILE_ROWS) * t.col_tiles;
        for (int64_t k = 0; k < t.col_tiles; k++) sum += (double)sums_of<S>(t, first + k)[own % TILE_ROWS];
    } else {
        const int64_t first = matrix * t.row_tiles * t.col_tiles + own / TILE_COLS;
        for (int64_t k = 0; k < t.row_tiles; k++)
            sum += (double)sums_of<S>(t, first + k * t.col_tiles)[t.own_rows() + own % TILE_COLS];
    }
    S *const mean = is_row ? (S *)t.rows_means + t.at(2, matrix) + own * t.mean_row
                           : (S *)t.cols_means + (t.flat ? 0 : t.at(3, matrix)) + own * t.mean_col;
    *mean = (S)(call.d * (double)*mean +
                (1 - call.d) * (sum / (double)(is_row ? t.cols : t.rows) + call.epsilon));
}

__global__ void __launch_bounds__(THREADS)
    fold(const __grid_constant__ matrix_tensors all, const __grid_constant__ numbers_of_call call) {
    const matrix_tensor &t = tensor_of(all, BY_MEAN);
    const int64_t i = (int64_t)((int)blockIdx.x - t.first[BY_MEAN]) * THREADS + threadIdx.x;
    if (call.is_skipped() || i >= (t.flat ? t.cols : t.matrices * (t.rows + t.cols))) return;
    if (t.dtypes[P] == TARTAN_F64)
        fold_one<double>(t, i, call);
    else
        fold_one<float>(t, i, call);
}

__global__ void __launch_bounds__(THREADS)
    mean_rows(const __grid_constant__ matrix_tensors all, const __grid_constant__ numbers_of_call call) {
    const matrix_tensor &t = tensor_of(all, BY_MATRIX);
    const int64_t matrix = (int64_t)((int)blockIdx.x - t.first[BY_MATRIX]) * WARPS + threadIdx.x / 32;
    if (call.is_skipped() || matrix >= t.matrices) return;
    const int64_t base = t.flat ? 0 : t.at(t.swapped ? 3 : 2, matrix),
                  stride = t.swapped ? t.mean_col : t.mean_row, count = t.swapped ? t.cols : t.rows;
    const void *const means = t.swapped ? t.cols_means : t.rows_means;
    double sum = 0;
    for (int64_t i = threadIdx.x % 32; i < count && !t.flat; i += 32)
        sum += t.dtypes[P] == TARTAN_F64 ? ((const double *)means)[base + i * stride]
                                         : (double)((const float *)means)[base + i * stride];
    for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
    if (threadIdx.x % 32 == 0) t.means[matrix] = t.flat ? 1 : sum / (double)count;
}

/* ---- x ---- */

/* f(row, count, x) for the quads of this thread. */
template <typename S, typename F>
__device__ __forceinline__ void each_direction(const matrix_tensor &t, const tile &at,
                                               const numbers_of_call &call, F f) {
    const S factor = (S)(call.factor * call.scale.get());
    const int count = at.cols - at.lane * QUAD;
    const int64_t base = t.at(G, at.matrix);
    const S *const rows = (const S *)t.rows_means + (t.flat ? 0 : t.at(2, at.matrix)),
                   *const cols = (const S *)t.cols_means + (t.flat ? 0 : t.at(3, at.matrix));
    const S mean = (S)t.means[at.matrix];
    S parts[QUAD];
#pragma unroll
    for (int k = 0; k < QUAD; k++)
        parts[k] = k < count ? 1 / sqrt(cols[(at.col + at.lane * QUAD + k) * t.mean_col]) : (S)0;
    for (int row = at.row_in_step; row < at.rows && count > 0; row += at.steps_by) {
        S x[QUAD];
        load_gradient(t, at, base, row, count, call, factor, x);
        const S root = t.flat ? (S)1 : sqrt(mean / rows[(at.row + row) * t.mean_row]);
#pragma unroll
        for (int k = 0; k < QUAD; k++) x[k] *= root * parts[k];
        f(row, count, x);
    }
}

__device__ __forceinline__ int64_t parameter_at(const matrix_tensor &t, const tile &at, int64_t base,
                                                int row) {
    return base + (at.row + row) * t.row[P] + (at.col + at.lane * QUAD) * t.col[P];
}

template <typename S> __device__ __forceinline__ S squares_of(const S (&x)[QUAD]) {
    return fma(x[0], x[0], x[1] * x[1]) + fma(x[2], x[2], x[3] * x[3]);
}

template <typename S>
__device__ __forceinline__ void measure_tile(const matrix_tensor &t, const numbers_of_call &call) {
    tile at;
    if (!take_tile(t, &at)) return;
    const int64_t base = t.at(P, at.matrix);
    double x_sum = 0, p_sum = 0;
    each_direction<S>(t, at, call, [&](int row, int count, S(&x)[QUAD]) {
        x_sum += (double)squares_of(x);
        if (call.relative > 0) {
            S p[QUAD];
            load_quad(t.dtypes[P], t.data[P], parameter_at(t, at, base, row), t.col[P], count, p);
            p_sum += (double)squares_of(p);
        }
    });
    for (int half = 16; half > 0; half /= 2) {
        x_sum += __shfl_xor_sync(~0u, x_sum, half);
        p_sum += __shfl_xor_sync(~0u, p_sum, half);
    }
    if (threadIdx.x % 32 > 0) return;
    t.measured[at.number] = x_sum;
    t.measured[t.tiles() + at.number] = p_sum;
}

__global__ void __launch_bounds__(THREADS)
    measure(const __grid_constant__ matrix_tensors all, const __grid_constant__ numbers_of_call call) {
    const matrix_tensor &t = tensor_of(all, BY_TILE);
    if (call.is_skipped()) return;
    if (t.dtypes[P] == TARTAN_F64)
        measure_tile<double>(t, call);
    else
        measure_tile<float>(t, call);
}

/* ---- Steps ---- */

/* The sum of a CTA's numbers, in one order; the first thread has it. */
__device__ double sum_of_threads(double x) {
    __shared__ double parts[LAST_THREADS / 32];
    for (int half = 16; half > 0; half /= 2) x += __shfl_down_sync(~0u, x, half);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[threadIdx.x % 32];
    for (int half = 16; half > 0; half /= 2) x += __shfl_down_sync(~0u, x, half);
    __syncthreads();
    return x;
}

__global__ void __launch_bounds__(LAST_THREADS)
    finish(const __grid_constant__ matrix_tensors all, const __grid_constant__ numbers_of_call call) {
    const matrix_tensor &t = all.tensors[blockIdx.x];
    const int64_t tiles = t.tiles();
    const double elements = (double)t.matrices * (double)t.rows * (double)t.cols;
    double x = 0, p = 0, move = call.rate;
    if (call.is_skipped()) return;
    for (int64_t i = threadIdx.x; i < tiles && call.clip_threshold > 0; i += LAST_THREADS) x += t.measured[i];
    for (int64_t i = threadIdx.x; i < tiles && call.relative > 0; i += LAST_THREADS)
        p += t.measured[tiles + i];
    x = sum_of_threads(x);
    p = sum_of_threads(p);
    if (threadIdx.x > 0) return;
    if (call.clip_threshold > 0) {
        const double rms = sqrt(x / elements) / call.clip_threshold;
        if (!(rms <= 1)) move /= rms;
    }
    if (call.relative > 0) {
        const double rms = sqrt(p / elements);
        move *= rms < call.relative ? call.relative : rms;
    }
    *t.moves = move;
}

template <typename S>
__device__ __forceinline__ void step_tile(const matrix_tensor &t, const numbers_of_call &call) {
    tile at;
    if (!take_tile(t, &at)) return;
    const int64_t base = t.at(P, at.matrix);
    const S back = (S) - *t.moves, kept = (S)(1 - call.rate * call.weight_decay);
    each_direction<S>(t, at, call, [&](int row, int count, S(&x)[QUAD]) {
        S p[QUAD];
        const int64_t place = parameter_at(t, at, base, row);
        load_quad(t.dtypes[P], t.data[P], place, t.col[P], count, p);
#pragma unroll
        for (int k = 0; k < QUAD; k++) p[k] = fma(back, x[k], kept * p[k]);
        store_quad(t.dtypes[P], t.data[P], place, t.col[P], count, p);
    });
}

__global__ void __launch_bounds__(THREADS)
    step(const __grid_constant__ matrix_tensors all, const __grid_constant__ numbers_of_call call) {
    const matrix_tensor &t = tensor_of(all, BY_TILE);
    if (call.is_skipped()) return;
    if (t.dtypes[P] == TARTAN_F64)
        step_tile<double>(t, call);
    else
        step_tile<float>(t, call);
}

} // namespace
} // namespace tartan_cuda

#endif
