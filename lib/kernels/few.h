/* SPDX-License-Identifier: Apache-2.0
 * Lists of blocks times a few columns, in the vector vocabulary: lanes are columns. Blocks are gone through in their order, so that
 * their values are one stream of memory. Where a block has more rows than registers have room for, their sums wait in memory from block
 * to block, which is the first cache. Included by lists.c. */

enum {
    FEW_VECTORS = 8, /* of a row of x, at once */
    FEW_AHEAD = 8192 /* bytes before their use that values are prefetched */
};
typedef vec few_sums[ROWS][FEW_VECTORS];

/* Most rows with so many vectors: sums, a row of x and a factor are in registers. */
#define FEW_FITS(rows, vectors) ((vectors) * ((rows) + 1) < VEC_REGISTERS || (rows) == 1)
INLINE int64_t few_rows(int64_t vectors) {
    const int64_t fit = (VEC_REGISTERS - 1) / vectors - 1;
    return fit < 1 ? 1 : fit < 2 ? fit : fit < 4 ? 2 : fit < ROWS ? 4 : ROWS;
}

INLINE void few_load(const int rows, const int vectors, const real *in, int64_t in_row, few_sums sums) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
            sums[i][v] = in == NULL ? vec_zero() : vec_load(in + i * in_row + v * LANES);
}

INLINE void few_store(const int rows, const int vectors, few_sums sums, real *out, int64_t out_row) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) vec_store(out + i * out_row + v * LANES, sums[i][v]);
}

/* Adds the products of `cols` columns of a block. */
INLINE void few_add(const int rows, const int vectors, int64_t cols, const real *a, int64_t a_row,
                    int64_t a_col, const real *x, int64_t x_step, few_sums sums) {
    const real *rest = a + 4 * a_row; /* two pointers reach eight rows */
    for (int64_t k = 0; k < cols; k++, a += a_col, rest += a_col, x += x_step) {
        vec right[FEW_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) right[v] = vec_load(x + v * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const vec left = vec_fill((i < 4 ? a : rest)[i % 4 * a_row]);
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) sums[i][v] = vec_fma(left, right[v], sums[i][v]);
        }
    }
}

/* Where the values of the block at a position are. */
INLINE const real *few_values(const tartan_i_list_product *p, int64_t at) {
    return (const real *)p->values + (p->ids != NULL ? p->ids[at] : at) * p->block_elements;
}

/* Prefetches what is used about FEW_AHEAD bytes after byte `offset` of the block at a position, which has `bytes` bytes, if
 * blocks are used in the order of the list. */
INLINE const char *few_ahead(const tartan_i_list_product *p, int64_t at, int64_t last, int64_t bytes,
                             int64_t offset) {
    int64_t then = at;
    if (bytes < FEW_AHEAD)
        then += FEW_AHEAD / bytes;
    else if (offset + FEW_AHEAD < bytes)
        offset += FEW_AHEAD;
    else
        then++, offset += FEW_AHEAD - bytes;
    return (const char *)few_values(p, then < last ? then : last) + offset;
}

/* A row of blocks of so many rows. `single`: blocks of one number. */
INLINE void few_line(const int rows, const int vectors, const bool single, const tartan_i_list_product *p,
                     int64_t line, const real *x, real *out) {
    few_sums sums;
    const int64_t bytes = p->block_elements * (int64_t)sizeof(real), last = p->pointers[p->end] - 1;
    few_load(rows, vectors, NULL, 0, sums);
    for (int64_t at = p->pointers[line]; at < p->pointers[line + 1]; at++) {
        int64_t from;
        const int64_t cols = single ? 1 : columns_of(false, p->in_block, p, p->others[at], &from);
        if (single) from = p->others[at];
        const real *a = few_values(p, at);
        if (!single) {
            const char *next = few_ahead(p, at, last, bytes, 0);
            for (int64_t i = 0; i < bytes; i += LINE) vec_prefetch(next + i);
        }
        few_add(rows, vectors, cols, a, p->a_row, p->a_col, x + from * p->x_step, p->x_step, sums);
    }
    few_store(rows, vectors, sums, out, p->sums_row);
}

