/* SPDX-License-Identifier: Apache-2.0
 * The kernel table: what the CPU backend does with one strip of elements or one line of them. Portable C fills
 * every slot; better instruction sets overwrite slots. Each slot gives the same bits with every instruction set
 * for f32 and f64, because each result is one chain of fused multiply-adds in one order.
 *
 * A table serves one sum type, f32 or f64, called `real` here: elements behind void pointers are reals,
 * and offsets and strides count reals, except where a dtype is named. */
#ifndef TARTAN_KERNELS_KERNELS_H
#define TARTAN_KERNELS_KERNELS_H

#include "core/cpu.h"
#include "kernels/fused.h"
#include "kernels/norms.h"
#include "kernels/points.h"
#include "kernels/steps.h"
#include "kernels/updates.h"

#include <stdbool.h>

enum {
    TARTAN_I_STRIP_ROWS = 8,  /* a strip without tiles has 1 to 8 rows */
    TARTAN_I_MAX_VECTORS = 4, /* of a strip */
    TARTAN_I_MAX_LANES = 16,  /* of any instruction set */
    TARTAN_I_DTYPE_SLOTS = 7, /* slots indexed by tartan_dtype */
    /* Factors of products beside the dtypes: f32 as the sum of two or three bf16, whose products are added up but for the
     * smallest ones. See simd/parts.h. */
    TARTAN_I_BF16X3 = TARTAN_I_DTYPE_SLOTS,
    TARTAN_I_BF16X6,
    TARTAN_I_FACTOR_SLOTS,
    TARTAN_I_DOT_CHAINS = 16, /* partial sums of a dot product */
    TARTAN_I_PEAK_BYTES = 8 << 10,
};

/* Factors are counted in units: `group` elements that follow each other along the contracted index. A unit of a
 * kernel on reals is one of them; a kernel that multiplies pairs has two elements in a unit. Where elements are split into
 * parts, a row has the units of the first part, then of the second, ...; a stride counts units with all of their parts.
 *
 * One factor pair of a strip: units 0, 1, ... of the rows of the left factor meet rows b, b + 1, ... of the right. */
typedef struct tartan_i_term {
    const void *a; /* element (0, 0) of the left factor */
    int64_t b;     /* row of the right factor */
    int64_t k;     /* units in the chain, >= 0 */
} tartan_i_term;

/* Memory that is written soon, to fetch into cache meanwhile: `count` pieces of some bytes. */
typedef struct tartan_i_soon {
    const char *at;
    int64_t step, count, bytes;
} tartan_i_soon;

/* Lines of cache at steps, which are prefetched one by one; `at` can be read even if there are none. */
enum { TARTAN_I_STREAMS = 2 };
typedef struct tartan_i_stream {
    const char *at;
    int64_t step, count;
} tartan_i_stream;

/* What is used after a list of terms, for which the strips of a row of blocks share the prefetching, into a larger cache than the
 * first. While term i of the list is at work, each row of the strip prefetches `each` bytes of the right factor of terms[i],
 * if there is one (i < count), and `left`: its own row of the left factor. */
typedef struct tartan_i_after {
    const tartan_i_term *terms;
    int64_t count;
    const char *b;       /* rows of the right factor */
    int64_t b_row, each; /* in bytes */
    bool left;
} tartan_i_after;

