/* SPDX-License-Identifier: Apache-2.0
 * Blocks moved and measured: casts between dtypes and block orders, gathering and scattering by lists, norms.
 * The padding of ragged blocks is not read, and written as zeros. */
#include "kernels/blocks.h"

#include "device/element.cuh"
#include "device/launch.cuh"
#include "index_cache.h"

namespace {

constexpr int THREADS = 256, STEPS = 4, SIDE = 32, LINES = THREADS / SIDE;

/* ---- Moving ---- */

/* Where blocks are and how much of each exists. */
struct side {
    const void *values;
    int32_t row_stride, col_stride;
    int32_t block_rows, block_cols;
    bool ragged; /* the rest is used only then */
    int64_t rows, cols, grid_rows, lists;
    const int32_t *pointers, *block_cols_of;
};

/* Rows and columns of a block that exist. */
__device__ int2 extent(const side &s, int64_t id) {
    if (!s.ragged) return make_int2(s.block_rows, s.block_cols);
    const int64_t row = tartan_cuda_row_of(s.pointers, s.lists, id) % s.grid_rows;
    const int64_t rows = s.rows - row * s.block_rows,
                  cols = s.cols - (int64_t)s.block_cols_of[id] * s.block_cols;
    return make_int2((int)(rows < s.block_rows ? rows : s.block_rows),
                     (int)(cols < s.block_cols ? cols : s.block_cols));
}

/* Block to_ids[i] (NULL: i) of `to` becomes block from_ids[i] (NULL: i) of `from`; -1 there: zeros. -1 in
 * to_ids: nothing is written. */
struct move {
    side to, from;
    bool transposed;
    const int64_t *to_ids, *from_ids;
    int64_t count; /* of the lists */
};

/* The part of `to` that has a place in `from`. */
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
                ((const From *)p.from.values)[from * elements + row * from_row + col * from_col]);
        ((To *)p.to.values)[to * elements + at] = value;
    }
}

/* Several neighbours at a time: blocks of one memory order without padding. */
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

/* Tiles, by blockIdx.y, turned in shared memory: large blocks whose memory orders differ. */
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
                    ((const From *)p.from.values)[from * elements + row * from_row + col * from_col];
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

/* ---- Norms ---- */

/* The larger one, NaN if there is one; or the sum. */
__device__ __forceinline__ double join(bool largest, double a, double b) {
    if (!largest) return a + b;
    return isnan(a) || a > b ? a : b;
}

/* What the LANES threads of a block have, in one; each thread gets it. Groups of a warp go their own ways. */
template <int LANES> __device__ double join_all(bool largest, double x) {
    constexpr int group = LANES < 32 ? LANES : 32;
    const unsigned others = (0xffffffffu >> (32 - group)) << (threadIdx.y * LANES % 32);
    for (int step = group / 2; step > 0; step /= 2) x = join(largest, x, __shfl_xor_sync(others, x, step));
    if constexpr (LANES > 32) {
        __shared__ double warps[LANES / 32];
        __syncthreads(); /* the last one was read */
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
        __syncthreads();
        x = warps[0];
        for (int i = 1; i < LANES / 32; i++) x = join(largest, x, warps[i]);
    }
    return x;
}

/* Maximum, sum or sum of squares of |x|, or of |x| / unit, over the elements that exist. */
template <typename T, int LANES, bool SCALED>
__device__ double measure(const side &s, int64_t id, int2 e, int32_t norm, double unit) {
    const int32_t elements = s.block_rows * s.block_cols, lane = threadIdx.x;
    const bool whole = e.x == s.block_rows && e.y == s.block_cols;
    const T *from = (const T *)s.values + id * elements;
    double result = 0;
#pragma unroll 8
    for (int32_t n = lane; n < elements; n += LANES) {
        const int32_t row = s.col_stride == 1 ? n / s.row_stride : n % s.col_stride;
        const int32_t col = s.col_stride == 1 ? n % s.row_stride : n / s.col_stride;
        const double value = whole || (row < e.x && col < e.y) ? fabs(tartan_cuda_to<double>(from[n])) : 0.0;
        const double scaled = SCALED ? value / unit : value;
        result = join(norm == TARTAN_NORM_MAX, result, norm == TARTAN_NORM_L2 ? scaled * scaled : scaled);
    }
    return join_all<LANES>(norm == TARTAN_NORM_MAX, result);
}

/* LANES threads have a block, threadIdx.y says which of the CTA's. Squares that leave the range of f64, or
 * get near its lower end, are taken again of elements scaled by the largest. */