/* Some rows of a block, whose sums are in memory; or, where `start`, zero. */
INLINE void few_part(const int rows, const int vectors, const tartan_i_list_product *p, bool start,
                     int64_t cols, const real *a, const real *x, real *out) {
    few_sums sums;
    few_load(rows, vectors, start ? NULL : out, p->sums_row, sums);
    few_add(rows, vectors, cols, a, p->a_row, p->a_col, x, p->x_step, sums);
    few_store(rows, vectors, sums, out, p->sums_row);
}

#define FEW(rows, vectors)                                                                                   \
    static void few_line_##rows##x##vectors(const tartan_i_list_product *p, int64_t line, const real *x,     \
                                            real *out) {                                                     \
        if (!FEW_FITS(rows, vectors)) return;                                                                \
        if (rows == 1 && p->in_block == 1)                                                                   \
            few_line(rows, vectors, true, p, line, x, out);                                                  \
        else                                                                                                 \
            few_line(rows, vectors, false, p, line, x, out);                                                 \
    }                                                                                                        \
    static void few_part_##rows##x##vectors(const tartan_i_list_product *p, bool start, int64_t cols,        \
                                            const real *a, const real *x, real *out) {                       \
        if (FEW_FITS(rows, vectors)) few_part(rows, vectors, p, start, cols, a, x, out);                     \
    }
#define EACH_FEW(X, vectors)                                                                                 \
    X(1, vectors)                                                                                            \
    X(2, vectors) X(3, vectors) X(4, vectors) X(5, vectors) X(6, vectors) X(7, vectors) X(8, vectors)
#define EACH_FEW_ROWS(X) EACH_FEW(X, 1) EACH_FEW(X, 2) EACH_FEW(X, 3) EACH_FEW(X, 4)
EACH_FEW_ROWS(FEW)
FEW(1, 5)
FEW(1, 6)
FEW(1, 7)
FEW(1, 8)

typedef void (*few_line_of)(const tartan_i_list_product *, int64_t, const real *, real *);
typedef void (*few_part_of)(const tartan_i_list_product *, bool, int64_t, const real *, const real *, real *);
#define FEW_LINE(rows, vectors) few_line_##rows##x##vectors,
#define FEW_PART(rows, vectors) few_part_##rows##x##vectors,
static const few_line_of few_lines[FEW_VECTORS][ROWS] = {
    {EACH_FEW(FEW_LINE, 1)}, {EACH_FEW(FEW_LINE, 2)}, {EACH_FEW(FEW_LINE, 3)}, {EACH_FEW(FEW_LINE, 4)},
    {few_line_1x5},          {few_line_1x6},          {few_line_1x7},          {few_line_1x8}};
static const few_part_of few_parts[FEW_VECTORS][ROWS] = {
    {EACH_FEW(FEW_PART, 1)}, {EACH_FEW(FEW_PART, 2)}, {EACH_FEW(FEW_PART, 3)}, {EACH_FEW(FEW_PART, 4)},
    {few_part_1x5},          {few_part_1x6},          {few_part_1x7},          {few_part_1x8}};

/* A row of blocks of `rows` rows, more than fit in registers. */
INLINE void few_tall(const tartan_i_list_product *p, int64_t line, int64_t rows, int64_t vectors,
                     const real *x, real *out) {
    const int64_t most = few_rows(vectors), begin = p->pointers[line], end = p->pointers[line + 1],
                  bytes = p->block_elements * (int64_t)sizeof(real), last = p->pointers[p->end] - 1;
    for (int64_t i = 0; begin == end && i < rows; i++)
        for (int64_t v = 0; v < vectors; v++) vec_store(out + i * p->sums_row + v * LANES, vec_zero());
    for (int64_t at = begin; at < end; at++) {
        int64_t from;
        const int64_t cols = columns_of(false, p->in_block, p, p->others[at], &from);
        const real *a = few_values(p, at);
        for (int64_t row = 0; row < rows; row += most) {
            const int64_t here = rows - row < most ? rows - row : most;
            const char *next = few_ahead(p, at, last, bytes, row * bytes / rows);
            for (int64_t i = 0; i < here * bytes / rows; i += LINE) vec_prefetch(next + i);
            few_parts[vectors - 1][here - 1](p, at == begin, cols, a + row * p->a_row, x + from * p->x_step,
                                             out + row * p->sums_row);
        }
    }
}