typedef struct tartan_i_strip {
    int64_t row;          /* first row of the left factors */
    int64_t rows;         /* 1 to what the product's `rows` says */
    int64_t width;        /* a multiple of the product's lanes, up to `vectors` times that */
    int64_t a_row, a_col; /* strides of the left factor, in units */
    const void *b;        /* rows of `width` contiguous units */
    int64_t b_row;        /* stride between them, in units */
    void *sums;           /* rows x width reals */
    int64_t sums_row;
    bool first;         /* start at zero; else continue the chains that are in sums */
    tartan_i_soon soon; /* may be ignored */
    /* While a term is at work, factors of later terms are prefetched: the left factor ahead_a places further in the list and the
     * right factor ahead_b places further; and, into a larger cache than the first, the left factor ahead_far places further (0:
     * not). The list can be read that far behind its end. ahead_b = 0: nothing is prefetched. */
    int64_t ahead_a, ahead_b, ahead_far;
    /* What is used after the list. `again`: the list from its beginning, with rows of left factors from next_row on; else what
     * stands behind the list, with such rows. */
    bool again;
    int64_t next_row;
    /* Or NULL. Else a line of each stream (the first alone, if rows <= TARTAN_I_STRIP_ROWS / 2) is prefetched at each step, into a larger
     * cache than the first; the strip leaves them as far as they have come. Of the above only the right factor is, if ahead_b > 0. */
    tartan_i_stream *streams;
    const tartan_i_after *next; /* or NULL; instead of factors of later terms, where tuning.row_bytes > 0 */
    int64_t tile_rows,
        tile_units; /* where the product has tiles: `rows` and every `k` are multiples of them */
    /* Or NULL; work that a product of tiles does between terms, once for each, and others before each strip. */
    void (*meanwhile)(void *other);
    void *other;
} tartan_i_strip;

/* Kernels on reals for convolutions. One pair of factors of theirs. */
typedef struct tartan_i_pair {
    const void *a, *b; /* elements (0, 0) of the left and the right factor */
    int64_t k;         /* steps in the chain, >= 0 */
} tartan_i_pair;

/* A strip whose vectors lie anywhere: rows of the left factor, which are neighbours in memory, meet vectors of the right one
 * at places of their own, the same in all pairs and steps. */
enum { TARTAN_I_SPREAD_VECTORS = 6 };
typedef struct tartan_i_spread {
    int64_t row, rows;    /* first row of the left factor; 1 to TARTAN_I_STRIP_ROWS */
    int64_t vectors;      /* 1 to what tartan_i_spread_most says */
    int64_t a_col, b_row; /* from one step to the next */
    int64_t from[TARTAN_I_SPREAD_VECTORS], to[TARTAN_I_SPREAD_VECTORS]; /* vectors in b, in a row of sums */
    void *sums;
    int64_t sums_row;
    bool first; /* start at zero; else continue the chains that are in sums */
} tartan_i_spread;

/* A strip whose left factor has rows that begin a vector apart, where one step is the next real. */
enum { TARTAN_I_PACKED_ROWS = 14, TARTAN_I_PACKED_VECTORS = 2 };
typedef struct tartan_i_packed {
    int64_t row, rows; /* first row of the left factor; 1 to what tartan_i_packed_most says */
    int64_t vectors;   /* 1 to TARTAN_I_PACKED_VECTORS, contiguous in the right factor */
    int64_t b_first;   /* where they begin in the right factor */
    int64_t b_row;     /* from one step to the next */
    void *sums;
    int64_t sums_row;
    bool first;
} tartan_i_packed;

/* A strip of a sampled product: rows of the left factor meet pieces of the right one, vectors or halves of them, that lie anywhere.
 * The rows of a piece follow each other. */
enum {
    TARTAN_I_SAMPLED_VECTORS = 3,
    TARTAN_I_SAMPLED_AHEAD = 32 /* steps before their use that rows are prefetched, which need not exist */
};
typedef struct tartan_i_sampled {
    int64_t rows,
        vectors; /* 1 to what product.rows says of so many vectors, which are 1 to TARTAN_I_SAMPLED_VECTORS */
    bool halves; /* a piece is half a vector, and there are two for each vector; else it is one */
    const void *a;
    int64_t a_row, a_col, k; /* strides of the left factor; steps in the chain, >= 0 */
    struct {
        const void *b;
        void *sums;
    } pieces[2 * TARTAN_I_SAMPLED_VECTORS];
    int64_t sums_row;
    bool first; /* start at zero; else continue the chains that are in sums */
} tartan_i_sampled;

/* Gradients of depthwise filters: the sums over `rows` x `cols` positions of the left image, each of n channels, times what a tap meets
 * in the right one, for `tap_rows` rows of `taps` taps. Positions of the right image outside of `height` x `width` count as zeros. Steps
 * of images are in elements, of positions and taps in positions of the right image. */
