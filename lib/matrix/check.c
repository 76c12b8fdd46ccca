// SPDX-License-Identifier: Apache-2.0
// The full check of a matrix: handle, index sets, values.
#include "matrix/matrix.h"

#include <math.h>

#define CHECK_INSIDE(condition, ...) CHECK_IN("tartan_matrix_check", condition, INTERNAL, __VA_ARGS__)

static tartan_status check_pointers(const char *name, const int64_t *pointers, int64_t count,
                                    int64_t blocks) {
    CHECK_INSIDE(pointers != NULL, "the layout has no %s pointers", name);
    CHECK_INSIDE(pointers[0] == 0 && pointers[count] == blocks,
                 "the layout's %s pointers run from %" PRId64 " to %" PRId64 ", expected 0 to %" PRId64, name,
                 pointers[0], pointers[count], blocks);
    for (int64_t i = 0; i < count; i++) {
        CHECK_INSIDE(pointers[i] <= pointers[i + 1], "the layout's %s pointers descend at %" PRId64, name, i);
    }
    return TARTAN_OK;
}

static tartan_status check_rows(const tartan_layout *l) {
    PASS(check_pointers("row", l->row_pointers, l->shape.heads * l->grid_rows, l->blocks));
    CHECK_INSIDE(l->blocks == 0 || (l->block_cols != NULL && l->block_rows != NULL),
                 "the layout has no coordinates");
    for (int64_t i = 0; i < l->shape.heads * l->grid_rows; i++) {
        int64_t above = -1;
        for (int64_t id = l->row_pointers[i]; id < l->row_pointers[i + 1]; id++) {
            CHECK_INSIDE(l->block_cols[id] > above && l->block_cols[id] < l->grid_cols,
                         "the layout has block column %d at block %" PRId64 ", expected %" PRId64
                         " .. %" PRId64,
                         l->block_cols[id], id, above + 1, l->grid_cols - 1);
            CHECK_INSIDE(l->block_rows[id] == i % l->grid_rows,
                         "the layout has block row %d at block %" PRId64 ", expected %" PRId64,
                         l->block_rows[id], id, i % l->grid_rows);
            above = l->block_cols[id];
        }
    }
    return TARTAN_OK;
}

// Each entry names an existing block and none appears twice, so the lists hold every block.
static tartan_status check_columns(const tartan_layout *l) {
    const tartan_i_columns *columns = tartan_i_columns_of(l);
    if (columns == NULL) return TARTAN_OK; /* not made yet */
    PASS(check_pointers("column", columns->pointers, l->shape.heads * l->grid_cols, l->blocks));
    CHECK_INSIDE(l->blocks == 0 || (columns->rows != NULL && columns->ids != NULL),
                 "the layout has no column lists");
    for (int64_t j = 0; j < l->shape.heads * l->grid_cols; j++) {
        const int64_t *head = l->row_pointers + j / l->grid_cols * l->grid_rows;
        int64_t above = -1;
        for (int64_t n = columns->pointers[j]; n < columns->pointers[j + 1]; n++) {
            int64_t id = columns->ids[n];
            bool here = id >= head[0] && id < head[l->grid_rows] && l->block_cols[id] == j % l->grid_cols &&
                        l->block_rows[id] == columns->rows[n] && columns->rows[n] > above;
            CHECK_INSIDE(here,
                         "the layout's column lists have block %" PRId64 " in column %" PRId64 " at %" PRId64,
                         id, j, n);
            above = columns->rows[n];
        }
    }
    return TARTAN_OK;
}

// The boundaries of a variable layout: blocks of 1 .. `block` that add up to `size`.
static tartan_status check_bounds(const char *side, const int64_t *bounds, int64_t grid, int64_t size,
                                  int64_t block) {
    CHECK_INSIDE(bounds != NULL && bounds[0] == 0 && bounds[grid] == size,
                 "the layout has no %s boundaries from 0 to %" PRId64, side, size);
    for (int64_t i = 0; i < grid; i++)
        CHECK_INSIDE(bounds[i] < bounds[i + 1] && bounds[i + 1] - bounds[i] <= block,
                     "the layout has %s boundary %" PRId64 " after %" PRId64, side, bounds[i + 1], bounds[i]);
    return TARTAN_OK;
}

