/* SPDX-License-Identifier: Apache-2.0
 * Lists of blocks times one vector, and lines of small blocks times blocks.
 *
 * One vector: each row of a block is a chain, and there is only one column to fill lanes with. Where blocks have enough
 * rows, lanes are rows, for which tiles of row-major blocks are transposed in registers; else the steps are scalar.
 *
 * Compiled once for each instruction set, portable C among them, and sum type. */
#include "kernels/lists.h"
#include "simd/simd.h"

#include <stddef.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = 8 };                /* chains at once */
enum { LINE = 64, AHEAD = 2048 }; /* bytes that are prefetched at once, and how long before their use */

/* The columns of block column j of op(A), and the first of them; `cols` of the largest. */
INLINE int64_t columns_of(const bool even, const int64_t cols, const tartan_i_list_product *p, int64_t j,
                          int64_t *first) {
    if (!even && p->in_bounds != NULL) {
        *first = p->in_bounds[j];
        return p->in_bounds[j + 1] - *first;
    }
    *first = j * cols;
    return p->in_size - *first < cols ? p->in_size - *first : cols;
}

/* Where the sums of a block row are. */
INLINE real *sums_of(const bool even, const tartan_i_list_product *p, int64_t line) {
    if (!even && p->out_bounds != NULL)
        return (real *)p->sums + (p->out_bounds[line] - p->out_bounds[p->begin]);
    return (real *)p->sums + (line - p->begin) * p->out_block;
}

/* `rows` rows from `first` on of each block row, where blocks, but for the last ones, have `cols` columns. All of it is
 * inlined, so that the callers' constants are constants here. */
INLINE void chains(const bool even, const int rows, const int64_t cols, const int64_t a_row,
                   const int64_t a_col, const int64_t x_step, const tartan_i_list_product *p, int64_t line,
                   int64_t first) {
    real sums[ROWS] = {0};
    const int64_t bytes = rows * cols * (int64_t)sizeof(real), last = p->pointers[p->end] - 1;
    for (int64_t at = p->pointers[line]; at < p->pointers[line + 1]; at++) {
        int64_t from;
        if (even && bytes >= 8 * LINE) { /* else the hardware keeps up */
            const int64_t then = at + AHEAD / bytes < last ? at + AHEAD / bytes : last;
            const char *next = (const char *)((const real *)p->values +
                                              (p->ids != NULL ? p->ids[then] : then) * p->block_elements);
#pragma GCC unroll 8
            for (int64_t i = 0; i < bytes; i += LINE) vec_prefetch(next + i);
        }
        const int64_t id = p->ids != NULL ? p->ids[at] : at,
                      there = columns_of(even, cols, p, p->others[at], &from);
        const real *a = (const real *)p->values + id * p->block_elements + first * a_row;
        const real *x = (const real *)p->x + from * x_step;
        if (there == cols) {
            for (int64_t k = 0; k < cols; k++)
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++)
                    sums[i] = REAL_FMA(a[i * a_row + k * a_col], x[k * x_step], sums[i]);
        } else {
            for (int64_t k = 0; k < there; k++)
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++)
                    sums[i] = REAL_FMA(a[i * a_row + k * a_col], x[k * x_step], sums[i]);
        }
    }
    real *out = sums_of(even, p, line) + first;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) out[i] = sums[i];
}

typedef void (*lines)(const tartan_i_list_product *p, int64_t line, int64_t first);

/* SINGLES block rows of one row each, side by side: a chain alone would wait for its own sums. Blocks have `width` columns, but for
 * those of the last block column, which end their rows, as lists ascend; their elements follow each other in either order. */
