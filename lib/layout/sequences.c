/* SPDX-License-Identifier: Apache-2.0
 * Layouts and in-block masks of packed sequences. The keys that a query sees are a run, and from one query of a sequence
 * to the next both its ends stay or move on, so the first and the last query of a block tell about all of it. */
#include "core/options.h"
#include "layout/mask_builder.h"

/* Queries q .. q_end - 1 and keys k .. k_end - 1. */
typedef struct sequence {
    int64_t q, q_end, k, k_end;
} sequence;

typedef struct sequences {
    const char *function;
    bool causal, aligns_starts;
    int64_t window; /* keys that a query sees at most; 0: no limit */
    int64_t count;
    sequence *list; /* without those that have no queries or no keys */
} sequences;

/* ---- Arguments ---- */

enum option { CAUSAL, WINDOW, ALIGN, OPTIONS };

static const char *const names[OPTIONS] = {[CAUSAL] = "causal", [WINDOW] = "window", [ALIGN] = "align"};

static tartan_status set_option(sequences *p, enum option which, const tartan_i_option *option) {
    int64_t number;
    if (which == ALIGN) {
        p->aligns_starts = tartan_i_option_value_is(option, "start");
        CHECK_IN(p->function, p->aligns_starts || tartan_i_option_value_is(option, "end"), ARGUMENT,
                 "options has '%.*s', expected align to be start or end", option->shown, option->word);
        return TARTAN_OK;
    }
    const bool whole = tartan_i_option_whole(option, &number);
    if (which == CAUSAL) {
        CHECK_IN(p->function, whole && (number == 0 || number == 1), ARGUMENT,
                 "options has '%.*s', expected causal to be 0 or 1", option->shown, option->word);
        p->causal = number == 1;
        return TARTAN_OK;
    }
    CHECK_IN(p->function, whole && number >= 1, ARGUMENT,
             "options has '%.*s', expected window to be a whole number of 1 or more", option->shown,
             option->word);
    p->window = number;
    return TARTAN_OK;
}

static tartan_status parse_options(sequences *p, const char *text) {
    bool given[OPTIONS] = {false}, more;
    tartan_i_option option;
    while (text != NULL) {
        int i = 0;
        PASS(tartan_i_option_next(p->function, "options", &text, &option, &more));
        if (!more) break;
        while (i < OPTIONS && !tartan_i_option_is(&option, names[i])) i++;
        CHECK_IN(p->function, i < OPTIONS, ARGUMENT, "options has '%.*s', expected causal, window or align",
                 option.shown, option.word);
        CHECK_IN(p->function, !given[i], ARGUMENT, "options has %s twice, expected it once", names[i]);
        PASS(set_option(p, (enum option)i, &option));
        given[i] = true;
    }
    for (int i = WINDOW; i < OPTIONS; i++)
        CHECK_IN(p->function, p->causal || !given[i], ARGUMENT, "options has %s, which needs causal=1",
                 names[i]);
    return TARTAN_OK;
}

/* Offsets go from 0 to `end`, the number of `what` of the layout. */
static tartan_status check_offsets(const sequences *p, const char *name, const int64_t *offsets,
                                   int64_t count, int64_t end, const char *what) {
    CHECK_IN(p->function, offsets[0] == 0, LAYOUT, "%s[0] is %" PRId64 ", expected 0", name, offsets[0]);
    for (int64_t i = 1; i < count; i++)
        CHECK_IN(p->function, offsets[i] >= offsets[i - 1], LAYOUT,
                 "%s[%" PRId64 "] is %" PRId64 " after %" PRId64 ", expected ascending numbers", name, i,
                 offsets[i], offsets[i - 1]);
    CHECK_IN(p->function, offsets[count - 1] == end, LAYOUT,
             "%s ends with %" PRId64 ", expected %" PRId64 ", the %s of the layout", name, offsets[count - 1],
             end, what);
    return TARTAN_OK;
}

/* Free p->list also after a failure. */
static tartan_status take(sequences *p, const tartan_shape *s, const int64_t *q, int64_t nq, const int64_t *k,
                          int64_t nk, const char *options) {
    PASS(parse_options(p, options));
    CHECK_IN(p->function, nq >= 1, SHAPE,
             "q_offsets has %" PRId64 " entries, expected where each sequence begins and the last one ends",
             nq);
    CHECK_IN(p->function, q != NULL, HANDLE, "q_offsets is NULL, expected %" PRId64 " entries", nq);
    PASS(check_offsets(p, "q_offsets", q, nq, s->rows, "rows"));
    if (nk == 0) {
        CHECK_IN(p->function, s->rows == s->cols, SHAPE,
                 "k_offsets is NULL, expected as many columns as rows in the layout, which has %" PRId64
                 " rows and %" PRId64 " columns",
                 s->rows, s->cols);
        k = q;
    } else {
        CHECK_IN(p->function, nk == nq, SHAPE,
                 "k_offsets has %" PRId64 " entries, expected %" PRId64 ", as q_offsets", nk, nq);
        CHECK_IN(p->function, k != NULL, HANDLE, "k_offsets is NULL, expected %" PRId64 " entries", nk);
        PASS(check_offsets(p, "k_offsets", k, nk, s->cols, "columns"));
    }
    PASS(tartan_i_allocate(&p->list, nq - 1, sizeof *p->list));
    for (int64_t i = 0; i < nq - 1; i++)
        if (q[i] < q[i + 1] && k[i] < k[i + 1])
            p->list[p->count++] = (sequence){q[i], q[i + 1], k[i], k[i + 1]};
    return TARTAN_OK;
}

