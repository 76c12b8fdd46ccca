/* SPDX-License-Identifier: Apache-2.0
 * A layout says which blocks of a matrix exist. It is immutable and reference-counted; any number of matrices, threads and languages
 * may share it.
 *
 * The matrix has rows x cols elements in blocks of block_rows x block_cols. The grid has grid_rows = ceil(rows / block_rows) times
 * grid_cols = ceil(cols / block_cols) block positions; its last row and column may be ragged. Block rows and block columns are
 * numbered from 0. A block id is the position of a stored block in row-major order (head, block row, block column). Values are always
 * in this order.
 *
 * Dynamic layouts (tartan_layout_from_device_mask, see device.h) are an exception: a mask on a device determines their blocks, which
 * the host does not know. Functions that need the blocks refuse such a layout: they return UNSUPPORTED, or, if they return no status,
 * the value for a bad handle. tartan_layout_to_host converts a dynamic layout to an ordinary one.
 *
 * Variable layouts (tartan_layout_with_boundaries) are another exception: their blocks differ in size. Two lists say where block rows
 * and block columns begin, and block_rows and block_cols are the largest sizes. Values still have the shape [blocks, block_rows,
 * block_cols]. The elements of a block fill its first rows and columns; the rest is padding, as at a ragged edge: Tartan writes zeros
 * there and never reads it as data. CUDA supports products and arithmetic of such matrices. Functions whose documentation does not
 * mention variable layouts, and for which no rule follows from it, return UNSUPPORTED. */
#ifndef TARTAN_LAYOUT_H
#define TARTAN_LAYOUT_H

#include "tartan/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tartan_layout tartan_layout;

/* The frame of a layout: rows, cols >= 0; block_rows, block_cols 1 .. 256; heads 1 .. 2^20. The grid may have at most 2^31 - 1 block
 * rows and columns. */
typedef struct tartan_shape {
    int64_t rows;
    int64_t cols;
    int64_t block_rows;
    int64_t block_cols;
    int64_t heads;
} tartan_shape;

typedef enum tartan_norm {
    TARTAN_NORM_MAX = 1, /* largest absolute value */
    TARTAN_NORM_L1 = 2,
    TARTAN_NORM_L2 = 3,
} tartan_norm;

typedef enum tartan_block_numbering {
    TARTAN_BY_ROW = 0,
    TARTAN_BY_COLUMN = 1,
    TARTAN_BY_MORTON = 2, /* bits of row and column interleaved, the column in the even bits */
} tartan_block_numbering;

/* Positions of elements in a matrix, or of blocks in its grid, in any order: position i is in row rows[i] and column cols[i] of head
 * heads[i]. Each list has `count` numbers. */
typedef struct tartan_places {
    const int64_t *heads; /* NULL: head 0, unless a function says otherwise */
    const int64_t *rows;
    const int64_t *cols;
    int64_t count;
} tartan_places;

/* Compressed rows (CSR) of elements or blocks. The entries of row r have the columns indices[pointers[r]] .. indices[pointers[r + 1]
 * - 1], in any order. If by_column is not 0, compressed columns (CSC) that list their rows. */
typedef struct tartan_compressed {
    const int64_t *pointers; /* ascending from 0 to nindices */
    int64_t npointers;       /* rows + 1, or columns + 1 */
    const int64_t *indices;
    int64_t nindices;
    int32_t by_column;
} tartan_compressed;

/* ---- Creation. *out holds one reference, NULL on failure. ----
 * Common errors: HANDLE (NULL argument), ARGUMENT or SHAPE (the frame or a length), LAYOUT (an index out of range or a repeated
 * block), OVERFLOW, MEMORY. Index arrays are copied. tartan_shape_check checks a frame and makes nothing. */
TARTAN_API tartan_status tartan_shape_check(const tartan_shape *shape);

/* From a mask [heads, grid_rows, grid_cols], row-major; every non-zero byte is a block. */
TARTAN_API tartan_status tartan_layout_from_mask(const tartan_shape *shape, const uint8_t *mask,
                                                 int64_t nmask, tartan_layout **out);

/* From the positions of the blocks in the grid, each block once. If heads is NULL, every head has all these blocks. */
TARTAN_API tartan_status tartan_layout_from_coordinates(const tartan_shape *shape,
                                                        const tartan_places *places, tartan_layout **out);

/* From heads * grid_rows compressed rows of blocks. Errors: also ARGUMENT (by_column). */
TARTAN_API tartan_status tartan_layout_from_csr(const tartan_shape *shape, const tartan_compressed *lists,
                                                tartan_layout **out);