enum { SINGLES = 4 };
INLINE void singles(const bool ids, const int64_t width, const int64_t step, const tartan_i_list_product *p,
                    int64_t line) {
    const real *values = p->values, *x = p->x;
    const int64_t whole = p->in_size / width;
    real sums[SINGLES] = {0};
    int64_t begin[SINGLES], least = INT64_MAX;
    for (int i = 0; i < SINGLES; i++) {
        begin[i] = p->pointers[line + i];
        int64_t count = p->pointers[line + i + 1] - begin[i];
        if (width > 1 && count > 0 && p->others[begin[i] + count - 1] >= whole) count--;
        if (count < least) least = count;
    }
    for (int64_t at = 0; at < least; at++) {
        const real *a[SINGLES], *b[SINGLES];
#pragma GCC unroll 4
        for (int i = 0; i < SINGLES; i++) {
            const int64_t here = begin[i] + at;
            a[i] = values + (ids ? p->ids[here] : here) * width;
            b[i] = x + p->others[here] * width * step;
        }
        for (int64_t k = 0; k < width; k++)
#pragma GCC unroll 4
            for (int i = 0; i < SINGLES; i++) sums[i] = REAL_FMA(a[i][k], b[i][k * step], sums[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < SINGLES; i++) {
        real sum = sums[i];
        for (int64_t at = begin[i] + least; at < p->pointers[line + i + 1]; at++) {
            int64_t from;
            const int64_t cols = columns_of(true, width, p, p->others[at], &from);
            const real *a = values + (ids ? p->ids[at] : at) * width;
            for (int64_t k = 0; k < cols; k++) sum = REAL_FMA(a[k], x[(from + k) * step], sum);
        }
        ((real *)p->sums)[line + i - p->begin] = sum;
    }
}

#define SINGLE(name, ids, width, step)                                                                       \
    static void name(const tartan_i_list_product *p, int64_t line, int64_t first) {                          \
        (void)first;                                                                                         \
        singles(ids, width, step, p, line);                                                                  \
    }
SINGLE(single_1, false, 1, p->x_step)
SINGLE(single_2, false, 2, 1)
SINGLE(single_4, false, 4, 1)
SINGLE(single_wide, false, p->in_block, 1)
SINGLE(single_any, false, p->in_block, p->x_step)
SINGLE(single_listed_1, true, 1, p->x_step)
SINGLE(single_listed, true, p->in_block, p->x_step)

static lines single_of(const tartan_i_list_product *p) {
    if (p->ids != NULL) return p->in_block == 1 ? single_listed_1 : single_listed;
    if (p->in_block == 1) return single_1;
    if (p->x_step != 1) return single_any;
    return p->in_block == 2 ? single_2 : p->in_block == 4 ? single_4 : single_wide;
}

#define ANY(rows)                                                                                            \
    static void any_##rows(const tartan_i_list_product *p, int64_t line, int64_t first) {                    \
        chains(false, rows, p->in_block, p->a_row, p->a_col, p->x_step, p, line, first);                     \
    }
ANY(1)
ANY(2)
ANY(3)
ANY(4)
ANY(5)
ANY(6)
ANY(7)
ANY(8)

/* Square blocks: the whole loop over one is unrolled. */
#define SQUARE(edge)                                                                                         \
    static void square_##edge(const tartan_i_list_product *p, int64_t line, int64_t first) {                 \
        chains(true, edge, edge, edge, 1, p->x_step, p, line, first);                                        \
    }                                                                                                        \
    static void turned_##edge(const tartan_i_list_product *p, int64_t line, int64_t first) {                 \
        chains(true, edge, edge, 1, edge, p->x_step, p, line, first);                                        \
    }
SQUARE(1)
SQUARE(2)
SQUARE(3)
SQUARE(4)
SQUARE(8)

static const lines any[ROWS + 1] = {NULL, any_1, any_2, any_3, any_4, any_5, any_6, any_7, any_8},
                              square[ROWS + 1] = {NULL, square_1, square_2, square_3, square_4,
                                                  NULL, NULL,     NULL,     square_8},
                              turned[ROWS + 1] = {NULL, turned_1, turned_2, turned_3, turned_4,
                                                  NULL, NULL,     NULL,     turned_8};

