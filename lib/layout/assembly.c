/* SPDX-License-Identifier: Apache-2.0
 * Plans of assembly: which of the blocks or elements that a caller lists are added up at each place of a layout. */
#include "layout/places.h"
#include "layout/positions.h"
#include "tartan/structure.h"

/* How many items the places up to and including each have; to[i] is the place of item i. */
static void count_items(int64_t *ends, int64_t places, const int64_t *to, int64_t count) {
    for (int64_t p = 0; p < places; p++) ends[p] = 0;
    for (int64_t i = 0; i < count; i++) ends[to[i]]++;
    for (int64_t p = 1; p < places; p++) ends[p] += ends[p - 1];
}

/* Items of a position keep the order of the list: from the last item to the first, each takes the last free entry there. */
static void list_items(int64_t *ends, int64_t places, const int64_t *to, int64_t count, int64_t *order) {
    count_items(ends, places, to, count);
    for (int64_t i = count; i-- > 0;) order[--ends[to[i]]] = i;
    /* Each has come down to where its place begins, which is where the one before ends. */
    for (int64_t p = 0; p + 1 < places; p++) ends[p] = ends[p + 1];
    if (places > 0) ends[places - 1] = count;
}

static tartan_status check_lists(const char *function, int64_t count, int64_t places, const char *meaning,
                                 const int64_t *out_order, int64_t nout_order, const int64_t *out_ends,
                                 int64_t nout_ends) {
    PASS(tartan_i_list_check(function, "out_order", out_order, nout_order, count, "places"));
    return tartan_i_list_check(function, "out_ends", out_ends, nout_ends, places, meaning);
}

static int64_t block_of(const tartan_layout *l, const tartan_places *places, int64_t i) {
    return tartan_i_layout_find(l, tartan_i_head_at(places, i), places->rows[i], places->cols[i]);
}

tartan_status tartan_layout_block_plan(const tartan_layout *layout, const tartan_places *places,
                                       int64_t *out_order, int64_t nout_order, int64_t *out_ends,
                                       int64_t nout_ends) {
    tartan_status status;
    int64_t *to = NULL;
    CHECK_HOST_LAYOUT(layout);
    PASS(tartan_i_places_check(__func__, places, layout->shape.heads, layout->grid_rows, layout->grid_cols));
    PASS(check_lists(__func__, places->count, layout->blocks, "blocks of layout", out_order, nout_order,
                     out_ends, nout_ends));
    NEW(to, places->count);
    for (int64_t i = 0; i < places->count; i++) {
        to[i] = block_of(layout, places, i);
        if (to[i] >= 0) continue;
        tartan_i_free(to);
        FAIL(LAYOUT,
             "block %" PRId64 " of the list is at (%" PRId64 ", %" PRId64
             "), expected a block that is stored",
             i, places->rows[i], places->cols[i]);
    }
    list_items(out_ends, nout_ends, to, places->count, out_order);
    status = TARTAN_OK;
fail:
    tartan_i_free(to);
    return status;
}

tartan_status tartan_layout_element_plan(const tartan_layout *layout, const tartan_places *places,
                                         int32_t block_order, int64_t *out_order, int64_t nout_order,
                                         int64_t *out_ends, int64_t nout_ends) {
    tartan_status status;
    int64_t *to = NULL;
    CHECK_HOST_LAYOUT(layout);
    const tartan_shape *s = &layout->shape;
    const int64_t elements = s->block_rows * s->block_cols;
    PASS(tartan_i_places_check(__func__, places, s->heads, s->rows, s->cols));
    CHECK(block_order == TARTAN_ROW_MAJOR || block_order == TARTAN_COL_MAJOR, ARGUMENT,
          "block_order is %d, expected %d (row-major) or %d (column-major)", block_order, TARTAN_ROW_MAJOR,
          TARTAN_COL_MAJOR);
    int64_t stored;
    CHECK(tartan_i_multiply(layout->blocks, elements, &stored), OVERFLOW,
          "%" PRId64 " blocks of %" PRId64 " elements exceed what can be addressed", layout->blocks,
          elements);
    PASS(check_lists(__func__, places->count, stored, "elements of stored blocks", out_order, nout_order,
                     out_ends, nout_ends));
    NEW(to, places->count);
    int64_t head = -1, row = -1, col = -1, id = -1; /* neighbours often share a block */
    for (int64_t i = 0; i < places->count; i++) {
        const int64_t h = tartan_i_head_at(places, i), r = places->rows[i], c = places->cols[i],
                      block_row = tartan_i_block_row_at(layout, r),
                      block_col = tartan_i_block_col_at(layout, c);
        if (h != head || block_row != row || block_col != col) {
            head = h, row = block_row, col = block_col;
            id = tartan_i_layout_find(layout, h, block_row, block_col);
        }
        if (id < 0) {
            tartan_i_free(to);
            FAIL(LAYOUT,
                 "element %" PRId64 " of the list is at (%" PRId64 ", %" PRId64
                 "), expected one of a stored block",
                 i, r, c);
        }
        const int64_t in_row = r - tartan_i_row_begin(layout, row),
                      in_col = c - tartan_i_col_begin(layout, col);
        to[i] = id * elements + (block_order == TARTAN_ROW_MAJOR ? in_row * s->block_cols + in_col
                                                                 : in_col * s->block_rows + in_row);
    }
    list_items(out_ends, nout_ends, to, places->count, out_order);
    status = TARTAN_OK;
fail:
    tartan_i_free(to);
    return status;
}
