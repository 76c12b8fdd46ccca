/* SPDX-License-Identifier: Apache-2.0
 * Layouts of the blocks that scores choose: so many in each block row, or so much of its softmax. */
#include "core/array.h"
#include "core/dtype.h"
#include "layout/layout.h"

#include <math.h>
#include <stdlib.h>

typedef struct choice {
    const tartan_shape *shape;
    const tartan_array *scores;
    int64_t grid_rows, grid_cols;
    const int64_t *counts; /* [ncounts]: one for all block rows, or one for each; none if ncounts is 0 */
    int64_t ncounts;
    double top_p;
} choice;

/* A block of a row; NaN counts as infinity. */
typedef struct place {
    double score;
    int64_t col;
} place;

static int by_score(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->col < y->col ? -1 : x->col > y->col;
}

static tartan_status check(const char *function, choice *c) {
    const tartan_array *a = c->scores;
    PASS(tartan_i_shape_check(function, c->shape, &c->grid_rows, &c->grid_cols));
    PASS(tartan_i_array_check(function, "scores", a, false));
    char text[TARTAN_I_SHAPE_TEXT];
    const int32_t at = a->ndim - 2;
    const bool fits = (a->ndim == 2 || a->ndim == 3) && (at == 1 ? a->shape[0] : 1) == c->shape->heads &&
                      a->shape[at] == c->grid_rows && a->shape[at + 1] == c->grid_cols;
    CHECK_IN(function, fits, SHAPE,
             "scores has shape %s, expected [%" PRId64 ", %" PRId64 ", %" PRId64
             "], a number for each block of each head",
             tartan_i_shape_text(a, text), c->shape->heads, c->grid_rows, c->grid_cols);
    CHECK_IN(function, c->top_p > 0 && c->top_p <= 1, ARGUMENT,
             "top_p is %g, expected a number above 0 and up to 1", c->top_p);
    const int64_t rows = c->shape->heads * c->grid_rows;
    CHECK_IN(function, c->ncounts <= 1 || c->ncounts == rows, SHAPE,
             "counts has %" PRId64 " entries, expected none, 1, or %" PRId64 " (heads * grid_rows)",
             c->ncounts, rows);
    CHECK_IN(function, c->ncounts == 0 || c->counts != NULL, HANDLE,
             "counts is NULL, expected %" PRId64 " entries", c->ncounts);
    for (int64_t i = 0; i < c->ncounts; i++)
        CHECK_IN(function, c->counts[i] >= 0, ARGUMENT,
                 "counts[%" PRId64 "] is %" PRId64 ", expected 0 or more", i, c->counts[i]);
    return TARTAN_OK;
}

/* Sorts the blocks of a line whose score is above -infinity, the largest first, and returns their number. */
static int64_t sort_line(const choice *c, int64_t head, int64_t row, place *places) {
    const tartan_array *a = c->scores;
    const int32_t at = a->ndim - 2;
    const int64_t from = (at == 1 ? head * a->strides[0] : 0) + row * a->strides[at];
    int64_t count = 0;
    for (int64_t col = 0; col < c->grid_cols; col++) {
        const double x = tartan_i_load(a->data, a->dtype, from + col * a->strides[at + 1]);
        if (x != -(double)INFINITY) places[count++] = (place){isnan(x) ? (double)INFINITY : x, col};
    }
    qsort(places, (size_t)count, sizeof *places, by_score);
    return count;
}

/* The fewest blocks, the largest first, that have top_p of the softmax of the line. Infinite scores share all of it. */
static int64_t count_share(const choice *c, const place *places, int64_t count) {
    if (c->top_p == 1 || count == 0) return count;
    double total = 0, sum = 0;
    const double most = places[0].score;
    for (int64_t i = 0; i < count; i++)
        total += isinf(most) ? isinf(places[i].score) : exp(places[i].score - most);
    for (int64_t i = 0; i < count; i++) {
        sum += isinf(most) ? isinf(places[i].score) : exp(places[i].score - most);
        if (sum >= c->top_p * total) return i + 1;
    }
    return count;
}

/* The blocks of a line that are chosen come first; returns their number. */
static int64_t choose_line(const choice *c, int64_t line, place *places) {
    const int64_t all = sort_line(c, line / c->grid_rows, line % c->grid_rows, places);
    const int64_t count = count_share(c, places, all);
    const int64_t most = c->ncounts == 0 ? count : c->counts[c->ncounts == 1 ? 0 : line];
    return count < most ? count : most;
}

tartan_status tartan_layout_from_scores(const tartan_shape *shape, const tartan_array *scores,
                                        const int64_t *counts, int64_t ncounts, double top_p,
                                        tartan_layout **out) {
    tartan_status status;
    place *places = NULL;
    uint8_t *mask = NULL;
    choice c = {.shape = shape, .scores = scores, .counts = counts, .ncounts = ncounts, .top_p = top_p};
    CHECK_OUT(out);
    PASS(check(__func__, &c));
    const int64_t lines = shape->heads * c.grid_rows;
    NEW(places, c.grid_cols);
    NEW_ZEROED(mask, lines * c.grid_cols);
    for (int64_t line = 0; line < lines; line++) {
        const int64_t count = choose_line(&c, line, places);
        for (int64_t i = 0; i < count; i++) mask[line * c.grid_cols + places[i].col] = 1;
    }
    TRY(tartan_layout_from_mask(shape, mask, lines * c.grid_cols, out));
fail:
    tartan_i_free(places);
    tartan_i_free(mask);
    return status;
}
