/* SPDX-License-Identifier: Apache-2.0
 * Edits: prune, keep the largest, grow, move, change the block size. */
#include "layout/places.h"
#include "layout/positions.h"
#include "tartan/layout_derived.h"

#include <math.h>
#include <string.h>

/* The blocks with keep[id] != 0. */
static tartan_status keep_blocks(const char *function, const tartan_layout *l, const uint8_t *keep,
                                 tartan_layout **out) {
    tartan_status status;
    tartan_layout *kept = NULL;
    int64_t blocks = 0, new_id = 0, lines = l->shape.heads * l->grid_rows;
    for (int64_t id = 0; id < l->blocks; id++) blocks += keep[id] != 0;
    const tartan_shape frame = tartan_i_layout_frame(l);
    TRY(tartan_i_layout_begin(&frame, blocks, &kept));
    for (int64_t line = 0; line < lines; line++) {
        kept->row_pointers[line] = new_id;
        for (int64_t id = l->row_pointers[line]; id < l->row_pointers[line + 1]; id++)
            if (keep[id] != 0) kept->block_cols[new_id++] = l->block_cols[id];
    }
    kept->row_pointers[lines] = new_id;
    TRY(tartan_i_layout_finish(kept));
    TRY(tartan_i_layout_take_bounds_of(function, kept, l));
    *out = kept;
    return TARTAN_OK;
fail:
    tartan_layout_free(kept);
    return status;
}

tartan_status tartan_i_numbers_check(const char *function, const char *name, const double *numbers,
                                     int64_t count) {
    for (int64_t i = 0; i < count; i++)
        CHECK_IN(function, !isnan(numbers[i]), ARGUMENT, "%s[%" PRId64 "] is NaN, expected a number", name,
                 i);
    return TARTAN_OK;
}

tartan_status tartan_layout_prune(const tartan_layout *layout, const double *gates, int64_t ngates,
                                  tartan_layout **out) {
    tartan_status status;
    uint8_t *keep = NULL;
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    CHECK_LIST(gates, layout->blocks, "blocks");
    PASS(tartan_i_numbers_check(__func__, "gates", gates, ngates));
    NEW(keep, ngates);
    for (int64_t id = 0; id < ngates; id++) keep[id] = gates[id] != 0;
    status = keep_blocks(__func__, layout, keep, out);
fail:
    tartan_i_free(keep);
    return status;
}

tartan_status tartan_layout_keep_largest(const tartan_layout *layout, const double *scores, int64_t nscores,
                                         int64_t count, tartan_layout **out) {
    tartan_status status;
    uint8_t *keep = NULL;
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    CHECK_LIST(scores, layout->blocks, "blocks");
    CHECK(count >= 0 && count <= layout->blocks, ARGUMENT,
          "count is %" PRId64 ", expected 0 .. %" PRId64 " (blocks)", count, layout->blocks);
    PASS(tartan_i_numbers_check(__func__, "scores", scores, nscores));
    NEW(keep, nscores);
    tartan_i_select_largest(scores, nscores, count, keep);
    status = keep_blocks(__func__, layout, keep, out);
fail:
    tartan_i_free(keep);
    return status;
}

tartan_status tartan_layout_grow(const tartan_layout *layout, const tartan_places *places,
                                 tartan_layout **out) {
    tartan_status status;
    int64_t *positions, count;
    tartan_layout *grown = NULL;
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    const tartan_shape frame = tartan_i_layout_frame(layout);
    PASS(tartan_i_positions_of_places(__func__, &frame, layout->blocks, places, &positions, &count));
    tartan_i_layout_positions(layout, positions);
    TRY(tartan_i_layout_from_positions(__func__, &frame, positions, count, true, NULL, &grown));
    TRY(tartan_i_layout_take_bounds_of(__func__, grown, layout));
    *out = grown;
    grown = NULL;
fail:
    tartan_layout_free(grown);
    tartan_i_free(positions);
    return status;
}

