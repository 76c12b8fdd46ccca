// SPDX-License-Identifier: Apache-2.0
// From scipy's BSR: blocks in any order within a row.
#include "layout/positions.h"
#include "matrix/matrix.h"

#include <stdlib.h>

// A block column, and the position of its block in the caller's arrays.
typedef struct place {
    int64_t col, source;
} place;

static int compare_places(const void *a, const void *b) {
    int64_t x = ((const place *)a)->col, y = ((const place *)b)->col;
    return (x > y) - (x < y);
}

// The caller's index arrays.
typedef struct rows_of_blocks {
    const char *function;
    const int64_t *pointers, *cols;
    int64_t grid_rows, grid_cols, blocks;
} rows_of_blocks;

static tartan_status check_rows(const rows_of_blocks *a) {
    const int64_t *p = a->pointers;
    CHECK_IN(a->function, p[0] == 0 && p[a->grid_rows] == a->blocks, LAYOUT,
             "row_pointers go from %" PRId64 " to %" PRId64 ", expected 0 to %" PRId64 " (blocks)", p[0],
             p[a->grid_rows], a->blocks);
    for (int64_t i = 0; i < a->grid_rows; i++) {
        CHECK_IN(a->function, p[i] <= p[i + 1], LAYOUT,
                 "row_pointers[%" PRId64 "] is %" PRId64 ", expected at least %" PRId64 " (ascending)", i + 1,
                 p[i + 1], p[i]);
    }
    for (int64_t n = 0; n < a->blocks; n++) {
        CHECK_IN(a->function, a->cols[n] >= 0 && a->cols[n] < a->grid_cols, LAYOUT,
                 "block_cols[%" PRId64 "] is %" PRId64 ", expected 0 .. %" PRId64, n, a->cols[n],
                 a->grid_cols - 1);
    }
    return TARTAN_OK;
}

// Sorts every row by block column; refuses a column that appears twice in a row.
static tartan_status sort_rows(const rows_of_blocks *a, place *places) {
    for (int64_t n = 0; n < a->blocks; n++) places[n] = (place){a->cols[n], n};
    for (int64_t i = 0; i < a->grid_rows; i++) {
        int64_t begin = a->pointers[i], end = a->pointers[i + 1];
        bool ascending = true;
        for (int64_t n = begin + 1; n < end; n++) ascending = ascending && places[n - 1].col < places[n].col;
        if (ascending) continue;
        qsort(places + begin, (size_t)(end - begin), sizeof *places, compare_places);
        for (int64_t n = begin + 1; n < end; n++) {
            CHECK_IN(a->function, places[n - 1].col < places[n].col, LAYOUT,
                     "block_cols has block (%" PRId64 ", %" PRId64 ") twice, expected each once", i,
                     places[n].col);
        }
    }
    return TARTAN_OK;
}

static void copy_blocks(tartan_matrix *m, const place *places, const tartan_array *values) {
    const tartan_layout *l = m->layout;
    tartan_i_tile_copy copy = tartan_i_tile_copier(m->dtype, values->dtype);
    for (int64_t id = 0; id < l->blocks; id++) {
        copy(tartan_i_block_at(m, id), tartan_i_block_row_stride(m), tartan_i_block_col_stride(m),
             tartan_i_at(values->data, values->dtype, places[id].source * values->strides[0]),
             values->strides[1], values->strides[2], tartan_i_rows_of(l, l->block_rows[id]),
             tartan_i_cols_of(l, l->block_cols[id]));
    }
}

static tartan_status check_arguments(const char *function, const tartan_shape *shape, const rows_of_blocks *a,
                                     int64_t npointers, const tartan_array *values, int32_t block_order) {
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK_IN(function, shape->heads == 1, SHAPE, "shape has %" PRId64 " heads, expected 1", shape->heads);
    CHECK_IN(function, a->blocks >= 0, SHAPE, "nblock_cols is %" PRId64 ", expected 0 or more", a->blocks);
    PASS(tartan_i_list_check(function, "row_pointers", a->pointers, npointers, a->grid_rows + 1,
                             "block rows + 1"));
    PASS(tartan_i_list_check(function, "block_cols", a->cols, a->blocks, a->blocks, "blocks"));
    PASS(tartan_i_array_check(function, "values", values, false));
    CHECK_IN(function,
             values->ndim == 3 && values->shape[0] == a->blocks && values->shape[1] == shape->block_rows &&
                 values->shape[2] == shape->block_cols,
             SHAPE, "values has shape %s, expected [%" PRId64 ", %" PRId64 ", %" PRId64 "]",
             tartan_i_shape_text(values, text), a->blocks, shape->block_rows, shape->block_cols);
    CHECK_IN(function, block_order == TARTAN_ROW_MAJOR || block_order == TARTAN_COL_MAJOR, ARGUMENT,
             "block_order is %d, expected %d (row-major) or %d (column-major)", block_order, TARTAN_ROW_MAJOR,
             TARTAN_COL_MAJOR);
    return check_rows(a);
}

tartan_status tartan_matrix_from_bsr(const tartan_shape *shape, const int64_t *row_pointers,
                                     int64_t nrow_pointers, const int64_t *block_cols, int64_t nblock_cols,
                                     const tartan_array *values, int32_t block_order, tartan_matrix **out) {
    CHECK_OUT(out);
    rows_of_blocks a = {__func__, row_pointers, block_cols, 0, 0, nblock_cols};
    PASS(tartan_i_shape_check(__func__, shape, &a.grid_rows, &a.grid_cols));
    PASS(check_arguments(__func__, shape, &a, nrow_pointers, values, block_order));
    tartan_status status;
    place *places = NULL;
    tartan_layout *layout = NULL;
    NEW(places, nblock_cols);
    TRY(sort_rows(&a, places));
    TRY(tartan_i_layout_begin(shape, nblock_cols, &layout));
    memcpy(layout->row_pointers, row_pointers, (size_t)nrow_pointers * sizeof *row_pointers);
    for (int64_t n = 0; n < nblock_cols; n++) layout->block_cols[n] = (int32_t)places[n].col;
    TRY(tartan_i_layout_finish(layout));
    TRY(tartan_i_matrix_new(layout, values->dtype, block_order, out));
    copy_blocks(*out, places, values);
fail:
    tartan_layout_free(layout); // the matrix has its own reference
    tartan_i_free(places);
    return status;
}
