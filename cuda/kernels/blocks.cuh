/* SPDX-License-Identifier: Apache-2.0
 * What kernels that visit the blocks of a matrix share. */
#ifndef TARTAN_CUDA_BLOCKS_CUH
#define TARTAN_CUDA_BLOCKS_CUH

#include "device/bounds.cuh"
#include "device/launch.cuh"
#include "index_cache.h"
#include "matrix/matrix.h"

namespace {

/* The blocks of one matrix. */
struct side {
    const void *values;
    int32_t row_stride, col_stride;
    int32_t block_rows, block_cols;
    bool ragged; /* what follows is set then, and by side_places */
    int64_t rows, cols, grid_rows, lists;
    const int32_t *pointers, *block_cols_of;
    const int32_t *row_bounds, *col_bounds; /* NULL: blocks have one size */
};

/* Where a block is, in blocks. */
struct block_place {
    int64_t head, row, col;
};

/* With one head, the usual case, nothing is divided. */
__device__ inline block_place find_block(const side &s, int64_t id) {
    block_place p = {0, 0, s.block_cols_of[id]};
    if (s.lists <= INT32_MAX) {
        int32_t low = 0, high = (int32_t)s.lists; /* pointers[low] <= id < pointers[high] */
        while (high - low > 1) {
            const int32_t middle = low + (high - low) / 2;
            (s.pointers[middle] <= (int32_t)id ? low : high) = middle;
        }
        p.row = low;
    } else {
        p.row = tartan_cuda_row_of(s.pointers, s.lists, id);
    }
    if (s.lists == s.grid_rows) return p;
    p.head = p.row / s.grid_rows;
    p.row -= p.head * s.grid_rows;
    return p;
}

/* Rows and columns of a block that exist. */
__device__ inline int2 extent(const side &s, int64_t id) {
    if (!s.ragged) return make_int2(s.block_rows, s.block_cols);
    const block_place at = find_block(s, id);
    return make_int2(tartan_cuda_size(s.row_bounds, at.row, s.block_rows, s.rows),
                     tartan_cuda_size(s.col_bounds, at.col, s.block_cols, s.cols));
}

/* Sets the index sets by which kernels find where a block is. */
inline tartan_status side_places(const char *function, tartan_cuda_queue *queue, const tartan_layout *l,
                                 side *out) {
    tartan_cuda_row_index lists;
    tartan_cuda_bounds bounds;
    PASS(tartan_cuda_index_get_rows(function, queue, l, false, &lists));
    PASS(tartan_cuda_index_get_bounds(function, queue, l, false, &bounds));
    out->rows = l->shape.rows;
    out->cols = l->shape.cols;
    out->grid_rows = l->grid_rows;
    out->lists = l->shape.heads * l->grid_rows;
    out->pointers = lists.pointers;
    out->block_cols_of = lists.cols;
    out->row_bounds = bounds.lines;
    out->col_bounds = bounds.cols;
    return TARTAN_OK;
}

inline tartan_status side_of(const char *function, tartan_cuda_queue *queue, const tartan_matrix *m,
                             side *out) {
    const tartan_layout *l = m->layout;
    const tartan_shape *shape = &l->shape;
    *out = {};
    out->values = m->values;
    out->block_rows = (int32_t)shape->block_rows;
    out->block_cols = (int32_t)shape->block_cols;
    /* A block that is one line is the same in both orders. */
    const bool by_row = m->block_order == TARTAN_ROW_MAJOR || out->block_rows == 1 || out->block_cols == 1;
    out->row_stride = by_row ? out->block_cols : 1;
    out->col_stride = by_row ? 1 : out->block_rows;
    out->ragged = tartan_i_is_ragged(l);
    return out->ragged && l->blocks > 0 ? side_places(function, queue, l, out) : TARTAN_OK;
}

} // namespace

#endif
