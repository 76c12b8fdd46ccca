/* SPDX-License-Identifier: Apache-2.0
 * Transpose, permutation, slice. */
#include "layout/positions.h"
#include "tartan/layout_derived.h"

#include <string.h>

/* The column lists of a layout are the row lists of its transpose. */
static tartan_status transpose(const tartan_layout *l, int64_t **out_sources, tartan_layout **out) {
    tartan_status status;
    tartan_layout *t = NULL;
    int64_t *sources = NULL;
    const tartan_i_columns *columns;
    PASS(tartan_i_layout_columns(l, &columns));
    const tartan_shape frame = tartan_i_layout_frame(l);
    const tartan_shape shape = {.rows = frame.cols,
                                .cols = frame.rows,
                                .block_rows = frame.block_cols,
                                .block_cols = frame.block_rows,
                                .heads = frame.heads};
    TRY(tartan_i_layout_begin(&shape, l->blocks, &t));
    if (out_sources != NULL) {
        NEW(sources, l->blocks);
        memcpy(sources, columns->ids, (size_t)l->blocks * sizeof *sources);
    }
    memcpy(t->row_pointers, columns->pointers,
           (size_t)(shape.heads * t->grid_rows + 1) * sizeof *t->row_pointers);
    memcpy(t->block_cols, columns->rows, (size_t)l->blocks * sizeof *t->block_cols);
    TRY(tartan_i_layout_finish(t));
    if (tartan_i_is_variable(l))
        TRY(tartan_i_layout_take_bounds("tartan_layout_transpose", t, l->col_bounds, l->row_bounds));
    *out = t;
    if (out_sources != NULL) *out_sources = sources;
    return TARTAN_OK;
fail:
    tartan_i_free(sources);
    tartan_layout_free(t);
    return status;
}

/* Checks `order` and returns its inverse, the new index of each old one; the identity if `order` is NULL. */
static tartan_status invert(const char *function, const char *name, const int64_t *order, int64_t norder,
                            int64_t grid, bool ragged, int64_t **out_inverse) {
    tartan_status status;
    int64_t *inverse = NULL;
    bool given = order != NULL || norder != 0;
    if (given) PASS(tartan_i_list_check(function, name, order, norder, grid, "blocks on this side"));
    NEW(inverse, grid);
    for (int64_t i = 0; i < grid; i++) inverse[i] = given ? -1 : i;
    for (int64_t i = 0; given && i < grid; i++) {
        int64_t old = order[i];
        if (old < 0 || old >= grid || inverse[old] >= 0)
            TRY(tartan_i_fail(TARTAN_ERR_ARGUMENT, function,
                              "%s[%" PRId64 "] is %" PRId64 ", expected each of 0 .. %" PRId64 " once", name,
                              i, old, grid - 1));
        inverse[old] = i;
    }
    if (ragged && inverse[grid - 1] != grid - 1)
        TRY(tartan_i_fail(TARTAN_ERR_ARGUMENT, function,
                          "%s moves block %" PRId64 ", which is ragged, to %" PRId64
                          ", expected it to stay last",
                          name, grid - 1, inverse[grid - 1]));
    *out_inverse = inverse;
    return TARTAN_OK;
fail:
    tartan_i_free(inverse);
    return status;
}

/* Boundaries whose blocks move to the places `moved`. */
static void move_sizes(const int64_t *bounds, const int64_t *moved, int64_t grid, int64_t *out) {
    for (int64_t i = 0; i < grid; i++) out[moved[i] + 1] = bounds[i + 1] - bounds[i];
    out[0] = 0;
    for (int64_t i = 0; i < grid; i++) out[i + 1] += out[i];
}

static tartan_status permute_bounds(const char *function, const tartan_layout *l, const int64_t *rows,
                                    const int64_t *cols, tartan_layout *permuted) {
    tartan_status status;
    int64_t *row_bounds = NULL, *col_bounds = NULL;
    NEW(row_bounds, l->grid_rows + 1);
    NEW(col_bounds, l->grid_cols + 1);
    move_sizes(l->row_bounds, rows, l->grid_rows, row_bounds);
    move_sizes(l->col_bounds, cols, l->grid_cols, col_bounds);
    status = tartan_i_layout_take_bounds(function, permuted, row_bounds, col_bounds);
fail:
    tartan_i_free(row_bounds);
    tartan_i_free(col_bounds);
    return status;
}

