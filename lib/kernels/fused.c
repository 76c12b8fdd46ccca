/* SPDX-License-Identifier: Apache-2.0
 * The functions of fused.def, and random numbers, compiled once for each instruction set and sum type. */
#include "kernels/fused.h"

#include "kernels/rows.h"
#include "kernels/words.h"

#include "core/random.h"

#include "simd/erf.h"
#include "simd/exp.h"
#include "simd/expm1.h"
#include "simd/log.h"

#define EXP(x)     vec_exp(x)
#define LOG(x)     vec_log(x)
#define TANH(x)    vec_tanh(x)
#define SIGMOID(x) vec_sigmoid(x)
#define LEADING(x) vec_of_bits(vec_bits_of(x) & EXPONENT)
#define ROUND(x)   round_to_even(x)
#define R          vec

#define EXPONENT (~REAL_SIGN & ~(((real_bits)1 << REAL_FRACTION_BITS) - 1))

/* Numbers from 2^23 to 2^24, or of f64 from 2^52 to 2^53, are integers. */
INLINE vec round_to_even(vec x) {
    const vec integers = vec_fill(sizeof(real) == sizeof(float) ? (real)0x1p23 : (real)0x1p52);
    return (x + integers) - integers;
}

/* ---- Rows ---- */

/* The sum of a list of 1 to 7 numbers in brackets. */
#define PARTS(...)                         PARTS_OF(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define PARTS_OF(a, b, c, d, e, f, g, ...) ((a) + (b) + (c) + (d) + (e) + (f) + (g))

#define FUSED(name, in_parts, drawn, out_parts, ...)                                                         \
    INLINE void body_of_##name(const vec *x, const vec *p, vec *y) {                                         \
        (void)p;                                                                                             \
        __VA_ARGS__                                                                                          \
    }                                                                                                        \
    static void fused_##name(int64_t n, const double *given, const void *const *in, void *const *out) {      \
        enum { IN = PARTS in_parts + (TARTAN_I_DRAW_##drawn != TARTAN_I_DRAW_NONE), OUT = PARTS out_parts }; \
        vec p[TARTAN_I_FUSED_PARAMETERS], x[IN], y[OUT];                                                     \
        for (int k = 0; k < TARTAN_I_FUSED_PARAMETERS; k++) p[k] = vec_fill((real)given[k]);                 \
        for (int64_t at = 0; at < n; at += LANES) {                                                          \
            const int64_t lanes = n - at < LANES ? n - at : LANES;                                           \
            for (int k = 0; k < IN; k++) x[k] = load_reals(in[k], at, lanes);                                \
            body_of_##name(x, p, y);                                                                         \
            for (int k = 0; k < OUT; k++) store_reals(out[k], at, lanes, y[k]);                              \
        }                                                                                                    \
    }
#include "kernels/fused.def"
#undef FUSED

static const tartan_i_fused_kernel rows[] = {
#define FUSED(name, ...) fused_##name,
#include "kernels/fused.def"
#undef FUSED
};

/* ---- Random numbers ---- */

/* Counters at a time: loops over them become vectors of 32-bit words. */
enum { COUNTERS = 16 };

/* Word k of the counters `index` and following is words[k][i]. The constants are those of Philox4x32. */
static void philox(const tartan_i_drawing *of, uint64_t index, uint32_t words[4][COUNTERS]) {
    uint32_t *a = words[0], *b = words[1], *c = words[2], *d = words[3];
    uint32_t low = (uint32_t)of->seed, high = (uint32_t)(of->seed >> 32);
    for (int i = 0; i < COUNTERS; i++) {
        const uint64_t at = index + (uint64_t)i;
        a[i] = of->place, b[i] = (uint32_t)at, c[i] = (uint32_t)(at >> 32), d[i] = of->stream;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < COUNTERS; i++) {
            const uint64_t first = (uint64_t)0xD2511F53 * a[i], second = (uint64_t)0xCD9E8D57 * c[i];
            const uint32_t new_a = (uint32_t)(second >> 32) ^ b[i] ^ low,
                           new_c = (uint32_t)(first >> 32) ^ d[i] ^ high;
            a[i] = new_a, b[i] = (uint32_t)second, c[i] = new_c, d[i] = (uint32_t)first;
        }
        low += 0x9E3779B9, high += 0xBB67AE85;
    }
}

INLINE real fraction_of(uint32_t high, uint32_t low) {
    if (sizeof(real) == sizeof(float)) return (real)(high >> 8) * (real)0x1p-24;
    return (real)((double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53);
}

INLINE real fraction_of_word(uint32_t word) {
    return sizeof(real) == sizeof(float) ? (real)(word >> 8) * (real)0x1p-24 : (real)word * (real)0x1p-32;
}

INLINE int64_t numbers_of_a_counter(const tartan_i_drawing *of) {
    return of->draw == TARTAN_I_DRAW_KEPT || of->draw == TARTAN_I_DRAW_WORD ? 4 : 2;
}

/* Numbers of 4 (KEPT, WORD) or 2 a counter: those of COUNTERS counters. */
static void draw_some(const tartan_i_drawing *of, uint64_t index, real *out) {
    uint32_t words[4][COUNTERS];
    double both[2];
    if (of->draw == TARTAN_I_DRAW_NORMAL) {
        for (int i = 0; i < COUNTERS; i++) {
            tartan_i_normal_pair(of->seed, of->stream, index + (uint64_t)i, of->place, both);
            out[2 * i] = (real)both[0], out[2 * i + 1] = (real)both[1];
        }
        return;
    }
    philox(of, index, words);
    if (of->draw == TARTAN_I_DRAW_KEPT)
        for (int i = 0; i < COUNTERS; i++)
            for (int k = 0; k < 4; k++) out[4 * i + k] = words[k][i] >= of->threshold ? 1 : 0;
    else if (of->draw == TARTAN_I_DRAW_WORD)
        for (int i = 0; i < COUNTERS; i++)
            for (int k = 0; k < 4; k++) out[4 * i + k] = fraction_of_word(words[k][i]);
    else
        for (int i = 0; i < COUNTERS; i++)
            for (int k = 0; k < 2; k++) out[2 * i + k] = fraction_of(words[2 * k][i], words[2 * k + 1][i]);
}

static void draw(const tartan_i_drawing *of, uint64_t first, int64_t n, void *to) {
    const int64_t each = numbers_of_a_counter(of), some = COUNTERS * each;
    real room[4 * COUNTERS], *out = to;
    uint64_t index = first / (uint64_t)each;
    int64_t skipped = (int64_t)(first % (uint64_t)each);
    while (n > 0) {
        const int64_t here = some - skipped < n ? some - skipped : n;
        real *const from = here == some ? out : room;
        draw_some(of, index, from);
        if (from == room) memcpy(out, room + skipped, (size_t)here * sizeof(real));
        out += here, n -= here, index += COUNTERS, skipped = 0;
    }
}

void FUSED_FILL(tartan_i_kernels *kernels) {
    kernels->fused = rows;
    kernels->draw = draw;
}
