/* SPDX-License-Identifier: Apache-2.0
 * Products of bf16 by AMX. A strip has one or two tiles of rows and of columns, so that each tile loaded serves two
 * products; its sums stay in tiles over the whole list of terms. */
#include "core/dtype.h"
#include "kernels/kernels.h"
#include "simd/simd.h"

#include "kernels/columns.h"
#include "kernels/pairs.h"

#define INLINE static inline __attribute__((always_inline))

/* For each of the sums that a strip has. Tile numbers are part of the instruction, hence macros. */
#define EACH_SUM(X)                                                                                          \
    X(0, 0, 0);                                                                                              \
    if (cols > 1) X(1, 0, 1);                                                                                \
    if (rows > 1) X(2, 1, 0);                                                                                \
    if (rows > 1 && cols > 1) X(3, 1, 1)

INLINE void strip_of(const int rows, const int cols, const tartan_i_strip *s, const tartan_i_term *terms,
                     int64_t nterms) {
    const int64_t a_bytes = 4 * s->a_row, b_bytes = 4 * s->b_row, out_bytes = 4 * s->sums_row;
    const int64_t step = s->tile_units, second_row = s->tile_rows * a_bytes;
    float *sums = s->sums;
#define SUM_AT(i, j)   (sums + (i)*s->tile_rows * s->sums_row + (j)*TILE_COLS)
#define CLEAR(n, i, j) tile_zero(n)
#define LOAD(n, i, j)  tile_load(n, SUM_AT(i, j), out_bytes)
#define STORE(n, i, j) tile_store(n, SUM_AT(i, j), out_bytes)
    if (s->first) {
        EACH_SUM(CLEAR);
    } else {
        EACH_SUM(LOAD);
    }
    for (const tartan_i_term *t = terms; t < terms + nterms; t++) {
        const char *a = (const char *)t->a + s->row * a_bytes, *b = (const char *)s->b + t->b * b_bytes;
        for (int64_t k = 0; k < t->k; k += step) {
            tile_load(4, a + 4 * k, a_bytes);
            tile_load_once(6, b + k * b_bytes, b_bytes);
            tile_fma(0, 4, 6);
            if (cols > 1) {
                tile_load_once(7, b + k * b_bytes + 4 * TILE_COLS, b_bytes);
                tile_fma(1, 4, 7);
            }
            if (rows > 1) {
                tile_load(5, a + 4 * k + second_row, a_bytes);
                tile_fma(2, 5, 6);
                if (cols > 1) tile_fma(3, 5, 7);
            }
        }
        if (s->meanwhile != NULL) s->meanwhile(s->other);
    }
    EACH_SUM(STORE);
}

static void strip_run(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    const bool tall = s->rows > s->tile_rows, wide = s->width > TILE_COLS;
    if (tall && wide)
        strip_of(2, 2, s, terms, nterms);
    else if (tall)
        strip_of(2, 1, s, terms, nterms);
    else if (wide)
        strip_of(1, 2, s, terms, nterms);
    else
        strip_of(1, 1, s, terms, nterms);
}

/* ---- Stages of attention ----
 * While tiles multiply, the vector units have work: after each step of a product or stored tile comes a slice of
 * softmax. A slice is SLICE_ROWS scores of 16 queries, few enough for instructions to overlap across it. */

enum { SPAN = TARTAN_I_SPAN, SPAN_SCORES = SPAN * SPAN, SPAN_PAIRS = SPAN_SCORES / 2 };
enum { SLICE_ROWS = 8, SLICES = SPAN / SLICE_ROWS * (SPAN / LANES), TILE_BYTES = 1024, SUM_TILES = 4 };

/* The slices of a span. */
typedef struct slices {
    vec factor;
    const float *shift, *scores;
    float *total;
    uint32_t *weights;
    int64_t done, count;
} slices;

INLINE void weigh_slice(const slices *s, int64_t at) {
    const int64_t column = at % (SPAN / LANES) * LANES, row = at / (SPAN / LANES) * SLICE_ROWS;
    const float *x = s->scores + row * SPAN + column;
    uint32_t *out = s->weights + row / 2 * SPAN + column;
    const vec shift = vec_load(s->shift + column);
    vec total = vec_load(s->total + column);
#pragma GCC unroll 4
    for (int64_t i = 0; i < SLICE_ROWS; i += 2) {
        const vec a = power_beside_tiles(vec_fma(vec_load(x + i * SPAN), s->factor, shift));
        const vec b = power_beside_tiles(vec_fma(vec_load(x + (i + 1) * SPAN), s->factor, shift));
        total = vec_add(total, vec_add(a, b));
        pairs_round_beside_tiles(a, b, out + i / 2 * SPAN);
    }
    vec_store(s->total + column, total);
}

