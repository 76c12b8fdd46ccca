// SPDX-License-Identifier: Apache-2.0
// Layouts without the block rows and columns that store nothing.
#include "layout/compact.h"
#include "layout/plans.h"

// The new number of each line, -1 for one that stores nothing.
typedef struct kept {
    int32_t *number; /* [grid] */
    int64_t count, last;
} kept;

/* `lines`: the block rows or block columns of the blocks. */
static tartan_status keep(const int32_t *lines, int64_t blocks, int64_t grid, kept *out) {
    tartan_status status;
    *out = (kept){0};
    NEW_ZEROED(out->number, grid);
    for (int64_t id = 0; id < blocks; id++) out->number[lines[id]] = 1;
    for (int64_t i = 0; i < grid; i++) {
        const bool stored = out->number[i] != 0;
        out->number[i] = stored ? (int32_t)out->count++ : -1;
        if (stored) out->last = i;
    }
fail:
    return status;
}

static tartan_status make(const tartan_layout *l, void *user, void **out) {
    (void)user;
    tartan_status status;
    tartan_layout *made = NULL;
    kept rows = {0}, cols = {0};
    tartan_shape shape = l->shape;
    TRY(keep(l->block_rows, l->blocks, l->grid_rows, &rows));
    TRY(keep(l->block_cols, l->blocks, l->grid_cols, &cols));
    shape.rows = rows.count == 0 ? 0 : (rows.count - 1) * shape.block_rows + tartan_i_rows_of(l, rows.last);
    shape.cols = cols.count == 0 ? 0 : (cols.count - 1) * shape.block_cols + tartan_i_cols_of(l, cols.last);
    TRY(tartan_i_layout_begin(&shape, l->blocks, &made));
    int64_t *next = made->row_pointers;
    *next++ = 0;
    for (int64_t line = 0; line < shape.heads * l->grid_rows; line++)
        if (rows.number[line % l->grid_rows] >= 0) *next++ = l->row_pointers[line + 1];
    for (int64_t id = 0; id < l->blocks; id++) made->block_cols[id] = cols.number[l->block_cols[id]];
    TRY(tartan_i_layout_finish(made));
    *out = made;
    made = NULL;
fail:
    tartan_layout_free(made);
    tartan_i_free(rows.number);
    tartan_i_free(cols.number);
    return status;
}

static void release(void *plan) {
    tartan_layout_free(plan);
}

tartan_status tartan_i_layout_compact(const tartan_layout *layout, const tartan_layout **out) {
    static const char maker;
    const tartan_i_plan_key key = {.maker = &maker};
    const int64_t lines = layout->grid_rows > layout->grid_cols ? layout->grid_rows : layout->grid_cols;
    void *made;
    *out = layout;
    if (tartan_i_is_variable(layout) || layout->blocks > layout->shape.heads * lines / 2) return TARTAN_OK;
    PASS(tartan_i_layout_plan(layout, &key, make, NULL, release, &made));
    *out = made;
    return TARTAN_OK;
}
