/* SPDX-License-Identifier: Apache-2.0
 * Layouts from lists of positions. A position is one number, (head * grid_rows + block row) * grid_cols +
 * block column, so ascending positions are ascending block ids. The check of the frame guarantees that it fits in
 * 64 bits. */
#ifndef TARTAN_LAYOUT_POSITIONS_H
#define TARTAN_LAYOUT_POSITIONS_H

#include "layout/layout.h"

/* The layout of the blocks at `positions`, which are sorted in place and must lie inside the grid. A position that
 * occurs twice is an error, or counts once if `repeats`. *out_sources as in layout.h: the index of each block in
 * the list before sorting; only without repeats. */
tartan_status tartan_i_layout_from_positions(const char *function, const tartan_shape *shape,
                                             int64_t *positions, int64_t count, bool repeats,
                                             int64_t **out_sources, tartan_layout **out);

/* Checks places of blocks (see tartan_layout_from_coordinates) and converts them to positions, stored after the first
 * `room`, which the caller fills: *out_count positions in all, which the caller frees. */
tartan_status tartan_i_positions_of_places(const char *function, const tartan_shape *shape, int64_t room,
                                           const tartan_places *places, int64_t **out_positions,
                                           int64_t *out_count);

/* Writes the positions of all blocks of a layout, ascending, to out_positions [blocks]. */
void tartan_i_layout_positions(const tartan_layout *layout, int64_t *out_positions);

/* For each block of `to`, the block of `from` at the same position, or -1: a merge of the row lists of two layouts of
 * one frame. Returns how many blocks of `from` have a place in `to`. */
int64_t tartan_i_layout_match(const tartan_layout *to, const tartan_layout *from, int64_t *out_sources);

/* Sorts keys >= 0 in ascending order, stably; `ids` (or NULL) move with them. */
tartan_status tartan_i_sort(int64_t *keys, int64_t *ids, int64_t count);

/* Refuses NaN among numbers [count]. Errors: ARGUMENT. */
tartan_status tartan_i_numbers_check(const char *function, const char *name, const double *numbers,
                                     int64_t count);

/* Sets keep[i] = 1 for the `count` <= n largest of scores [n] (none NaN), 0 for the others; among equals the first
 * win. */
void tartan_i_select_largest(const double *scores, int64_t n, int64_t count, uint8_t *keep);

#endif
