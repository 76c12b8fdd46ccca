/* SPDX-License-Identifier: Apache-2.0
 * e^x - 1, the hyperbolic tangent and 1 / (1 + e^-x) in the vector vocabulary, after simd/exp.h and with its terms. All instruction
 * sets give the same bits; docs/numerics.md states the errors. */
#ifndef TARTAN_SIMD_EXPM1_H
#define TARTAN_SIMD_EXPM1_H

#include "simd/exp.h"

/* Below EXPM1_LEAST, e^x - 1 rounds to -1; at TANH_MOST, tanh x to 1. Below EXPM1_SMALL, x is nearer to e^x - 1 than any other
 * number. tanh(x) is about x + x^3 p(x^2) for numbers below TANH_SMALL; p, highest power first, is the minimax polynomial of its
 * degree, with an error of 2^-28.0 of tanh(x) for f32 and 2^-57.1 for f64. */
#if TARTAN_I_REAL == 32
#define EXPM1_LEAST (-20.0f)
#define EXPM1_SMALL 0x1p-30f
#define TANH_MOST   10.0f
#define TANH_SMALL  0.97f
static const real tanh_terms[] = {-0x1.a0be14p-12f, 0x1.3df008p-9f, -0x1.0974a6p-7f, 0x1.619886p-6f,
                                  -0x1.b9a04p-5f,   0x1.110e2p-3f,  -0x1.55554ap-2f};
#else
#define EXPM1_LEAST (-40.0)
#define EXPM1_SMALL 0x1p-60
#define TANH_MOST   20.0
#define TANH_SMALL  0.97
static const real tanh_terms[] = {-0x1.47815544911c2p-24, 0x1.92bbab0b3c08cp-21,  -0x1.f3b6f0da19c9bp-19,
                                  0x1.b14d05b9911b1p-17,  -0x1.34b206338eb1dp-15, 0x1.90140fe5005dfp-14,
                                  -0x1.f404058029d82p-13, 0x1.35381bf19e078p-11,  -0x1.7d9f71b0f2f32p-10,
                                  0x1.d6d378e7d91a2p-9,   -0x1.226e32c7489eep-7,  0x1.664f486a17293p-6,
                                  -0x1.ba1ba1b997ba5p-5,  0x1.1111111110740p-3,   -0x1.5555555555550p-2};
#endif

/* (e^x - 1) / 2 as the sum of the result and *low, a correction of less than its last place. With h = 2^(k-1) and e^r - 1 = r + s,
 * it is (h - 1/2) + h r + h s. Halves, so that h does not overflow. */
EXP_INLINE vec expm1_half(vec x, vec *low) {
    const vec round = vec_fill(EXP_ROUND);
    x = vec_min(vec_fill(EXP_MOST), vec_max(vec_fill(EXPM1_LEAST), x)); /* a NaN stays */
    const vec moved = vec_fma(x, vec_fill(LOG2_E), round), k = moved - round;
    const vec most = vec_fma(k, vec_fill(-LN2_HIGH), x), r = vec_fma(k, vec_fill(-LN2_LOW), most);
    const vec rest = vec_fma(k, vec_fill(-LN2_LOW), most - r);
    const vec s = vec_fma(r * r, POLYNOMIAL(exp_terms, r), rest);
    const vec h = vec_power(moved - vec_fill(1)), a = h - vec_fill((real)0.5), b = h * r;
    const vec high = a + b, rest_of_high = vec_fma(h, s, (a - high) + b), all = high + rest_of_high;
    *low = rest_of_high - (all - high);
    return all;
}

/* x for numbers near 0, -1 for -infinity. */
EXP_INLINE vec vec_expm1(vec x) {
    vec low;
    const vec half = expm1_half(x, &low);
    return vec_select(vec_greater(vec_abs(x), vec_fill(EXPM1_SMALL)), half + half, x);
}

/* x + x^3 p(x^2) for numbers below TANH_SMALL. Else (d - 2) / d with d = e^2|x| + 1 = (2^k + 1) + 2^k (e^r - 1), where d - 2 is exact
 * unless it makes no difference. */
EXP_INLINE vec vec_tanh(vec x) {
    const vec size = vec_abs(x), square = x * x, round = vec_fill(EXP_ROUND);
    const vec near = vec_fma(size * square, POLYNOMIAL(tanh_terms, square), size);
    const vec twice = vec_min(vec_fill(2 * TANH_MOST), size + size); /* a NaN stays */
    const vec moved = vec_fma(twice, vec_fill(LOG2_E), round), k = moved - round;
    const vec r = vec_fma(k, vec_fill(-LN2_LOW), vec_fma(k, vec_fill(-LN2_HIGH), twice));
    const vec power = vec_power(moved), s = vec_fma(r * r, POLYNOMIAL(exp_terms, r), r);
    const vec d = vec_fma(power, s, power + vec_fill(1));
    const vec far = vec_fma(vec_fill(-2), vec_fill(1) / d, vec_fill(1));
    return vec_copy_sign(vec_select(vec_greater(vec_fill(TANH_SMALL), size), near, far), x);
}

/* No power of e overflows, so that small results are precise. */
EXP_INLINE vec vec_sigmoid(vec x) {
    const vec one = vec_fill(1), power = vec_exp(-vec_abs(x));
    return vec_select(vec_greater(x, vec_zero()), one, power) / (one + power);
}

#endif
