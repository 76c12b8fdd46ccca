/* SPDX-License-Identifier: Apache-2.0
 * The natural logarithm in the vector vocabulary, after simd/exp.h. All instruction sets give the same bits; docs/numerics.md
 * states the error.
 *
 *   log(x) = k ln 2 + log(1 + f), x = 2^k (1 + f), 2/3 <= 1 + f < 4/3 */
#ifndef TARTAN_SIMD_LOG_H
#define TARTAN_SIMD_LOG_H

#include "simd/exp.h"

#include <math.h>

/* log(1 + f) is about f - f^2 / 2 + f^3 p(f); p, highest power first, is the minimax polynomial of its degree, with an error of
 * 2^-27.3 of log(1 + f) for f32 and 2^-56.5 for f64. LOG_INTEGER + k is exact for 0 <= k < 2^(REAL_FRACTION_BITS - 1), and k
 * stands in its lowest bits. */
#if TARTAN_I_REAL == 32
#define LOG_FIRST   0x1.555556p-1f
#define LOG_NORMAL  0x1p-126f
#define LOG_RAISE   24
#define LOG_RAISED  0x1p24f
#define LOG_INTEGER 0x1p23f
static const real log_terms[] = {-0x1.080f94p-3f, 0x1.1e6424p-3f, -0x1.f30bfcp-4f, 0x1.1ed7aep-3f,
                                 -0x1.559e02p-3f, 0x1.99d01ep-3f, -0x1.fffefp-3f,  0x1.555506p-2f};
#else
#define LOG_FIRST   0x1.5555555555555p-1
#define LOG_NORMAL  0x1p-1022
#define LOG_RAISE   54
#define LOG_RAISED  0x1p54
#define LOG_INTEGER 0x1p52
static const real log_terms[] = {
    0x1.5a11463fc7886p-4, -0x1.614002400af11p-4, 0x1.586afc3cb1ce4p-5, -0x1.76af5dc09340bp-5,
    0x1.ef2f96f1deed4p-5, -0x1.05c4eebece98bp-4, 0x1.10731b06cbb83p-4, -0x1.2413d30f624ebp-4,
    0x1.3b1cee90f0015p-4, -0x1.555c078441c6fp-4, 0x1.745cc00b55328p-4, -0x1.9999620abe59fp-4,
    0x1.c71c73bc477abp-4, -0x1.000000859c7f3p-3, 0x1.249249216aad2p-3, -0x1.555555540cd03p-3,
    0x1.999999999e69ep-3, -0x1.0000000000962p-2, 0x1.5555555555543p-2};
#endif

/* -infinity for 0, NaN for numbers below. */
EXP_INLINE vec vec_log(vec x) {
    const vec infinity = vec_fill((real)INFINITY);
    const vec_mask small = vec_greater(vec_fill(LOG_NORMAL), x);
    const vec normal = vec_select(small, x * vec_fill(LOG_RAISED), x);
    /* The exponent that is taken from LOG_FIRST and not from 1 is k. */
    const vec_bits moved =
        vec_bits_of(normal) + (vec_bits_of(vec_fill(1)) - vec_bits_of(vec_fill(LOG_FIRST)));
    const vec bias = vec_select(small, vec_fill(LOG_INTEGER + REAL_EXPONENT_BIAS + LOG_RAISE),
                                vec_fill(LOG_INTEGER + REAL_EXPONENT_BIAS));
    const vec k = vec_of_bits((moved >> REAL_FRACTION_BITS) | vec_bits_of(vec_fill(LOG_INTEGER))) - bias;
    const vec_bits fraction = moved & (((real_bits)1 << REAL_FRACTION_BITS) - 1);
    const vec f = vec_of_bits(fraction + vec_bits_of(vec_fill(LOG_FIRST))) - vec_fill(1), square = f * f;
    vec y = vec_fma(square, f * POLYNOMIAL(log_terms, f), k * vec_fill(LN2_LOW));
    y = f + vec_fma(vec_fill((real)-0.5), square, y);
    y = vec_fma(k, vec_fill(LN2_HIGH), y);
    const vec no_number = vec_select(vec_greater(vec_zero(), x), vec_fill((real)NAN), -infinity);
    y = vec_select(vec_greater(x, vec_zero()), y, no_number);
    return vec_select(vec_greater(infinity, x), y, x); /* infinity and NaN themselves */
}

#endif
