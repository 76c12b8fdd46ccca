/* SPDX-License-Identifier: Apache-2.0 */
#include "index.h"

tartan_status tartan_cuda_index_bounds(const tartan_host *host, const tartan_layout *l, bool by_columns,
                                       tartan_cuda_host_bounds *out) {
    const int64_t *lines = by_columns ? l->col_bounds : l->row_bounds,
                  *cols = by_columns ? l->row_bounds : l->col_bounds;
    const tartan_i_columns *columns = NULL;
    if (by_columns) PASS(host->columns(l, &columns));
    const int64_t *pointers = by_columns ? columns->pointers : l->row_pointers;
    const int32_t *positions = by_columns ? columns->rows : l->block_cols;
    const int64_t grid = by_columns ? l->grid_cols : l->grid_rows,
                  across = by_columns ? l->grid_rows : l->grid_cols;
    tartan_cuda_host_bounds index = {.cols = grid + 1, .before = grid + 1 + across + 1};
    index.size = index.before + l->blocks;
    PASS(host->allocate(&index.values, index.size, sizeof *index.values));
    for (int64_t i = 0; i <= grid; i++) index.values[index.lines + i] = (int32_t)lines[i];
    for (int64_t j = 0; j <= across; j++) index.values[index.cols + j] = (int32_t)cols[j];
    for (int64_t line = 0; line < l->shape.heads * grid; line++) {
        int32_t before = 0;
        for (int64_t e = pointers[line]; e < pointers[line + 1]; e++) {
            index.values[index.before + e] = before;
            before += (int32_t)(cols[positions[e] + 1] - cols[positions[e]]);
        }
    }
    *out = index;
    return TARTAN_OK;
}

/* The largest power of two, up to `edge`, that divides a number. */
static int64_t common(int64_t edge, int64_t number) {
    while (number % edge != 0) edge /= 2;
    return edge;
}

/* The matrix may end anywhere in the last block. */
static int64_t common_of(int64_t edge, const int64_t *bounds, int64_t grid, int64_t block) {
    edge = common(edge, block);
    for (int64_t i = 0; i < grid; i++) edge = common(edge, bounds[i]);
    return edge;
}

void tartan_cuda_bounds_figures(const tartan_layout *l, tartan_cuda_figures *out) {
    const tartan_shape *s = &l->shape;
    out->edge = 0;
    out->filled = 1;
    if (!tartan_i_is_variable(l)) return;
    const int64_t edge = common_of(common_of(64, l->row_bounds, l->grid_rows, s->block_rows), l->col_bounds,
                                   l->grid_cols, s->block_cols);
    out->edge = edge < 8 ? 0 : (int32_t)edge;
    double elements = 0;
    for (int64_t id = 0; id < l->blocks; id++)
        elements +=
            (double)tartan_i_rows_of(l, l->block_rows[id]) * (double)tartan_i_cols_of(l, l->block_cols[id]);
    if (l->blocks > 0) out->filled = elements / ((double)l->blocks * (double)(s->block_rows * s->block_cols));
}
