/* SPDX-License-Identifier: Apache-2.0
 * Variable layouts, whose blocks differ in size: lists say where block rows and block columns begin. */
#include "layout/layout.h"

#include <string.h>

int64_t tartan_i_bounds_find(const int64_t *bounds, int64_t grid, int64_t line) {
    int64_t low = 0, high = grid - 1; /* the last block that begins at or before `line` */
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (bounds[middle] <= line)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

tartan_shape tartan_i_layout_frame(const tartan_layout *l) {
    if (!tartan_i_is_variable(l)) return l->shape;
    return (tartan_shape){.rows = l->grid_rows,
                          .cols = l->grid_cols,
                          .block_rows = 1,
                          .block_cols = 1,
                          .heads = l->shape.heads};
}

static bool same_bounds(const int64_t *a, const int64_t *b, int64_t grid) {
    return memcmp(a, b, (size_t)(grid + 1) * sizeof *a) == 0;
}

bool tartan_i_layout_same_frame(const tartan_layout *a, const tartan_layout *b) {
    return memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 && a->grid_rows == b->grid_rows &&
           a->grid_cols == b->grid_cols && tartan_i_is_variable(a) == tartan_i_is_variable(b) &&
           (!tartan_i_is_variable(a) || (same_bounds(a->row_bounds, b->row_bounds, a->grid_rows) &&
                                         same_bounds(a->col_bounds, b->col_bounds, a->grid_cols)));
}

/* The largest block; 1 if there is none. */
static int64_t largest(const int64_t *bounds, int64_t grid) {
    int64_t most = 1;
    for (int64_t i = 0; i < grid; i++)
        if (bounds[i + 1] - bounds[i] > most) most = bounds[i + 1] - bounds[i];
    return most;
}

/* Whether all blocks but the last, which may be smaller, have the size `block` of the largest. */
static bool are_even(const int64_t *bounds, int64_t grid, int64_t block) {
    for (int64_t i = 0; i < grid; i++)
        if (bounds[i] != i * block) return false;
    return true;
}

tartan_status tartan_i_layout_take_bounds(const char *function, tartan_layout *layout,
                                          const int64_t *row_bounds, const int64_t *col_bounds) {
    tartan_status status;
    int64_t *rows = NULL, *cols = NULL, elements;
    const int64_t grid_rows = layout->grid_rows, grid_cols = layout->grid_cols;
    const int64_t block_rows = largest(row_bounds, grid_rows), block_cols = largest(col_bounds, grid_cols);
    const bool even =
        are_even(row_bounds, grid_rows, block_rows) && are_even(col_bounds, grid_cols, block_cols);
    CHECK_IN(function, tartan_i_multiply(layout->blocks, block_rows * block_cols * 8, &elements), OVERFLOW,
             "%" PRId64 " blocks of %" PRId64 " x %" PRId64 " elements exceed what can be addressed",
             layout->blocks, block_rows, block_cols);
    if (!even) {
        NEW(rows, grid_rows + 1);
        NEW(cols, grid_cols + 1);
        memcpy(rows, row_bounds, (size_t)(grid_rows + 1) * sizeof *rows);
        memcpy(cols, col_bounds, (size_t)(grid_cols + 1) * sizeof *cols);
    }
    layout->shape.rows = row_bounds[grid_rows];
    layout->shape.cols = col_bounds[grid_cols];
    layout->shape.block_rows = block_rows;
    layout->shape.block_cols = block_cols;
    layout->row_bounds = rows;
    layout->col_bounds = cols;
    layout->magic = even ? TARTAN_I_LAYOUT : TARTAN_I_VARIABLE;
    return TARTAN_OK;
fail:
    tartan_i_free(rows);
    return status;
}

tartan_status tartan_i_bounds_check(const char *function, const char *name, const int64_t *bounds,
                                    int64_t nbounds, int64_t grid) {
    PASS(tartan_i_list_check(function, name, bounds, nbounds, grid + 1, "blocks of this side + 1"));
    CHECK_IN(function, bounds[0] == 0, LAYOUT, "%s begins with %" PRId64 ", expected 0", name, bounds[0]);
    for (int64_t i = 0; i < grid; i++) {
        int64_t size;
        const bool fits = !__builtin_sub_overflow(bounds[i + 1], bounds[i], &size) && size >= 1 &&
                          size <= TARTAN_I_MAX_BLOCK;
        CHECK_IN(function, fits, LAYOUT,
                 "%s[%" PRId64 "] is %" PRId64 " after %" PRId64 ", expected blocks of 1 .. %d", name, i + 1,
                 bounds[i + 1], bounds[i], TARTAN_I_MAX_BLOCK);
    }
    return TARTAN_OK;
}

/* ---- Public ---- */

/* The boundaries of one side as they are, [grid + 1]. */
static void list_bounds(const int64_t *bounds, int64_t size, int64_t block, int64_t grid, int64_t *out) {
    for (int64_t i = 0; i < grid; i++) out[i] = bounds != NULL ? bounds[i] : i * block;
    out[grid] = size;
}

tartan_status tartan_layout_get_boundaries(const tartan_layout *layout, int64_t *out_row_bounds,
                                           int64_t nout_row_bounds, int64_t *out_col_bounds,
                                           int64_t nout_col_bounds) {
    CHECK_HOST_LAYOUT(layout);
    const tartan_shape *s = &layout->shape;
    CHECK_LIST(out_row_bounds, layout->grid_rows + 1, "block rows + 1");
    CHECK_LIST(out_col_bounds, layout->grid_cols + 1, "block columns + 1");
    list_bounds(layout->row_bounds, s->rows, s->block_rows, layout->grid_rows, out_row_bounds);
    list_bounds(layout->col_bounds, s->cols, s->block_cols, layout->grid_cols, out_col_bounds);
    return TARTAN_OK;
}

/* The same blocks on a grid of blocks of 1 x 1. */
static tartan_status copy_grid(const tartan_layout *l, tartan_layout **out) {
    tartan_status status;
    tartan_layout *copy = NULL;
    const tartan_shape frame = {.rows = l->grid_rows,
                                .cols = l->grid_cols,
                                .block_rows = 1,
                                .block_cols = 1,
                                .heads = l->shape.heads};
    const size_t pointers = (size_t)(l->shape.heads * l->grid_rows + 1);
    TRY(tartan_i_layout_begin(&frame, l->blocks, &copy));
    memcpy(copy->row_pointers, l->row_pointers, pointers * sizeof *copy->row_pointers);
    memcpy(copy->block_cols, l->block_cols, (size_t)l->blocks * sizeof *copy->block_cols);
    TRY(tartan_i_layout_finish(copy));
    *out = copy;
    return TARTAN_OK;
fail:
    tartan_layout_free(copy);
    return status;
}

tartan_status tartan_layout_with_boundaries(const tartan_layout *layout, const int64_t *row_bounds,
                                            int64_t nrow_bounds, const int64_t *col_bounds,
                                            int64_t ncol_bounds, tartan_layout **out) {
    tartan_status status;
    tartan_layout *made = NULL;
    int64_t *rows = NULL, *cols = NULL;
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    const int64_t grid_rows = layout->grid_rows, grid_cols = layout->grid_cols;
    const bool rows_given = row_bounds != NULL || nrow_bounds != 0,
               cols_given = col_bounds != NULL || ncol_bounds != 0;
    if (rows_given) PASS(tartan_i_bounds_check(__func__, "row_bounds", row_bounds, nrow_bounds, grid_rows));
    if (cols_given) PASS(tartan_i_bounds_check(__func__, "col_bounds", col_bounds, ncol_bounds, grid_cols));
    NEW(rows, grid_rows + 1);
    NEW(cols, grid_cols + 1);
    TRY(tartan_layout_get_boundaries(layout, rows, grid_rows + 1, cols, grid_cols + 1));
    TRY(copy_grid(layout, &made));
    TRY(tartan_i_layout_take_bounds(__func__, made, rows_given ? row_bounds : rows,
                                    cols_given ? col_bounds : cols));
    *out = made;
    made = NULL;
fail:
    tartan_layout_free(made);
    tartan_i_free(rows);
    tartan_i_free(cols);
    return status;
}
