/* SPDX-License-Identifier: Apache-2.0
 * Layouts from masks and index lists. */
#include "layout/places.h"
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

tartan_status tartan_layout_from_coordinates(const tartan_shape *shape, const tartan_places *places,
                                             tartan_layout **out) {
    int64_t *positions, count;
    CHECK_OUT(out);
    PASS(tartan_i_positions_of_places(__func__, shape, 0, places, &positions, &count));
    tartan_status status =
        tartan_i_layout_from_positions(__func__, shape, positions, count, false, NULL, out);
    tartan_i_free(positions);
    return status;
}

tartan_status tartan_layout_from_csr(const tartan_shape *shape, const tartan_compressed *lists,
                                     tartan_layout **out) {
    tartan_status status;
    int64_t grid_rows, grid_cols, *positions = NULL;
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    const int64_t lines = shape->heads * grid_rows;
    PASS(tartan_i_row_lists_check(__func__, lists, lines, "heads * grid_rows + 1", grid_cols));

    NEW(positions, lists->nindices);
    for (int64_t line = 0; line < lines; line++)
        for (int64_t i = lists->pointers[line]; i < lists->pointers[line + 1]; i++)
            positions[i] = line * grid_cols + lists->indices[i];
    status = tartan_i_layout_from_positions(__func__, shape, positions, lists->nindices, false, NULL, out);
fail:
    tartan_i_free(positions);
    return status;
}

tartan_status tartan_layout_from_entries(const tartan_shape *shape, const tartan_places *places,
                                         tartan_layout **out) {
    tartan_status status;
    int64_t grid_rows, grid_cols, *positions = NULL;
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    PASS(tartan_i_places_check(__func__, places, shape->heads, shape->rows, shape->cols));

    NEW(positions, places->count);
    int64_t count = 0;
    for (int64_t i = 0; i < places->count; i++) {
        const int64_t line = tartan_i_head_at(places, i) * grid_rows + places->rows[i] / shape->block_rows;
        const int64_t position = line * grid_cols + places->cols[i] / shape->block_cols;
        /* Neighbouring entries often share a block; dropping these repeats leaves little to sort. */
        if (count == 0 || positions[count - 1] != position) positions[count++] = position;
    }
    status = tartan_i_layout_from_positions(__func__, shape, positions, count, true, NULL, out);
fail:
    tartan_i_free(positions);
    return status;
}
