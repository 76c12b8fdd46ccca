/* SPDX-License-Identifier: Apache-2.0
 * The functions of fused.def, and random numbers, compiled once for each instruction set and sum type. */
#include "kernels/fused.h"

#include "kernels/rows.h"
#include "kernels/words.h"

#include "simd/erf.h"
#include "simd/exp.h"
#include "simd/expm1.h"
#include "simd/log.h"
#if TARTAN_I_REAL == 64
#include "simd/turn.h"
#endif

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

typedef void (*body)(const vec *x, const vec *p, vec *y);

/* The counts and the body are constants of the caller. */
INLINE void step(const void *const *in, int nin, void *const *out, int nout, const vec *p, body f, int64_t at,
                 int64_t lanes) {
    vec x[TARTAN_I_FUSED_IN], y[TARTAN_I_FUSED_OUT];
#pragma GCC unroll 16
    for (int k = 0; k < nin; k++) x[k] = load_reals(in[k], at, lanes);
    f(x, p, y);
#pragma GCC unroll 8
    for (int k = 0; k < nout; k++) store_reals(out[k], at, lanes, y[k]);
}

#define STEP(at, lanes) step(in, IN, out, OUT, p, f, at, lanes)
#define FUSED(name, in_parts, drawn, out_parts, ...)                                                         \
    INLINE void body_of_##name(const vec *x, const vec *p, vec *y) {                                         \
        (void)p;                                                                                             \
        __VA_ARGS__                                                                                          \
    }                                                                                                        \
    static void fused_##name(int64_t n, const double *given, const void *const *in, void *const *out) {      \
        enum { IN = PARTS in_parts + (TARTAN_I_DRAW_##drawn != TARTAN_I_DRAW_NONE), OUT = PARTS out_parts }; \
        const body f = body_of_##name;                                                                       \
        vec p[TARTAN_I_FUSED_PARAMETERS];                                                                    \
        for (int k = 0; k < TARTAN_I_FUSED_PARAMETERS; k++) p[k] = vec_fill((real)given[k]);                 \
        EACH_VECTOR(n, STEP);                                                                                \
    }
#include "kernels/fused.def"
#undef FUSED
#undef STEP

static const tartan_i_fused_kernel rows[] = {
#define FUSED(name, ...) fused_##name,
#include "kernels/fused.def"
#undef FUSED
};

/* ---- Random numbers ---- */

/* Counters at a time. */
enum { COUNTERS = 16, ROUNDS = 10 };

/* A vector has the lower halves of its integers for words of as many counters; whatever is in the upper halves changes nothing. */
typedef struct keys {
    vec_u64 low[ROUNDS], high[ROUNDS];
} keys;

INLINE vec_u64 all_of(uint64_t x) {
    const vec_u64 zero = {0};
    return zero + x;
}

static void expand(uint64_t seed, keys *out) {
    uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        out->low[round] = all_of(low), out->high[round] = all_of(high);
        low += 0x9E3779B9, high += 0xBB67AE85;
    }
}

/* The words of COUNTERS counters from `index` on, counter by counter. The constants are from Philox4x32. */
INLINE void philox(const tartan_i_drawing *of, const keys *k, uint64_t index, uint32_t words[4 * COUNTERS]) {
    static const uint64_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const vec_u64 first = all_of(0xD2511F53), second = all_of(0xCD9E8D57), lower = all_of(UINT32_MAX);
    vec_u64 each;
    memcpy(&each, numbers, sizeof each);
    for (int i = 0; i < COUNTERS; i += U64_LANES) {
        vec_u64 a = all_of(of->place), b = all_of(index + (uint64_t)i) + each, c = b >> 32,
                d = all_of(of->stream);
#pragma GCC unroll 10
        for (int round = 0; round < ROUNDS; round++) {
            const vec_u64 of_a = vec_u64_product(a, first), of_c = vec_u64_product(c, second);
            a = vec_u64_upper(of_c) ^ b ^ k->low[round];
            c = vec_u64_upper(of_a) ^ d ^ k->high[round];
            b = of_c, d = of_a;
        }
        uint64_t pairs[2 * U64_LANES];
        vec_u64_store_pairs(pairs, (a & lower) | b << 32, (c & lower) | d << 32);
        memcpy(words + 4 * i, pairs, sizeof pairs);
    }
}

