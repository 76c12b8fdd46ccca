/* SPDX-License-Identifier: Apache-2.0
 * Numbers of rows, columns and blocks. First each line of each block is reduced to a partial number in scratch memory; then
 * the partial numbers of the blocks of a row or column, or of the lines of a block, are folded. All orders of operations
 * follow from the layout, the dtype and the block order alone. */
#include "backend/operation.h"
#include "device/launch.cuh"
#include "device_memory.h"
#include "kernels/elements.cuh"
#include "kernels/steps.cuh"

namespace {

constexpr int THREADS = 256, BATCH = 8;

/* What has its own unit of scaled squares. */
enum { UNITS_NONE, UNITS_LINES, UNITS_BLOCKS };

/* Lines of blocks: their rows, or columns. */
struct lines {
    side s;
    bool by_column;
    int32_t chain;
    int32_t count, length;     /* lines of a block, elements of a line */
    int32_t line_stride, step; /* from line to line, and from element to element */
    int64_t items;             /* lines of all blocks */
    const double *units;
    int32_t units_of;
    double *partial; /* [blocks][count] */
};

/* What the elements of a line that exists are divided by. */
__device__ double unit_of(const lines &p, int64_t id, int32_t line) {
    if (p.units_of == UNITS_NONE) return 1;
    if (p.units_of == UNITS_BLOCKS) return p.units[id];
    const block_place at = find_block(p.s, id);
    return p.by_column
               ? p.units[at.head * p.s.cols + tartan_cuda_begin(p.s.col_bounds, at.col, p.count) + line]
               : p.units[at.head * p.s.rows + tartan_cuda_begin(p.s.row_bounds, at.row, p.count) + line];
}

/* The block of a line. */
__device__ __forceinline__ int64_t block_of(const lines &p, int64_t item) {
    return p.items <= UINT32_MAX ? (int64_t)((uint32_t)item / (uint32_t)p.count) : item / p.count;
}

/* The elements of the line that exist; 0 if the line does not. */
__device__ __forceinline__ int existing_of(const lines &p, int64_t id, int32_t line) {
    if (!p.s.ragged) return p.length;
    const int2 e = extent(p.s, id);
    const int count = p.by_column ? e.y : e.x;
    return line < count ? (p.by_column ? e.x : e.y) : 0;
}

/* Lines that are contiguous: `lanes` neighbouring threads for each, a power of two up to 32. */
template <typename T, int COUNT>
__global__ void __launch_bounds__(THREADS) reduce_along(const lines p, int32_t lanes) {
    const int32_t at_once = THREADS / lanes, lane = threadIdx.x % lanes;
    for (int64_t first = (int64_t)blockIdx.x * at_once; first < p.items;
         first += (int64_t)gridDim.x * at_once) {
        const int64_t item = first + threadIdx.x / lanes;
        double chain = first_of(p.chain);
        if (item < p.items) {
            const int64_t id = block_of(p, item);
            const int32_t line = (int32_t)(item - id * p.count), length = existing_of(p, id, line);
            const double unit = length > 0 ? unit_of(p, id, line) : 1.0;
            const T *from = (const T *)p.s.values + id * p.count * p.length + (int64_t)line * p.line_stride;
            for (int32_t k = lane * COUNT; k < length; k += lanes * COUNT) {
                const auto pack = *(const tartan_cuda_pack<T, COUNT> *)(from + k);
                double x[COUNT];
#pragma unroll
                for (int c = 0; c < COUNT; c++) x[c] = tartan_cuda_to<double>(pack.at[c]);
                continue_chain(p.chain, unit, x, length - k, chain);
            }
        }
        for (int32_t step = lanes / 2; step > 0; step /= 2)
            chain = join(p.chain, __shfl_down_sync(0xffffffffu, chain, step, lanes), chain);
        if (item < p.items && lane == 0) p.partial[item] = chain;
    }
}

/* Lines that are neighbours: one thread for each. */
template <typename T> __global__ void __launch_bounds__(THREADS) reduce_across(const lines p) {
    for (int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x; item < p.items;
         item += (int64_t)gridDim.x * THREADS) {
        const int64_t id = block_of(p, item);
        const int32_t line = (int32_t)(item - id * p.count), length = existing_of(p, id, line);
        const double unit = length > 0 ? unit_of(p, id, line) : 1.0;
        const T *from = (const T *)p.s.values + id * p.count * p.length + line;
        double chain = first_of(p.chain);
        for (int32_t k = 0; k < length; k += BATCH) {
            double x[BATCH];
#pragma unroll
            for (int c = 0; c < BATCH; c++)
                x[c] = k + c < length ? tartan_cuda_to<double>(from[(int64_t)(k + c) * p.step]) : 0.0;
            continue_chain(p.chain, unit, x, length - k, chain);
        }
        p.partial[item] = chain;
    }
}

/* ---- Folding ---- */

/* The lines of block rows or columns: `slices` threads for each; thread n takes the blocks n, n + slices, ... */
struct line_lists {
    int32_t chain, count;
    int64_t lists, grid, size; /* lines of a head, in blocks and in elements */
    const int32_t *pointers, *ids;
    const int32_t *bounds; /* NULL: blocks have `count` lines */
    const double *partial;
    double *out; /* [heads][size] */
};

__global__ void __launch_bounds__(THREADS) fold_lists(const line_lists p) {
    __shared__ double chains[THREADS];
    const int32_t wide = blockDim.x, slices = blockDim.y, at = threadIdx.y * wide + threadIdx.x;
    const int32_t line = blockIdx.y * wide + threadIdx.x;
    for (int64_t i = blockIdx.x; i < p.lists; i += gridDim.x) {
        double chain = first_of(p.chain);
        if (line < p.count)
            for (int32_t n = p.pointers[i] + (int32_t)threadIdx.y; n < p.pointers[i + 1]; n += slices) {
                const int64_t id = p.ids != nullptr ? p.ids[n] : n;
                chain = join(p.chain, p.partial[id * p.count + line], chain);
            }
        chains[at] = chain;
        for (int32_t step = slices / 2; step > 0; step /= 2) {
            __syncthreads();
            if ((int32_t)threadIdx.y < step)
                chains[at] = chain = join(p.chain, chains[at + step * wide], chain);
        }
        const int64_t block = i % p.grid;
        if (threadIdx.y == 0 && line < tartan_cuda_size(p.bounds, block, p.count, p.size))
            p.out[i / p.grid * p.size + tartan_cuda_begin(p.bounds, block, p.count) + line] = chain;
        __syncthreads(); /* all were read */
    }
}

/* The lines of each block: one warp for each. */
__global__ void __launch_bounds__(THREADS)
    fold_blocks(int32_t row, int32_t count, int64_t blocks, const double *partial, double *out) {
    const int32_t lane = threadIdx.x % 32;
    for (int64_t id = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; id < blocks;
         id += (int64_t)gridDim.x * (THREADS / 32)) {
        double chain = first_of(row);
        for (int32_t line = lane; line < count; line += 32)
            chain = join(row, partial[id * count + line], chain);
        for (int32_t step = 16; step > 0; step /= 2)
            chain = join(row, __shfl_down_sync(0xffffffffu, chain, step), chain);
        if (lane == 0) out[id] = chain;
    }
}

/* ---- Launching ---- */

int32_t power_of_two(int32_t n, int32_t most) {
    int32_t power = 1;
    while (power < n && power < most) power *= 2;
    return power;
}

template <typename T, int COUNT>
tartan_status launch_along(const char *function, tartan_cuda_queue *queue, const lines &p) {
    const int32_t lanes = power_of_two((p.length + COUNT - 1) / COUNT, 32), at_once = THREADS / lanes;
    return tartan_cuda_launch(function, queue, reduce_along<T, COUNT>,
                              tartan_cuda_grid((p.items - 1) / at_once + 1), dim3(THREADS), p, lanes);
}

tartan_status launch_lines(const char *function, tartan_cuda_queue *queue, int32_t dtype, const lines &p) {
    return tartan_cuda_by_any_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int widest = sizeof(T) == 1 ? 8 : 16 / (int)sizeof(T);
        if (p.step != 1)
            return tartan_cuda_launch(function, queue, reduce_across<T>,
                                      tartan_cuda_grid((p.items - 1) / THREADS + 1), dim3(THREADS), p);
        if (p.length % widest == 0 && is_aligned(p.s.values, dtype, widest))
            return launch_along<T, widest>(function, queue, p);
        return launch_along<T, 1>(function, queue, p);
    });
}

