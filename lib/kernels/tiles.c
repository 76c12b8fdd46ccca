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
                                          .peak = peak};
    COLUMNS_FILL(&kernels->product);
}
