/* SPDX-License-Identifier: Apache-2.0
 * Layouts and in-block masks for shorter lengths, other heads, and sequences that are padded to one length; layouts from
 * rules. */
#include "layout/mask_builder.h"
#include "tartan/layout_derived.h"

/* ---- Heads of a layout, cut to shorter rows and lists of columns ---- */

/* Head h of a result has the blocks of head of[h], in the first cols[h] block columns and all rows that there are. */
typedef struct parts {
    int64_t *of, *cols; /* [heads] */
} parts;

static tartan_status parts_allocate(parts *p, int64_t heads) {
    tartan_status status;
    NEW(p->of, heads);
    NEW(p->cols, heads);
fail:
    return status;
}

static void parts_free(parts *p) {
    tartan_i_free(p->of);
    tartan_i_free(p->cols);
}

/* The end of a list of block columns that ascend, without those from `cols` on. */
static int64_t end_of(const tartan_layout *l, int64_t line, int64_t cols) {
    int64_t begin = l->row_pointers[line], end = l->row_pointers[line + 1];
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (l->block_cols[middle] < cols)
            begin = middle + 1;
        else
            end = middle;
    }
    return end;
}

static tartan_status take_parts(const tartan_layout *l, const tartan_shape *shape, const parts *p,
                                tartan_layout **out) {
    tartan_status status;
    tartan_layout *result = NULL;
    const int64_t grid_rows = tartan_i_ceil_div(shape->rows, shape->block_rows);
    int64_t blocks = 0, line = 0, id = 0;
    for (int64_t head = 0; head < shape->heads; head++)
        for (int64_t i = 0; i < grid_rows; i++) {
            const int64_t from = p->of[head] * l->grid_rows + i;
            blocks += end_of(l, from, p->cols[head]) - l->row_pointers[from];
        }
    TRY(tartan_i_layout_begin(shape, blocks, &result));
    for (int64_t head = 0; head < shape->heads; head++)
        for (int64_t i = 0; i < grid_rows; i++) {
            const int64_t from = p->of[head] * l->grid_rows + i, end = end_of(l, from, p->cols[head]);
            result->row_pointers[line++] = id;
            for (int64_t at = l->row_pointers[from]; at < end; at++)
                result->block_cols[id++] = l->block_cols[at];
        }
    result->row_pointers[line] = id;
    TRY(tartan_i_layout_finish(result));
    *out = result;
    return TARTAN_OK;
fail:
    tartan_layout_free(result);
    return status;
}

tartan_status tartan_layout_cut(const tartan_layout *layout, int64_t rows, int64_t cols,
                                tartan_layout **out) {
    parts p = {0};
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    tartan_shape shape = layout->shape;
    CHECK(rows >= 0 && rows <= shape.rows, ARGUMENT, "rows is %" PRId64 ", expected 0 .. %" PRId64, rows,
          shape.rows);
    CHECK(cols >= 0 && cols <= shape.cols, ARGUMENT, "cols is %" PRId64 ", expected 0 .. %" PRId64, cols,
          shape.cols);
    shape.rows = rows;
    shape.cols = cols;
    tartan_status status = parts_allocate(&p, shape.heads);
    for (int64_t head = 0; status == TARTAN_OK && head < shape.heads; head++) {
        p.of[head] = head;
        p.cols[head] = tartan_i_ceil_div(cols, shape.block_cols);
    }
    if (status == TARTAN_OK) status = take_parts(layout, &shape, &p, out);
    parts_free(&p);
    return status;
}

tartan_status tartan_layout_take_heads(const tartan_layout *layout, const int64_t *heads, int64_t nheads,
                                       tartan_layout **out) {
    parts p = {0};
    int64_t grid_rows, grid_cols;
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    CHECK(nheads > 0, SHAPE, "heads has %" PRId64 " entries, expected 1 or more", nheads);
    CHECK(heads != NULL, HANDLE, "heads is NULL, expected %" PRId64 " entries", nheads);
    tartan_shape shape = layout->shape;
    for (int64_t i = 0; i < nheads; i++)
        CHECK(heads[i] >= 0 && heads[i] < shape.heads, LAYOUT,
              "heads[%" PRId64 "] is %" PRId64 ", expected 0 .. %" PRId64, i, heads[i], shape.heads - 1);
    shape.heads = nheads;
    PASS(tartan_i_shape_check(__func__, &shape, &grid_rows, &grid_cols));
    tartan_status status = parts_allocate(&p, nheads);
    for (int64_t head = 0; status == TARTAN_OK && head < nheads; head++) {
        p.of[head] = heads[head];
        p.cols[head] = grid_cols;
    }
    if (status == TARTAN_OK) status = take_parts(layout, &shape, &p, out);
    parts_free(&p);
    return status;
}