tartan_status launch_fold(const char *function, tartan_cuda_queue *queue, const tartan_op_reduce *r,
                          const lines &p) {
    const tartan_layout *l = r->matrix->layout;
    double *const out = (double *)r->results->data;
    if (r->each == TARTAN_EACH_BLOCK)
        return tartan_cuda_launch(function, queue, fold_blocks,
                                  tartan_cuda_grid((l->blocks - 1) / (THREADS / 32) + 1), dim3(THREADS),
                                  p.chain, p.count, l->blocks, p.partial, out);
    tartan_cuda_row_index index;
    tartan_cuda_bounds bounds;
    PASS(tartan_cuda_index_get_rows(function, queue, l, p.by_column, &index));
    PASS(tartan_cuda_index_get_bounds(function, queue, l, p.by_column, &bounds));
    const int64_t grid = p.by_column ? l->grid_cols : l->grid_rows,
                  size = p.by_column ? l->shape.cols : l->shape.rows;
    const line_lists f = {p.chain,        p.count,   l->shape.heads * grid, grid,      size,
                          index.pointers, index.ids, bounds.lines,          p.partial, out};
    const int32_t wide = power_of_two(p.count, 32);
    dim3 ctas = tartan_cuda_grid(f.lists);
    ctas.y = (unsigned)((p.count + wide - 1) / wide);
    return tartan_cuda_launch(function, queue, fold_lists, ctas,
                              dim3((unsigned)wide, (unsigned)(THREADS / wide)), f);
}

} // namespace