#ifdef part_zero
enum { MOST_VECTORS = 4, TILES = 16 / TILE }; /* at once; fewer tiles have too few chains */

/* Adds the products of TILE columns. */
INLINE void add_tiles(const real *a, int64_t a_row, const real *x, part_vec sums[TILES]) {
#pragma GCC unroll 8
    for (int t = 0; t < TILES; t++) {
        part_vec columns[TILE];
        part_transpose(a + t * TILE * a_row, a_row, columns);
#pragma GCC unroll 8
        for (int k = 0; k < TILE; k++) sums[t] = part_fma(columns[k], part_fill(x[k]), sums[t]);
    }
}

INLINE const real *values_of(const tartan_i_list_product *p, int64_t at, int64_t first) {
    return (const real *)p->values + (p->ids != NULL ? p->ids[at] : at) * p->block_elements +
           first * p->a_row;
}

/* Rows far apart are too many streams for hardware to prefetch, so the same rows of the next block are prefetched here,
 * and at last the next rows of the first.
 *
 * TILES * TILE rows from `first` on of a block row, of row-major blocks. What a tile lacks is filled with zeros: a product of
 * zeros changes no sum, since a chain that starts with +0 is never -0. */
static void tiles(const tartan_i_list_product *p, int64_t line, int64_t first) {
    enum { HIGH = TILES * TILE, BYTES = HIGH * TILE * sizeof(real) };
    const int64_t a_row = p->a_row, step = p->x_step;
    part_vec sums[TILES];
    real rest[HIGH * TILE], x_rest[TILE];
#pragma GCC unroll 8
    for (int t = 0; t < TILES; t++) sums[t] = part_zero();
    for (int64_t at = p->pointers[line]; at < p->pointers[line + 1]; at++) {
        int64_t from;
        const int64_t there = columns_of(false, p->in_block, p, p->others[at], &from),
                      whole = step == 1 ? there - there % TILE : 0;
        const real *a = values_of(p, at, first), *x = (const real *)p->x + from * step;
        const char *next =
            (const char *)(at + 1 < p->pointers[line + 1] ? values_of(p, at + 1, first)
                                                          : values_of(p, p->pointers[line], first + HIGH));
        for (int64_t k = 0; k < whole; k += TILE, next += BYTES) {
#pragma GCC unroll 8
            for (int i = 0; i < BYTES; i += 64) vec_prefetch(next + i);
            add_tiles(a + k, a_row, x + k, sums);
        }
        for (int64_t k = whole; k < there; k += TILE) {
            const int64_t cols = there - k < TILE ? there - k : TILE;
            memset(x_rest, 0, sizeof x_rest);
            for (int64_t j = 0; j < cols; j++) x_rest[j] = x[(k + j) * step];
            if (cols == TILE) {
                add_tiles(a + k, a_row, x_rest, sums);
                continue;
            }
            memset(rest, 0, sizeof rest);
            for (int64_t i = 0; i < HIGH; i++)
                memcpy(rest + i * TILE, a + i * a_row + k, (size_t)cols * sizeof *a);
            add_tiles(rest, TILE, x_rest, sums);
        }
    }
    real *out = sums_of(false, p, line) + first;
#pragma GCC unroll 8
    for (int t = 0; t < TILES; t++) part_store(out + t * TILE, sums[t]);
}
#endif

