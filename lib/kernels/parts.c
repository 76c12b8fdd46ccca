/* SPDX-License-Identifier: Apache-2.0
 * Products of f32 as sums of bf16 in plain C: the reference for the kernel on tiles, which it follows step by step, as Intel
 * describes TDPBF16PS: one chain of fused multiply-adds for the even and one for the odd numbers of a tile's rows, whose sum is
 * added to what was there; everything rounded to nearest even, and numbers below 2^-126 are zeros. */
#include "simd/parts.h"
#include "core/dtype.h"
#include "kernels/kernels.h"

#include <math.h>

enum { LANES = 16, ROWS = 16, PAIRS = 16 }; /* of tiles */

/* ---- Parts ---- */

static uint32_t head_of(float x) {
    const uint32_t bits = tartan_i_bits_of_f32(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return PARTS_NAN; /* adding to it could make it a number */
    return (bits + PARTS_HALF) & PARTS_HEAD;
}

static void split_pair(int parts, float even, float odd, uint32_t *out, int64_t step) {
    for (int p = 0; p < parts; p++) {
        const uint32_t low = head_of(even), high = head_of(odd);
        out[p * step] = low >> 16 | high;
        even -= tartan_i_f32_of_bits(low);
        odd -= tartan_i_f32_of_bits(high);
    }
}

static void split_rows(int parts, int64_t n, const float *even, const float *odd, uint32_t *out,
                       int64_t step) {
    for (int64_t i = 0; i < n; i++) split_pair(parts, even[i], odd[i], out + i, step);
}

static void split_row(int parts, int64_t n, const float *in, uint32_t *out, int64_t step) {
    for (int64_t i = 0; i < n; i += 2) split_pair(parts, in[i], i + 1 < n ? in[i + 1] : 0, out + i / 2, step);
}

static bool all_finite(int64_t rows, int64_t n, const float *sums, int64_t sums_row) {
    uint32_t most = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            const uint32_t bits = tartan_i_bits_of_f32(sums[i * sums_row + j]) & 0x7fffffffu;
            if (bits > most) most = bits;
        }
    return most < 0x7f800000u;
}

/* ---- Products ---- */

static float flushed(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float low_half(uint32_t pair) {
    return flushed(tartan_i_f32_of_bits(pair << 16));
}

static float high_half(uint32_t pair) {
    return flushed(tartan_i_f32_of_bits(pair & PARTS_HEAD));
}

/* What one tile of pairs adds to a sum. */
static float tile_product(int64_t pairs, const uint32_t *a, const uint32_t *b, int64_t b_step) {
    float even = 0, odd = 0;
    for (int64_t u = 0; u < pairs; u++) {
        const uint32_t left = a[u], right = b[u * b_step];
        even = flushed(__builtin_fmaf(low_half(left), low_half(right), even));
        odd = flushed(__builtin_fmaf(high_half(left), high_half(right), odd));
    }
    return flushed(even + odd);
}

static float term_product(int parts, const tartan_i_strip *s, const tartan_i_term *t, int64_t i, int64_t j,
                          float sum) {
    const uint32_t *a = (const uint32_t *)t->a + (s->row + i) * parts * s->a_row;
    const uint32_t *b = (const uint32_t *)s->b + t->b * parts * s->b_row + j;
    for (int64_t k = 0; k < t->k; k += s->tile_units)
        for (int q = 0; q < parts_count(parts); q++) {
            const parts_product of = parts_products[parts][q];
            const float more = tile_product(s->tile_units, a + of.a * s->a_row + k,
                                            b + (k * parts + of.b) * s->b_row, parts * s->b_row);
            sum = flushed(flushed(sum) + more);
        }
    return sum;
}

static void strip_run(int parts, const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    float *sums = s->sums;
    for (int64_t i = 0; s->first && i < s->rows; i++)
        for (int64_t j = 0; j < s->width; j++) sums[i * s->sums_row + j] = 0;
    for (const tartan_i_term *t = terms; t < terms + nterms; t++) {
        for (int64_t i = 0; i < s->rows; i++)
            for (int64_t j = 0; j < s->width; j++) {
                float *sum = sums + i * s->sums_row + j;
                *sum = term_product(parts, s, t, i, j, *sum);
            }
        if (s->meanwhile != NULL) s->meanwhile(s->other);
    }
}

/* Products of ones and zeros; the sums stay finite for longer than anybody waits. */
static int64_t peak(int parts, int64_t rounds, void *sink) {
    static const uint32_t a[PARTS_MOST] = {0x3f803f80}, b[PARTS_MOST * LANES] = {0x3f803f80};
    const tartan_i_strip strip = {.rows = 1,
                                  .width = LANES,
                                  .a_row = 1,
                                  .a_col = 1,
                                  .b = b,
                                  .b_row = LANES,
                                  .sums = sink,
                                  .sums_row = LANES,
                                  .tile_rows = 1,
                                  .tile_units = 1};
    const tartan_i_term term = {.a = a, .k = 1};
    for (int64_t i = 0; i < rounds; i++) strip_run(parts, &strip, &term, 1);
    return rounds * LANES * 4;
}

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
    void tartan_i_kernels_c_##name(tartan_i_kernels *kernels) {                                              \
        kernels->product = (tartan_i_product){.factor = (count) == 2 ? TARTAN_I_BF16X3 : TARTAN_I_BF16X6,    \
                                              .parts = count,                                                \
                                              .group = 2,                                                    \
                                              .bytes = (count) * (int64_t)sizeof(uint32_t),                  \
                                              .lanes = LANES,                                                \
                                              .vectors = 2,                                                  \
                                              .most_tile_rows = ROWS,                                        \
                                              .most_tile_units = PAIRS,                                      \
                                              .rows = {2 * ROWS, 2 * ROWS},                                  \
                                              .strip = strip_##name,                                         \
                                              .split_rows = split_rows_##name,                               \
                                              .split_row = split_row_##name,                                 \
                                              .finite = all_finite,                                          \
                                              .peak = peak_##name};                                          \
    }
FILL(bf16x3, 2)
FILL(bf16x6, 3)
