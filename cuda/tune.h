/* SPDX-License-Identifier: Apache-2.0
 * Tuning: what each kernel is expected to reach, and the choices inside kernels. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_TUNE_H
#define TARTAN_CUDA_TUNE_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The useful rate expected of a kernel on a Hopper GPU, in TFLOP/s ---- */

typedef double tartan_cuda_rating(const void *problem);

/* problem: tartan_cuda_spmm */
tartan_cuda_rating tartan_cuda_spmm_plain_rate, tartan_cuda_spmm_gather_rate, tartan_cuda_spmm_simt_rate,
    tartan_cuda_spmm_mma_rate, tartan_cuda_spmm_wgmma_rate, tartan_cuda_spmm_swapped_rate,
    tartan_cuda_spmm_narrow_rate, tartan_cuda_spmm_few_rate, tartan_cuda_spmm_dense_rate;
/* problem: tartan_cuda_sddmm */
tartan_cuda_rating tartan_cuda_sddmm_plain_rate, tartan_cuda_sddmm_gather_rate, tartan_cuda_sddmm_mma_rate,
    tartan_cuda_sddmm_wgmma_rate;
/* problem: tartan_cuda_attention_forward */
tartan_cuda_rating tartan_cuda_attention_forward_plain_rate, tartan_cuda_attention_forward_wgmma_rate;
/* problem: tartan_cuda_attention_backward */
tartan_cuda_rating tartan_cuda_attention_backward_plain_rate, tartan_cuda_attention_backward_wgmma_rate,
    tartan_cuda_attention_backward_fused_rate;
/* problem: tartan_cuda_conv, except for depthwise filters, whose rate needs none */
tartan_cuda_rating tartan_cuda_conv_plain_rate, tartan_cuda_conv_depthwise_rate, tartan_cuda_conv_pieces_rate,
    tartan_cuda_conv_wgmma_rate, tartan_cuda_conv_few_rate, tartan_cuda_conv_dense_rate;
/* problem: tartan_cuda_conv_filter_gradient */
tartan_cuda_rating tartan_cuda_conv_filter_gradient_plain_rate, tartan_cuda_conv_filter_gradient_pieces_rate,
    tartan_cuda_conv_filter_gradient_mma_rate, tartan_cuda_conv_filter_gradient_few_rate,
    tartan_cuda_conv_filter_gradient_dense_rate, tartan_cuda_conv_filter_gradient_wgmma_rate;

/* ---- Inside both kernels that use wgmma ---- */

/* Blocks or sub-blocks of `edge` rows, and tiles of `rows` (64 or 128) rows of the sparse matrix, of which `group` lines of
 * `edge` rows are used. */
typedef struct tartan_cuda_tiling {
    int32_t edge, rows, group;
} tartan_cuda_tiling;

/* Whether a tensor map can describe a dense operand, whose batch entries have that stride; else it is copied first. */
bool tartan_cuda_is_mappable(const tartan_cuda_dense *d, int64_t heads, int64_t entries,
                             int64_t batch_stride);

/* ---- Inside the kernels of attention that use wgmma ---- */

/* Tiles of `rows` tokens of `heads` heads, all batch entries counted; each head has `lists` of them, with a list of blocks.
 * `slots` tiles are in work at a time. */
typedef struct tartan_cuda_attention_tiles {
    int32_t heads, slots, rows;
    bool adds;         /* to sums in memory: the kernel attention_backward_fused */
    bool equal;        /* all tiles take as long */
    double lists;      /* of a head */
    double entries;    /* of a head, on average */
    double longest;    /* entries of the longest list; 0: unknown */
    double columns;    /* blocks that a list could have */
    double head_bytes; /* that stream past the tiles of a head, and of their sums in memory */
} tartan_cuda_attention_tiles;

/* Gradients of keys and values, which are sums over the heads of queries that see a head of keys. */
typedef struct tartan_cuda_attention_keys {
    int32_t heads;       /* of queries that see a head of keys */
    int32_t slots;       /* tiles that are in work at a time */
    int32_t tile, teams; /* keys of a tile; tiles that an SM has in work */
    bool causal;
    double matrices; /* heads of keys, of all batch entries */
    double keys, queries, d;
} tartan_cuda_attention_keys;

/* The best number of parts, a divisor of `heads`, for the heads that see a head of keys. */
int32_t tartan_cuda_attention_key_parts(const tartan_cuda_attention_keys *t);

/* The number of heads whose tiles are handed out together, the longest of them first. */
int32_t tartan_cuda_attention_panel(const tartan_cuda_attention_tiles *t);

/* ---- Inside spmm_wgmma ---- */

/* The edge of the square blocks that it multiplies: the block's own if blocks are squares of 8, 16, 32, 64 or 128,
 * else the edge of sub-blocks so small that A is gathered; 0: edges are not multiples of 8. */
int32_t tartan_cuda_spmm_wgmma_edge(const tartan_cuda_spmm *p);

/* The blocks that it multiplies, and its tiles, of `rows` x 512 * 64 / rows results: 128 rows for blocks of 128, and for
 * smaller ones if neighbouring block rows have nearly the same columns, else 64. A tile takes `group` lines of blocks;
 * where sub-blocks of `edge` would leave tiles that begin inside of block rows, fewer than fit may pay: then tiles begin
 * where block rows do, and their last rows are empty. */