INLINE void weigh_some(slices *s) {
    if (s->done < s->count) weigh_slice(s, s->done++);
}

/* One step of 2 x 2 tiles: left tiles at `a` follow each other, rows of `b` have SPAN pairs. */
#define MULTIPLY_2X2(a, b)                                                                                   \
    do {                                                                                                     \
        tile_load_once(4, a, 64);                                                                            \
        tile_load(6, b, 4 * SPAN);                                                                           \
        tile_fma(0, 4, 6);                                                                                   \
        tile_load(7, (b) + TILE_COLS, 4 * SPAN);                                                             \
        tile_fma(1, 4, 7);                                                                                   \
        tile_load_once(5, (a) + TILE_BYTES, 64);                                                             \
        tile_fma(2, 5, 6);                                                                                   \
        tile_fma(3, 5, 7);                                                                                   \
    } while (0)

#define SUM_TILE(p, i, j) ((p) + (i)*TILE_ROWS * SPAN + (j)*TILE_COLS)

INLINE void zero_2x2(void) {
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
}

INLINE void store_2x2(float *to, slices *s) {
    tile_store(0, SUM_TILE(to, 0, 0), 4 * SPAN);
    weigh_some(s);
    tile_store(1, SUM_TILE(to, 0, 1), 4 * SPAN);
    weigh_some(s);
    tile_store(2, SUM_TILE(to, 1, 0), 4 * SPAN);
    weigh_some(s);
    tile_store(3, SUM_TILE(to, 1, 1), 4 * SPAN);
    weigh_some(s);
}

INLINE void score_span(const tartan_i_stage *o, int64_t span, slices *s) {
    const char *a = o->keys[span];
    zero_2x2();
    for (int64_t k = 0; k < o->d / SPAN; k++) {
        MULTIPLY_2X2(a + k * 2 * TILE_BYTES, o->queries + k * TILE_PAIRS * SPAN);
        weigh_some(s);
    }
    store_2x2(o->scores[span], s);
}

/* sums += values times pairs, for SPAN of d. */
INLINE void add_values(const tartan_i_stage *o, int64_t at, slices *s) {
    float *sums = o->sums + at * SPAN_SCORES;
    if (o->first) {
        zero_2x2();
    } else {
        tile_load(0, SUM_TILE(sums, 0, 0), 4 * SPAN);
        tile_load(1, SUM_TILE(sums, 0, 1), 4 * SPAN);
        tile_load(2, SUM_TILE(sums, 1, 0), 4 * SPAN);
        tile_load(3, SUM_TILE(sums, 1, 1), 4 * SPAN);
    }
    for (int64_t i = 0; i < o->spans_added; i++) {
        MULTIPLY_2X2(o->values[i] + at * 2 * TILE_BYTES, o->pairs + i * SPAN_PAIRS);
        weigh_some(s);
    }
    store_2x2(sums, s);
}

static void stage(const tartan_i_stage *o) {
    const double log2_e = 0x1.71547652b82fep+0;
    const int64_t parts = o->d / SPAN, added = o->spans_added > 0 ? parts : 0;
    float shift[SPAN];
    slices s = {.factor = vec_fill((float)(o->scale * log2_e)), .shift = shift, .total = o->total};
    for (int64_t j = 0; o->spans_weighed > 0 && j < SPAN; j += LANES)
        vec_store(shift + j, vec_mul(vec_load(o->shift + j), vec_fill((float)-log2_e)));
    int64_t spans = o->spans_weighed > o->spans_scored ? o->spans_weighed : o->spans_scored, part = 0;
    if (spans == 0) spans = 1;
    for (int64_t i = 0; i < spans; i++) {
        const int64_t end = (i + 1) * added / spans;
        const bool scored = i < o->spans_scored;
        s.count = i < o->spans_weighed ? SLICES : 0;
        s.done = 0;
        if (s.count > 0) {
            s.scores = o->weighed[i];
            s.weights = o->weights + i * SPAN_PAIRS;
        }
        if (scored) score_span(o, i, &s);
        for (; part < end; part++) add_values(o, part, &s);
        for (; s.done < s.count; s.done++) weigh_slice(&s, s.done);
    }
}

/* ---- Factors of stages ---- */

static void span_keys(int64_t tokens, int64_t d, const uint16_t *in, int64_t in_row, void *tiles) {
    pair_vec *to = tiles;
    for (int64_t t = 0; t < d; t += SPAN)
        for (int64_t i = 0; i < SPAN; i++)
            pair_vec_store(to++, i < tokens ? pair_vec_load(in + i * in_row + t) : pair_vec_zero());
}

