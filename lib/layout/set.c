/* SPDX-License-Identifier: Apache-2.0
 * Set algebra, transpose, permutation, slice. */
#include "layout/positions.h"
#include "tartan/layout_derived.h"

#include <string.h>

/* Which blocks a merge keeps: those of one list, or of both. */
typedef struct kept {
    bool only_a, only_b, both;
} kept;
static const kept all_blocks = {true, true, true}, common_blocks = {.both = true},
                  other_blocks = {.only_a = true};

/* What a merge says about the blocks that it keeps, beside their columns: their ids in both layouts, or -1; or which have them. */
typedef enum wanted { NOTHING, SOURCES, ORIGINS } wanted;

typedef struct merged {
    int32_t *cols;
    int64_t *a, *b;   /* SOURCES */
    uint8_t *origins; /* ORIGINS: 1: a, 2: b, 3: both */
} merged;

/* Merges two ascending lists of each line; returns the number of blocks. Which block comes next cannot be predicted, so nothing branches
 * on it: each step writes a block, and the next one overwrites it if it is not kept. The lists are apart, and all that changes is in
 * variables, or a compiler would read and write it again at each step. */
static inline __attribute__((always_inline)) int64_t
merge_lines(const tartan_layout *x, const tartan_layout *y, const kept *keep, bool keeps_all, wanted w,
            int64_t *restrict pointers, const merged *m) {
    const int32_t *restrict a_cols = x->block_cols, *restrict b_cols = y->block_cols;
    const int64_t *a_ends = x->row_pointers + 1, *b_ends = y->row_pointers + 1;
    int32_t *restrict cols = m->cols;
    int64_t *restrict a_ids = m->a, *restrict b_ids = m->b;
    uint8_t *restrict origins = m->origins;
    const bool keeps[] = {false, keep->only_a, keep->only_b, keep->both};
    const int64_t lines = x->shape.heads * x->grid_rows;
    int64_t count = 0, a = 0, b = 0;
    pointers[0] = 0;
    for (int64_t line = 0; line < lines; line++) {
        const int64_t a_end = a_ends[line], b_end = b_ends[line];
        while (a < a_end && b < b_end) {
            const int32_t a_col = a_cols[a], b_col = b_cols[b];
            const bool from_a = a_col <= b_col, from_b = b_col <= a_col;
            cols[count] = from_a ? a_col : b_col;
            if (w == SOURCES)
                a_ids[count] = a | ((int64_t)from_a - 1), b_ids[count] = b | ((int64_t)from_b - 1);
            if (w == ORIGINS) origins[count] = (uint8_t)(from_a + 2 * from_b);
            count += keeps_all ? 1 : keeps[from_a + 2 * from_b];
            a += from_a;
            b += from_b;
        }
        for (; keep->only_a && a < a_end; a++, count++) {
            cols[count] = a_cols[a];
            if (w == SOURCES) a_ids[count] = a, b_ids[count] = -1;
            if (w == ORIGINS) origins[count] = 1;
        }
        for (; keep->only_b && b < b_end; b++, count++) {
            cols[count] = b_cols[b];
            if (w == SOURCES) a_ids[count] = -1, b_ids[count] = b;
            if (w == ORIGINS) origins[count] = 2;
        }
        a = a_end, b = b_end;
        pointers[line + 1] = count;
    }
    return count;
}

static int64_t merge(const tartan_layout *a, const tartan_layout *b, const kept *keep, wanted w,
                     int64_t *pointers, const merged *m) {
    const bool all = keep->only_a && keep->only_b;
    if (w == ORIGINS) return merge_lines(a, b, &all_blocks, true, ORIGINS, pointers, m);
    if (w == SOURCES)
        return all ? merge_lines(a, b, &all_blocks, true, SOURCES, pointers, m)
                   : merge_lines(a, b, keep, false, SOURCES, pointers, m);
    return all ? merge_lines(a, b, &all_blocks, true, NOTHING, pointers, m)
               : merge_lines(a, b, keep, false, NOTHING, pointers, m);
}

