// SPDX-License-Identifier: Apache-2.0
// From scipy's BSR: blocks in any order within a row.
#include "layout/places.h"
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

// Sorts every row by block column; refuses a column that appears twice in a row.
static tartan_status sort_rows(const char *function, const tartan_compressed *lists, int64_t grid_rows,
                               place *places) {
    for (int64_t n = 0; n < lists->nindices; n++) places[n] = (place){lists->indices[n], n};
    for (int64_t i = 0; i < grid_rows; i++) {
        int64_t begin = lists->pointers[i], end = lists->pointers[i + 1];
        bool ascending = true;
        for (int64_t n = begin + 1; n < end; n++) ascending = ascending && places[n - 1].col < places[n].col;
        if (ascending) continue;
        qsort(places + begin, (size_t)(end - begin), sizeof *places, compare_places);
        for (int64_t n = begin + 1; n < end; n++) {
            CHECK_IN(function, places[n - 1].col < places[n].col, LAYOUT,
                     "indices has block (%" PRId64 ", %" PRId64 ") twice, expected each once", i,
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

static tartan_status check_arguments(const char *function, const tartan_shape *shape, int64_t blocks,
                                     const tartan_array *values, int32_t block_order) {
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK_IN(function, shape->heads == 1, SHAPE, "shape has %" PRId64 " heads, expected 1", shape->heads);
    PASS(tartan_i_array_check(function, "values", values, false));
    CHECK_IN(function,
             values->ndim == 3 && values->shape[0] == blocks && values->shape[1] == shape->block_rows &&
                 values->shape[2] == shape->block_cols,
             SHAPE, "values has shape %s, expected [%" PRId64 ", %" PRId64 ", %" PRId64 "]",
             tartan_i_shape_text(values, text), blocks, shape->block_rows, shape->block_cols);
    CHECK_IN(function, block_order == TARTAN_ROW_MAJOR || block_order == TARTAN_COL_MAJOR, ARGUMENT,
             "block_order is %d, expected %d (row-major) or %d (column-major)", block_order, TARTAN_ROW_MAJOR,
             TARTAN_COL_MAJOR);
    return TARTAN_OK;
}

tartan_status tartan_matrix_from_bsr(const tartan_shape *shape, const tartan_compressed *lists,
                                     const tartan_array *values, int32_t block_order, tartan_matrix **out) {
    CHECK_OUT(out);
    int64_t grid_rows, grid_cols;
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    PASS(tartan_i_row_lists_check(__func__, lists, grid_rows, "block rows + 1", grid_cols));
    PASS(check_arguments(__func__, shape, lists->nindices, values, block_order));
    tartan_status status;
    place *places = NULL;
    tartan_layout *layout = NULL;
    NEW(places, lists->nindices);
    TRY(sort_rows(__func__, lists, grid_rows, places));
    TRY(tartan_i_layout_begin(shape, lists->nindices, &layout));
    memcpy(layout->row_pointers, lists->pointers, (size_t)lists->npointers * sizeof *lists->pointers);
    for (int64_t n = 0; n < lists->nindices; n++) layout->block_cols[n] = (int32_t)places[n].col;
    TRY(tartan_i_layout_finish(layout));
    TRY(tartan_i_matrix_new(layout, values->dtype, block_order, out));
    copy_blocks(*out, places, values);
fail:
    tartan_layout_free(layout); // the matrix has its own reference
    tartan_i_free(places);
    return status;
}
