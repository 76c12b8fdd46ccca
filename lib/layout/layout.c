/* SPDX-License-Identifier: Apache-2.0
 * Life cycle of layouts: frame, begin, finish, references; finding a block. */
#include "layout/layout.h"

#include "core/parallel.h"
#include "layout/identity.h"
#include "layout/plans.h"
#include "layout/positions.h"

#include <string.h>

tartan_status tartan_i_shape_check(const char *function, const tartan_shape *shape, int64_t *out_grid_rows,
                                   int64_t *out_grid_cols) {
    CHECK_IN(function, shape != NULL, HANDLE, "shape is NULL, expected the frame of a layout");
    CHECK_IN(function, shape->rows >= 0 && shape->cols >= 0, SHAPE,
             "shape is %" PRId64 " x %" PRId64 ", expected rows and cols >= 0", shape->rows, shape->cols);
    CHECK_IN(function,
             shape->block_rows >= 1 && shape->block_rows <= TARTAN_I_MAX_BLOCK && shape->block_cols >= 1 &&
                 shape->block_cols <= TARTAN_I_MAX_BLOCK,
             ARGUMENT, "shape has blocks of %" PRId64 " x %" PRId64 ", expected 1 .. %d each",
             shape->block_rows, shape->block_cols, TARTAN_I_MAX_BLOCK);
    CHECK_IN(function, shape->heads >= 1 && shape->heads <= TARTAN_I_MAX_HEADS, ARGUMENT,
             "shape has %" PRId64 " heads, expected 1 .. %d", shape->heads, TARTAN_I_MAX_HEADS);
    int64_t grid_rows = tartan_i_ceil_div(shape->rows, shape->block_rows);
    int64_t grid_cols = tartan_i_ceil_div(shape->cols, shape->block_cols);
    CHECK_IN(function, grid_rows <= INT32_MAX && grid_cols <= INT32_MAX, OVERFLOW,
             "shape has %" PRId64 " x %" PRId64 " blocks, expected at most 2^31 - 1 a side", grid_rows,
             grid_cols);
    int64_t all;
    CHECK_IN(function, tartan_i_multiply(shape->heads * grid_rows, grid_cols, &all), OVERFLOW,
             "shape has %" PRId64 " heads of %" PRId64 " x %" PRId64
             " blocks, expected less than 2^63 in all",
             shape->heads, grid_rows, grid_cols);
    *out_grid_rows = grid_rows;
    *out_grid_cols = grid_cols;
    return TARTAN_OK;
}

/* A layout without index sets, with the fields of an ordinary layout. */
static tartan_status new_layout(const tartan_shape *shape, int64_t grid_rows, int64_t grid_cols,
                                int64_t blocks, tartan_layout **out) {
    tartan_layout *layout = NULL;
    PASS(tartan_i_allocate_zeroed(&layout, 1, sizeof *layout));
    tartan_i_plans_begin(&layout->plans);
    layout->magic = TARTAN_I_LAYOUT;
    layout->references = 1;
    layout->shape = *shape;
    layout->grid_rows = grid_rows;
    layout->grid_cols = grid_cols;
    layout->blocks = blocks;
    *out = layout;
    return TARTAN_OK;
}

tartan_status tartan_i_layout_new_dynamic(const char *function, const tartan_shape *shape, int64_t capacity,
                                          int32_t device_type, int32_t device_id, tartan_layout **out) {
    int64_t grid_rows = 0, grid_cols = 0, elements;
    PASS(tartan_i_shape_check(function, shape, &grid_rows, &grid_cols));
    CHECK_IN(function, tartan_i_multiply(capacity, shape->block_rows * shape->block_cols * 8, &elements),
             OVERFLOW,
             "%" PRId64 " blocks of %" PRId64 " x %" PRId64 " elements exceed what can be addressed",
             capacity, shape->block_rows, shape->block_cols);
    PASS(new_layout(shape, grid_rows, grid_cols, capacity, out));
    (*out)->magic = TARTAN_I_DYNAMIC;
    (*out)->device_type = device_type;
    (*out)->device_id = device_id;
    return TARTAN_OK;
}

