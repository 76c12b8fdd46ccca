/* SPDX-License-Identifier: Apache-2.0
 * Set algebra. */
#include "layout/layout.h"
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