/* Packed sequences, for instance several texts one after another. The queries (rows) of sequence s are q_offsets[s] .. q_offsets[s +
 * 1] - 1 and its keys (columns) k_offsets[s] .. k_offsets[s + 1] - 1. Offsets ascend from 0 to rows and to cols; equal neighbours
 * make an empty sequence. k_offsets may be NULL with nk_offsets = 0, which means q_offsets. A query sees only keys of its own
 * sequence. Options ("name=value" separated by blanks or commas, or NULL) restrict this further:
 *     causal=1      only keys at or before its own position; default 0
 *     align=end     with causal=1: the last query of a sequence is at the position of its last key, as in chunked
 *                   prefill and decoding (default); align=start: the first query is at the position of the first key
 *     window=512    with causal=1: only the last 512 of these keys
 * The layout has every block in which a query sees a key, the same blocks for all heads. tartan_block_mask_from_sequences hides the
 * other elements of these blocks. Errors: also SHAPE (lengths), LAYOUT (offsets), ARGUMENT (options). Time is proportional to the
 * numbers of sequences, grid rows and stored blocks. */
TARTAN_API tartan_status tartan_layout_from_sequences(const tartan_shape *shape, const int64_t *q_offsets,
                                                      int64_t nq_offsets, const int64_t *k_offsets,
                                                      int64_t nk_offsets, const char *options,
                                                      tartan_layout **out);

/* The blocks that contain at least one of the elements at `places`, which may repeat. */
TARTAN_API tartan_status tartan_layout_from_entries(const tartan_shape *shape, const tartan_places *places,
                                                    tartan_layout **out);

/* The blocks of dense [rows, cols] ([heads, rows, cols] if heads > 1) that contain a non-zero or NaN. */
TARTAN_API tartan_status tartan_layout_from_dense(const tartan_shape *shape, const tartan_array *dense,
                                                  tartan_layout **out);

/* The round(density * grid) blocks of largest norm in each head. Ties go to the smaller block id; NaN counts as infinity. */
TARTAN_API tartan_status tartan_layout_from_dense_largest(const tartan_shape *shape,
                                                          const tartan_array *dense, double density,
                                                          int32_t norm, tartan_layout **out);

/* Return non-zero if the element (head, row, col) of the matrix counts. */
typedef int32_t (*tartan_keep)(void *user, int64_t head, int64_t row, int64_t col);

/* The blocks with at least one element for which `keep` returns non-zero. The calling thread calls it for the elements of each block
 * until one counts. */
TARTAN_API tartan_status tartan_layout_from_rule(const tartan_shape *shape, tartan_keep keep, void *user,
                                                 tartan_layout **out);

/* The same blocks of the grid with other boundaries: block row i has the rows row_bounds[i] .. row_bounds[i + 1] - 1, and block
 * column j the columns col_bounds[j] .. col_bounds[j + 1] - 1. Each list begins with 0 and ascends in steps of 1 .. 256; NULL with
 * length 0 keeps the boundaries of that side. To give any layout, such as a pattern, blocks of different sizes, create it in a frame
 * of grid_rows x grid_cols with blocks of 1 x 1 and then set the boundaries. If all blocks have one size, of which only the last may
 * be smaller, the result is an ordinary layout. It has no recipe. Errors: also LAYOUT (the boundaries), SHAPE (a length), UNSUPPORTED
 * (a dynamic layout). */
TARTAN_API tartan_status tartan_layout_with_boundaries(const tartan_layout *layout, const int64_t *row_bounds,
                                                       int64_t nrow_bounds, const int64_t *col_bounds,
                                                       int64_t ncol_bounds, tartan_layout **out);

/* The blocks of largest score in each block row of each head. Ties go to the smaller block column, NaN counts as infinity, and a
 * block of score -infinity is never chosen.
 *     counts  the largest number of blocks to choose: one number for all block rows, or one for each, [heads *
 *             grid_rows]; or NULL with ncounts = 0 for no limit
 *     top_p   chooses the fewest blocks whose softmax weights within the block row sum to at least top_p, above 0; 1:
 *             all
 *     scores  [heads, grid_rows, grid_cols], or [grid_rows, grid_cols] if heads is 1, of f64, f32, f16 or bf16, in
 *             host memory
 * tartan_layout_from_device_scores chooses on a device. Errors: also DTYPE, UNSUPPORTED (device memory). */
