/* SPDX-License-Identifier: Apache-2.0
 * What kernels that visit the blocks of a matrix share. */
#ifndef TARTAN_CUDA_BLOCKS_CUH
#define TARTAN_CUDA_BLOCKS_CUH

#include "index_cache.h"

namespace {

/* The blocks of one matrix. */
struct side {
    const void *values;
    int32_t row_stride, col_stride;
    int32_t block_rows, block_cols;
    bool ragged; /* what follows is set only then */
    int64_t rows, cols, grid_rows, lists;
    const int32_t *pointers, *block_cols_of;
};

/* Rows and columns of a block that exist. */
__device__ inline int2 extent(const side &s, int64_t id) {
    if (!s.ragged) return make_int2(s.block_rows, s.block_cols);
    const int64_t row = tartan_cuda_row_of(s.pointers, s.lists, id) % s.grid_rows;
    const int64_t rows = s.rows - row * s.block_rows,
                  cols = s.cols - (int64_t)s.block_cols_of[id] * s.block_cols;
    return make_int2((int)(rows < s.block_rows ? rows : s.block_rows),
                     (int)(cols < s.block_cols ? cols : s.block_cols));
}

inline tartan_status side_of(const char *function, tartan_cuda_queue *queue, const tartan_cuda_blocks *b,
                             side *out) {
    const tartan_layout *l = b->layout;
    const tartan_shape *shape = &l->shape;
    *out = {};
    out->values = b->values;
    out->block_rows = (int32_t)shape->block_rows;
    out->block_cols = (int32_t)shape->block_cols;
    /* A block that is one line is the same in both orders. */
    const bool by_row = b->order == TARTAN_ROW_MAJOR || out->block_rows == 1 || out->block_cols == 1;
    out->row_stride = by_row ? out->block_cols : 1;
    out->col_stride = by_row ? 1 : out->block_rows;
    out->ragged = shape->rows % shape->block_rows != 0 || shape->cols % shape->block_cols != 0;
    if (!out->ragged || l->blocks == 0) return TARTAN_OK;
    tartan_cuda_row_index lists;
    PASS(tartan_cuda_index_get_rows(function, queue, l, false, &lists));
    out->rows = shape->rows;
    out->cols = shape->cols;
    out->grid_rows = l->grid_rows;
    out->lists = shape->heads * l->grid_rows;
    out->pointers = lists.pointers;
    out->block_cols_of = lists.cols;
    return TARTAN_OK;
}

} // namespace

#endif
