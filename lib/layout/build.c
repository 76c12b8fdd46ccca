/* SPDX-License-Identifier: Apache-2.0
 * Layouts from masks and index lists. */
#include "layout/positions.h"

tartan_status tartan_layout_from_mask(const tartan_shape *shape, const uint8_t *mask, int64_t nmask,
                                      tartan_layout **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    int64_t grid_rows, grid_cols, blocks = 0, id = 0;
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    CHECK_LIST(mask, shape->heads * grid_rows * grid_cols, "heads * grid_rows * grid_cols");
    for (int64_t i = 0; i < nmask; i++) blocks += mask[i] != 0;

    TRY(tartan_i_layout_begin(shape, blocks, &layout));
    for (int64_t line = 0; line < shape->heads * grid_rows; line++) {
        layout->row_pointers[line] = id;
        for (int64_t col = 0; col < grid_cols; col++)
            if (*mask++ != 0) layout->block_cols[id++] = (int32_t)col;
    }
    layout->row_pointers[shape->heads * grid_rows] = id;
    TRY(tartan_i_layout_finish(layout));
    *out = layout;
    return TARTAN_OK;
fail:
    tartan_layout_free(layout);
    return status;
}

tartan_status tartan_layout_from_coordinates(const tartan_shape *shape, const int64_t *heads, int64_t nheads,
                                             const int64_t *block_rows, int64_t nblock_rows,
                                             const int64_t *block_cols, int64_t nblock_cols,
                                             tartan_layout **out) {
    int64_t *positions, count;
    CHECK_OUT(out);
    PASS(tartan_i_positions_of_coordinates(__func__, shape, 0, heads, nheads, block_rows, nblock_rows,
                                           block_cols, nblock_cols, &positions, &count));
    tartan_status status =
        tartan_i_layout_from_positions(__func__, shape, positions, count, false, NULL, out);
    tartan_i_free(positions);
    return status;
}

/* Checks that row_pointers ascend from 0 to count. */
static tartan_status check_pointers(const char *function, const int64_t *row_pointers, int64_t lines,
                                    int64_t count) {
    CHECK_IN(function, row_pointers[0] == 0, LAYOUT, "row_pointers[0] is %" PRId64 ", expected 0",
             row_pointers[0]);
    for (int64_t line = 0; line < lines; line++)
        CHECK_IN(function, row_pointers[line + 1] >= row_pointers[line], LAYOUT,
                 "row_pointers[%" PRId64 "] is %" PRId64 " after %" PRId64 ", expected ascending numbers",
                 line + 1, row_pointers[line + 1], row_pointers[line]);
    CHECK_IN(function, row_pointers[lines] == count, LAYOUT,
             "row_pointers[%" PRId64 "] is %" PRId64 ", expected %" PRId64 " (entries of block_cols)", lines,
             row_pointers[lines], count);
    return TARTAN_OK;
}

tartan_status tartan_layout_from_csr(const tartan_shape *shape, const int64_t *row_pointers,
                                     int64_t nrow_pointers, const int64_t *block_cols, int64_t nblock_cols,
                                     tartan_layout **out) {
    tartan_status status;
    int64_t grid_rows, grid_cols, *positions = NULL;
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    int64_t lines = shape->heads * grid_rows;
    CHECK_LIST(row_pointers, lines + 1, "heads * grid_rows + 1");
    CHECK(nblock_cols >= 0, SHAPE, "nblock_cols is %" PRId64 ", expected >= 0", nblock_cols);
    CHECK_LIST(block_cols, nblock_cols, "blocks");
    PASS(check_pointers(__func__, row_pointers, lines, nblock_cols));
    for (int64_t i = 0; i < nblock_cols; i++)
        CHECK(block_cols[i] >= 0 && block_cols[i] < grid_cols, LAYOUT,
              "block_cols[%" PRId64 "] is %" PRId64 ", expected 0 .. %" PRId64, i, block_cols[i],
              grid_cols - 1);

    NEW(positions, nblock_cols);
    for (int64_t line = 0; line < lines; line++)
        for (int64_t i = row_pointers[line]; i < row_pointers[line + 1]; i++)
            positions[i] = line * grid_cols + block_cols[i];
    status = tartan_i_layout_from_positions(__func__, shape, positions, nblock_cols, false, NULL, out);
fail:
    tartan_i_free(positions);
    return status;
}

tartan_status tartan_layout_from_entries(const tartan_shape *shape, const int64_t *entry_rows,
                                         int64_t nentry_rows, const int64_t *entry_cols, int64_t nentry_cols,
                                         tartan_layout **out) {
    tartan_status status;
    int64_t grid_rows, grid_cols, *positions = NULL;
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    CHECK(shape->heads == 1, SHAPE, "shape has %" PRId64 " heads, expected 1", shape->heads);
    CHECK(nentry_rows >= 0, SHAPE, "nentry_rows is %" PRId64 ", expected >= 0", nentry_rows);
    CHECK_LIST(entry_rows, nentry_rows, "entries");
    CHECK_LIST(entry_cols, nentry_rows, "as entry_rows");
    for (int64_t i = 0; i < nentry_rows; i++)
        CHECK(entry_rows[i] >= 0 && entry_rows[i] < shape->rows && entry_cols[i] >= 0 &&
                  entry_cols[i] < shape->cols,
              LAYOUT,
              "entry %" PRId64 " is (%" PRId64 ", %" PRId64 "), expected inside %" PRId64 " x %" PRId64, i,
              entry_rows[i], entry_cols[i], shape->rows, shape->cols);

    NEW(positions, nentry_rows);
    int64_t count = 0;
    for (int64_t i = 0; i < nentry_rows; i++) {
        int64_t position = entry_rows[i] / shape->block_rows * grid_cols + entry_cols[i] / shape->block_cols;
        /* Neighbouring entries often share a block; dropping these repeats leaves little to sort. */
        if (count == 0 || positions[count - 1] != position) positions[count++] = position;
    }
    status = tartan_i_layout_from_positions(__func__, shape, positions, count, true, NULL, out);
fail:
    tartan_i_free(positions);
    return status;
}
