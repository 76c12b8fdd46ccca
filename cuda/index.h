/* SPDX-License-Identifier: Apache-2.0
 * Index sets in the form that kernels read, and how the host builds them from a layout. "Line" means block row, or
 * block column where an index is by columns. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_INDEX_H
#define TARTAN_CUDA_INDEX_H

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- In device memory ---- */

/* The blocks of every line. */
typedef struct tartan_cuda_row_index {
    const int32_t *pointers; /* [heads * lines + 1] */
    const int32_t
        *cols; /* [blocks] position in the line, ascending; the last pointer is the number of blocks */
    const int32_t *ids; /* [blocks] block ids, or NULL: entry i is block i */
} tartan_cuda_row_index;

/* Where the blocks of a variable layout begin: the lines, and the positions in a line; all NULL if their sizes do not differ. */
typedef struct tartan_cuda_bounds {
    const int32_t *lines;  /* [lines + 1] the first element of each line, and how many there are */
    const int32_t *cols;   /* [positions + 1] */
    const int32_t *before; /* [blocks] elements of the blocks before an entry in the list of its line */
} tartan_cuda_bounds;

/* Groups of `group` neighbouring lines of one head (the last group of a head may be short), each with the merged
 * list of the positions where any of its lines has a block. Entry e of group g (pointers[g] <= e < pointers[g + 1])
 * is position cols[e]; line r of the group has block ids[e * group + r] there, or -1 if it has none. `order` lists
 * the groups head by head, within a head the longest first, so that long ones start early. */
typedef struct tartan_cuda_group_index {
    int32_t group;
    int32_t groups_per_head;
    int64_t entries; /* of all heads; only a bound if the layout is dynamic, where the last pointer tells */
    int64_t longest; /* entries of the longest list; 0: unknown */
    const int32_t *pointers; /* [heads * groups_per_head + 1] */
    const int32_t *cols;     /* [entries] */
    const int32_t *ids;      /* [entries * group] */
    const int32_t *order;    /* [heads * groups_per_head] group numbers */
} tartan_cuda_group_index;

/* Merged lists cut into tiles of nearly equal length. */
typedef struct tartan_cuda_tile_index {
    int64_t count;
    const int64_t
        *costs; /* in host memory, [count + 1]: of one step of the sum, summed over all earlier tiles */
    const int32_t *values; /* in device memory, [count][4]: group, first entry, entry after the last, 0 */
} tartan_cuda_tile_index;

/* How a kernel cuts merged lists: at most `entries` a tile. A step of the sum costs base + each * (entries of the
 * tile), but no less than `least`. */
typedef struct tartan_cuda_tile_form {
    int32_t entries;
    int32_t base, each, least;
    bool by_column; /* tiles of a head in the order of their first columns, else of their groups */
} tartan_cuda_tile_form;

/* An in-block mask. */
typedef struct tartan_cuda_block_mask {
    const int32_t
        *words_of;        /* [blocks] position of a block's words in `bits`, or -1: all its elements count */
    const uint32_t *bits; /* [stored][block_rows][ceil(block_cols / 32)], or the other way round */
} tartan_cuda_block_mask;

/* ---- Built on the host, ready to be copied ---- */

/* One array of int32 that holds all lists one after another, each at a multiple of 128 bytes. The other members say
 * where each list starts in `values`. The caller frees `values` with host->free. */
typedef struct tartan_cuda_host_rows {
    int64_t pointers, cols, ids; /* ids is -1: entry i is block i */
    int64_t size;                /* of values */
    int32_t *values;
} tartan_cuda_host_rows;

typedef struct tartan_cuda_host_bounds {
    int64_t lines, cols, before, size; /* one list after another, without gaps */
    int32_t *values;
} tartan_cuda_host_bounds;

typedef struct tartan_cuda_host_groups {
    int32_t group, groups_per_head;
    int64_t entries, longest;
    int64_t pointers, cols, ids, order, size;
    int32_t *values;
} tartan_cuda_host_groups;

typedef struct tartan_cuda_host_block_mask {
    int64_t words_of, bits, size;
    int32_t *values;
} tartan_cuda_host_block_mask;

typedef struct tartan_cuda_host_tiles {
    int64_t count;
    int64_t *costs; /* as in tartan_cuda_tile_index; the caller frees both with host->free */
    int32_t *values;
} tartan_cuda_host_tiles;