tartan_status tartan_cuda_reduce_plain(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const tartan_op_reduce *r = (const tartan_op_reduce *)problem;
    const tartan_layout *layout = r->matrix->layout;
    if (r->results->shape[0] == 0) return TARTAN_OK;
    lines p = {};
    PASS(side_of(function, queue, r->matrix, &p.s));
    p.by_column = r->each == TARTAN_EACH_COLUMN;
    p.chain = (int32_t)r->chain;
    p.count = p.by_column ? p.s.block_cols : p.s.block_rows;
    p.length = p.by_column ? p.s.block_rows : p.s.block_cols;
    p.line_stride = p.by_column ? p.s.col_stride : p.s.row_stride;
    p.step = p.by_column ? p.s.row_stride : p.s.col_stride;
    p.items = layout->blocks * p.count;
    p.units = r->units != nullptr ? (const double *)r->units->data : nullptr;
    if (r->units != nullptr) p.units_of = r->each == TARTAN_EACH_BLOCK ? UNITS_BLOCKS : UNITS_LINES;
    if (p.units_of == UNITS_LINES && layout->blocks > 0) PASS(side_places(function, queue, layout, &p.s));
    void *partial = nullptr;
    if (p.items > 0) PASS(tartan_cuda_scratch(function, queue, p.items * (int64_t)sizeof(double), &partial));
    p.partial = (double *)partial;
    tartan_status status = TARTAN_OK;
    if (p.items > 0) status = launch_lines(function, queue, r->matrix->dtype, p);
    if (status == TARTAN_OK) status = launch_fold(function, queue, r, p);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}
