/* SPDX-License-Identifier: Apache-2.0
 * Queries of a layout: its sizes, and copies of its index sets. */
#include "layout/places.h"
#include "layout/positions.h"

#include <string.h>

#define GETTER(name, type, is, value, bad)                                                                   \
    type tartan_layout_##name(const tartan_layout *layout) {                                                 \
        return is(layout) ? layout->value : bad;                                                             \
    }
#define STAYS(layout) tartan_i_is_host_layout(layout)
GETTER(rows, int64_t, tartan_i_is_layout, shape.rows, -1)
GETTER(cols, int64_t, tartan_i_is_layout, shape.cols, -1)
GETTER(block_rows, int64_t, tartan_i_is_layout, shape.block_rows, -1)
GETTER(block_cols, int64_t, tartan_i_is_layout, shape.block_cols, -1)
GETTER(heads, int64_t, tartan_i_is_layout, shape.heads, -1)
GETTER(grid_rows, int64_t, tartan_i_is_layout, grid_rows, -1)
GETTER(grid_cols, int64_t, tartan_i_is_layout, grid_cols, -1)
GETTER(blocks, int64_t, tartan_i_is_layout, blocks, -1)
GETTER(row_pointers, const int64_t *, STAYS, row_pointers, NULL)
GETTER(col_indices, const int32_t *, STAYS, block_cols, NULL)
#undef STAYS
#undef GETTER

const char *tartan_layout_identity(const tartan_layout *layout) {
    return tartan_i_is_host_layout(layout) ? tartan_i_layout_identity(layout) : NULL;
}

const char *tartan_layout_recipe(const tartan_layout *layout) {
    if (!tartan_i_is_layout(layout)) return NULL;
    return layout->recipe != NULL ? layout->recipe : "";
}

int32_t tartan_layout_is_dynamic(const tartan_layout *layout) {
    return tartan_i_is_layout(layout) ? tartan_i_is_dynamic(layout) : -1;
}

int32_t tartan_layout_is_variable(const tartan_layout *layout) {
    return tartan_i_is_layout(layout) ? tartan_i_is_variable(layout) : -1;
}

int32_t tartan_layout_equal(const tartan_layout *a, const tartan_layout *b) {
    if (!tartan_i_is_layout(a) || !tartan_i_is_layout(b)) return -1;
    if (a == b) return 1;
    if (tartan_i_is_dynamic(a) || tartan_i_is_dynamic(b)) return 0;
    /* The lists, not identities: to compare costs less than to compute, and even a forged collision is found. */
    size_t pointers = (size_t)(a->shape.heads * a->grid_rows + 1);
    return tartan_i_layout_same_frame(a, b) && a->blocks == b->blocks &&
           memcmp(a->row_pointers, b->row_pointers, pointers * sizeof *a->row_pointers) == 0 &&
           memcmp(a->block_cols, b->block_cols, (size_t)a->blocks * sizeof *a->block_cols) == 0;
}

static void copy(int64_t *to, const int64_t *from, int64_t count) {
    if (count > 0) memcpy(to, from, (size_t)count * sizeof *to);
}

static void widen(int64_t *to, const int32_t *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = from[i];
}

tartan_status tartan_layout_get_row_lists(const tartan_layout *layout, int64_t *out_row_pointers,
                                          int64_t nout_row_pointers, int64_t *out_block_cols,
                                          int64_t nout_block_cols) {
    CHECK_HOST_LAYOUT(layout);
    int64_t pointers = layout->shape.heads * layout->grid_rows + 1;
    CHECK_LIST(out_row_pointers, pointers, "heads * grid_rows + 1");
    CHECK_LIST(out_block_cols, layout->blocks, "blocks");
    copy(out_row_pointers, layout->row_pointers, pointers);
    widen(out_block_cols, layout->block_cols, layout->blocks);
    return TARTAN_OK;
}

tartan_status tartan_layout_get_col_lists(const tartan_layout *layout, int64_t *out_col_pointers,
                                          int64_t nout_col_pointers, int64_t *out_block_rows,
                                          int64_t nout_block_rows, int64_t *out_ids, int64_t nout_ids) {
    CHECK_HOST_LAYOUT(layout);
    int64_t pointers = layout->shape.heads * layout->grid_cols + 1;
    CHECK_LIST(out_col_pointers, pointers, "heads * grid_cols + 1");
    CHECK_LIST(out_block_rows, layout->blocks, "blocks");
    CHECK_LIST(out_ids, layout->blocks, "blocks");
    const tartan_i_columns *columns;
    PASS(tartan_i_layout_columns(layout, &columns));
    copy(out_col_pointers, columns->pointers, pointers);
    widen(out_block_rows, columns->rows, layout->blocks);
    copy(out_ids, columns->ids, layout->blocks);
    return TARTAN_OK;
}

