/* SPDX-License-Identifier: Apache-2.0
 * Products of f32 as sums of bf16 by AMX: strips as in tiles.c, where each step of a term loads the tiles of all parts once or
 * twice and multiplies them three or six times. */
#include "core/dtype.h"
#include "kernels/kernels.h"
#include "kernels/parts.h"
#include "simd/simd.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- Parts ---- */

INLINE __m512i heads_of(__m512 x) {
    enum { QUIET = 0x01, SIGNALING = 0x80 };
    const __m512i up = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(PARTS_HALF));
    return _mm512_mask_mov_epi32(_mm512_and_si512(up, _mm512_set1_epi32((int)PARTS_HEAD)),
                                 _mm512_fpclass_ps_mask(x, QUIET | SIGNALING), _mm512_set1_epi32(PARTS_NAN));
}

/* The parts of the pairs of `valid`. */
INLINE void split_pairs(const int parts, __m512 even, __m512 odd, __mmask16 valid, uint32_t *out,
                        int64_t step) {
#pragma GCC unroll 3
    for (int p = 0; p < parts; p++) {
        const __m512i low = heads_of(even), high = heads_of(odd);
        _mm512_mask_storeu_epi32(out + p * step, valid, _mm512_or_si512(_mm512_srli_epi32(low, 16), high));
        even = _mm512_sub_ps(even, _mm512_castsi512_ps(low));
        odd = _mm512_sub_ps(odd, _mm512_castsi512_ps(high));
    }
}

/* The first n of 16 lanes; n may be any number. */
INLINE __mmask16 first_lanes(int64_t n) {
    return (__mmask16)(n >= LANES ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}

INLINE void split_rows(const int parts, int64_t n, const float *even, const float *odd, uint32_t *out,
                       int64_t step) {
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 valid = first_lanes(n - i);
        split_pairs(parts, _mm512_maskz_loadu_ps(valid, even + i), _mm512_maskz_loadu_ps(valid, odd + i),
                    valid, out + i, step);
    }
}

INLINE void split_row(const int parts, int64_t n, const float *in, uint32_t *out, int64_t step) {
    const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    for (int64_t i = 0; i < n; i += 2 * LANES) {
        const __m512 first = _mm512_maskz_loadu_ps(first_lanes(n - i), in + i),
                     second = _mm512_maskz_loadu_ps(first_lanes(n - i - LANES), in + i + LANES);
        split_pairs(parts, _mm512_permutex2var_ps(first, evens, second),
                    _mm512_permutex2var_ps(first, odds, second), first_lanes((n - i + 1) / 2), out + i / 2,
                    step);
    }
}

static bool all_finite(int64_t rows, int64_t n, const float *sums, int64_t sums_row) {
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j += LANES) {
            const __m512i bits =
                _mm512_castps_si512(_mm512_maskz_loadu_ps(first_lanes(n - j), sums + i * sums_row + j));
            most = _mm512_max_epu32(most, _mm512_and_si512(bits, no_sign));
        }
    return _mm512_cmpge_epu32_mask(most, _mm512_set1_epi32(0x7f800000)) == 0;
}

/* ---- Products ---- */

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
                if (of.b != right) {
                    tile_load(6, b + of.b * b_bytes, b_stride);
                    if (cols > 1) tile_load(7, b + of.b * b_bytes + 4 * TILE_COLS, b_stride);
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
        split_rows(count, n, even, odd, out, step);                                                          \
    }                                                                                                        \
    static void split_row_##name(int64_t n, const float *in, uint32_t *out, int64_t step) {                  \
        split_row(count, n, in, out, step);                                                                  \
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
                                              .finite = all_finite,                                          \
                                              .peak = peak_##name};                                          \
    }
FILL(bf16x3, 2)
FILL(bf16x6, 3)