static tartan_status permute(const char *function, const tartan_layout *l, const int64_t *row_order,
                             int64_t nrow_order, const int64_t *col_order, int64_t ncol_order,
                             int64_t **out_sources, tartan_layout **out) {
    tartan_status status;
    int64_t *rows = NULL, *cols = NULL, *positions = NULL;
    const tartan_shape frame = tartan_i_layout_frame(l), *s = &frame;
    tartan_layout *made = NULL;
    if (out_sources != NULL) *out_sources = NULL;
    TRY(invert(function, "row_order", row_order, nrow_order, l->grid_rows, s->rows % s->block_rows != 0,
               &rows));
    TRY(invert(function, "col_order", col_order, ncol_order, l->grid_cols, s->cols % s->block_cols != 0,
               &cols));
    NEW(positions, l->blocks);
    for (int64_t head = 0; head < s->heads; head++) {
        int64_t end = l->row_pointers[(head + 1) * l->grid_rows];
        for (int64_t id = l->row_pointers[head * l->grid_rows]; id < end; id++)
            positions[id] =
                (head * l->grid_rows + rows[l->block_rows[id]]) * l->grid_cols + cols[l->block_cols[id]];
    }
    TRY(tartan_i_layout_from_positions(function, s, positions, l->blocks, false, out_sources, &made));
    if (tartan_i_is_variable(l)) TRY(permute_bounds(function, l, rows, cols, made));
    *out = made;
    made = NULL;
fail:
    if (status != TARTAN_OK && out_sources != NULL) tartan_i_free(*out_sources);
    tartan_layout_free(made);
    tartan_i_free(rows);
    tartan_i_free(cols);
    tartan_i_free(positions);
    return status;
}

