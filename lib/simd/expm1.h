/* SPDX-License-Identifier: Apache-2.0
 * e^x - 1, the hyperbolic tangent and 1 / (1 + e^-x) in the vector vocabulary, after simd/exp.h and with its terms. All instruction
 * sets give the same bits; docs/numerics.md states the errors. */
#ifndef TARTAN_SIMD_EXPM1_H
#define TARTAN_SIMD_EXPM1_H

#include "simd/exp.h"

/* Below EXPM1_LEAST, e^x - 1 rounds to -1; at TANH_MOST, tanh x to 1. Below EXPM1_SMALL, x is nearer to e^x - 1 than any other
 * number. */
#if TARTAN_I_REAL == 32
#define EXPM1_LEAST (-20.0f)
#define EXPM1_SMALL 0x1p-30f
#define TANH_MOST   10.0f
#else
#define EXPM1_LEAST (-40.0)
#define EXPM1_SMALL 0x1p-60
#define TANH_MOST   20.0
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

/* With h + l = (e^2|x| - 1) / 2: (h + l) / (h + l + 1). The quotient of the rounded numbers is corrected by its remainder. */
EXP_INLINE vec vec_tanh(vec x) {
    const vec size = vec_min(vec_fill(TANH_MOST), vec_abs(x)), one = vec_fill(1);
    vec low;
    const vec high = expm1_half(size + size, &low), sum = high + one, part = sum - high;
    const vec sum_low = ((high - (sum - part)) + (one - part)) + low; /* what `sum` lacks */
    const vec inverse = one / sum, q = high * inverse;
    const vec rest = vec_fma(-q, sum, high) + vec_fma(-q, sum_low, low);
    return vec_copy_sign(vec_fma(rest, inverse, q), x);
}

/* No power of e overflows, so that small results are precise. */
EXP_INLINE vec vec_sigmoid(vec x) {
    const vec one = vec_fill(1), power = vec_exp(-vec_abs(x));
    return vec_select(vec_greater(x, vec_zero()), one, power) / (one + power);
}

#endif
