/* SPDX-License-Identifier: Apache-2.0
 * Layouts that are derived from others: set algebra, permutations, slices, heads, pruning and growth, schedules of training, other block
 * sizes. Layouts never change, so each function makes a new one. *out holds one reference, NULL on failure.
 * Common errors: HANDLE, SHAPE (frames differ), ARGUMENT, LAYOUT, MEMORY. */
#ifndef TARTAN_LAYOUT_DERIVED_H
#define TARTAN_LAYOUT_DERIVED_H

#include "tartan/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

TARTAN_API tartan_status tartan_layout_transpose(const tartan_layout *layout, tartan_layout **out);
TARTAN_API tartan_status tartan_layout_union(const tartan_layout *a, const tartan_layout *b,
                                             tartan_layout **out);
TARTAN_API tartan_status tartan_layout_intersection(const tartan_layout *a, const tartan_layout *b,
                                                    tartan_layout **out);
/* The blocks of a that are not in b. */
TARTAN_API tartan_status tartan_layout_difference(const tartan_layout *a, const tartan_layout *b,
                                                  tartan_layout **out);

/* Block row i of the result is block row row_order[i], and block column j is col_order[j]. Each order is a permutation of 0 ..
 * grid-1, or NULL with length 0 to keep that side. A ragged edge must stay last. */
TARTAN_API tartan_status tartan_layout_permute(const tartan_layout *layout, const int64_t *row_order,
                                               int64_t nrow_order, const int64_t *col_order,
                                               int64_t ncol_order, tartan_layout **out);

/* Block rows row_begin .. row_end-1 and block columns col_begin .. col_end-1. */
TARTAN_API tartan_status tartan_layout_slice(const tartan_layout *layout, int64_t row_begin, int64_t row_end,
                                             int64_t col_begin, int64_t col_end, tartan_layout **out);

/* The first `rows` rows and `cols` columns (at most those of the layout). The cuts may fall inside blocks. */
TARTAN_API tartan_status tartan_layout_cut(const tartan_layout *layout, int64_t rows, int64_t cols,
                                           tartan_layout **out);

/* Head i of the result is head heads[i] of the layout. A head may appear any number of times. */
TARTAN_API tartan_status tartan_layout_take_heads(const tartan_layout *layout, const int64_t *heads,
                                                  int64_t nheads, tartan_layout **out);

/* The layout of a batch of padded sequences: entry b uses the first lengths[b] of the columns (keys) of `layout`. The result has the
 * heads of the first entry, then those of the second, ..., without blocks that hold only padding. tartan_block_mask_from_lengths
 * hides the other padding. */
TARTAN_API tartan_status tartan_layout_from_lengths(const tartan_layout *layout, const int64_t *lengths,
                                                    int64_t nlengths, tartan_layout **out);

/* The blocks whose gate is not 0; gates [blocks], none NaN. */
TARTAN_API tartan_status tartan_layout_prune(const tartan_layout *layout, const double *gates, int64_t ngates,
                                             tartan_layout **out);

/* The `count` blocks of largest score (scores [blocks], none NaN); ties go to the smaller block id. */
TARTAN_API tartan_status tartan_layout_keep_largest(const tartan_layout *layout, const double *scores,
                                                    int64_t nscores, int64_t count, tartan_layout **out);

/* Add the blocks at `places` of the grid; the layout may have some of them already. If heads is NULL, every head gets all of them. */
TARTAN_API tartan_status tartan_layout_grow(const tartan_layout *layout, const tartan_places *places,
                                            tartan_layout **out);

/* The layout after training step `step` (>= 0) of a schedule that drops and grows blocks: magnitude pruning, movement pruning or
 * RigL-like regrowth. If nothing changes, returns the same layout with another reference. tartan_matrix_project moves weights and the
 * optimiser's moments to the new layout: blocks that stay keep their values, new blocks are zeros. `scores` [blocks] rank the stored
 * blocks (by their norms, or by the accumulated scores of movement pruning; see tartan_gate_gradient). `growth` [heads, grid rows,
 * grid cols] ranks all positions of the grid (see tartan_growth_score), or is NULL. Neither may contain NaN. Ties go to the smaller
 * block id or position. `schedule` holds "name=value" words separated by blanks or commas (NULL: none):
 *     density=0.1    the density at step `end`; without it, the number of blocks does not change
 *     initial=1      the density at step `begin`
 *     curve=cubic    how the density moves from `initial` to `density`: cubic (in proportion to the cube of the
 *                    remaining steps), linear, cosine, or constant (at once). Without an end, the density is also
 *                    reached at once
 *     threshold=0.5  replaces the density: drops blocks whose score is below
 *     swap=0         the fraction of the remaining blocks, those of smallest score, to drop as well and replace: by
 *                    the positions of largest `growth` or, without `growth`, by random positions, which avoid blocks
 *                    just dropped as long as there are others
 *     decay=cosine   how `swap` falls to 0 at step `end`: cosine, linear, cubic or constant (no decay). Without an
 *                    end there is no decay
 *     begin=0 every=1 end=-1   blocks change at steps begin, begin + every, ... up to end; -1: no end. If a density
 *                    follows a curve, end must be one of these steps
 *     seed=0         the seed of random positions, which depend on it and on the step only
 * When the density rises, blocks grow as with `swap`. A block that is dropped and grown in the same step keeps its values.
 * Errors: also ARGUMENT (the schedule, NaN). Time is proportional to the grid if blocks grow, else to the number of blocks.
 * Sources: Zhu, Gupta, "To prune, or not to prune" (2017): the cubic curve; Evci et al., "Rigging the lottery" (2020): swap and its
 * decay. */
TARTAN_API tartan_status tartan_layout_evolve(const tartan_layout *layout, const double *scores,
                                              int64_t nscores, const double *growth, int64_t ngrowth,
                                              int64_t step, const char *schedule, tartan_layout **out);

/* Move block ids[i] to position i of `places`, all blocks at once. If heads is NULL, blocks stay in their heads. out_sources [blocks]
 * receives the old id of each block of the result. Errors: also LAYOUT (two blocks at one position). */
TARTAN_API tartan_status tartan_layout_move(const tartan_layout *layout, const int64_t *ids, int64_t nids,
                                            const tartan_places *places, int64_t *out_sources,
                                            int64_t nout_sources, tartan_layout **out);

/* The blocks of another block size that cover every stored block. */
TARTAN_API tartan_status tartan_layout_reblock(const tartan_layout *layout, int64_t block_rows,
                                               int64_t block_cols, tartan_layout **out);

#ifdef __cplusplus
}
#endif
#endif