TARTAN_API tartan_status tartan_layout_from_scores(const tartan_shape *shape, const tartan_array *scores,
                                                   const int64_t *counts, int64_t ncounts, double top_p,
                                                   tartan_layout **out);

/* From a named pattern. `parameters` holds "name=value" pairs separated by blanks or commas. Parameters that are left out take their
 * defaults; "" or NULL means all defaults. Random patterns use Philox4x32-10 keyed by `seed` (>= 0), so a seed gives the same layout
 * on every machine and in every language. tartan_pattern_help describes the parameters. The layout keeps its recipe.
 * Errors: also NOT_FOUND (no such pattern), ARGUMENT (an unknown or invalid parameter; the text lists the known ones). */
TARTAN_API tartan_status tartan_layout_from_pattern(const tartan_shape *shape, const char *pattern,
                                                    const char *parameters, int64_t seed,
                                                    tartan_layout **out);

/* The known patterns: their number, the name of the i-th, and its help text: "what it is\nparameter=default: meaning\n...". Static
 * strings; NULL if i is out of range. */
TARTAN_API int32_t tartan_pattern_count(void);
TARTAN_API const char *tartan_pattern_name(int32_t i);
TARTAN_API const char *tartan_pattern_help(int32_t i);

/* Add a reference to the layout and return it; NULL is allowed and gives NULL. */
TARTAN_API tartan_layout *tartan_layout_retain(tartan_layout *layout);

/* Release a reference, from any thread at any time. The last release frees the layout. NULL is allowed. */
TARTAN_API void tartan_layout_free(tartan_layout *layout);

/* ---- Queries. Numbers are -1 for a bad handle. ---- */

TARTAN_API int64_t tartan_layout_rows(const tartan_layout *layout);
TARTAN_API int64_t tartan_layout_cols(const tartan_layout *layout);
TARTAN_API int64_t tartan_layout_block_rows(const tartan_layout *layout);
TARTAN_API int64_t tartan_layout_block_cols(const tartan_layout *layout);
TARTAN_API int64_t tartan_layout_heads(const tartan_layout *layout);
TARTAN_API int64_t tartan_layout_grid_rows(const tartan_layout *layout);
TARTAN_API int64_t tartan_layout_grid_cols(const tartan_layout *layout);
TARTAN_API int64_t tartan_layout_blocks(const tartan_layout *layout); /* stored blocks of all heads */

/* 1 for a dynamic layout, whose tartan_layout_blocks is its capacity; 0 for any other layout, -1 for a bad handle. */
TARTAN_API int32_t tartan_layout_is_dynamic(const tartan_layout *layout);

/* 1 for a layout whose blocks differ in size, 0 for any other layout, -1 for a bad handle. */
TARTAN_API int32_t tartan_layout_is_variable(const tartan_layout *layout);

/* Where block rows and block columns begin, and where the last ends: [grid_rows + 1] and [grid_cols + 1]. Also for layouts of one
 * block size. Errors: HANDLE, SHAPE (a length), UNSUPPORTED (a dynamic layout). */
TARTAN_API tartan_status tartan_layout_get_boundaries(const tartan_layout *layout, int64_t *out_row_bounds,
                                                      int64_t nout_row_bounds, int64_t *out_col_bounds,
                                                      int64_t nout_col_bounds);

/* The number of stored elements: the stored blocks without the padding of ragged edges and of smaller blocks. */
TARTAN_API int64_t tartan_layout_elements(const tartan_layout *layout);

/* Stored blocks / all blocks of the grid, 0 .. 1 (0 for an empty grid); -1 for a bad handle. */
TARTAN_API double tartan_layout_density(const tartan_layout *layout);

/* XXH3-128 over the canonical bytes (docs/file_format.md), as 32 lower-case hexadecimal digits. Equal layouts have equal identities,
 * in every language and release. Valid as long as the layout; NULL for a bad handle. */
TARTAN_API const char *tartan_layout_identity(const tartan_layout *layout);

/* How the layout was created, as JSON; "" if unknown. It is not part of the identity. Valid as long as the layout; NULL for a bad
 * handle. */
TARTAN_API const char *tartan_layout_recipe(const tartan_layout *layout);

/* 1 if both layouts have the same blocks in the same frame, 0 if not, -1 for a bad handle. A dynamic layout equals only itself. */
TARTAN_API int32_t tartan_layout_equal(const tartan_layout *a, const tartan_layout *b);

/* Row lists: row_pointers [heads * grid_rows + 1], block_cols [blocks]. Valid as long as the layout; NULL for a bad handle. */
TARTAN_API const int64_t *tartan_layout_row_pointers(const tartan_layout *layout);
TARTAN_API const int32_t *tartan_layout_col_indices(const tartan_layout *layout);