/* Takes as many vectors at a time as give each row of blocks enough chains. */
static void list_columns(const tartan_i_list_product *p) {
    enum { ENOUGH = VEC_REGISTERS > 16 ? ROWS : ROWS / 2 };
    const int64_t edge = p->out_block, at_once = edge < ENOUGH ? edge : ENOUGH;
    int64_t most = edge == 1 ? FEW_VECTORS : 4;
    while (most > 1 && few_rows(most) < at_once) most--;
    for (int64_t first = 0, here; first < p->vectors; first += here) {
        here = p->vectors - first < most ? p->vectors - first : most;
        const real *x = (const real *)p->x + first * LANES;
        for (int64_t line = p->begin; line < p->end; line++) {
            const int64_t *bounds = p->out_bounds, left = p->out_size - line * edge;
            const int64_t rows = bounds != NULL ? bounds[line + 1] - bounds[line] : left < edge ? left : edge;
            const int64_t row = bounds != NULL ? bounds[line] - bounds[p->begin] : (line - p->begin) * edge;
            real *out = (real *)p->sums + row * p->sums_row + first * LANES;
            if (rows <= few_rows(here) && rows > 0)
                few_lines[here - 1][rows - 1](p, line, x, out);
            else
                few_tall(p, line, rows, here, x, out);
        }
    }
}

#ifdef vec_spread_halves
/* Half a vector of columns: a vector has sums of two rows. Factors are loaded by half vectors of a row, so that one instruction then
 * spreads the factors of two rows, where each would take a load of its own. */
enum { HALF = LANES / 2, PAIRS_OF_ROWS = 8 };

/* Adds the products of some rows of a block, two in each of `pairs` vectors; where `odd`, the last vector has the last row twice. */
INLINE void half_add(const int pairs, const bool odd, int64_t cols, const real *a, int64_t a_row,
                     const real *x, int64_t x_step, vec sums[PAIRS_OF_ROWS]) {
    vec_place places[HALF];
#pragma GCC unroll 8
    for (int k = 0; k < HALF; k++) places[k] = vec_place_of(k);
    int64_t done = 0;
    for (; done + HALF <= cols; done += HALF) {
        vec left[PAIRS_OF_ROWS];
#pragma GCC unroll 8
        for (int i = 0; i < pairs; i++) {
            const real *row = a + done + 2 * i * a_row;
            left[i] = vec_load_halves(row, odd && i + 1 == pairs ? row : row + a_row);
        }
#pragma GCC unroll 8
        for (int k = 0; k < HALF; k++, x += x_step) {
            const vec right = vec_load_twice(x);
#pragma GCC unroll 8
            for (int i = 0; i < pairs; i++)
                sums[i] = vec_fma(vec_spread_halves(left[i], places[k]), right, sums[i]);
        }
    }
    for (; done < cols; done++, x += x_step) {
        const vec right = vec_load_twice(x);
#pragma GCC unroll 8
        for (int i = 0; i < pairs; i++) {
            const real *row = a + done + 2 * i * a_row;
            sums[i] =
                vec_fma(vec_fill_halves(*row, odd && i + 1 == pairs ? *row : row[a_row]), right, sums[i]);
        }
    }
}

INLINE void half_load(const int pairs, const bool odd, const real *in, int64_t in_row,
                      vec sums[PAIRS_OF_ROWS]) {
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++) {
        const real *row = in + 2 * i * in_row;
        sums[i] = vec_load_halves(row, odd && i + 1 == pairs ? row : row + in_row);
    }
}

INLINE void half_store(const int pairs, const bool odd, const vec sums[PAIRS_OF_ROWS], real *out,
                       int64_t out_row) {
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++) {
        real *row = out + 2 * i * out_row;
        vec_store_halves(row, odd && i + 1 == pairs ? row : row + out_row, sums[i]);
    }
}