#ifdef part_zero
/* `count` vectors of rows from `first` on of a block row, of column-major blocks. */
INLINE void vectors(const int count, const tartan_i_list_product *p, int64_t line, int64_t first) {
    vec sums[MOST_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < count; v++) sums[v] = vec_zero();
    for (int64_t at = p->pointers[line]; at < p->pointers[line + 1]; at++) {
        int64_t from;
        const int64_t there = columns_of(false, p->in_block, p, p->others[at], &from);
        const real *a = values_of(p, at, first), *x = (const real *)p->x + from * p->x_step;
        const real *next = at + 1 < p->pointers[line + 1] ? values_of(p, at + 1, first) : a;
        for (int64_t k = 0; k < there; k++) {
            const vec factor = vec_fill(x[k * p->x_step]);
#pragma GCC unroll 4
            for (int v = 0; v < count; v++) {
                vec_prefetch(next + k * p->a_col + v * LANES);
                sums[v] = vec_fma(vec_load(a + k * p->a_col + v * LANES), factor, sums[v]);
            }
        }
    }
    real *out = sums_of(false, p, line) + first;
#pragma GCC unroll 4
    for (int v = 0; v < count; v++) vec_store(out + v * LANES, sums[v]);
}

static int64_t some_vectors(const tartan_i_list_product *p, int64_t line, int64_t first, int64_t rows) {
    if (rows >= 4 * LANES) {
        vectors(4, p, line, first);
        return 4 * LANES;
    }
    if (rows >= 2 * LANES) {
        vectors(2, p, line, first);
        return 2 * LANES;
    }
    vectors(1, p, line, first);
    return LANES;
}
#endif

/* Rows `first` and on, of `rows` of a block row, as many as one way takes; returns how many. */
INLINE int64_t some_rows(const tartan_i_list_product *p, int64_t line, int64_t first, int64_t rows) {
#ifdef part_zero
    if (p->a_row == 1 && rows - first >= LANES) return some_vectors(p, line, first, rows - first);
    if (p->a_col == 1 && rows - first >= TILES * TILE) {
        tiles(p, line, first);
        return TILES * TILE;
    }
#endif
    const int64_t count = rows - first < ROWS ? rows - first : ROWS;
    any[count](p, line, first);
    return count;
}

static void list_products(const tartan_i_list_product *p) {
    const int64_t edge = p->out_block;
    const bool whole = edge <= ROWS && p->in_block == edge && p->in_bounds == NULL;
    lines best = whole && p->a_col == 1 && p->a_row == edge   ? square[edge]
                 : whole && p->a_row == 1 && p->a_col == edge ? turned[edge]
                                                              : NULL;
    int64_t line = p->begin;
    if (edge == 1 && p->in_bounds == NULL)
        for (const lines single = single_of(p); line + SINGLES <= p->end; line += SINGLES) single(p, line, 0);
    for (; line < p->end; line++) {
        const int64_t *bounds = p->out_bounds, left = p->out_size - line * edge;
        const int64_t rows = bounds != NULL ? bounds[line + 1] - bounds[line] : left < edge ? left : edge;
        if (best != NULL && rows == edge) {
            best(p, line, 0);
            continue;
        }
        for (int64_t first = 0; first < rows;) first += some_rows(p, line, first, rows);
    }
}

/* sums += left times right, the first `depth` steps; rows of the left factor are left_row apart. */
INLINE void add_product(const int64_t rows, const int64_t depth, const int64_t cols, const int64_t left_row,
                        const real *restrict left, const real *restrict right, real *restrict sums) {
#ifdef part_zero
    if (__builtin_constant_p(rows) && cols % TILE == 0) {
        for (int64_t at = 0; at < cols; at += TILE) {
            part_vec chains[ROWS];
#pragma GCC unroll 4
            for (int64_t r = 0; r < rows; r++) chains[r] = part_load(sums + r * cols + at);
#pragma GCC unroll 4
            for (int64_t k = 0; k < depth; k++) {
                const part_vec factor = part_load(right + k * cols + at);
#pragma GCC unroll 4
                for (int64_t r = 0; r < rows; r++)
                    chains[r] = part_fma(part_fill(left[r * left_row + k]), factor, chains[r]);
            }
#pragma GCC unroll 4
            for (int64_t r = 0; r < rows; r++) part_store(sums + r * cols + at, chains[r]);
        }
        return;
    }
#endif
#pragma GCC unroll 4
    for (int64_t r = 0; r < rows; r++, left += left_row, sums += cols)
#pragma GCC unroll 4
        for (int64_t k = 0; k < depth; k++)
#pragma GCC unroll 4
            for (int64_t c = 0; c < cols; c++) sums[c] = REAL_FMA(left[k], right[k * cols + c], sums[c]);
}