static void span_values(int64_t tokens, int64_t d, const uint16_t *in, int64_t in_row, void *tiles) {
    static const uint16_t zeros[TILE_ROWS];
    pair_vec *to = tiles, rows[TILE_ROWS];
    for (int64_t t = 0; t < d; t += TILE_ROWS) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < TILE_ROWS; i++)
            rows[i] = pairs_of(2 * i < tokens ? in + 2 * i * in_row + t : zeros,
                               2 * i + 1 < tokens ? in + (2 * i + 1) * in_row + t : zeros);
        pairs_transpose(rows);
#pragma GCC unroll 16
        for (int64_t i = 0; i < TILE_ROWS; i++) pair_vec_store(to++, rows[i]);
    }
}

static void span_queries(int64_t tokens, int64_t d, const uint16_t *in, int64_t in_row, uint32_t *out) {
    pair_vec rows[TILE_ROWS];
    for (int64_t q = 0; q < SPAN; q += TILE_COLS)
        for (int64_t t = 0; t < d; t += 2 * TILE_PAIRS) {
#pragma GCC unroll 16
            for (int64_t i = 0; i < TILE_COLS; i++)
                rows[i] = q + i < tokens ? pair_vec_load(in + (q + i) * in_row + t) : pair_vec_zero();
            pairs_transpose(rows);
#pragma GCC unroll 16
            for (int64_t i = 0; i < TILE_PAIRS; i++) pair_vec_store(out + (t / 2 + i) * SPAN + q, rows[i]);
        }
}

static void span_store(int64_t tokens, int64_t d, const float *sums, const float *factors, uint16_t *out,
                       int64_t out_row) {
    pair_vec rows[TILE_PAIRS];
    for (int64_t q = 0; q < tokens; q += TILE_COLS)
        for (int64_t t = 0; t < d; t += 2 * TILE_PAIRS) {
            const vec factor = vec_load(factors + q);
            const float *from = sums + t * SPAN + q;
#pragma GCC unroll 16
            for (int64_t i = 0; i < TILE_PAIRS; i++)
                rows[i] = pairs_rounded(vec_mul(vec_load(from + 2 * i * SPAN), factor),
                                        vec_mul(vec_load(from + (2 * i + 1) * SPAN), factor));
            pairs_transpose(rows);
#pragma GCC unroll 16
            for (int64_t i = 0; i < TILE_COLS; i++)
                if (q + i < tokens) pair_vec_store(out + (q + i) * out_row + t, rows[i]);
        }
}

static void begin(int64_t tile_rows, int64_t tile_units) {
    tiles_begin(tile_rows, tile_units);
}

static void end(void) {
    tiles_end();
}

static int64_t peak(int64_t rounds, void *sink) {
    enum { STEPS = 16, ROW_BYTES = 64 };
    uint16_t halves[TILE_ROWS * 2 * TILE_PAIRS];
    for (int i = 0; i < TILE_ROWS * 2 * TILE_PAIRS; i++) halves[i] = 0x3f00;
    float *sums = sink;
    tile_memory(halves);
    tiles_begin(TILE_ROWS, TILE_PAIRS);
    tile_load(4, halves, ROW_BYTES);
    tile_load(5, halves, ROW_BYTES);
    tile_load(6, halves, ROW_BYTES);
    tile_load(7, halves, ROW_BYTES);
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (int64_t i = 0; i < rounds * STEPS; i++) {
        tile_fma(0, 4, 6);
        tile_fma(1, 4, 7);
        tile_fma(2, 5, 6);
        tile_fma(3, 5, 7);
    }
    tile_store(0, sums, ROW_BYTES);
    tile_store(1, sums, ROW_BYTES);
    tile_store(2, sums, ROW_BYTES);
    tile_store(3, sums, ROW_BYTES);
    tiles_end();
    return rounds * STEPS * 4 * TILE_PRODUCT_FLOPS;
}

void KERNELS_FILL(tartan_i_kernels *kernels) {
    kernels->product = (tartan_i_product){.factor = TARTAN_BF16,
                                          .parts = 1,
                                          .group = 2,
                                          .bytes = sizeof(pair),
                                          .lanes = TILE_COLS,
                                          .vectors = 2,
                                          .most_tile_rows = TILE_ROWS,
                                          .most_tile_units = TILE_PAIRS,
                                          .rows = {2 * TILE_ROWS, 2 * TILE_ROWS},
                                          .strip = strip_run,
                                          .begin = begin,
                                          .end = end,
                                          .pair = pair_lines,
                                          .turn = turn_words,
                                          .stage = stage,
                                          .span_keys = span_keys,
                                          .span_values = span_values,
                                          .span_queries = span_queries,
                                          .span_store = span_store,
                                          .peak = peak};
    COLUMNS_FILL(&kernels->product);
}