enum { TARTAN_I_SUMS_TOGETHER = 16 }; /* channels */
typedef struct tartan_i_tap_gradient {
    int64_t n, rows, cols, tap_rows, taps;
    int32_t dtype; /* of both images: that of reals, or of 16 bits (with f32) */
    const void *a, *b;
    int64_t a_row, a_col;
    int64_t b_row, b_col, height, width;
    int64_t first_row, first_col; /* where the first tap meets the first position */
    int64_t row_step, col_step;   /* from one position to the next */
    int64_t row_tap, tap_step;    /* from one tap to the next */
    const void *zeros;            /* n elements */
    /* A tap's sums of some channels are together, those of the next tap come next, then the next row of taps and the next channels. */
    void *sums;
    int64_t sums_row, sums_group;
} tartan_i_tap_gradient;

/* Depthwise convolutions: a line of `count` positions with n channels each. Elements of x and of `out` are reals or have 16 bits (with f32),
 * weights are reals. */
typedef struct tartan_i_tap_line {
    int64_t n, count;
    int64_t weights_step; /* from one tap to the next */
    int64_t step,
        stride; /* from one position of x to the next; positions of x from one position, or tap, to the next */
    const void *zeros; /* n elements of x */
    int32_t in_dtype, out_dtype;
    void *out;
    int64_t out_row;
} tartan_i_tap_line;

/* The taps in a row of x, which has `width` positions and counts as zero elsewhere. */
typedef struct tartan_i_tap_row {
    const void *weights, *row;
    int64_t width, first, taps; /* first: where the first tap meets position 0 */
} tartan_i_tap_row;

/* Depthwise convolutions of one channel, whose rows are contiguous. plane_pack copies what there is of a part of x to a box, with zeros
 * around it; it may write a vector behind the box. plane_products makes `rows` x `cols` results from it, which may be less. */
typedef struct tartan_i_plane {
    const void *x; /* of row row_begin and column col_begin of the box */
    int32_t in_dtype, out_dtype;
    int64_t x_row, row_begin, row_end, col_begin, col_end; /* what there is of the box */
    void *box;                                             /* [box_rows][box_cols] reals */
    int64_t box_rows, box_cols;

    int64_t rows, cols, tap_rows, tap_cols;
    const void *weights; /* [tap_rows][tap_cols] reals */
    const void *first;   /* which element of the box the first tap meets at the first result */
    int64_t step,
        col_step; /* in the box, from one row of results, or of taps, to the next; from one tap of a row to the next */
    void *out;
    int64_t out_row;
    bool scaled, bias_first, relu;
    double gain, bias;
} tartan_i_plane;

/* Lists of blocks of op(A) times one vector. */
typedef struct tartan_i_list_product {
    const int64_t *pointers,
        *ids; /* row lists of op(A): blocks of row i are at pointers[i] ..; ids, or NULL: the positions */
    const int32_t *others; /* block columns */
    int64_t begin, end;    /* block rows */
    int64_t out_block, in_block, out_size,
        in_size;                           /* rows and columns of op(A), whose last blocks may have fewer */
    const int64_t *out_bounds, *in_bounds; /* where blocks of different sizes begin; NULL: all are of one */
    int64_t a_row, a_col, block_elements;  /* of a block, as op(A) has it */
    const void *values, *x;
    int64_t x_step;
    void *sums; /* of the rows of blocks from `begin` on */
    int64_t
        vectors; /* for list_columns: columns of x and of sums, which are contiguous there, in vectors of `lanes` */
    int64_t sums_row; /* and the stride between rows of sums */
} tartan_i_list_product;

/* A line of blocks of A times the blocks of B that they meet, for small blocks. Blocks are contiguous; all of them are row-major,
 * or all column-major. */
typedef struct tartan_i_line_product {
    bool by_row;
    int64_t rows, depth, cols;      /* a block of A is rows x depth, one of B depth x cols */
    int64_t begin, end;             /* blocks of A */
    const int32_t *a_cols, *b_cols; /* [blocks] block columns */
    const int64_t *b_pointers;      /* blocks of line k of B are at b_pointers[k] .. */
    int64_t last, last_depth;       /* the last column of blocks of A has so many columns */
    const void *a, *b;              /* [blocks] of each */
    const int64_t *places;          /* for a block column of B, the number of its block in `sums` */
    void *sums;                     /* blocks of rows x cols, whose chains continue */
} tartan_i_line_product;

