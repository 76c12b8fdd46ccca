/* SPDX-License-Identifier: Apache-2.0
 * Convolutions from sets of channels. Sets with the same channels form a group; the slots of a group follow each other, from a
 * whole block on, so that a set is a rectangle of whole blocks. Two sets with the same channels on both sides have
 * rectangles of their own. Channels of no set form a last group without blocks. */
#include "conv/conv.h"

#include <stdlib.h>
#include <string.h>

/* ---- Checks. `name` is the name of the argument. ---- */

static tartan_status check_sets(const char *function, const char *name, const tartan_channel_sets *l,
                                int64_t sets) {
    CHECK_IN(function, l->channels >= 0 && l->channels <= INT32_MAX, SHAPE,
             "%s.channels is %" PRId64 ", expected 0 .. 2^31 - 1", name, l->channels);
    CHECK_IN(function, l->noffsets == sets + 1, SHAPE,
             "%s.offsets has %" PRId64 " entries, expected %" PRId64 " (sets and 1)", name, l->noffsets,
             sets + 1);
    CHECK_IN(function, l->offsets != NULL, HANDLE,
             "%s.offsets is NULL, expected %" PRId64 " entries (sets and 1)", name, sets + 1);
    CHECK_IN(function, l->offsets[0] == 0 && l->offsets[sets] == l->nids, SHAPE,
             "%s.offsets go from %" PRId64 " to %" PRId64 ", expected 0 to %" PRId64 " (the length of ids)",
             name, l->offsets[0], l->offsets[sets], l->nids);
    CHECK_IN(function, l->ids != NULL || l->nids == 0, HANDLE,
             "%s.ids is NULL, expected %" PRId64 " entries (channels)", name, l->nids);
    for (int64_t b = 0; b < sets; b++)
        CHECK_IN(function, l->offsets[b] <= l->offsets[b + 1], SHAPE,
                 "%s.offsets[%" PRId64 "] is %" PRId64 " after %" PRId64 ", expected ascending numbers", name,
                 b + 1, l->offsets[b + 1], l->offsets[b]);
    for (int64_t i = 0; i < l->nids; i++)
        CHECK_IN(function, l->ids[i] >= 0 && l->ids[i] < l->channels, ARGUMENT,
                 "%s.ids[%" PRId64 "] is %" PRId64 ", expected 0 .. %" PRId64, name, i, l->ids[i],
                 l->channels - 1);
    return TARTAN_OK;
}

/* Refuses a channel that is twice in a set. last[c] becomes the last set with channel c, -1 if there is none. */
static tartan_status find_last(const char *function, const char *name, const tartan_channel_sets *l,
                               int64_t sets, int64_t *last) {
    for (int64_t c = 0; c < l->channels; c++) last[c] = -1;
    for (int64_t b = 0; b < sets; b++)
        for (int64_t i = l->offsets[b]; i < l->offsets[b + 1]; i++) {
            CHECK_IN(function, last[l->ids[i]] != b, ARGUMENT,
                     "%s.ids has channel %" PRId64 " twice in set %" PRId64, name, l->ids[i], b);
            last[l->ids[i]] = b;
        }
    return TARTAN_OK;
}

/* ---- Groups ---- */

static int64_t length_of(const tartan_channel_sets *l, int64_t b) {
    return l->offsets[b + 1] - l->offsets[b];
}

/* A list of numbers that belongs to a set. */
typedef struct key {
    const int64_t *numbers;
    int64_t n, set;
} key;

/* By their lists, the shorter one first, then by their sets. */
static int by_list(const void *a, const void *b) {
    const key *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    for (int64_t i = 0; i < x->n; i++)
        if (x->numbers[i] != y->numbers[i]) return x->numbers[i] < y->numbers[i] ? -1 : 1;
    return (x->set > y->set) - (x->set < y->set);
}

/* first[set]: the first set with the same list. Sorts the keys. */
static void find_equal(key *keys, int64_t n, int64_t *first) {
    if (n > 0) qsort(keys, (size_t)n, sizeof *keys, by_list);
    for (int64_t i = 0; i < n; i++) {
        const bool same = i > 0 && keys[i].n == keys[i - 1].n &&
                          (keys[i].n == 0 || memcmp(keys[i].numbers, keys[i - 1].numbers,
                                                    (size_t)keys[i].n * sizeof *keys[i].numbers) == 0);
        first[keys[i].set] = same ? first[keys[i - 1].set] : keys[i].set;
    }
}

/* first[b]: the first set with the same channels. */
static void find_first(const tartan_channel_sets *l, int64_t sets, key *keys, int64_t *first) {
    for (int64_t b = 0; b < sets; b++)
        keys[b] = (key){.numbers = l->ids + l->offsets[b], .n = length_of(l, b), .set = b};
    find_equal(keys, sets, first);
}