/* A row of blocks of so many rows. */
INLINE void half_line(const int pairs, const bool odd, const tartan_i_list_product *p, int64_t line,
                      real *out) {
    vec sums[PAIRS_OF_ROWS];
    const int64_t bytes = p->block_elements * (int64_t)sizeof(real), last = p->pointers[p->end] - 1;
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++) sums[i] = vec_zero();
    for (int64_t at = p->pointers[line]; at < p->pointers[line + 1]; at++) {
        int64_t from;
        const int64_t cols = columns_of(false, p->in_block, p, p->others[at], &from);
        const char *next = few_ahead(p, at, last, bytes, 0);
        for (int64_t i = 0; i < bytes; i += LINE) vec_prefetch(next + i);
        half_add(pairs, odd, cols, few_values(p, at), p->a_row, (const real *)p->x + from * p->x_step,
                 p->x_step, sums);
    }
    half_store(pairs, odd, sums, out, p->sums_row);
}

/* Some rows of a block, whose sums are in memory. */
INLINE void half_part(const int pairs, const bool odd, const tartan_i_list_product *p, int64_t cols,
                      const real *a, const real *x, real *out) {
    vec sums[PAIRS_OF_ROWS];
    half_load(pairs, odd, out, p->sums_row, sums);
    half_add(pairs, odd, cols, a, p->a_row, x, p->x_step, sums);
    half_store(pairs, odd, sums, out, p->sums_row);
}

#define HALVES(rows)                                                                                         \
    static void half_line_##rows(const tartan_i_list_product *p, int64_t line, real *out) {                  \
        half_line((rows + 1) / 2, rows % 2, p, line, out);                                                   \
    }                                                                                                        \
    static void half_part_##rows(const tartan_i_list_product *p, int64_t cols, const real *a, const real *x, \
                                 real *out) {                                                                \
        half_part((rows + 1) / 2, rows % 2, p, cols, a, x, out);                                             \
    }
#define EACH_HALVES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16)
EACH_HALVES(HALVES)

#define HALF_LINE(rows) half_line_##rows,
#define HALF_PART(rows) half_part_##rows,
static void (*const half_lines[])(const tartan_i_list_product *, int64_t, real *) = {EACH_HALVES(HALF_LINE)};
static void (*const half_parts[])(const tartan_i_list_product *, int64_t, const real *, const real *,
                                  real *) = {EACH_HALVES(HALF_PART)};

/* A row of blocks of `rows` rows, more than fit in registers, whose sums wait in memory from block to block. */
INLINE void half_tall(const tartan_i_list_product *p, int64_t line, int64_t rows, real *out) {
    const int64_t begin = p->pointers[line], end = p->pointers[line + 1],
                  bytes = p->block_elements * (int64_t)sizeof(real), last = p->pointers[p->end] - 1;
    for (int64_t i = 0; i < rows; i++)
        vec_store_halves(out + i * p->sums_row, out + i * p->sums_row, vec_zero());
    for (int64_t at = begin; at < end; at++) {
        int64_t from;
        const int64_t cols = columns_of(false, p->in_block, p, p->others[at], &from);
        const real *a = few_values(p, at);
        for (int64_t row = 0; row < rows; row += 2 * PAIRS_OF_ROWS) {
            const int64_t here = rows - row < 2 * PAIRS_OF_ROWS ? rows - row : 2 * PAIRS_OF_ROWS;
            const char *next = few_ahead(p, at, last, bytes, row * bytes / rows);
            for (int64_t i = 0; i < here * bytes / rows; i += LINE) vec_prefetch(next + i);
            half_parts[here - 1](p, cols, a + row * p->a_row, (const real *)p->x + from * p->x_step,
                                 out + row * p->sums_row);
        }
    }
}

static void list_halves(const tartan_i_list_product *p) {
    for (int64_t line = p->begin; line < p->end; line++) {
        const int64_t *bounds = p->out_bounds, edge = p->out_block, left = p->out_size - line * edge;
        const int64_t rows = bounds != NULL ? bounds[line + 1] - bounds[line] : left < edge ? left : edge;
        const int64_t row = bounds != NULL ? bounds[line] - bounds[p->begin] : (line - p->begin) * edge;
        real *out = (real *)p->sums + row * p->sums_row;
        if (rows > 2 * PAIRS_OF_ROWS)
            half_tall(p, line, rows, out);
        else if (rows > 0)
            half_lines[rows - 1](p, line, out);
    }
}
#endif