/* Tuning, as data. */
typedef struct tartan_i_tuning {
    int64_t panel_bytes;   /* spmm: packed part of B that one worker goes through at a time */
    int64_t sampled_bytes; /* sddmm: packed part of Y */
    int64_t strip_bytes;   /* of both factors that the strips of a row of blocks share; 0: all of the row */
    int64_t
        row_bytes; /* spmm: of blocks of a row and of B that stay in L2 while the rest of B goes by; 0: B stays, A goes by */
    int64_t direct_reuse; /* a row-major dense operand is packed only if its elements are read more often */
    int64_t depth; /* sddmm: elements of the contracted index done on one block before its next strip */
    double speed;  /* products a second, about, relative to f32 */
} tartan_i_tuning;

/* Softmax along columns, backward: weights = exp(scale * x - lse[j]) and ds = weights * (dp - delta[j]) for rows of x and
 * dp, 0 for elements that do not count, all rounded to nearest even. */
typedef struct tartan_i_grade {
    int64_t rows, cols; /* an even number, a multiple of the lanes */
    double scale;
    const float *x, *dp;
    int64_t x_row; /* of both */
    const uint32_t *mask;
    int64_t mask_row;
    const float *lse, *delta;
    uint16_t *weights, *ds;
    int64_t half_row; /* of both */
    uint32_t *pairs;  /* ds again, row i of rows 2 i and 2 i + 1; its rows have `cols` */
} tartan_i_grade;

/* A stage of attention where products use tiles: spans of SPAN keys against a strip of SPAN queries, everything transposed,
 * with d a multiple of SPAN. Three things are done at once, since tiles multiply while vectors compute:
 *   scores[i] = K Q^T of a span, [SPAN][SPAN], for i < spans_scored;
 *   weights = exp(scale * weighed[i] - shift[j]) of a span, for i < spans_weighed, as rows of pairs, [SPAN / 2][SPAN] for each
 *   span, rounded to nearest (half up); total[j] += their sum before rounding;
 *   sums (+)= V^T times rows of pairs, [d][SPAN], over spans_added spans.
 * scores[i] may be weighed[i + 1], or weighed[i - 1]. Tiles of factors are contiguous: of K 16 keys x 16 pairs of d,
 * [d / 32][2] of them for a span; of V^T 16 of d x 16 pairs of keys, [d / 16] of them. */
enum { TARTAN_I_SPAN = 32 };
typedef struct tartan_i_stage {
    int64_t d;
    const uint32_t *queries; /* Q^T: [d / 2][SPAN] */

    int64_t spans_scored;
    const char *const *keys;
    float *const *scores;

    int64_t spans_weighed;
    const float *const *weighed;
    double scale;
    const float *shift;
    float *total;
    uint32_t *weights;

    int64_t spans_added;
    const char *const *values;
    const uint32_t *pairs;
    float *sums;
    bool first; /* start sums at zero */
} tartan_i_stage;