/* Column-major blocks are the row-major ones of C' = B' A'. */
INLINE void add_line(const bool by_row, const int64_t rows, const int64_t depth, const int64_t cols,
                     const tartan_i_line_product *p) {
    for (int64_t i = p->begin; i < p->end; i++) {
        const int64_t k = p->a_cols[i];
        const real *a = (const real *)p->a + i * rows * depth;
        for (int64_t n = p->b_pointers[k]; n < p->b_pointers[k + 1]; n++) {
            const real *b = (const real *)p->b + n * depth * cols;
            real *sums = (real *)p->sums + p->places[p->b_cols[n]] * rows * cols;
            if (k == p->last)
                by_row ? add_product(rows, p->last_depth, cols, depth, a, b, sums)
                       : add_product(cols, p->last_depth, rows, depth, b, a, sums);
            else
                by_row ? add_product(rows, depth, cols, depth, a, b, sums)
                       : add_product(cols, depth, rows, depth, b, a, sums);
        }
    }
}

static void line_products(const tartan_i_line_product *p) {
    const int64_t edge = p->rows == p->depth && p->depth == p->cols ? p->rows : 0;
    switch (2 * edge + p->by_row) {
    case 3: /* blocks of one number have no order */
        add_line(true, 1, 1, 1, p);
        break;
    case 4:
        add_line(false, 2, 2, 2, p);
        break;
    case 5:
        add_line(true, 2, 2, 2, p);
        break;
    case 6:
        add_line(false, 3, 3, 3, p);
        break;
    case 7:
        add_line(true, 3, 3, 3, p);
        break;
    case 8:
        add_line(false, 4, 4, 4, p);
        break;
    case 9:
        add_line(true, 4, 4, 4, p);
        break;
    default:
        add_line(p->by_row, p->rows, p->depth, p->cols, p);
    }
}

#ifdef part_zero
#include "kernels/few.h"
#else
enum { LANES_OF_TABLE = 8 }; /* portable.c's */
static void list_columns(const tartan_i_list_product *p) {
    const int64_t columns = p->vectors * LANES_OF_TABLE;
    for (int64_t line = p->begin, row = 0; line < p->end; line++) {
        const int64_t *bounds = p->out_bounds, left = p->out_size - line * p->out_block;
        const int64_t rows = bounds != NULL        ? bounds[line + 1] - bounds[line]
                             : left < p->out_block ? left
                                                   : p->out_block;
        for (int64_t i = 0; i < rows; i++, row++) {
            real *sums = (real *)p->sums + row * p->sums_row;
            for (int64_t j = 0; j < columns; j++) sums[j] = 0;
            for (int64_t at = p->pointers[line]; at < p->pointers[line + 1]; at++) {
                int64_t from;
                const int64_t cols = columns_of(false, p->in_block, p, p->others[at], &from);
                const real *a = (const real *)p->values +
                                (p->ids != NULL ? p->ids[at] : at) * p->block_elements + i * p->a_row;
                for (int64_t k = 0; k < cols; k++) {
                    const real *x = (const real *)p->x + (from + k) * p->x_step;
                    for (int64_t j = 0; j < columns; j++) sums[j] = REAL_FMA(a[k * p->a_col], x[j], sums[j]);
                }
            }
        }
    }
}
#endif

void LISTS_FILL(tartan_i_kernels *kernels) {
    kernels->list_columns = list_columns;
#ifdef vec_spread_halves
    kernels->list_halves = list_halves;
#endif
    kernels->list_products = list_products;
    kernels->line_products = line_products;
}
