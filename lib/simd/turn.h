/* SPDX-License-Identifier: Apache-2.0
 * Sine and cosine of parts of a turn in the vector vocabulary, after simd/exp.h, of f64 alone. All instruction sets give the same bits;
 * docs/numerics.md states the error.
 *
 *   t = q / 4 + r, q the integer nearest to 4 t, |r| <= 1/8, which is exact */
#ifndef TARTAN_SIMD_TURN_H
#define TARTAN_SIMD_TURN_H

#include "simd/exp.h"

/* sin(2 pi r) is about r (2 pi + r^2 s(r^2)), and cos(2 pi r) about 1 + r^2 c(r^2); s and c, highest power first, interpolate at
 * Chebyshev's places, with errors of 2^-66 and 2^-62. */
#define TURN_HIGH  0x1.921fb54442d18p+2 /* 2 pi */
#define TURN_LOW   0x1.1a62633145c07p-52
#define TURN_ROUND 0x1p52 /* TURN_ROUND + q is exact, and q stands in its lowest bits */
static const real sine_terms[] = {-0x1.6cc577dadd922p-1, 0x1.e8f036bcd3237p+1,  -0x1.e3074d2614b2dp+3,
                                  0x1.50783486facaap+5,  -0x1.32d2cce62b872p+6, 0x1.466bc6775aae1p+6,
                                  -0x1.4abbce625be53p+5};
static const real cosine_terms[] = {-0x1.b2f3eb054afcdp+0, 0x1.f9ce245cada0bp+2,  -0x1.a6d1eef479be1p+4,
                                    0x1.e1f5068688d5bp+5,  -0x1.55d3c7e3cb241p+6, 0x1.03c1f081b5ac0p+6,
                                    -0x1.3bd3cc9be45dep+4};

/* Of t turns, 0 <= t <= 1. */
EXP_INLINE void vec_turn(vec t, vec *sine, vec *cosine) {
    const vec moved = vec_fma(t, vec_fill(4), vec_fill(TURN_ROUND));
    const vec r = vec_fma(moved - vec_fill(TURN_ROUND), vec_fill(-0.25), t), square = r * r;
    const vec s =
        r * vec_fill(TURN_HIGH) + r * vec_fma(square, POLYNOMIAL(sine_terms, square), vec_fill(TURN_LOW));
    const vec c = vec_fma(square, POLYNOMIAL(cosine_terms, square), vec_fill(1));
    const vec_bits q = vec_bits_of(moved);
    const vec_mask odd = vec_greater(vec_of_bits((q & 1) << 62), vec_zero()); /* 2 or 0 */
    const vec_bits sine_sign = (q & 2) << 62, cosine_sign = ((q + 1) & 2) << 62;
    *sine = vec_of_bits(vec_bits_of(vec_select(odd, c, s)) ^ sine_sign);
    *cosine = vec_of_bits(vec_bits_of(vec_select(odd, s, c)) ^ cosine_sign);
}

#endif
