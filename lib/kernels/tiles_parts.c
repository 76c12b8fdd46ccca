/* SPDX-License-Identifier: Apache-2.0
 * Products of f32 as sums of bf16 by AMX: strips as in tiles.c, where each step of a term loads the tiles of all parts once or
 * twice and multiplies them three or six times. */
#include "core/dtype.h"
#include "kernels/kernels.h"
#include "simd/parts.h"
#include "simd/parts512.h"
#include "simd/simd.h"

#define INLINE static inline __attribute__((always_inline))

#define EACH_SUM(X)                                                                                          \
    X(0, 0, 0);                                                                                              \
    if (cols > 1) X(1, 0, 1);                                                                                \
    if (rows > 1) X(2, 1, 0);                                                                                \
    if (rows > 1 && cols > 1) X(3, 1, 1)

INLINE void strip_of(const int parts, const int rows, const int cols, const tartan_i_strip *s,
                     const tartan_i_term *terms, int64_t nterms) {
    /* Of a line, which is a part of a row. */
    const int64_t a_bytes = 4 * s->a_row, b_bytes = 4 * s->b_row;
    const int64_t out_bytes = 4 * s->sums_row, step = s->tile_units;
    const int64_t a_stride = parts * a_bytes, b_stride = parts * b_bytes;
    const int64_t second_rows = s->tile_rows * a_stride;
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
        const char *a = (const char *)t->a + s->row * a_stride, *b = (const char *)s->b + t->b * b_stride;
        for (int64_t k = 0; k < t->k; k += step) {
            int left = -1, right = -1; /* parts in the tiles; known to the compiler, which unrolls */
#pragma GCC unroll 6
            for (int q = 0; q < parts_count(parts); q++) {
                const parts_product of = parts_products[parts][q];
                if (of.a != left) {
                    tile_load(4, a + of.a * a_bytes, a_stride);
                    if (rows > 1) tile_load(5, a + of.a * a_bytes + second_rows, a_stride);
                }
                const char *const from = b + of.b * b_bytes;
                if (of.b != right && parts == 3 && of.b == 0) { /* twice in a step */
                    tile_load(6, from, b_stride);
                    if (cols > 1) tile_load(7, from + 4 * TILE_COLS, b_stride);
                } else if (of.b != right) {
                    tile_load_once(6, from, b_stride);
                    if (cols > 1) tile_load_once(7, from + 4 * TILE_COLS, b_stride);
                }
                left = of.a, right = of.b;
                tile_fma(0, 4, 6);
                if (cols > 1) tile_fma(1, 4, 7);
                if (rows > 1) tile_fma(2, 5, 6);
                if (rows > 1 && cols > 1) tile_fma(3, 5, 7);
            }
            a += 4 * step;
            b += step * b_stride;
        }
        if (s->meanwhile != NULL) s->meanwhile(s->other);
    }
    EACH_SUM(STORE);
}

INLINE void strip_run(const int parts, const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    const bool tall = s->rows > s->tile_rows, wide = s->width > TILE_COLS;
    if (tall && wide)
        strip_of(parts, 2, 2, s, terms, nterms);
    else if (tall)
        strip_of(parts, 2, 1, s, terms, nterms);
    else if (wide)
        strip_of(parts, 1, 2, s, terms, nterms);
    else
        strip_of(parts, 1, 1, s, terms, nterms);
}

static void begin(int64_t tile_rows, int64_t tile_units) {
    tiles_begin(tile_rows, tile_units);
}

static void end(void) {
    tiles_end();
}

/* Products of tiles in registers; of `parts_count` of them one is useful. */
INLINE int64_t peak(const int parts, int64_t rounds, void *sink) {
    enum { STEPS = 4, ROW_BYTES = 64 };
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
    for (int64_t i = 0; i < rounds * STEPS; i++)
#pragma GCC unroll 6
        for (int q = 0; q < parts_count(parts); q++) {
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

#define FILL_JOIN(isa, name) tartan_i_kernels_##isa##_##name
#define FILL_NAME(isa, name) FILL_JOIN(isa, name)
#define FILL(name, count)                                                                                    \
    static void split_rows_##name(int64_t n, const float *even, const float *odd, uint32_t *out,             \
                                  int64_t step) {                                                            \
        parts_of_rows(count, n, even, odd, out, step);                                                       \
    }                                                                                                        \
    static void split_row_##name(int64_t n, const float *in, uint32_t *out, int64_t step) {                  \
        parts_of_row(count, n, in, out, step);                                                               \
    }                                                                                                        \
    static void strip_##name(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {          \
        strip_run(count, s, terms, nterms);                                                                  \
    }                                                                                                        \
    static int64_t peak_##name(int64_t rounds, void *sink) {                                                 \
        return peak(count, rounds, sink);                                                                    \
    }                                                                                                        \
    void FILL_NAME(TARTAN_I_ISA, name)(tartan_i_kernels * kernels) {                                         \
        kernels->product = (tartan_i_product){.factor = (count) == 2 ? TARTAN_I_BF16X3 : TARTAN_I_BF16X6,    \
                                              .parts = count,                                                \
                                              .group = 2,                                                    \
                                              .bytes = (count) * (int64_t)sizeof(uint32_t),                  \
                                              .lanes = TILE_COLS,                                            \
                                              .vectors = 2,                                                  \
                                              .most_tile_rows = TILE_ROWS,                                   \
                                              .most_tile_units = TILE_PAIRS,                                 \
                                              .rows = {2 * TILE_ROWS, 2 * TILE_ROWS},                        \
                                              .strip = strip_##name,                                         \
                                              .begin = begin,                                                \
                                              .end = end,                                                    \
                                              .split_rows = split_rows_##name,                               \
                                              .split_row = split_row_##name,                                 \
                                              .finite = parts_finite,                                        \
                                              .peak = peak_##name};                                          \
    }
FILL(bf16x3, 2)
FILL(bf16x6, 3)