template <typename T, int LANES>
__global__ void __launch_bounds__(THREADS)
    block_norms(const side s, int32_t norm, int64_t blocks, double *out) {
    constexpr int at_once = THREADS / LANES;
    for (int64_t id = (int64_t)blockIdx.x * at_once + threadIdx.y; id < blocks;
         id += (int64_t)gridDim.x * at_once) {
        const int2 e = extent(s, id);
        double result = measure<T, LANES, false>(s, id, e, norm, 1);
        if (norm == TARTAN_NORM_L2) {
            result = sqrt(result);
            if (!isnan(result) && !(result > 1e-140 && result < 1e150)) {
                const double largest = measure<T, LANES, false>(s, id, e, TARTAN_NORM_MAX, 1);
                result = largest == 0 || isinf(largest)
                             ? largest
                             : largest * sqrt(measure<T, LANES, true>(s, id, e, norm, largest));
            }
        }
        if (threadIdx.x == 0) out[id] = result;
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

template <typename T, int LANES>
tartan_status launch_norms(const char *function, tartan_cuda_queue *queue, const side &s, int32_t norm,
                           int64_t blocks, double *out) {
    constexpr int at_once = THREADS / LANES;
    return tartan_cuda_launch(function, queue, block_norms<T, LANES>,
                              tartan_cuda_grid((blocks - 1) / at_once + 1), dim3(LANES, at_once), s, norm,
                              blocks, out);
}

tartan_status side_of(const char *function, tartan_cuda_queue *queue, const tartan_cuda_blocks *b,
                      side *out) {
    const tartan_layout *l = b->layout;
    const tartan_shape *shape = &l->shape;
    *out = {};
    out->values = b->values;
    out->block_rows = (int32_t)shape->block_rows;
    out->block_cols = (int32_t)shape->block_cols;
    /* Blocks that are one line look the same in both orders. */
    const bool by_row = b->order == TARTAN_ROW_MAJOR || out->block_rows == 1 || out->block_cols == 1;
    out->row_stride = by_row ? out->block_cols : 1;
    out->col_stride = by_row ? 1 : out->block_rows;
    out->ragged = shape->rows % shape->block_rows != 0 || shape->cols % shape->block_cols != 0;
    if (!out->ragged || l->blocks == 0) return TARTAN_OK;
    tartan_cuda_row_index lists;
    const tartan_status status = tartan_cuda_index_get_rows(function, queue, l, false, &lists);
    if (status != TARTAN_OK) return status;
    out->rows = shape->rows;
    out->cols = shape->cols;
    out->grid_rows = l->grid_rows;
    out->lists = shape->heads * l->grid_rows;
    out->pointers = lists.pointers;
    out->block_cols_of = lists.cols;
    return TARTAN_OK;
}

tartan_status move_blocks(const char *function, tartan_cuda_queue *queue, const tartan_cuda_blocks *to,
                          const tartan_cuda_blocks *from, move *p) {
    if (p->count == 0) return TARTAN_OK;
    tartan_status status = side_of(function, queue, to, &p->to);
    if (status == TARTAN_OK) status = side_of(function, queue, from, &p->from);
    if (status != TARTAN_OK) return status;
    return tartan_cuda_by_any_dtype(to->dtype, [&](auto to_tag) {
        return tartan_cuda_by_any_dtype(from->dtype, [&](auto from_tag) {
            return launch_move<typename decltype(to_tag)::type, typename decltype(from_tag)::type>(function,
                                                                                                   queue, *p);
        });
    });
}

} // namespace

tartan_status tartan_cuda_blocks_cast(const char *function, tartan_cuda_queue *queue,
                                      const tartan_cuda_blocks *to, const tartan_cuda_blocks *from) {
    return tartan_cuda_blocks_gather(function, queue, to, from, nullptr, false);
}

tartan_status tartan_cuda_blocks_gather(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_blocks *to, const tartan_cuda_blocks *from,
                                        const int64_t *sources, bool transposed) {
    move p = {};
    p.from_ids = sources;
    p.transposed = transposed;
    p.count = to->layout->blocks;
    return move_blocks(function, queue, to, from, &p);
}

tartan_status tartan_cuda_blocks_scatter(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_blocks *to, const tartan_cuda_blocks *from,
                                         const int64_t *targets) {
    move p = {};
    p.to_ids = targets;
    p.count = from->layout->blocks;
    return move_blocks(function, queue, to, from, &p);
}

tartan_status tartan_cuda_blocks_norms(const char *function, tartan_cuda_queue *queue,
                                       const tartan_cuda_blocks *from, int32_t norm, double *out) {
    const int64_t blocks = from->layout->blocks;
    if (blocks == 0) return TARTAN_OK;
    side s;
    const tartan_status status = side_of(function, queue, from, &s);
    if (status != TARTAN_OK) return status;
    return tartan_cuda_by_any_dtype(from->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const int32_t elements = s.block_rows * s.block_cols;
        if (elements <= 128) return launch_norms<T, 8>(function, queue, s, norm, blocks, out);
        if (elements < 4096) return launch_norms<T, 32>(function, queue, s, norm, blocks, out);
        return launch_norms<T, THREADS>(function, queue, s, norm, blocks, out);
    });
}
