/* SPDX-License-Identifier: Apache-2.0
 * Life cycle of layouts: frame, begin, finish, references; finding a block. */
#include "layout/layout.h"

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

tartan_status tartan_shape_check(const tartan_shape *shape) {
    int64_t grid_rows, grid_cols;
    return tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols);
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

/* Whether the row lists are as they should be: neighbours that do not ascend are counted in one pass without branches, and all of
 * them must be where a line begins. */
static bool are_sound(const tartan_layout *l) {
    const int64_t lines = l->shape.heads * l->grid_rows, *pointers = l->row_pointers;
    const int32_t *cols = l->block_cols;
    if (pointers[0] != 0 || pointers[lines] != l->blocks) return false;
    bool sound = true;
    for (int64_t line = 0; line < lines; line++) sound &= pointers[line] <= pointers[line + 1];
    if (!sound) return false;
    int64_t descents = 0;
    for (int64_t id = 1, end; id < l->blocks; id = end) {
        int32_t here = 0; /* as wide as the columns, for vectors */
        end = l->blocks - id < INT32_MAX ? l->blocks : id + INT32_MAX;
        for (int64_t i = id; i < end; i++) here += cols[i - 1] >= cols[i];
        descents += here;
    }
    for (int64_t line = 0; line < lines; line++) {
        const int64_t begin = pointers[line], end = pointers[line + 1];
        if (begin == end) continue;
        descents -= begin > 0 && cols[begin - 1] >= cols[begin];
        sound &= cols[begin] >= 0 && cols[end - 1] < l->grid_cols;
    }
    return sound && descents == 0;
}

/* Says what is wrong with row lists. */
static tartan_status check_row_lists(const tartan_layout *l) {
    int64_t lines = l->shape.heads * l->grid_rows;
    if (are_sound(l)) return TARTAN_OK;
    CHECK(l->row_pointers[0] == 0 && l->row_pointers[lines] == l->blocks, LAYOUT,
          "row_pointers go from %" PRId64 " to %" PRId64 ", expected 0 to %" PRId64 " (blocks)",
          l->row_pointers[0], l->row_pointers[lines], l->blocks);
    for (int64_t line = 0; line < lines; line++) {
        int64_t begin = l->row_pointers[line], end = l->row_pointers[line + 1], last = -1;
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

/* Rows of blocks are written many at a time, over places of the next line, which come later. */
enum { ROWS_AT_ONCE = 16 };

static void list_rows(tartan_layout *l) {
    int32_t *rows = l->block_rows;
    for (int64_t head = 0; head < l->shape.heads; head++) {
        const int64_t *pointers = l->row_pointers + head * l->grid_rows;
        for (int64_t row = 0; row < l->grid_rows; row++)
            for (int64_t id = pointers[row]; id < pointers[row + 1]; id += ROWS_AT_ONCE)
                for (int64_t i = 0; i < ROWS_AT_ONCE; i++) rows[id + i] = (int32_t)row;
    }
}

tartan_status tartan_i_layout_finish(tartan_layout *layout) {
    tartan_status status;
    PASS(check_row_lists(layout));
    NEW(layout->block_rows, layout->blocks + ROWS_AT_ONCE);
    list_rows(layout);
    return TARTAN_OK;
fail:
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
    tartan_i_free(layout->columns.pointers);
    tartan_i_free(layout->columns.rows);
    tartan_i_free(layout->columns.ids);
    tartan_i_free(layout->block_rows);
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