/* A product kernel. */
typedef struct tartan_i_product {
    tartan_i_cpu_features uses;         /* its instruction set */
    int32_t factor;                     /* dtype of both factors as it reads them, or TARTAN_I_BF16X3, ... */
    int64_t parts;                      /* of an element; 1: factors are multiplied as they are */
    int64_t group, bytes;               /* elements of a unit, and its bytes with all parts */
    int64_t lanes, vectors;             /* columns of a vector, and the most vectors of a strip */
    int64_t rows[TARTAN_I_MAX_VECTORS]; /* best rows of a strip of 1, 2, ... vectors */
    int64_t most_tile_rows, most_tile_units; /* of a tile; 0: there are no tiles */
    tartan_i_tuning tuning;

    /* sums[i][j] (+)= a[i][0] * b[0][j] + a[i][1] * b[1][j] + ..., term after term, unit after unit. On reals each
     * step is one fma, on pairs as the instruction adds them. */
    void (*strip)(const tartan_i_strip *strip, const tartan_i_term *terms, int64_t nterms);

    /* Before and after strips on a thread, where there are tiles: every strip between them has this shape. NULL:
     * nothing to do. */
    void (*begin)(int64_t tile_rows, int64_t tile_units);
    void (*end)(void);

    /* Where a unit is a pair: out[i] = (even[i], odd[i]). */
    void (*pair)(int64_t n, const void *even, const void *odd, void *out);
    /* There, out[j][i] = in[i][j] of rows x cols 16-bit numbers; strides in numbers. */
    void (*turn)(int64_t rows, int64_t cols, const void *in, int64_t in_row, void *out, int64_t out_row);

    /* Where elements are split: out[p * step + i] = part p of (even[i], odd[i]), or of (in[2 i], in[2 i + 1]), whose n elements
     * are followed by a zero if n is odd. */
    void (*split_rows)(int64_t n, const float *even, const float *odd, uint32_t *out, int64_t step);
    void (*split_row)(int64_t n, const float *in, uint32_t *out, int64_t step);

    /* There, whether all sums of a strip are finite: if not, what is added up is not what the factors say (infinity times a part
     * that is zero is NaN), and the sums have to be computed from the factors themselves. */
    bool (*finite)(int64_t rows, int64_t n, const float *sums, int64_t sums_row);

    /* Where a unit is a pair, softmax along columns. Rows of x have x_row reals and rows of masks mask_row words, as in
     * a tartan_block_mask (NULL: all elements count); `cols` is a multiple of the lanes.
     *   columns_max     most[j] = the largest of most[j] and column j; NaNs are passed over
     *   columns_weigh   row i of pairs = exp(scale * x - shift[j]) of rows 2 i and 2 i + 1, rounded to nearest even, 0 for
     *                   elements that do not count; total[j] += the sum of column j before rounding. `rows` is even
     *   columns_scale   x[i][j] *= factors[j] */
    void (*columns_max)(int64_t rows, int64_t cols, const float *x, int64_t x_row, const uint32_t *mask,
                        int64_t mask_row, float *most);
    void (*columns_weigh)(int64_t rows, int64_t cols, double scale, const float *x, int64_t x_row,
                          const uint32_t *mask, int64_t mask_row, const float *shift, float *total,
                          uint32_t *out);
    void (*columns_scale)(int64_t rows, int64_t cols, float *x, int64_t x_row, const float *factors);
    void (*columns_grade)(const tartan_i_grade *grade);

    /* Where there are tiles, between begin(16, 16) and end. */
    void (*stage)(const tartan_i_stage *stage);

    /* Where there are stages: rows of up to SPAN tokens, of d contiguous numbers each, as tiles of K, tiles of V^T and Q^T;
     * rows that are missing become zeros. */
    void (*span_keys)(int64_t tokens, int64_t d, const uint16_t *in, int64_t in_row, void *tiles);
    void (*span_values)(int64_t tokens, int64_t d, const uint16_t *in, int64_t in_row, void *tiles);
    void (*span_queries)(int64_t tokens, int64_t d, const uint16_t *in, int64_t in_row, uint32_t *out);

    /* And back: out[q][t] = sums[t][q] * factors[q], rounded to nearest even. */
    void (*span_store)(int64_t tokens, int64_t d, const float *sums, const float *factors, uint16_t *out,
                       int64_t out_row);

    /* `rounds` rounds of independent products held in registers; returns the floating-point operations done.
     * `sink`: TARTAN_I_PEAK_BYTES, read and written. */
    int64_t (*peak)(int64_t rounds, void *sink);
} tartan_i_product;