/* Gives sets that are equal on both sides rows of their own. pairs: [2 * sets], same: [sets]; room to work in. */
static void part_equal(int64_t sets, const int64_t *first_col, int64_t *first_row, key *keys, int64_t *pairs,
                       int64_t *same) {
    for (int64_t b = 0; b < sets; b++) {
        pairs[2 * b] = first_col[b];
        pairs[2 * b + 1] = first_row[b];
        keys[b] = (key){.numbers = pairs + 2 * b, .n = 2, .set = b};
    }
    find_equal(keys, sets, same);
    for (int64_t b = 0; b < sets; b++)
        if (same[b] != b) first_row[b] = b;
}

static int64_t gcd(int64_t a, int64_t b) {
    return b == 0 ? a : gcd(b, a % b);
}

/* The edge of blocks for sets of these lengths: one that fits all, or one that leaves few slots empty. */
static int64_t pick_edge(const tartan_channel_sets *l, int64_t sets) {
    enum { MOST = 64, LEAST = 8, BLOCK = 4 }; /* BLOCK: what a block costs, in slots */
    int64_t common = 0, best = 1, least = INT64_MAX;
    for (int64_t b = 0; b < sets; b++) common = gcd(common, length_of(l, b));
    for (int64_t edge = MOST; edge >= LEAST && common > 0; edge--)
        if (common % edge == 0) return edge;
    for (int64_t edge = MOST / 2; edge >= 1; edge /= 2) {
        int64_t cost = 0;
        for (int64_t b = 0; b < sets; b++) cost += tartan_i_ceil_div(length_of(l, b), edge) * (edge + BLOCK);
        if (cost < least) best = edge, least = cost;
    }
    return best;
}

/* Where the slots of each set begin, and all slots. */
static tartan_status place_sets(const tartan_channel_sets *l, int64_t sets, const int64_t *first,
                                const int64_t *last, int64_t edge, int64_t *begin, tartan_i_channels *out) {
    tartan_status status;
    int32_t *of = NULL;
    int64_t slots = 0, missing = 0, placed = 0;
    for (int64_t b = 0; b < sets; b++) {
        begin[b] = first[b] == b ? slots : begin[first[b]];
        if (first[b] == b) slots += tartan_i_ceil_div(length_of(l, b), edge) * edge;
        if (first[b] == b) placed += length_of(l, b);
    }
    for (int64_t c = 0; c < l->channels; c++) missing += last[c] < 0;
    NEW(of, slots + tartan_i_ceil_div(missing, edge) * edge);
    out->count = l->channels;
    out->slots = slots + tartan_i_ceil_div(missing, edge) * edge;
    out->of = of;
    out->repeats = placed + missing > l->channels;
    for (int64_t i = 0; i < out->slots; i++) of[i] = -1;
    for (int64_t b = 0; b < sets; b++)
        for (int64_t i = 0; i < length_of(l, b); i++) of[begin[b] + i] = (int32_t)l->ids[l->offsets[b] + i];
    for (int64_t c = 0; c < l->channels; c++)
        if (last[c] < 0) of[slots++] = (int32_t)c;
    return TARTAN_OK;
fail:
    return status;
}

/* ---- The layout ---- */

static int by_place(const void *a, const void *b) {
    const tartan_i_conv_set *x = a, *y = b;
    return x->row != y->row ? (x->row < y->row ? -1 : 1) : (x->col > y->col) - (x->col < y->col);
}

/* All blocks of all sets at each tap. `sorted` has the sets by rows, then columns. */
static void fill_layout(const tartan_i_conv_set *sorted, int64_t sets, int64_t taps, tartan_layout *l) {
    const int64_t rows = l->shape.block_rows, cols = l->shape.block_cols, grid = l->grid_cols / taps;
    int64_t id = 0, at = 0;
    for (int64_t row = 0; row < l->grid_rows; row++) {
        l->row_pointers[row] = id;
        while (at < sets && sorted[at].row + tartan_i_ceil_div(sorted[at].rows, rows) * rows <= row * rows)
            at++;
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t b = at; b < sets && sorted[b].row == sorted[at].row && sorted[b].row <= row * rows;
                 b++)
                for (int64_t c = 0; c < tartan_i_ceil_div(sorted[b].cols, cols); c++)
                    l->block_cols[id++] = (int32_t)(tap * grid + sorted[b].col / cols + c);
    }
    l->row_pointers[l->grid_rows] = id;
}