static tartan_status check_frames(const char *function, const tartan_layout *a, const tartan_layout *b) {
    const tartan_shape *s = &a->shape, *t = &b->shape;
    CHECK_IN(function, memcmp(s, t, sizeof *s) == 0, SHAPE,
             "b has the frame %" PRId64 " x %" PRId64 ", blocks %" PRId64 " x %" PRId64 ", heads %" PRId64
             ", expected the frame of a: %" PRId64 " x %" PRId64 ", blocks %" PRId64 " x %" PRId64
             ", heads %" PRId64,
             t->rows, t->cols, t->block_rows, t->block_cols, t->heads, s->rows, s->cols, s->block_rows,
             s->block_cols, s->heads);
    CHECK_IN(function, tartan_i_layout_same_frame(a, b), SHAPE,
             "b has other block boundaries than a, expected the same");
    return TARTAN_OK;
}

/* *out_wanted: lists with room to spare, for the caller to free, or NULL; without columns, which are the result's. */
static tartan_status combine(const char *function, const tartan_layout *a, const tartan_layout *b,
                             const kept *keep, wanted w, merged *out_wanted, tartan_layout **out) {
    tartan_status status;
    tartan_layout *c = NULL;
    merged m = {0};
    int64_t *pointers = NULL;
    PASS(check_frames(function, a, b));
    const tartan_shape frame = tartan_i_layout_frame(a);
    const int64_t lines = frame.heads * a->grid_rows;
    /* One more than can be kept: a step writes before it is known whether its block is. */
    const int64_t most = (keep->only_a || keep->both ? a->blocks : 0) + (keep->only_b ? b->blocks : 0) + 1;
    NEW(pointers, lines + 1);
    NEW(m.cols, most);
    if (w == SOURCES) NEW(m.a, most);
    if (w == SOURCES) NEW(m.b, most);
    if (w == ORIGINS) NEW(m.origins, most);
    const int64_t count = merge(a, b, keep, w, pointers, &m);
    TRY(tartan_i_layout_begin(&frame, count, &c));
    memcpy(c->row_pointers, pointers, (size_t)(lines + 1) * sizeof *pointers);
    if (count >= most - most / 8) { /* the list is hardly longer than it must be */
        tartan_i_free(c->block_cols);
        c->block_cols = m.cols;
        m.cols = NULL;
    } else if (count > 0) {
        memcpy(c->block_cols, m.cols, (size_t)count * sizeof *m.cols);
    }
    TRY(tartan_i_layout_finish(c));
    TRY(tartan_i_layout_take_bounds_of(function, c, a));
    *out = c;
    c = NULL;
    if (w != NOTHING) *out_wanted = (merged){.a = m.a, .b = m.b, .origins = m.origins};
    m.a = m.b = NULL, m.origins = NULL;
fail:
    tartan_layout_free(c);
    tartan_i_free(pointers);
    tartan_i_free(m.cols);
    tartan_i_free(m.a);
    tartan_i_free(m.b);
    tartan_i_free(m.origins);
    return status;
}

tartan_status tartan_i_layout_merge(const char *function, tartan_layout *a, const tartan_layout *b,
                                    bool common, int64_t **out_a, int64_t **out_b, tartan_layout **out) {
    merged m = {0};
    *out_a = *out_b = NULL;
    if (tartan_layout_equal(a, b) == 1) {
        *out = tartan_layout_retain(a);
        return TARTAN_OK;
    }
    PASS(combine(function, a, b, common ? &common_blocks : &all_blocks, SOURCES, &m, out));
    *out_a = m.a, *out_b = m.b;
    return TARTAN_OK;
}

tartan_status tartan_i_layout_unite(const char *function, tartan_layout *a, const tartan_layout *b,
                                    uint8_t **out_origins, tartan_layout **out) {
    merged m = {0};
    *out_origins = NULL;
    if (tartan_layout_equal(a, b) == 1) {
        *out = tartan_layout_retain(a);
        return TARTAN_OK;
    }
    PASS(combine(function, a, b, &all_blocks, ORIGINS, &m, out));
    *out_origins = m.origins;
    return TARTAN_OK;
}

tartan_status tartan_layout_union(const tartan_layout *a, const tartan_layout *b, tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(a);
    CHECK_HOST_LAYOUT(b);
    return combine(__func__, a, b, &all_blocks, NOTHING, NULL, out);
}

tartan_status tartan_layout_intersection(const tartan_layout *a, const tartan_layout *b,
                                         tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(a);
    CHECK_HOST_LAYOUT(b);
    return combine(__func__, a, b, &common_blocks, NOTHING, NULL, out);
}

tartan_status tartan_layout_difference(const tartan_layout *a, const tartan_layout *b, tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(a);
    CHECK_HOST_LAYOUT(b);
    return combine(__func__, a, b, &other_blocks, NOTHING, NULL, out);
}

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