tartan_status tartan_i_layout_begin(const tartan_shape *shape, int64_t blocks, tartan_layout **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    int64_t grid_rows = 0, grid_cols = 0, elements;
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    CHECK(blocks >= 0 && blocks <= shape->heads * grid_rows * grid_cols, LAYOUT,
          "%" PRId64 " blocks, expected at most the %" PRId64 " of the grid", blocks,
          shape->heads * grid_rows * grid_cols);
    CHECK(tartan_i_multiply(blocks, shape->block_rows * shape->block_cols * 8, &elements), OVERFLOW,
          "%" PRId64 " blocks of %" PRId64 " x %" PRId64 " elements exceed what can be addressed", blocks,
          shape->block_rows, shape->block_cols);

    TRY(new_layout(shape, grid_rows, grid_cols, blocks, &layout));
    NEW(layout->row_pointers, shape->heads * grid_rows + 1);
    NEW(layout->block_cols, blocks);
    *out = layout;
    return TARTAN_OK;
fail:
    tartan_layout_free(layout);
    return status;
}

/* Whether numbers are ascending and in 0 .. limit - 1. Without an early end the compiler makes vector code. */
static bool are_columns(const int32_t *cols, int64_t count, int64_t limit) {
    bool ascending = true;
    for (int64_t i = 1; i < count; i++) ascending &= cols[i - 1] < cols[i];
    return ascending && (count == 0 || (cols[0] >= 0 && cols[count - 1] < limit));
}

static tartan_status check_row_lists(const tartan_layout *l) {
    int64_t lines = l->shape.heads * l->grid_rows;
    CHECK(l->row_pointers[0] == 0 && l->row_pointers[lines] == l->blocks, LAYOUT,
          "row_pointers go from %" PRId64 " to %" PRId64 ", expected 0 to %" PRId64 " (blocks)",
          l->row_pointers[0], l->row_pointers[lines], l->blocks);
    for (int64_t line = 0; line < lines; line++) {
        int64_t begin = l->row_pointers[line], end = l->row_pointers[line + 1], last = -1;
        if (begin <= end && end <= l->blocks && are_columns(l->block_cols + begin, end - begin, l->grid_cols))
            continue;
        CHECK(begin <= end && end <= l->blocks, LAYOUT,
              "row_pointers[%" PRId64 "] is %" PRId64 ", expected %" PRId64 " .. %" PRId64, line + 1, end,
              begin, l->blocks);
        for (int64_t id = begin; id < end; id++) {
            CHECK(l->block_cols[id] > last && l->block_cols[id] < l->grid_cols, LAYOUT,
                  "block_cols[%" PRId64 "] is %" PRId32 " after %" PRId64
                  ", expected ascending numbers below %" PRId64,
                  id, l->block_cols[id], last, l->grid_cols);
            last = l->block_cols[id];
        }
    }
    return TARTAN_OK;
}

/* Coordinates, and column lists by a counting sort: within a column, ids arrive in ascending order. Each worker has a
 * range of the columns of each head, and looks for it in each row. */
