/* SPDX-License-Identifier: Apache-2.0
 * Layouts from lists of positions. A position is one number, (head * grid_rows + block row) * grid_cols +
 * block column, so that ascending positions are ascending block ids; the frame's check makes sure that it
 * fits. */
#ifndef TARTAN_LAYOUT_POSITIONS_H
#define TARTAN_LAYOUT_POSITIONS_H

#include "layout/layout.h"

/* The layout of the blocks at `positions`, which are sorted in place and must lie inside the grid.
 * Positions that occur twice are an error, or where `repeats` are welcome count once. *out_sources as in
 * layout.h: the place in the list (before sorting) of each block; only without repeats. */
tartan_status tartan_i_layout_from_positions(const char *function, const tartan_shape *shape,
                                             int64_t *positions, int64_t count, bool repeats,
                                             int64_t **out_sources, tartan_layout **out);

/* Checks coordinate lists as tartan_layout_from_coordinates describes them and makes positions of them, after
 * `room` places for the caller to fill: *out_count positions in all, to be freed by the caller. */
tartan_status tartan_i_positions_of_coordinates(const char *function, const tartan_shape *shape, int64_t room,
                                                const int64_t *heads, int64_t nheads,
                                                const int64_t *block_rows, int64_t nblock_rows,
                                                const int64_t *block_cols, int64_t nblock_cols,
                                                int64_t **out_positions, int64_t *out_count);

/* Positions of all blocks of a layout, ascending, into out_positions [blocks]. */
void tartan_i_layout_positions(const tartan_layout *layout, int64_t *out_positions);

/* Sorts keys >= 0 ascending; `ids` (or NULL) move with them, equal keys keep their order. */
tartan_status tartan_i_sort(int64_t *keys, int64_t *ids, int64_t count);

/* Sets keep[i] = 1 for the `count` <= n largest of scores [n] (none NaN), the first ones among equals; else
 * 0. */
void tartan_i_select_largest(const double *scores, int64_t n, int64_t count, uint8_t *keep);

#endif
