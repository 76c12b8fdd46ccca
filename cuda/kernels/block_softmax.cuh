/* SPDX-License-Identifier: Apache-2.0
 * What softmax of block-sparse rows and its gradient share. A CTA owns some rows of one row of blocks, whose values are
 * contiguous in memory. `across` threads share a row; they step through its stored elements by units of V neighbouring
 * columns, and keep the first units in registers. */
#ifndef TARTAN_CUDA_BLOCK_SOFTMAX_CUH
#define TARTAN_CUDA_BLOCK_SOFTMAX_CUH

#include "device/bounds.cuh"
#include "device/units.cuh"
#include "dtype.h"
#include "index_cache.h"
#include "matrix/matrix.h"

namespace tartan_cuda {
namespace softmax {

enum { kThreads = 256 };

/* How rows are divided among CTAs and threads. */
struct Lines {
    tartan_cuda_row_index lists;            /* of no pointers: there are no blocks */
    const int32_t *row_bounds, *col_bounds; /* NULL: blocks have one size */
    int64_t grid_rows, rows, cols;
    int32_t block_rows, block_cols;
    bool by_row;                         /* neighbouring threads have neighbouring columns, else rows */
    int32_t units;                       /* of V columns, in a block */
    int32_t chunk, chunks;               /* rows of a CTA, CTAs of a row of blocks */
    int32_t across, half;                /* threads of a row, and where a reduction of them begins */
    int32_t blocks_a_step, units_a_step; /* `across` units: whole blocks, and the rest */
    int64_t pieces;                      /* chunks in all */
};

/* The blocks of a matrix as kernels see them. */
struct Values {
    void *data;
    int32_t dtype, row, col; /* strides inside a block */
    int64_t elements;        /* of a block */
};

/* A thread's part of a piece. */
struct Place {
    int64_t head, row;    /* row of the matrix */
    int32_t inside;       /* row of the block */
    int32_t here, number; /* row of the CTA, and the thread's number in the row */
    int64_t begin;        /* first block of the row */
    int32_t count;        /* blocks of the row; 0 if the thread has nothing to do */
    bool exists;          /* the row */
};

__device__ __forceinline__ Place place_of(const Lines &l, int64_t piece) {
    const int t = threadIdx.x;
    const int64_t line = piece / l.chunks;
    Place x;
    x.here = l.by_row ? t / l.units % l.chunk : t % l.chunk;
    x.number = l.by_row ? t / (l.units * l.chunk) * l.units + t % l.units : t / l.chunk;
    x.head = line / l.grid_rows;
    x.inside = (int32_t)(piece % l.chunks) * l.chunk + x.here;
    const int64_t block_row = line % l.grid_rows;
    x.row = tartan_cuda_begin(l.row_bounds, block_row, l.block_rows) + x.inside;
    x.exists = x.inside < tartan_cuda_size(l.row_bounds, block_row, l.block_rows, l.rows);
    x.begin = x.count = 0;
    if (!x.exists || x.number >= l.across || l.lists.pointers == nullptr) return x;
    x.begin = l.lists.pointers[line];
    x.count = (int32_t)(l.lists.pointers[line + 1] - x.begin);
    return x;
}

/* The units of a thread, one after the other. */
struct Walk {
    int32_t block, unit;