typedef struct derivation {
    tartan_layout *layout;
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
        int64_t *counts = l->col_pointers + head * l->grid_cols + 1;
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
    int32_t *block_rows = l->block_rows, *col_rows = l->col_rows;
    int64_t *col_ids = l->col_ids, first, last;
    tartan_i_share(l->grid_cols, d->workers, worker, &first, &last);
    for (int64_t head = 0; head < l->shape.heads; head++) {
        int64_t *ends = l->col_pointers + head * l->grid_cols; /* ends[x] is the fill level of column x */
        for (int64_t row = 0; row < l->grid_rows; row++) {
            const int64_t *line = pointers + head * l->grid_rows + row, end = line[1];
            int64_t id = first == 0 ? line[0] : first_from(block_cols, line[0], end, first);
            for (; id < end && block_cols[id] < last; id++) {
                const int64_t place = ends[block_cols[id]]++;
                block_rows[id] = col_rows[place] = (int32_t)row;
                col_ids[place] = id;
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

static void fill_derived(const tartan_context *context, tartan_layout *l) {
    const int64_t columns = l->shape.heads * l->grid_cols, lines = l->shape.heads * l->grid_rows;
    /* A worker looks for its part of each row, which pays if rows are long. */
    const bool pays = context != NULL && l->blocks / 8 > lines;
    derivation d = {.layout = l, .workers = pays ? context->threads : 1};
    int64_t *ends = l->col_pointers;
    run(context, &d, count_task);
    for (int64_t x = 0; x < columns; x++) ends[x + 1] += ends[x];
    run(context, &d, place_task);
    memmove(ends + 1, ends, (size_t)columns * sizeof *ends);
    ends[0] = 0;
}

static void free_derived(tartan_layout *layout) {
    tartan_i_free(layout->block_rows);
    tartan_i_free(layout->col_pointers);
    tartan_i_free(layout->col_rows);
    tartan_i_free(layout->col_ids);
    layout->block_rows = layout->col_rows = NULL;
    layout->col_pointers = layout->col_ids = NULL;
}

tartan_status tartan_i_layout_finish(tartan_layout *layout) {
    return tartan_i_layout_finish_with(NULL, layout);
}

tartan_status tartan_i_layout_finish_with(const tartan_context *context, tartan_layout *layout) {
    tartan_status status;
    PASS(check_row_lists(layout));
    NEW(layout->block_rows, layout->blocks);
    NEW_ZEROED(layout->col_pointers, layout->shape.heads * layout->grid_cols + 1);
    NEW(layout->col_rows, layout->blocks);
    NEW(layout->col_ids, layout->blocks);
    fill_derived(context, layout);
    tartan_i_layout_identify(layout);
    return TARTAN_OK;
fail:
    free_derived(layout);
    return status;
}

tartan_status tartan_i_layout_set_recipe(tartan_layout *layout, const char *recipe) {
    tartan_status status;
    char *copy;
    size_t bytes = strlen(recipe) + 1;
    NEW(copy, (int64_t)bytes);
    memcpy(copy, recipe, bytes);
    tartan_i_free(layout->recipe);
    layout->recipe = copy;
    return TARTAN_OK;
fail:
    return status;
}

tartan_layout *tartan_layout_retain(tartan_layout *layout) {
    if (!tartan_i_is_layout(layout)) return NULL;
    __atomic_fetch_add(&layout->references, 1, __ATOMIC_RELAXED);
    return layout;
}

void tartan_layout_free(tartan_layout *layout) {
    if (!tartan_i_is_layout(layout)) return;
    /* Release this thread's writes to the layout; the last one acquires the others' writes. */
    if (__atomic_fetch_sub(&layout->references, 1, __ATOMIC_ACQ_REL) != 1) return;
    layout->magic = 0;
    tartan_i_plans_drop(&layout->plans);
    if (layout->bytes != NULL) layout->release(layout->bytes);
    if (layout->resource != NULL) layout->release(layout->resource);
    free_derived(layout);
    tartan_i_free(layout->row_pointers);
    tartan_i_free(layout->block_cols);
    tartan_i_free(layout->row_bounds);
    tartan_i_free(layout->col_bounds);
    tartan_i_free(layout->recipe);
    tartan_i_free(layout);
}

int64_t tartan_i_layout_find(const tartan_layout *layout, int64_t head, int64_t block_row,
                             int64_t block_col) {
    int64_t line = head * layout->grid_rows + block_row;
    int64_t low = layout->row_pointers[line], end = layout->row_pointers[line + 1], high = end;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (layout->block_cols[middle] < block_col)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && layout->block_cols[low] == block_col ? low : -1;
}

int64_t tartan_i_layout_head(const tartan_layout *layout, int64_t id) {
    int64_t low = 0, high = layout->shape.heads - 1; /* the last head that begins at or before id */
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (layout->row_pointers[middle * layout->grid_rows] <= id)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