static tartan_status make_layout(const tartan_conv *conv, int64_t block_rows, int64_t block_cols,
                                 tartan_layout **out) {
    tartan_status status;
    tartan_i_conv_set *sorted = NULL;
    tartan_layout *layout = NULL;
    int64_t blocks = 0, count = 0;
    tartan_shape shape = {
        .rows = conv->rows.slots, .block_rows = block_rows, .block_cols = block_cols, .heads = 1};
    if (!tartan_i_multiply(conv->cols.slots, conv->options.taps, &shape.cols)) shape.cols = INT64_MAX;
    for (int64_t b = 0; b < conv->nsets; b++) {
        const int64_t here = tartan_i_ceil_div(conv->sets[b].rows, block_rows) *
                             tartan_i_ceil_div(conv->sets[b].cols, block_cols);
        blocks += here;
    }
    if (!tartan_i_multiply(blocks, conv->options.taps, &blocks)) blocks = INT64_MAX;
    NEW(sorted, conv->nsets);
    for (int64_t b = 0; b < conv->nsets; b++)
        if (conv->sets[b].rows > 0 && conv->sets[b].cols > 0) sorted[count++] = conv->sets[b];
    if (count > 0) qsort(sorted, (size_t)count, sizeof *sorted, by_place);
    TRY(tartan_i_layout_begin(&shape, blocks, &layout));
    fill_layout(sorted, count, conv->options.taps, layout);
    TRY(tartan_i_layout_finish(layout));
    tartan_i_free(sorted);
    *out = layout;
    return TARTAN_OK;
fail:
    tartan_i_free(sorted);
    tartan_layout_free(layout);
    return status;
}

/* ---- The convolution ---- */

/* Slots and sets of a new convolution; `in` are the columns of the filter, `out` its rows. */
static tartan_status place_all(const char *function, const tartan_channel_sets *in,
                               const tartan_channel_sets *out, int64_t in_edge, int64_t out_edge,
                               tartan_conv *conv) {
    tartan_status status;
    const int64_t sets = conv->nsets;
    int64_t *rows = NULL, *cols = NULL, *first_row = NULL, *first_col = NULL, *last_row = NULL,
            *last_col = NULL, *pairs = NULL;
    key *keys = NULL;
    NEW(rows, sets);
    NEW(cols, sets);
    NEW(first_row, sets);
    NEW(first_col, sets);
    NEW(pairs, 2 * sets);
    NEW(keys, sets);
    NEW(last_row, out->channels);
    NEW(last_col, in->channels);
    TRY(find_last(function, "cols", in, sets, last_col));
    TRY(find_last(function, "rows", out, sets, last_row));
    find_first(in, sets, keys, first_col);
    find_first(out, sets, keys, first_row);
    part_equal(sets, first_col, first_row, keys, pairs, rows);
    TRY(place_sets(in, sets, first_col, last_col, in_edge, cols, &conv->cols));
    TRY(place_sets(out, sets, first_row, last_row, out_edge, rows, &conv->rows));
    for (int64_t b = 0; b < sets; b++)
        conv->sets[b] = (tartan_i_conv_set){
            .row = rows[b], .rows = length_of(out, b), .col = cols[b], .cols = length_of(in, b)};
    status = TARTAN_OK;
fail:
    tartan_i_free(rows);
    tartan_i_free(cols);
    tartan_i_free(first_row);
    tartan_i_free(first_col);
    tartan_i_free(last_row);
    tartan_i_free(last_col);
    tartan_i_free(pairs);
    tartan_i_free(keys);
    return status;
}

tartan_status tartan_conv_from_sets(const tartan_channel_sets *cols, const tartan_channel_sets *rows,
                                    const char *options, tartan_conv **out) {
    tartan_status status;
    tartan_conv *conv = NULL;
    tartan_i_conv_options parsed;
    CHECK_OUT(out);
    PASS(tartan_i_conv_options_parse(__func__, options, &parsed));
    CHECK(!parsed.per_tap, ARGUMENT, "options has per_tap=1, expected sets that are the same at each tap");
    CHECK(cols != NULL, HANDLE, "cols is NULL, expected sets of channels");
    CHECK(rows != NULL, HANDLE, "rows is NULL, expected sets of channels");
    CHECK(cols->noffsets >= 1, SHAPE,
          "cols.offsets has %" PRId64 " entries, expected one more than there are sets", cols->noffsets);
    const int64_t sets = cols->noffsets - 1;
    PASS(check_sets(__func__, "cols", cols, sets));
    PASS(check_sets(__func__, "rows", rows, sets));
    NEW_ZEROED(conv, 1);
    conv->magic = TARTAN_I_CONV;
    conv->references = 1;
    conv->options = parsed;
    conv->nsets = sets;
    tartan_i_conv_options_text(&parsed, conv->text);
    NEW(conv->sets, conv->nsets);
    const int64_t in_edge = pick_edge(cols, sets), out_edge = pick_edge(rows, sets);
    TRY(place_all(__func__, cols, rows, in_edge, out_edge, conv));
    TRY(make_layout(conv, out_edge, in_edge, &conv->layout));
    *out = conv;
    return TARTAN_OK;
fail:
    tartan_conv_free(conv);
    return status;
}