/* ---- What queries see ---- */

/* A run of keys; none if begin >= end. */
typedef struct run {
    int64_t begin, end;
} run;

static run keys_of(const sequences *p, const sequence *s, int64_t query) {
    run keys = {s->k, s->k_end};
    if (!p->causal) return keys;
    const int64_t shift = p->aligns_starts ? 0 : (s->k_end - s->k) - (s->q_end - s->q);
    const int64_t seen = query - s->q + shift + 1; /* keys up to the query's own position */
    if (seen < s->k_end - s->k) keys.end = s->k + (seen > 0 ? seen : 0);
    if (p->window > 0 && seen > p->window) keys.begin = s->k + seen - p->window;
    return keys;
}

/* The first sequence, from `first` on, with queries at or after `row`. */
static int64_t skip(const sequences *p, int64_t first, int64_t row) {
    while (first < p->count && p->list[first].q_end <= row) first++;
    return first;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- The layout ---- */

enum { LITTLE = 1 << 16 }; /* block rows: less is no work that is worth a look ahead */

/* Lists the blocks of one head in ascending order, or only counts them if `pointers` and `cols` are NULL. */
static int64_t list_blocks(const sequences *p, const tartan_shape *s, int64_t *pointers, int32_t *cols) {
    int64_t blocks = 0, first = 0;
    for (int64_t i = 0; i < tartan_i_ceil_div(s->rows, s->block_rows); i++) {
        const int64_t row = i * s->block_rows, row_end = smaller(row + s->block_rows, s->rows);
        int64_t next = 0; /* block column */
        first = skip(p, first, row);
        if (pointers != NULL) pointers[i] = blocks;
        for (int64_t n = first; n < p->count && p->list[n].q < row_end; n++) {
            const sequence *x = &p->list[n];
            const int64_t begin = keys_of(p, x, larger(row, x->q)).begin,
                          end = keys_of(p, x, smaller(row_end, x->q_end) - 1).end;
            if (begin >= end) continue;
            const int64_t col = larger(next, begin / s->block_cols);
            next = (end - 1) / s->block_cols + 1;
            for (int64_t j = col; cols != NULL && j < next; j++) cols[blocks + j - col] = (int32_t)j;
            blocks += next - col;
        }
    }
    return blocks;
}

/* No more blocks of one head than there are, from a few queries of each sequence. */
static int64_t least_blocks(const sequences *p, const tartan_shape *s) {
    enum { RANGES = 16 };
    int64_t blocks = 0;
    for (int64_t n = 0; n < p->count; n++) {
        const sequence *x = &p->list[n];
        for (int64_t i = 0, q = x->q; i < RANGES; i++) {
            const int64_t end = x->q + (x->q_end - x->q) / RANGES * (i + 1),
                          rows = (end - q) / s->block_rows - 1; /* block rows inside of the range, or fewer */
            if (rows > 0) {
                /* The number of keys that a query sees first grows and then falls, so it is least at an end of the range. */
                const run first = keys_of(p, x, q), last = keys_of(p, x, end - 1);
                const int64_t keys = smaller(first.end - first.begin, last.end - last.begin);
                int64_t more;
                if (!tartan_i_multiply(rows, tartan_i_ceil_div(larger(keys, 0), s->block_cols), &more) ||
                    __builtin_add_overflow(blocks, more, &blocks))
                    return INT64_MAX;
            }
            q = end;
        }
    }
    return blocks;
}

/* Refuses what is too large before any work: there must be room even for a lower bound of the blocks. */
static tartan_status check_room(const sequences *p, const tartan_shape *s) {
    tartan_layout *room = NULL;
    int64_t blocks;
    CHECK_IN(p->function,
             tartan_i_multiply(least_blocks(p, s), s->heads, &blocks) &&
                 blocks <= INT64_MAX / (s->block_rows * s->block_cols * 8),
             OVERFLOW, "more than %" PRId64 " blocks exceed what can be addressed",
             INT64_MAX / (s->block_rows * s->block_cols * 8 * s->heads));
    PASS(tartan_i_layout_begin(s, blocks, &room));
    tartan_layout_free(room);
    return TARTAN_OK;
}

static tartan_status make_layout(const sequences *p, const tartan_shape *s, tartan_layout **out) {
    tartan_layout *l = NULL;
    if (s->rows / s->block_rows > LITTLE) PASS(check_room(p, s));
    const int64_t blocks = list_blocks(p, s, NULL, NULL);
    PASS(tartan_i_layout_begin(s, s->heads * blocks, &l));
    list_blocks(p, s, l->row_pointers, l->block_cols);
    for (int64_t head = 1; head < s->heads; head++) {
        for (int64_t i = 0; i < l->grid_rows; i++)
            l->row_pointers[head * l->grid_rows + i] = head * blocks + l->row_pointers[i];
        for (int64_t id = 0; id < blocks; id++) l->block_cols[head * blocks + id] = l->block_cols[id];
    }
    l->row_pointers[s->heads * l->grid_rows] = s->heads * blocks;
    const tartan_status status = tartan_i_layout_finish(l);
    if (status == TARTAN_OK)
        *out = l;
    else
        tartan_layout_free(l);
    return status;
}

tartan_status tartan_layout_from_sequences(const tartan_shape *shape, const int64_t *q_offsets,
                                           int64_t nq_offsets, const int64_t *k_offsets, int64_t nk_offsets,
                                           const char *options, tartan_layout **out) {
    int64_t grid_rows, grid_cols;
    sequences p = {.function = __func__};
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    tartan_status status = take(&p, shape, q_offsets, nq_offsets, k_offsets, nk_offsets, options);
    if (status == TARTAN_OK) status = make_layout(&p, shape, out);
    tartan_i_free(p.list);
    return status;
}

/* ---- The mask ---- */

/* Sets the bits begin .. end - 1 of a row. */
static void set_bits(uint32_t *words, int64_t begin, int64_t end) {
    for (int64_t w = begin / 32; 32 * w < end; w++)
        words[w] |= tartan_i_block_mask_inside(end, 32 * w) & ~tartan_i_block_mask_inside(begin, 32 * w);
}

/* Adds block `id`; `first` is the first sequence with queries in it or after it. */
static tartan_status add_block(const sequences *p, tartan_i_mask_builder *builder, int64_t first,
                               int64_t id) {
    const tartan_block_mask *mask = builder->mask;
    const tartan_layout *l = mask->layout;
    const int64_t row = l->block_rows[id] * l->shape.block_rows,
                  row_end = row + tartan_i_rows_of(l, l->block_rows[id]);
    const int64_t col = l->block_cols[id] * l->shape.block_cols,
                  col_end = col + tartan_i_cols_of(l, l->block_cols[id]);
    for (int64_t n = first; n < p->count && p->list[n].q < row_end; n++) {
        const sequence *x = &p->list[n];
        if (x->q <= row && x->q_end >= row_end && keys_of(p, x, row_end - 1).begin <= col &&
            keys_of(p, x, row).end >= col_end) {
            tartan_i_mask_builder_add_full(builder, id);
            return TARTAN_OK;
        }
        for (int64_t i = larger(row, x->q); i < smaller(row_end, x->q_end); i++) {
            const run keys = keys_of(p, x, i);
            const int64_t begin = larger(keys.begin, col), end = smaller(keys.end, col_end);
            if (begin < end) set_bits(builder->words + (i - row) * mask->row_words, begin - col, end - col);
        }
    }
    return tartan_i_mask_builder_add(builder, id);
}

static tartan_status make_mask(const sequences *p, tartan_layout *l, tartan_block_mask **out) {
    tartan_status status;
    tartan_i_mask_builder builder;
    TRY(tartan_i_mask_builder_begin(p->function, l, &builder));
    for (int64_t head = 0; head < l->shape.heads; head++) {
        int64_t first = 0;
        for (int64_t i = 0; i < l->grid_rows; i++) {
            const int64_t line = head * l->grid_rows + i;
            first = skip(p, first, i * l->shape.block_rows);
            for (int64_t id = l->row_pointers[line]; id < l->row_pointers[line + 1]; id++)
                TRY(add_block(p, &builder, first, id));
        }
    }
    TRY(tartan_i_mask_builder_finish(&builder, out));
    return TARTAN_OK;
fail:
    tartan_i_mask_builder_drop(&builder);
    return status;
}

tartan_status tartan_block_mask_from_sequences(tartan_layout *layout, const int64_t *q_offsets,
                                               int64_t nq_offsets, const int64_t *k_offsets,
                                               int64_t nk_offsets, const char *options,
                                               tartan_block_mask **out) {
    sequences p = {.function = __func__};
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    tartan_status status = take(&p, &layout->shape, q_offsets, nq_offsets, k_offsets, nk_offsets, options);
    if (status == TARTAN_OK) status = make_mask(&p, layout, out);
    tartan_i_free(p.list);
    return status;
}