/* ---- Lengths of padded sequences ---- */

static tartan_status check_lengths(const char *function, const tartan_shape *s, const int64_t *lengths,
                                   int64_t count) {
    CHECK_IN(function, count > 0, SHAPE, "lengths has %" PRId64 " entries, expected 1 or more", count);
    CHECK_IN(function, lengths != NULL, HANDLE, "lengths is NULL, expected %" PRId64 " entries", count);
    for (int64_t i = 0; i < count; i++)
        CHECK_IN(function, lengths[i] >= 0 && lengths[i] <= s->cols, ARGUMENT,
                 "lengths[%" PRId64 "] is %" PRId64 ", expected 0 .. %" PRId64 ", the columns of the layout",
                 i, lengths[i], s->cols);
    return TARTAN_OK;
}

tartan_status tartan_layout_from_lengths(const tartan_layout *layout, const int64_t *lengths,
                                         int64_t nlengths, tartan_layout **out) {
    parts p = {0};
    int64_t grid_rows, grid_cols;
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    tartan_shape shape = layout->shape;
    PASS(check_lengths(__func__, &shape, lengths, nlengths));
    CHECK(tartan_i_multiply(nlengths, layout->shape.heads, &shape.heads), OVERFLOW,
          "%" PRId64 " lengths times %" PRId64 " heads exceed 2^63", nlengths, layout->shape.heads);
    PASS(tartan_i_shape_check(__func__, &shape, &grid_rows, &grid_cols));
    tartan_status status = parts_allocate(&p, shape.heads);
    for (int64_t head = 0; status == TARTAN_OK && head < shape.heads; head++) {
        p.of[head] = head % layout->shape.heads;
        p.cols[head] = tartan_i_ceil_div(lengths[head / layout->shape.heads], shape.block_cols);
    }
    if (status == TARTAN_OK) status = take_parts(layout, &shape, &p, out);
    parts_free(&p);
    return status;
}

static tartan_status add_columns(tartan_i_mask_builder *builder, int64_t id, int64_t length) {
    const tartan_block_mask *mask = builder->mask;
    const tartan_layout *l = mask->layout;
    const int64_t col = l->block_cols[id] * l->shape.block_cols,
                  cols = tartan_i_cols_of(l, l->block_cols[id]), left = length - col < 0 ? 0 : length - col;
    if (left >= cols) {
        tartan_i_mask_builder_add_full(builder, id);
        return TARTAN_OK;
    }
    for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++)
        for (int64_t w = 0; w < mask->row_words; w++)
            builder->words[i * mask->row_words + w] = tartan_i_block_mask_inside(left, 32 * w);
    return tartan_i_mask_builder_add(builder, id);
}

tartan_status tartan_block_mask_from_lengths(tartan_layout *layout, const int64_t *lengths, int64_t nlengths,
                                             tartan_block_mask **out) {
    tartan_status status;
    tartan_i_mask_builder builder;
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    const tartan_shape *s = &layout->shape;
    PASS(check_lengths(__func__, s, lengths, nlengths));
    CHECK(s->heads % nlengths == 0, SHAPE,
          "lengths has %" PRId64 " entries, expected a divisor of %" PRId64 ", the heads of the layout",
          nlengths, s->heads);
    TRY(tartan_i_mask_builder_begin(__func__, layout, &builder));
    for (int64_t head = 0; head < s->heads; head++)
        for (int64_t id = layout->row_pointers[head * layout->grid_rows];
             id < layout->row_pointers[(head + 1) * layout->grid_rows]; id++)
            TRY(add_columns(&builder, id, lengths[head / (s->heads / nlengths)]));
    TRY(tartan_i_mask_builder_finish(&builder, out));
    return TARTAN_OK;
fail:
    tartan_i_mask_builder_drop(&builder);
    return status;
}