static tartan_status check_layout(const tartan_layout *l) {
    CHECK_INSIDE(tartan_i_is_host_layout(l), "the matrix has no open layout");
    const tartan_shape *s = &l->shape;
    CHECK_INSIDE(s->rows >= 0 && s->cols >= 0 && s->block_rows >= 1 && s->block_rows <= TARTAN_I_MAX_BLOCK &&
                     s->block_cols >= 1 && s->block_cols <= TARTAN_I_MAX_BLOCK && s->heads >= 1 &&
                     s->heads <= TARTAN_I_MAX_HEADS,
                 "the layout has a frame of %" PRId64 " x %" PRId64 " in blocks of %" PRId64 " x %" PRId64
                 ", %" PRId64 " heads",
                 s->rows, s->cols, s->block_rows, s->block_cols, s->heads);
    const bool fits = tartan_i_is_variable(l) || (l->grid_rows == tartan_i_ceil_div(s->rows, s->block_rows) &&
                                                  l->grid_cols == tartan_i_ceil_div(s->cols, s->block_cols));
    CHECK_INSIDE(fits && l->blocks >= 0,
                 "the layout has a grid of %" PRId64 " x %" PRId64 " and %" PRId64 " blocks", l->grid_rows,
                 l->grid_cols, l->blocks);
    if (tartan_i_is_variable(l)) {
        PASS(check_bounds("row", l->row_bounds, l->grid_rows, s->rows, s->block_rows));
        PASS(check_bounds("column", l->col_bounds, l->grid_cols, s->cols, s->block_cols));
    }
    PASS(check_rows(l));
    return check_columns(l);
}

// The first stored element that is not finite, by block.
static tartan_status check_finite(const tartan_matrix *m) {
    const tartan_layout *l = m->layout;
    tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, m->dtype);
    double row[TARTAN_I_MAX_BLOCK];
    for (int64_t id = 0; id < l->blocks; id++) {
        int64_t rows = tartan_i_rows_of(l, l->block_rows[id]), cols = tartan_i_cols_of(l, l->block_cols[id]);
        for (int64_t r = 0; r < rows; r++) {
            copy(row, 0, 1, tartan_i_at(tartan_i_block_at(m, id), m->dtype, r * tartan_i_block_row_stride(m)),
                 0, tartan_i_block_col_stride(m), 1, cols);
            for (int64_t c = 0; c < cols; c++) {
                CHECK_IN("tartan_matrix_check", isfinite(row[c]), ARGUMENT,
                         "matrix has %g in block %" PRId64 " (head %" PRId64 ", block row %d, block column "
                         "%d) at (%" PRId64 ", %" PRId64 "), expected finite numbers",
                         row[c], id, tartan_i_layout_head(l, id), l->block_rows[id], l->block_cols[id], r, c);
            }
        }
    }
    return TARTAN_OK;
}

tartan_status tartan_matrix_check(const tartan_matrix *matrix, int32_t finite) {
    HOLD_MATRIX(matrix);
    CHECK_HANDLE(matrix, MATRIX, "matrix");
    int64_t bytes = tartan_dtype_bytes(matrix->dtype);
    CHECK_INSIDE(bytes > 0, "the matrix has dtype %d", matrix->dtype);
    CHECK_INSIDE(matrix->block_order == TARTAN_ROW_MAJOR || matrix->block_order == TARTAN_COL_MAJOR,
                 "the matrix has block order %d", matrix->block_order);
    CHECK_INSIDE(matrix->device_type == TARTAN_CPU || matrix->device_type == TARTAN_CUDA,
                 "the matrix is on device type %d", matrix->device_type);
    if (!tartan_i_is(matrix->layout, TARTAN_I_DYNAMIC)) PASS(check_layout(matrix->layout));
    CHECK_INSIDE(matrix->layout->blocks == 0 ||
                     (matrix->values != NULL && (uintptr_t)matrix->values % (uintptr_t)bytes == 0),
                 "the matrix has its values at %p", matrix->values);
    if (!finite) return TARTAN_OK;
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    return check_finite(matrix);
}