tartan_cuda_tiling tartan_cuda_spmm_tiling(const tartan_cuda_spmm *p);

/* Whether it first copies B with contiguous columns. The problem is in blocks of the tiling's edge. */
bool tartan_cuda_spmm_transposes(const tartan_cuda_spmm *p);

/* ---- Inside spmm_swapped ---- */

/* The rows of its products: the smallest of 80, 96, 112 and 128 that holds a block row; in tf32 as many as a block row has. */
int32_t tartan_cuda_spmm_swapped_rows(const tartan_cuda_spmm *p);

/* ---- Inside all kernels of products ---- */

/* What a product takes with any kernel besides its operations, in us. */
extern const double tartan_cuda_spmm_start_us;

/* What the epilogue of a tile takes, in k-steps of 128 bytes. */
extern const double tartan_cuda_spmm_epilogue;

/* ---- Inside spmm_narrow ---- */

/* The rows of a tile of C: 16 or 32. */
int32_t tartan_cuda_spmm_narrow_rows(const tartan_cuda_spmm *p);

/* Whether blocks are squares of 16, 32, 64 or 128 and none is ragged along k. */
bool tartan_cuda_spmm_narrow_tuned(const tartan_cuda_spmm *p);

/* How it reads B: 16 bytes at a time along n or along k, or element by element. */
enum { TARTAN_CUDA_ALONG_N, TARTAN_CUDA_ALONG_K, TARTAN_CUDA_SINGLY };

/* `padded`: the rows of B end at multiples of 16 bytes that may be read. */
int32_t tartan_cuda_spmm_narrow_reads(const tartan_cuda_spmm *p, bool padded);

/* Whether it first copies B, with lines that are padded, because it would have to read element by element. */
bool tartan_cuda_spmm_narrow_copies(const tartan_cuda_spmm *p);

/* ---- Inside spmm_gather and sddmm_gather ---- */

/* Whether they first copy dense operands that they would load element by element: with aligned lines, 16-bit operands also
 * transposed if need be. */
bool tartan_cuda_spmm_gather_copies(const tartan_cuda_spmm *p);
bool tartan_cuda_sddmm_gather_copies(const tartan_cuda_sddmm *p);

/* How many columns of a tile of sddmm_gather a block takes where columns of Y (and, with 16 bits, rows of X) are contiguous and
 * loaded as they lie, in aligned pieces of 16 bytes; 0: not so, or that would be more than 1.5 times the block. */
int32_t tartan_cuda_sddmm_places(const tartan_cuda_sddmm *p);

/* ---- Inside spmm_mma and sddmm_mma ---- */

/* Whether they first copy dense operands that are not aligned, which they would load a few bytes at a time. */
bool tartan_cuda_spmm_mma_copies(const tartan_cuda_spmm *p);
bool tartan_cuda_sddmm_mma_copies(const tartan_cuda_sddmm *p);

/* ---- Inside spmm_simt ---- */

/* Whether it first copies B, which it would load element by element, with lines that are padded. */
bool tartan_cuda_spmm_simt_copies(const tartan_cuda_spmm *p);

/* How many tiles of C along n, of `cols` columns each, are computed together, so that their columns of B stay in L2.
 * `by_columns`: B is column-major. */
int32_t tartan_cuda_spmm_near(const tartan_cuda_spmm *p, int32_t cols, bool by_columns);

/* ---- Inside sddmm_wgmma ---- */

/* Its tiles, of 64 x 512 or 128 x 256 results. Blocks that are not square or no powers of two are taken as slices of
 * `edge` rows; then tiles begin where block rows do, and have one or more of them. */
tartan_cuda_tiling tartan_cuda_sddmm_tiling(const tartan_cuda_sddmm *p);

/* How the columns of an entry lie in a tile: `pitch` from one entry to the next, at least the width of a block. Where
 * columns of Y are contiguous, they are loaded in boxes of `piece` columns, and what a box reads past the block is not
 * used; 0: the sum's index is contiguous, and a box is as wide as a block. */
typedef struct tartan_cuda_columns {
    int32_t width, pitch, piece;
} tartan_cuda_columns;
tartan_cuda_columns tartan_cuda_sddmm_columns(const tartan_cuda_sddmm *p);

/* The costs of its tiles. `rows` is 64 or 128; entries do not cross the 256 columns of a warpgroup. */
tartan_cuda_tile_form tartan_cuda_sddmm_form(int32_t rows, const tartan_cuda_columns *columns);

/* Whether CTAs take whole tiles, of the given number and total cost of a step; else their sums are split (stream_k.h). */
bool tartan_cuda_sddmm_whole(int64_t tiles, int64_t cost, int32_t width, int64_t steps, int32_t processors);

/* Whether it first copies Y, whose columns are contiguous, with k contiguous. */
bool tartan_cuda_sddmm_transposes(const tartan_cuda_sddmm *p, int64_t tiles, int32_t processors);

#ifdef __cplusplus
}
#endif
#endif