/* 24 bits of a word, or 53 of two, as a fraction. */
INLINE real fraction_of(uint32_t high, uint32_t low) {
    if (sizeof(real) == sizeof(float)) return (real)(int32_t)(high >> 8) * (real)0x1p-24;
    return (real)((double)(int64_t)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53);
}

INLINE real fraction_of_word(uint32_t word) {
    return sizeof(real) == sizeof(float) ? (real)(int32_t)(word >> 8) * (real)0x1p-24
                                         : (real)word * (real)0x1p-32;
}

/* The pairs of normal numbers of COUNTERS counters, as tartan_i_normal_pair makes them, but with vec_log and vec_turn: with the same
 * bits everywhere. */
void NORMALS(const uint32_t words[4 * COUNTERS], double out[2 * COUNTERS]);

#if TARTAN_I_REAL == 64
INLINE double fraction_of_normal(uint32_t high, uint32_t low) {
    return (double)(int64_t)((uint64_t)(high >> 5) << 26 | low >> 6) * 0x1p-53;
}

void NORMALS(const uint32_t words[4 * COUNTERS], double out[2 * COUNTERS]) {
    real radius[COUNTERS], angle[COUNTERS], pair[2][COUNTERS];
    for (int i = 0; i < COUNTERS; i++) {
        radius[i] = 1 - fraction_of_normal(words[4 * i], words[4 * i + 1]); /* never 0 */
        angle[i] = fraction_of_normal(words[4 * i + 2], words[4 * i + 3]);
    }
    for (int i = 0; i < COUNTERS; i += LANES) {
        const vec size = vec_sqrt(vec_fill(-2) * vec_log(vec_load(radius + i)));
        vec sine, cosine;
        vec_turn(vec_load(angle + i), &sine, &cosine);
        vec_store(pair[0] + i, size * cosine);
        vec_store(pair[1] + i, size * sine);
    }
    for (int i = 0; i < COUNTERS; i++) out[2 * i] = pair[0][i], out[2 * i + 1] = pair[1][i];
}
#endif

INLINE int64_t numbers_of_a_counter(const tartan_i_drawing *of) {
    return of->draw == TARTAN_I_DRAW_KEPT || of->draw == TARTAN_I_DRAW_WORD ? 4 : 2;
}

/* The numbers of COUNTERS counters, 4 (KEPT, WORD) or 2 from each. */
INLINE void draw_some(const tartan_i_drawing *of, const keys *k, uint64_t index, real *out) {
    uint32_t words[4 * COUNTERS];
    double normals[2 * COUNTERS];
    philox(of, k, index, words);
    switch (of->draw) {
    case TARTAN_I_DRAW_KEPT:
        for (int i = 0; i < 4 * COUNTERS; i++) out[i] = words[i] >= of->threshold ? 1 : 0;
        break;
    case TARTAN_I_DRAW_WORD:
        for (int i = 0; i < 4 * COUNTERS; i++) out[i] = fraction_of_word(words[i]);
        break;
    case TARTAN_I_DRAW_NORMAL:
        NORMALS(words, normals);
        for (int i = 0; i < 2 * COUNTERS; i++) out[i] = (real)normals[i];
        break;
    default:
        for (int i = 0; i < 2 * COUNTERS; i++) out[i] = fraction_of(words[2 * i], words[2 * i + 1]);
    }
}

static void draw(const tartan_i_drawing *of, uint64_t first, int64_t n, void *to) {
    const int64_t each = numbers_of_a_counter(of), some = COUNTERS * each;
    real room[4 * COUNTERS], *out = to;
    uint64_t index = first / (uint64_t)each;
    int64_t skipped = (int64_t)(first % (uint64_t)each);
    keys k;
    expand(of->seed, &k);
    while (n > 0) {
        const int64_t here = some - skipped < n ? some - skipped : n;
        real *const from = here == some ? out : room;
        draw_some(of, &k, index, from);
        if (from == room) memcpy(out, room + skipped, (size_t)here * sizeof(real));
        out += here, n -= here, index += COUNTERS, skipped = 0;
    }
}

void FUSED_FILL(tartan_i_kernels *kernels) {
    kernels->fused = rows;
    kernels->draw = draw;
}