    __device__ __forceinline__ Walk(const Lines &l, const Place &x)
        : block(x.number / l.units), unit(x.number % l.units) {}
    __device__ __forceinline__ void step(const Lines &l) {
        block += l.blocks_a_step;
        unit += l.units_a_step;
        if (unit < l.units) return;
        unit -= l.units;
        block++;
    }
};

/* Where a unit begins, in elements. */
template <int V>
__device__ __forceinline__ int64_t offset_of(const Values &v, const Place &x, const Walk &w) {
    return (x.begin + w.block) * v.elements + (int64_t)x.inside * v.row + (int64_t)w.unit * V * v.col;
}

/* The columns of a unit that exist and are before `limit`, at most the columns of the matrix, as V bits. */
template <int V>
__device__ __forceinline__ uint32_t before(const Lines &l, const Place &x, const Walk &w, int64_t limit) {
    const int32_t col = l.lists.cols[x.begin + w.block];
    if (l.col_bounds != nullptr && limit > l.col_bounds[col + 1]) limit = l.col_bounds[col + 1];
    const int64_t left = limit - (tartan_cuda_begin(l.col_bounds, col, l.block_cols) + w.unit * V);
    return left >= V ? (1u << V) - 1 : left > 0 ? (1u << left) - 1 : 0;
}

/* Joins the values of the threads of each row, in an order that depends on their number alone. */
template <typename S, typename Join>
__device__ __forceinline__ S reduce(const Lines &l, const Place &x, S value, S (&room)[kThreads], Join join) {
    S *mine = room + x.here * l.across + x.number;
    __syncthreads(); /* the last values have been read */
    if (x.number < l.across) *mine = value;
    for (int half = l.half; half > 0; half /= 2) {
        __syncthreads();
        if (x.number < half && x.number + half < l.across) *mine = join(mine[0], mine[half]);
    }
    __syncthreads();
    return room[x.here * l.across];
}

/* ---- On the host ---- */

inline Values values_of(const tartan_matrix *m) {
    const tartan_shape *s = &m->layout->shape;
    /* A block that is one line is the same in both orders. */
    const bool by_row = m->block_order == TARTAN_ROW_MAJOR || s->block_rows == 1 || s->block_cols == 1;
    return {m->values, m->dtype, by_row ? (int32_t)s->block_cols : 1, by_row ? 1 : (int32_t)s->block_rows,
            s->block_rows * s->block_cols};
}

/* The most columns that one access moves, of all `count` matrices. */
inline int32_t widest(const tartan_layout *layout, const Values *values, int count) {
    int32_t bytes = 2;
    for (int i = 0; i < count; i++) {
        if (values[i].col != 1 || (uintptr_t)values[i].data % 16 != 0) return 1;
        const int32_t own = tartan_cuda_bytes_of(values[i].dtype);
        if (own > bytes) bytes = own;
    }
    return layout->shape.block_cols % (16 / bytes) == 0 ? 16 / bytes : 1;
}

/* Divides rows for units of `width` columns, of which a thread keeps `kept`. */
inline tartan_status lines_of(const char *function, tartan_cuda_queue *queue, const tartan_layout *layout,
                              const Values &first, int32_t width, int32_t kept, Lines *out) {
    const tartan_shape *s = &layout->shape;
    Lines l = {};
    tartan_cuda_bounds bounds;
    if (layout->blocks > 0) PASS(tartan_cuda_index_get_rows(function, queue, layout, false, &l.lists));
    PASS(tartan_cuda_index_get_bounds(function, queue, layout, false, &bounds));
    l.row_bounds = bounds.lines;
    l.col_bounds = bounds.cols;
    l.grid_rows = layout->grid_rows;
    l.rows = s->rows;
    l.cols = s->cols;
    l.block_rows = (int32_t)s->block_rows;
    l.block_cols = (int32_t)s->block_cols;
    l.by_row = first.col == 1;
    l.units = l.block_cols / width;
    const int64_t lines = s->heads * l.grid_rows, bytes = tartan_cuda_bytes_of(first.dtype);
    if (l.by_row) {
        /* As many rows as threads can keep, but at least so many that a block's are whole sectors of memory. */
        const double mean = (double)layout->blocks / (double)lines * l.units + 1;
        const int64_t least = 128 / (l.block_cols * bytes) + 1, most = kThreads / l.units;
        int64_t chunk = (int64_t)((double)kThreads * kept / mean);
        while (chunk > least && lines * (l.block_rows / chunk + 1) < 4 * queue->chip.processors) chunk /= 2;
        chunk = chunk < least ? least : chunk;
        l.chunk = (int32_t)(chunk < most ? chunk : most);
    } else {
        l.chunk = 64;
    }
    if (l.chunk > l.block_rows) l.chunk = l.block_rows;
    l.chunks = (l.block_rows + l.chunk - 1) / l.chunk;
    l.chunk = (l.block_rows + l.chunks - 1) / l.chunks;
    l.across = l.by_row ? kThreads / (l.units * l.chunk) * l.units : kThreads / l.chunk;
    while (2 * l.half < l.across) l.half = l.half > 0 ? 2 * l.half : 1;
    if (l.across == 1) l.half = 0;
    l.blocks_a_step = l.across / l.units;
    l.units_a_step = l.across % l.units;
    l.pieces = lines * l.chunks;
    *out = l;
    return TARTAN_OK;
}

} // namespace softmax
} // namespace tartan_cuda

#endif