/* ---- A mask on another layout ---- */

/* Block `id` of the new layout is block `from` of the mask, or none if that is negative. */
static tartan_status add_projected(tartan_i_mask_builder *builder, int64_t id, const tartan_block_mask *old,
                                   int64_t from) {
    const tartan_block_mask *mask = builder->mask;
    const tartan_layout *l = mask->layout;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    if (from >= 0 && tartan_i_block_mask_is_full(old, from) &&
        rows <= tartan_i_rows_of(old->layout, l->block_rows[id]) &&
        cols <= tartan_i_cols_of(old->layout, l->block_cols[id])) {
        tartan_i_mask_builder_add_full(builder, id);
        return TARTAN_OK;
    }
    for (int64_t i = 0; from >= 0 && i < rows; i++)
        for (int64_t w = 0; w < mask->row_words; w++)
            builder->words[i * mask->row_words + w] =
                tartan_i_block_mask_word(old, from, i, w) & tartan_i_block_mask_inside(cols, 32 * w);
    return tartan_i_mask_builder_add(builder, id);
}

static int64_t find(const tartan_layout *l, int64_t head, int64_t row, int64_t col) {
    return row < l->grid_rows && col < l->grid_cols ? tartan_i_layout_find(l, head, row, col) : -1;
}

tartan_status tartan_block_mask_project(const tartan_block_mask *block_mask, tartan_layout *layout,
                                        tartan_block_mask **out) {
    tartan_status status;
    tartan_i_mask_builder builder;
    CHECK_OUT(out);
    CHECK_HANDLE(block_mask, BLOCK_MASK, "block_mask");
    CHECK_HANDLE(layout, LAYOUT, "layout");
    const tartan_layout *old = block_mask->layout;
    const tartan_shape *s = &layout->shape, *t = &old->shape;
    CHECK(s->block_rows == t->block_rows && s->block_cols == t->block_cols, SHAPE,
          "layout has blocks of %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64 ", as block_mask",
          s->block_rows, s->block_cols, t->block_rows, t->block_cols);
    CHECK(s->heads % t->heads == 0, SHAPE,
          "layout has %" PRId64 " heads, expected a multiple of the %" PRId64 " of block_mask", s->heads,
          t->heads);
    TRY(tartan_i_mask_builder_begin(__func__, layout, &builder));
    for (int64_t head = 0; head < s->heads; head++)
        for (int64_t id = layout->row_pointers[head * layout->grid_rows];
             id < layout->row_pointers[(head + 1) * layout->grid_rows]; id++)
            TRY(add_projected(&builder, id, block_mask,
                              find(old, head % t->heads, layout->block_rows[id], layout->block_cols[id])));
    TRY(tartan_i_mask_builder_finish(&builder, out));
    return TARTAN_OK;
fail:
    tartan_i_mask_builder_drop(&builder);
    return status;
}

/* ---- Rules ---- */

/* Whether `keep` returns non-zero for an element of a block. */
static bool keeps_any(const tartan_shape *s, tartan_keep keep, void *user, int64_t head, int64_t block_row,
                      int64_t block_col) {
    const int64_t row = block_row * s->block_rows, col = block_col * s->block_cols;
    for (int64_t i = row; i < row + s->block_rows && i < s->rows; i++)
        for (int64_t j = col; j < col + s->block_cols && j < s->cols; j++)
            if (keep(user, head, i, j) != 0) return true;
    return false;
}

tartan_status tartan_layout_from_rule(const tartan_shape *shape, tartan_keep keep, void *user,
                                      tartan_layout **out) {
    tartan_status status;
    uint8_t *mask = NULL;
    int64_t grid_rows, grid_cols, at = 0;
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    CHECK(keep != NULL, HANDLE, "keep is NULL, expected a function");
    const int64_t count = shape->heads * grid_rows * grid_cols;
    NEW(mask, count);
    for (int64_t head = 0; head < shape->heads; head++)
        for (int64_t i = 0; i < grid_rows; i++)
            for (int64_t j = 0; j < grid_cols; j++) mask[at++] = keeps_any(shape, keep, user, head, i, j);
    TRY(tartan_layout_from_mask(shape, mask, count, out));
fail:
    tartan_i_free(mask);
    return status;
}