/* The layout has fewer than 2^31 blocks. Errors: MEMORY. */
tartan_status tartan_cuda_index_rows(const tartan_host *host, const tartan_layout *layout, bool by_columns,
                                     tartan_cuda_host_rows *out);

/* Of a variable layout of fewer than 2^31 rows and columns. Errors: MEMORY. */
tartan_status tartan_cuda_index_bounds(const tartan_host *host, const tartan_layout *layout, bool by_columns,
                                       tartan_cuda_host_bounds *out);

/* The merged lists of groups of `group` (at least 1) neighbouring lines. Errors: MEMORY. */
tartan_status tartan_cuda_index_groups(const tartan_host *host, const tartan_layout *layout, bool by_columns,
                                       int32_t group, tartan_cuda_host_groups *out);

/* Sub-blocks of larger blocks, so that kernels for them serve any block whose edges are multiples of 8. `edge`, a power of
 * two, divides the edges of a block. The id of a sub-block is its address in the values, in units of `edge` elements; a
 * block has (its elements / edge) units. If blocks differ in size, all boundaries but the last are multiples of `edge`, and a
 * block has the sub-blocks inside it, whatever the kind. */
typedef enum tartan_cuda_sub_kind {
    TARTAN_CUDA_INSIDE,  /* squares of `edge`, without those outside of the matrix */
    TARTAN_CUDA_SQUARES, /* all squares */
    TARTAN_CUDA_SLICES,  /* `edge` rows of a block, all */
} tartan_cuda_sub_kind;
typedef struct tartan_cuda_sub_blocks {
    int32_t edge;
    int32_t line_stride, col_stride; /* inside a block, in elements; one of them is 1 */
    tartan_cuda_sub_kind kind;
} tartan_cuda_sub_blocks;

/* The largest edge up to 64 for blocks of rows x cols, or the edge of a square block of 8, 16, 32, 64 or 128 itself; 0 if
 * the edges are not multiples of 8. */
int32_t tartan_cuda_sub_edge(int32_t rows, int32_t cols);

/* The merged lists of groups of `group` neighbouring lines of sub-blocks. All ids are below 2^31. Errors: MEMORY. */
tartan_status tartan_cuda_index_sub_groups(const tartan_host *host, const tartan_layout *layout,
                                           bool by_columns, const tartan_cuda_sub_blocks *sub, int32_t group,
                                           tartan_cuda_host_groups *out);

/* Cuts merged lists, whose pointers and cols are in host memory here, into tiles, head by head. A head has `across`
 * positions in a line. Errors: MEMORY. */
tartan_status tartan_cuda_index_tiles(const tartan_host *host, const tartan_cuda_group_index *groups,
                                      int64_t heads, int64_t across, const tartan_cuda_tile_form *form,
                                      tartan_cuda_host_tiles *out);

/* An in-block mask. Transposed, its words are [stored][block_cols][ceil(block_rows / 32)]: bit i % 32 of word i / 32 of
 * row j is element (i, j). Errors: MEMORY. */
tartan_status tartan_cuda_index_block_mask(const tartan_host *host, const tartan_block_mask *mask,
                                           bool transposed, tartan_cuda_host_block_mask *out);

/* ---- What is counted of a layout, for the choice of kernels ---- */

enum { TARTAN_CUDA_SHARES = 5 }; /* groups of 1, 2, 4, 8, 16 lines */

typedef struct tartan_cuda_figures {
    /* [by_columns][i]: blocks per entry of the merged lists of 2^i lines; 1 without blocks */
    double share[2][TARTAN_CUDA_SHARES];
    /* For a variable layout: the largest edge of square sub-blocks, up to 64, of which all boundaries are multiples, 0 if it is
     * less than 8; and the elements of all blocks / the elements that they would have if all were as large as the largest. */
    int32_t edge;
    double filled;
} tartan_cuda_figures;

/* Sets `edge` and `filled`; for other layouts to 0 and 1. */
void tartan_cuda_bounds_figures(const tartan_layout *layout, tartan_cuda_figures *out);

/* Samples up to 1024 groups. For a dynamic layout: what a mask that fills its capacity is expected to have.
 * Errors: MEMORY (*out may be written in part). */
tartan_status tartan_cuda_figures_of(const tartan_host *host, const tartan_layout *layout,
                                     tartan_cuda_figures *out);

/* The same, counted on first use and kept in the layout as a plan. */
tartan_status tartan_cuda_figures_get(const tartan_host *host, const tartan_layout *layout,
                                      tartan_cuda_figures *out);

#ifdef __cplusplus
}
#endif
#endif