/* Copy the same lists. Errors of this and the following functions: HANDLE, SHAPE (a length). */
TARTAN_API tartan_status tartan_layout_get_row_lists(const tartan_layout *layout, int64_t *out_row_pointers,
                                                     int64_t nout_row_pointers, int64_t *out_block_cols,
                                                     int64_t nout_block_cols);

/* Column lists: col_pointers [heads * grid_cols + 1], block_rows and ids [blocks], ascending within a column. Errors: also MEMORY. */
TARTAN_API tartan_status tartan_layout_get_col_lists(const tartan_layout *layout, int64_t *out_col_pointers,
                                                     int64_t nout_col_pointers, int64_t *out_block_rows,
                                                     int64_t nout_block_rows, int64_t *out_ids,
                                                     int64_t nout_ids);

/* The head, block row and block column of every block id, each [blocks]. */
TARTAN_API tartan_status tartan_layout_get_coordinates(const tartan_layout *layout, int64_t *out_heads,
                                                       int64_t nout_heads, int64_t *out_block_rows,
                                                       int64_t nout_block_rows, int64_t *out_block_cols,
                                                       int64_t nout_block_cols);

/* The mask [heads, grid_rows, grid_cols], row-major, of zeros and ones. */
TARTAN_API tartan_status tartan_layout_get_mask(const tartan_layout *layout, uint8_t *out_mask,
                                                int64_t nout_mask);

/* The block id at each position of the grid, [count]; -1 where no block is stored. Errors: also LAYOUT (a position outside the grid).
 * */
TARTAN_API tartan_status tartan_layout_find(const tartan_layout *layout, const tartan_places *places,
                                            int64_t *out_ids, int64_t nout_ids);

/* The id of one block; -1 if it is not stored or outside the grid, or for a bad handle. */
TARTAN_API int64_t tartan_layout_block(const tartan_layout *layout, int64_t head, int64_t block_row,
                                       int64_t block_col);

/* Block ids in the order of another numbering (tartan_block_numbering), [blocks]: out_ids[i] is the id of the i-th block by row, by
 * column or by Morton code, head by head. Errors: also ARGUMENT, MEMORY. */
TARTAN_API tartan_status tartan_layout_number(const tartan_layout *layout, int32_t numbering,
                                              int64_t *out_ids, int64_t nout_ids);

/* The number of blocks in every block row, [heads * grid_rows]. */
TARTAN_API tartan_status tartan_layout_row_lengths(const tartan_layout *layout, int64_t *out_lengths,
                                                   int64_t nout_lengths);

/* Statistics of the row lengths: out_spread[4] = minimum, mean, maximum, population standard deviation. */
TARTAN_API tartan_status tartan_layout_row_spread(const tartan_layout *layout, double *out_spread,
                                                  int64_t nout_spread);

/* out_bandwidth[2]: the largest block row - block column and the largest block column - block row over all blocks; 0 if no block lies
 * on that side of the diagonal. */
TARTAN_API tartan_status tartan_layout_bandwidth(const tartan_layout *layout, int64_t *out_bandwidth,
                                                 int64_t nout_bandwidth);

/* Reach ("mix factor") of one head: out_reach[i] is the fraction (0 .. 1) of pairs (u, v) of block rows and block columns such that v
 * can be reached from u in 1 .. i + 1 steps. A step leads from a block row to a block column stored in it.
 * Errors: also SHAPE (grid not square), ARGUMENT (head), MEMORY. */
TARTAN_API tartan_status tartan_layout_reach(const tartan_layout *layout, int64_t head, double *out_reach,
                                             int64_t nout_reach);

/* Divide the heads * grid_rows block rows into nout_bounds - 1 ranges with nearly equal numbers of blocks. out_bounds ascends from 0
 * to heads * grid_rows. */
TARTAN_API tartan_status tartan_layout_partition(const tartan_layout *layout, int64_t *out_bounds,
                                                 int64_t nout_bounds);

/* Draw the layout as SVG, `pixels` (16 .. 4096) wide. Beyond 512 blocks per side, neighbouring blocks are merged and shaded by their
 * density. Heads are drawn side by side. The caller frees the text.
 * Errors: HANDLE, ARGUMENT, MEMORY. */
TARTAN_API tartan_status tartan_layout_svg(const tartan_layout *layout, int32_t pixels, char **out_text);

#ifdef __cplusplus
}
#endif
#endif
