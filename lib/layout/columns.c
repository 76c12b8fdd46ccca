/* SPDX-License-Identifier: Apache-2.0
 * The column lists of layouts: a counting sort of the row lists, made when an operation first needs them. */
#include "layout/layout.h"

#include <sched.h>
#include <string.h>

/* Within a column, ids arrive in ascending order. */
static void fill(const tartan_layout *l, tartan_i_columns *made) {
    const int64_t columns = l->shape.heads * l->grid_cols;
    for (int64_t head = 0; head < l->shape.heads; head++) {
        const int64_t *rows = l->row_pointers + head * l->grid_rows;
        int64_t *counts = made->pointers + head * l->grid_cols + 1;
        for (int64_t id = rows[0]; id < rows[l->grid_rows]; id++) counts[l->block_cols[id]]++;
    }
    int64_t *ends = made->pointers; /* ends[x] is the fill level of column x */
    for (int64_t x = 0; x < columns; x++) ends[x + 1] += ends[x];
    for (int64_t head = 0; head < l->shape.heads; head++) {
        const int64_t *rows = l->row_pointers + head * l->grid_rows;
        int64_t *ends_here = ends + head * l->grid_cols;
        for (int64_t id = rows[0]; id < rows[l->grid_rows]; id++) {
            const int64_t place = ends_here[l->block_cols[id]]++;
            made->rows[place] = l->block_rows[id];
            made->ids[place] = id;
        }
    }
    memmove(ends + 1, ends, (size_t)columns * sizeof *ends);
    ends[0] = 0;
}

bool tartan_i_makes(int32_t *state) {
    int32_t missing = 0;
    if (__atomic_compare_exchange_n(state, &missing, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return true;
    while (__atomic_load_n(state, __ATOMIC_ACQUIRE) != 2) sched_yield();
    return false;
}

void tartan_i_made(int32_t *state) {
    __atomic_store_n(state, 2, __ATOMIC_RELEASE);
}

tartan_status tartan_i_layout_columns(const tartan_layout *layout, const tartan_i_columns **out) {
    tartan_status status;
    tartan_layout *owner = (tartan_layout *)layout; /* what is made once is not part of its value */
    tartan_i_columns made = {0};
    *out = tartan_i_columns_of(layout);
    if (*out != NULL) return TARTAN_OK;
    NEW_ZEROED(made.pointers, layout->shape.heads * layout->grid_cols + 1);
    NEW(made.rows, layout->blocks);
    NEW(made.ids, layout->blocks);
    fill(layout, &made);
    *out = &layout->columns;
    status = TARTAN_OK;
    if (tartan_i_makes(&owner->columns_made)) {
        owner->columns = made;
        tartan_i_made(&owner->columns_made);
        return TARTAN_OK;
    }
fail:
    tartan_i_free(made.pointers);
    tartan_i_free(made.rows);
    tartan_i_free(made.ids);
    return status;
}
