/* SPDX-License-Identifier: Apache-2.0
 * The column lists of layouts: a counting sort of the row lists, made when an operation first needs them. */
#include "core/parallel.h"
#include "layout/layout.h"

#include <sched.h>
#include <string.h>

/* Within a column, ids arrive in ascending order. Each worker has a range of the columns of each head, and looks for it in
 * each row. */
typedef struct derivation {
    const tartan_layout *layout;
    tartan_i_columns *columns;
    int32_t workers;
} derivation;

static int64_t first_from(const int32_t *block_cols, int64_t begin, int64_t end, int64_t column) {
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (block_cols[middle] < column)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static void count_task(void *data, int32_t worker) {
    const derivation *d = data;
    const tartan_layout *l = d->layout;
    const int64_t *pointers = l->row_pointers;
    const int32_t *block_cols = l->block_cols;
    int64_t first, last;
    tartan_i_share(l->grid_cols, d->workers, worker, &first, &last);
    for (int64_t head = 0; head < l->shape.heads; head++) {
        int64_t *counts = d->columns->pointers + head * l->grid_cols + 1;
        for (int64_t line = head * l->grid_rows; line < (head + 1) * l->grid_rows; line++) {
            const int64_t end = pointers[line + 1];
            int64_t id = first == 0 ? pointers[line] : first_from(block_cols, pointers[line], end, first);
            for (; id < end && block_cols[id] < last; id++) counts[block_cols[id]]++;
        }
    }
}

static void place_task(void *data, int32_t worker) {
    const derivation *d = data;
    const tartan_layout *l = d->layout;
    const int64_t *pointers = l->row_pointers;
    const int32_t *block_cols = l->block_cols;
    int32_t *rows = d->columns->rows;
    int64_t *ids = d->columns->ids, first, last;
    tartan_i_share(l->grid_cols, d->workers, worker, &first, &last);
    for (int64_t head = 0; head < l->shape.heads; head++) {
        int64_t *ends =
            d->columns->pointers + head * l->grid_cols; /* ends[x] is the fill level of column x */
        for (int64_t row = 0; row < l->grid_rows; row++) {
            const int64_t *line = pointers + head * l->grid_rows + row, end = line[1];
            int64_t id = first == 0 ? line[0] : first_from(block_cols, line[0], end, first);
            for (; id < end && block_cols[id] < last; id++) {
                const int64_t place = ends[block_cols[id]]++;
                rows[place] = (int32_t)row;
                ids[place] = id;
            }
        }
    }
}

static void run(const tartan_context *context, derivation *d, tartan_task task) {
    if (d->workers == 1)
        task(d, 0);
    else
        tartan_i_parallel(context, d->workers, 8 * (double)d->layout->blocks, task, d);
}

static void fill(const tartan_context *context, const tartan_layout *l, tartan_i_columns *made) {
    const int64_t columns = l->shape.heads * l->grid_cols, lines = l->shape.heads * l->grid_rows;
    /* A worker looks for its part of each row, which pays if rows are long. */
    const bool pays = context != NULL && l->blocks / 8 > lines;
    derivation d = {.layout = l, .columns = made, .workers = pays ? context->threads : 1};
    int64_t *ends = made->pointers;
    run(context, &d, count_task);
    for (int64_t x = 0; x < columns; x++) ends[x + 1] += ends[x];
    run(context, &d, place_task);
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

tartan_status tartan_i_layout_columns(const tartan_context *context, const tartan_layout *layout,
                                      const tartan_i_columns **out) {
    tartan_status status;
    tartan_layout *owner = (tartan_layout *)layout; /* what is made once is not part of its value */
    tartan_i_columns made = {0};
    *out = tartan_i_columns_of(layout);
    if (*out != NULL) return TARTAN_OK;
    NEW_ZEROED(made.pointers, layout->shape.heads * layout->grid_cols + 1);
    NEW(made.rows, layout->blocks);
    NEW(made.ids, layout->blocks);
    fill(context, layout, &made);
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