/* Writes the new places to positions[ids[i]]; each id may move once. */
static tartan_status move_positions(const char *function, const tartan_layout *l, const int64_t *ids,
                                    const tartan_places *places, int64_t *positions) {
    tartan_status status;
    uint8_t *moved = NULL;
    NEW_ZEROED(moved, l->blocks);
    for (int64_t i = 0; i < places->count; i++) {
        const int64_t id = ids[i];
        if (moved[id]++)
            TRY(tartan_i_fail(TARTAN_ERR_LAYOUT, function,
                              "ids[%" PRId64 "] is %" PRId64 " again, expected each block to move once", i,
                              id));
        const int64_t head = places->heads != NULL ? places->heads[i] : tartan_i_layout_head(l, id);
        positions[id] = (head * l->grid_rows + places->rows[i]) * l->grid_cols + places->cols[i];
    }
    status = TARTAN_OK;
fail:
    tartan_i_free(moved);
    return status;
}

tartan_status tartan_layout_move(const tartan_layout *layout, const int64_t *ids, int64_t nids,
                                 const tartan_places *places, int64_t *out_sources, int64_t nout_sources,
                                 tartan_layout **out) {
    tartan_status status;
    int64_t *positions = NULL, *sources = NULL;
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    PASS(tartan_i_places_check(__func__, places, layout->shape.heads, layout->grid_rows, layout->grid_cols));
    CHECK_LIST(ids, places->count, "places");
    CHECK_LIST(out_sources, layout->blocks, "blocks");
    PASS(tartan_i_indices_check(__func__, "ids", ids, nids, layout->blocks));

    NEW(positions, layout->blocks);
    tartan_i_layout_positions(layout, positions);
    TRY(move_positions(__func__, layout, ids, places, positions));
    TRY(tartan_i_layout_from_positions(__func__, &layout->shape, positions, layout->blocks, false, &sources,
                                       out));
    if (layout->blocks > 0) memcpy(out_sources, sources, (size_t)layout->blocks * sizeof *sources);
fail:
    tartan_i_free(positions);
    tartan_i_free(sources);
    return status;
}

/* The new blocks [begin, end) that elements of old block i touch, on one side of the matrix. */
typedef struct span {
    int64_t begin, end;
} span;

static span covered(int64_t first, int64_t size, int64_t new_block) {
    return (span){first / new_block, (first + size - 1) / new_block + 1};
}
static span covered_rows(const tartan_layout *l, int64_t i, int64_t block) {
    return covered(tartan_i_row_begin(l, i), tartan_i_rows_of(l, i), block);
}
static span covered_cols(const tartan_layout *l, int64_t j, int64_t block) {
    return covered(tartan_i_col_begin(l, j), tartan_i_cols_of(l, j), block);
}

tartan_status tartan_layout_reblock(const tartan_layout *layout, int64_t block_rows, int64_t block_cols,
                                    tartan_layout **out) {
    tartan_status status;
    int64_t *positions = NULL, grid_rows, grid_cols, count = 0;
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    tartan_shape shape = layout->shape;
    shape.block_rows = block_rows;
    shape.block_cols = block_cols;
    PASS(tartan_i_shape_check(__func__, &shape, &grid_rows, &grid_cols));
    for (int64_t id = 0; id < layout->blocks; id++) {
        span r = covered_rows(layout, layout->block_rows[id], block_rows);
        span c = covered_cols(layout, layout->block_cols[id], block_cols);
        count += (r.end - r.begin) * (c.end - c.begin);
    }

    NEW(positions, count);
    int64_t *next = positions;
    for (int64_t id = 0; id < layout->blocks; id++) {
        int64_t head_line = tartan_i_layout_head(layout, id) * grid_rows;
        span r = covered_rows(layout, layout->block_rows[id], block_rows);
        span c = covered_cols(layout, layout->block_cols[id], block_cols);
        for (int64_t i = r.begin; i < r.end; i++)
            for (int64_t j = c.begin; j < c.end; j++) *next++ = (head_line + i) * grid_cols + j;
    }
    status = tartan_i_layout_from_positions(__func__, &shape, positions, count, true, NULL, out);
fail:
    tartan_i_free(positions);
    return status;
}