/* First block of [begin, end) whose column is not below `col`. */
static int64_t lower_bound(const int32_t *block_cols, int64_t begin, int64_t end, int64_t col) {
    while (begin < end) {
        int64_t middle = begin + (end - begin) / 2;
        if (block_cols[middle] < col)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* The ids of line `line` with columns in [col_begin, col_end). */
static void cut_line(const tartan_layout *l, int64_t line, int64_t col_begin, int64_t col_end, int64_t *begin,
                     int64_t *end) {
    *begin = lower_bound(l->block_cols, l->row_pointers[line], l->row_pointers[line + 1], col_begin);
    *end = lower_bound(l->block_cols, *begin, l->row_pointers[line + 1], col_end);
}

static int64_t extent(int64_t size, int64_t block, int64_t begin, int64_t end) {
    int64_t last = end * block < size ? end * block : size;
    return end == begin ? 0 : last - begin * block;
}

static tartan_status slice_bounds(const char *function, const tartan_layout *l, int64_t row_begin,
                                  int64_t col_begin, tartan_layout *part) {
    tartan_status status;
    int64_t *row_bounds = NULL, *col_bounds = NULL;
    NEW(row_bounds, part->grid_rows + 1);
    NEW(col_bounds, part->grid_cols + 1);
    for (int64_t i = 0; i <= part->grid_rows; i++)
        row_bounds[i] = l->row_bounds[row_begin + i] - l->row_bounds[row_begin];
    for (int64_t j = 0; j <= part->grid_cols; j++)
        col_bounds[j] = l->col_bounds[col_begin + j] - l->col_bounds[col_begin];
    status = tartan_i_layout_take_bounds(function, part, row_bounds, col_bounds);
fail:
    tartan_i_free(row_bounds);
    tartan_i_free(col_bounds);
    return status;
}

static tartan_status slice(const char *function, const tartan_layout *l, int64_t row_begin, int64_t row_end,
                           int64_t col_begin, int64_t col_end, int64_t **out_sources, tartan_layout **out) {
    tartan_status status;
    tartan_layout *part = NULL;
    int64_t *sources = NULL, blocks = 0, begin, end, new_line = 0, id = 0;
    CHECK_IN(function, row_begin >= 0 && row_begin <= row_end && row_end <= l->grid_rows, ARGUMENT,
             "row_begin .. row_end is %" PRId64 " .. %" PRId64 ", expected a range within 0 .. %" PRId64,
             row_begin, row_end, l->grid_rows);
    CHECK_IN(function, col_begin >= 0 && col_begin <= col_end && col_end <= l->grid_cols, ARGUMENT,
             "col_begin .. col_end is %" PRId64 " .. %" PRId64 ", expected a range within 0 .. %" PRId64,
             col_begin, col_end, l->grid_cols);
    const tartan_shape frame = tartan_i_layout_frame(l);
    tartan_shape shape = frame;
    shape.rows = extent(frame.rows, shape.block_rows, row_begin, row_end);
    shape.cols = extent(frame.cols, shape.block_cols, col_begin, col_end);
    for (int64_t head = 0; head < shape.heads; head++)
        for (int64_t i = row_begin; i < row_end; i++) {
            cut_line(l, head * l->grid_rows + i, col_begin, col_end, &begin, &end);
            blocks += end - begin;
        }

    TRY(tartan_i_layout_begin(&shape, blocks, &part));
    if (out_sources != NULL) NEW(sources, blocks);
    for (int64_t head = 0; head < shape.heads; head++)
        for (int64_t i = row_begin; i < row_end; i++) {
            cut_line(l, head * l->grid_rows + i, col_begin, col_end, &begin, &end);
            part->row_pointers[new_line++] = id;
            for (int64_t old = begin; old < end; old++, id++) {
                part->block_cols[id] = (int32_t)(l->block_cols[old] - col_begin);
                if (sources != NULL) sources[id] = old;
            }
        }
    part->row_pointers[new_line] = id;
    TRY(tartan_i_layout_finish(part));
    if (tartan_i_is_variable(l)) TRY(slice_bounds(function, l, row_begin, col_begin, part));
    *out = part;
    if (out_sources != NULL) *out_sources = sources;
    return TARTAN_OK;
fail:
    tartan_i_free(sources);
    tartan_layout_free(part);
    return status;
}

/* The public functions, and their internal forms, which also return the sources. */

tartan_status tartan_i_layout_transpose(const tartan_layout *layout, int64_t **out_sources,
                                        tartan_layout **out) {
    CHECK_HOST_LAYOUT(layout);
    return transpose(layout, out_sources, out);
}

tartan_status tartan_layout_transpose(const tartan_layout *layout, tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    return transpose(layout, NULL, out);
}

tartan_status tartan_i_layout_permute(const tartan_layout *layout, const int64_t *row_order,
                                      int64_t nrow_order, const int64_t *col_order, int64_t ncol_order,
                                      int64_t **out_sources, tartan_layout **out) {
    CHECK_HOST_LAYOUT(layout);
    return permute("tartan_matrix_permute", layout, row_order, nrow_order, col_order, ncol_order, out_sources,
                   out);
}

tartan_status tartan_layout_permute(const tartan_layout *layout, const int64_t *row_order, int64_t nrow_order,
                                    const int64_t *col_order, int64_t ncol_order, tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    return permute(__func__, layout, row_order, nrow_order, col_order, ncol_order, NULL, out);
}

tartan_status tartan_i_layout_slice(const tartan_layout *layout, int64_t row_begin, int64_t row_end,
                                    int64_t col_begin, int64_t col_end, int64_t **out_sources,
                                    tartan_layout **out) {
    CHECK_HOST_LAYOUT(layout);
    return slice("tartan_matrix_slice", layout, row_begin, row_end, col_begin, col_end, out_sources, out);
}

tartan_status tartan_layout_slice(const tartan_layout *layout, int64_t row_begin, int64_t row_end,
                                  int64_t col_begin, int64_t col_end, tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    return slice(__func__, layout, row_begin, row_end, col_begin, col_end, NULL, out);
}