tartan_status tartan_layout_get_coordinates(const tartan_layout *layout, int64_t *out_heads,
                                            int64_t nout_heads, int64_t *out_block_rows,
                                            int64_t nout_block_rows, int64_t *out_block_cols,
                                            int64_t nout_block_cols) {
    CHECK_HOST_LAYOUT(layout);
    CHECK_LIST(out_heads, layout->blocks, "blocks");
    CHECK_LIST(out_block_rows, layout->blocks, "blocks");
    CHECK_LIST(out_block_cols, layout->blocks, "blocks");
    for (int64_t head = 0; head < layout->shape.heads; head++) {
        int64_t end = layout->row_pointers[(head + 1) * layout->grid_rows];
        for (int64_t id = layout->row_pointers[head * layout->grid_rows]; id < end; id++)
            out_heads[id] = head;
    }
    widen(out_block_rows, layout->block_rows, layout->blocks);
    widen(out_block_cols, layout->block_cols, layout->blocks);
    return TARTAN_OK;
}

tartan_status tartan_layout_get_mask(const tartan_layout *layout, uint8_t *out_mask, int64_t nout_mask) {
    CHECK_HOST_LAYOUT(layout);
    int64_t lines = layout->shape.heads * layout->grid_rows;
    CHECK_LIST(out_mask, lines * layout->grid_cols, "heads * grid_rows * grid_cols");
    if (nout_mask == 0) return TARTAN_OK;
    memset(out_mask, 0, (size_t)nout_mask);
    for (int64_t line = 0; line < lines; line++, out_mask += layout->grid_cols)
        for (int64_t id = layout->row_pointers[line]; id < layout->row_pointers[line + 1]; id++)
            out_mask[layout->block_cols[id]] = 1;
    return TARTAN_OK;
}

tartan_status tartan_layout_find(const tartan_layout *layout, const tartan_places *places, int64_t *out_ids,
                                 int64_t nout_ids) {
    CHECK_HOST_LAYOUT(layout);
    PASS(tartan_i_places_check(__func__, places, layout->shape.heads, layout->grid_rows, layout->grid_cols));
    CHECK_LIST(out_ids, places->count, "places");
    for (int64_t i = 0; i < nout_ids; i++)
        out_ids[i] =
            tartan_i_layout_find(layout, tartan_i_head_at(places, i), places->rows[i], places->cols[i]);
    return TARTAN_OK;
}

int64_t tartan_layout_block(const tartan_layout *layout, int64_t head, int64_t block_row, int64_t block_col) {
    if (!tartan_i_is_host_layout(layout) || head < 0 || head >= layout->shape.heads || block_row < 0 ||
        block_row >= layout->grid_rows || block_col < 0 || block_col >= layout->grid_cols)
        return -1;
    return tartan_i_layout_find(layout, head, block_row, block_col);
}

/* The bits of x moved to the even places. */
static uint64_t spread_bits(uint32_t x) {
    uint64_t bits = x;
    bits = (bits | bits << 16) & 0x0000ffff0000ffffu;
    bits = (bits | bits << 8) & 0x00ff00ff00ff00ffu;
    bits = (bits | bits << 4) & 0x0f0f0f0f0f0f0f0fu;
    bits = (bits | bits << 2) & 0x3333333333333333u;
    return (bits | bits << 1) & 0x5555555555555555u;
}

static tartan_status number_by_morton(const tartan_layout *l, int64_t *out_ids) {
    tartan_status status;
    int64_t *keys = NULL, *ids = NULL;
    NEW(keys, l->blocks);
    NEW(ids, l->blocks);
    for (int64_t id = 0; id < l->blocks; id++) {
        ids[id] = id;
        keys[id] = (int64_t)(spread_bits((uint32_t)l->block_cols[id]) |
                             spread_bits((uint32_t)l->block_rows[id]) << 1);
    }
    for (int64_t head = 0; head < l->shape.heads; head++) {
        int64_t begin = l->row_pointers[head * l->grid_rows],
                end = l->row_pointers[(head + 1) * l->grid_rows];
        TRY(tartan_i_sort(keys + begin, ids + begin, end - begin));
    }
    copy(out_ids, ids, l->blocks);
    status = TARTAN_OK;
fail:
    tartan_i_free(keys);
    tartan_i_free(ids);
    return status;
}

tartan_status tartan_layout_number(const tartan_layout *layout, int32_t numbering, int64_t *out_ids,
                                   int64_t nout_ids) {
    CHECK_HOST_LAYOUT(layout);
    CHECK(numbering >= TARTAN_BY_ROW && numbering <= TARTAN_BY_MORTON, ARGUMENT,
          "numbering is %" PRId32 ", expected 0 (by row), 1 (by column) or 2 (by Morton code)", numbering);
    CHECK_LIST(out_ids, layout->blocks, "blocks");
    if (numbering == TARTAN_BY_MORTON) return number_by_morton(layout, out_ids);
    if (numbering == TARTAN_BY_COLUMN) {
        const tartan_i_columns *columns;
        PASS(tartan_i_layout_columns(layout, &columns));
        copy(out_ids, columns->ids, layout->blocks);
        return TARTAN_OK;
    }
    for (int64_t id = 0; id < layout->blocks; id++) out_ids[id] = id;
    return TARTAN_OK;
}