typedef struct tartan_i_kernels {
    tartan_i_cpu_features uses; /* instruction sets of all kernels in the table; 0 for portable C alone */
    int32_t dtype;              /* of real: TARTAN_F32 or TARTAN_F64 */
    int64_t bytes;              /* of a real */
    tartan_i_product product;   /* for the factors that the table was asked for, or for reals made of them */

    /* Products on reals, with the chains of `product.strip`: the reals of a vector and how many vectors the registers hold.
     * Strips of vectors that lie anywhere, and the best rows of one; strips of a packed left factor. */
    int64_t lanes, registers;
    int64_t spread_rows;
    void (*spread)(const tartan_i_spread *strip, const tartan_i_pair *pairs, int64_t npairs);
    void (*packed)(const tartan_i_packed *strip, const tartan_i_pair *pairs, int64_t npairs);
    void (*sampled)(const tartan_i_sampled *strip);

    /* Copies rows of whole vectors from memory: out[i * out_row + v * out_vector + lane] = in[i * in_row + v * lanes + lane]. */
    void (*copy_rows)(int64_t rows, int64_t vectors, const void *in, int64_t in_row, void *out,
                      int64_t out_row, int64_t out_vector);

    /* out[j][i] = in[i][j]. */
    void (*transpose)(int64_t rows, int64_t cols, const void *in, int64_t in_row, void *out, int64_t out_row);

    /* Rows of n elements of a dtype: c[i] = alpha * sums[i], or fma(beta, c[i], alpha * sums[i]) where beta is not 0,
     * in reals, rounded once. c is not read where beta is 0. NULL for dtypes that have no `store`. */
    void (*commit[TARTAN_I_DTYPE_SLOTS])(int64_t rows, int64_t n, double alpha, const void *sums,
                                         int64_t sums_row, double beta, void *c, int64_t c_row);

    /* out[i] = factor * in[i]. */
    void (*scale)(int64_t n, double factor, const void *in, void *out);

    /* Sum of x[i] * y[i]: TARTAN_I_DOT_CHAINS chains, of i modulo that number, then added pairwise by halves. */
    double (*dot)(int64_t n, const void *x, const void *y);

    /* Rows, for softmax and norms. Element i belongs to chain i modulo TARTAN_I_DOT_CHAINS, and the chains meet
     * by halves, as in dot. Where there is a mask, element i counts if bit i % 32 of word i / 32 is set, as in a
     * row of a tartan_block_mask; NULL: all do. Elements that do not count may hold anything. */

    /* The largest element, or -infinity; NaNs are passed over. */
    double (*row_max)(int64_t n, const void *x, const uint32_t *mask);

    /* out[i] = exp(scale * x[i] - shift), rounded before exp once, or 0 where the element does not count; returns
     * their sum. `out` may be x. docs/numerics.md states the error of exp. */
    double (*row_exp_sum)(int64_t n, double scale, const void *x, double shift, const uint32_t *mask,
                          void *out);

    /* out[i] = w[i] * (x[i] - shift), or 0 where the element does not count: the gradient of softmax with weights w.
     * `out` may be w or x. */
    void (*row_gradient)(int64_t n, const void *w, const void *x, double shift, const uint32_t *mask,
                         void *out);

    /* Sums of x[i] and of (x[i] - shift)^2. */
    double (*row_sum)(int64_t n, const void *x);
    double (*row_square_sum)(int64_t n, const void *x, double shift);

    /* Writes the places of the elements that are above `limit`, or NaN, to `out`, which has room for n, in ascending order; returns how
     * many these are. */
    int64_t (*row_above)(int64_t n, const void *x, const uint32_t *mask, double limit, int32_t *out);

    /* Element-wise functions; lines of norms and steps of matrices, which are computed in f64: NULL in tables of f32. */
    const tartan_i_point1_kernels *point1; /* [TARTAN_I_POINT1_ROWS] */
    const tartan_i_point2_kernels *point2; /* [TARTAN_I_POINT2_ROWS] */
    const tartan_i_fused_kernel *fused;    /* [TARTAN_I_FUSED_ROWS] */
    const tartan_i_update_kernels *updates;
    const tartan_i_line_kernels *lines; /* one for f32 and one for f64 elements */
    const tartan_i_step_kernels *steps;

    /* Random numbers `first` and following, as reals. */
    void (*draw)(const tartan_i_drawing *of, uint64_t first, int64_t n, void *out);

    /* A line of a depthwise convolution: each result is one chain of fma(weight, element, sum) over the taps of all rows. */
    void (*tap_products)(const tartan_i_tap_line *line, const tartan_i_tap_row *rows, int64_t nrows);
    void (*plane_pack)(const tartan_i_plane *plane);
    void (*plane_products)(const tartan_i_plane *plane);

    /* Each sum is one chain of fused multiply-adds, in the order of the list and of the columns of a block. */
    void (*list_products)(const tartan_i_list_product *p);

    /* The same times several columns. */
    void (*list_columns)(const tartan_i_list_product *p);

    /* The same times half a vector of columns, of blocks whose rows are contiguous. NULL where that gains nothing. */
    void (*list_halves)(const tartan_i_list_product *p);

    /* The same: each sum goes on with the blocks of A in their order, and with the columns of a block. */
    void (*line_products)(const tartan_i_line_product *p);

    /* Each sum goes on as one chain of fma(left, right, sum), position after position and row after row. */
    void (*tap_gradients)(const tartan_i_tap_gradient *g);

    /* Contiguous elements of a dtype to reals and back, rounding to nearest even. NULL for dtypes whose sum
     * type is another; a table of f32 serves f32, f16 and bf16, and loads the 8-bit types. */
    void (*load[TARTAN_I_DTYPE_SLOTS])(int64_t n, const void *in, void *out);
    void (*store[TARTAN_I_DTYPE_SLOTS])(int64_t n, const void *in, void *out);
} tartan_i_kernels;

/* The most vectors that a strip of `rows` rows may have: sums, one row of vectors and one factor are in registers. */
static inline int64_t tartan_i_spread_most(const tartan_i_kernels *k, int64_t rows) {
    const int64_t fit = (k->registers - 1) / (rows + 1), most = TARTAN_I_SPREAD_VECTORS;
    return fit < most ? fit : most;
}

/* The most rows of a packed strip of `vectors` vectors. */
static inline int64_t tartan_i_packed_most(const tartan_i_kernels *k, int64_t vectors) {
    const int64_t fit = (k->registers - 1 - vectors) / vectors, most = TARTAN_I_PACKED_ROWS;
    return fit < most ? fit : most;
}

/* Fills the table for factors of `dtype`, or TARTAN_I_BF16X3, ..., with the best kernels that need no more than `features`,
 * which the CPU must have. */
void tartan_i_kernels_fill(tartan_i_cpu_features features, int32_t dtype, tartan_i_kernels *out);

/* Instruction sets for which this build has kernels. */
tartan_i_cpu_features tartan_i_kernels_known(void);

/* Those with kernels for factors of `dtype` or, failing that, of the type of its sums. */
tartan_i_cpu_features tartan_i_kernels_known_for(int32_t dtype);

/* The measured rate of `peak`, best of about 50 ms, in 1e9 operations a second. */
double tartan_i_product_peak(const tartan_i_product *product);

/* What each instruction set puts into the slots. */
void tartan_i_kernels_c_32(tartan_i_kernels *kernels);
void tartan_i_kernels_c_64(tartan_i_kernels *kernels);
void tartan_i_kernels_avx2_32(tartan_i_kernels *kernels);
void tartan_i_kernels_avx2_64(tartan_i_kernels *kernels);
void tartan_i_kernels_avx512_32(tartan_i_kernels *kernels);
void tartan_i_kernels_avx512_64(tartan_i_kernels *kernels);
void tartan_i_kernels_neon_32(tartan_i_kernels *kernels);
void tartan_i_kernels_neon_64(tartan_i_kernels *kernels);
void tartan_i_kernels_avx512bf16_32(tartan_i_kernels *kernels); /* products of bf16 alone */
void tartan_i_kernels_amx_32(tartan_i_kernels *kernels);        /* the same */
void tartan_i_kernels_c_bf16x3(tartan_i_kernels *kernels);      /* products of parts alone */
void tartan_i_kernels_c_bf16x6(tartan_i_kernels *kernels);
void tartan_i_kernels_amx_bf16x3(tartan_i_kernels *kernels);
void tartan_i_kernels_amx_bf16x6(tartan_i_kernels *kernels);

#endif
