/* SPDX-License-Identifier: Apache-2.0
 * exp in the vector vocabulary, after simd/simd.h. Each step is rounded as IEEE 754 says, so all instruction
 * sets give the same bits; docs/numerics.md states the error.
 *
 *   exp(x) = 2^k exp(r), k the integer nearest to x / ln 2, |r| <= ln(2) / 2
 *
 * An instruction set may provide
 *   vec_scale(v, k)   v * 2^k, rounded once, for integers k up to twice the largest exponent, and NaN */
#ifndef TARTAN_SIMD_EXP_H
#define TARTAN_SIMD_EXP_H

#define EXP_INLINE static inline __attribute__((always_inline))

/* EXP_ROUND + x has no fractional bits, so adding and subtracting it rounds x to an integer. exp(EXP_LEAST) is less
 * than half the smallest positive number and rounds to 0; exp(EXP_MOST) overflows. LN2_HIGH has so few bits that its
 * product with k is exact. exp(r) is about 1 + r + r^2 p(r); p, highest power first, is the minimax polynomial of its
 * degree, with a relative error of 2^-28.3 for f32 and 2^-57.9 for f64. */
#if TARTAN_I_REAL == 32
#define EXP_ROUND 0x1.8p23f
#define EXP_LEAST (-104.0f)
#define EXP_MOST  89.0f
#define LOG2_E    0x1.715476p+0f
#define LN2_HIGH  0x1.62e4p-1f
#define LN2_LOW   0x1.7f7d1cp-20f
static const real exp_terms[] = {0x1.6a2418p-10f, 0x1.1239f4p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f,
                                 0x1.fffffcp-2f};
#else
#define EXP_ROUND 0x1.8p52
#define EXP_LEAST (-746.0)
#define EXP_MOST  710.0
#define LOG2_E    0x1.71547652b82fep+0
#define LN2_HIGH  0x1.62e42fefa38p-1
#define LN2_LOW   0x1.ef35793c7673p-45
static const real exp_terms[] = {0x1.ad7f5aed8f0c3p-26, 0x1.28ad7f07e3b19p-22, 0x1.71df2572a59cfp-19,
                                 0x1.a01999ffca1f3p-16, 0x1.a01a012a4091ep-13, 0x1.6c16c1842e74cp-10,
                                 0x1.1111111127c42p-7,  0x1.555555555086ap-5,  0x1.55555555554fap-3,
                                 0x1.000000000000ap-1};
#endif

#ifndef vec_scale
/* In two steps; only the second can leave the range of normal numbers and round. */
EXP_INLINE vec vec_scale(vec v, vec k) {
    const vec round = vec_fill(EXP_ROUND), half = vec_fma(k, vec_fill((real)0.5), round);
    const vec rest = vec_sub(k, vec_sub(half, round));
    return vec_mul(vec_mul(v, vec_power(half)), vec_power(vec_add(rest, round)));
}
#endif

/* terms[0] x^(n - 1) + terms[1] x^(n - 2) + ... + terms[n - 1], by Horner's rule. */
EXP_INLINE vec vec_polynomial(const real *terms, const int n, vec x) {
    vec p = vec_fill(terms[0]);
#pragma GCC unroll 32
    for (int i = 1; i < n; i++) p = vec_fma(p, x, vec_fill(terms[i]));
    return p;
}
#define POLYNOMIAL(terms, x) vec_polynomial(terms, (int)(sizeof(terms) / sizeof(terms)[0]), x)

/* 2^k e^r, |r| being at most about ln(2) / 2. */
EXP_INLINE vec exp_of_parts(vec k, vec r) {
    const vec p = POLYNOMIAL(exp_terms, r);
    return vec_scale(vec_fma(vec_fma(p, r, vec_fill(1)), r, vec_fill(1)), k);
}

/* NaN for NaN, 0 for -infinity, 1 for 0. */
EXP_INLINE vec vec_exp(vec x) {
    const vec round = vec_fill(EXP_ROUND);
    x = vec_min(vec_fill(EXP_MOST), vec_max(vec_fill(EXP_LEAST), x)); /* a NaN stays */
    const vec k = vec_sub(vec_fma(x, vec_fill(LOG2_E), round), round);
    const vec r = vec_fma(k, vec_fill(-LN2_LOW), vec_fma(k, vec_fill(-LN2_HIGH), x));
    return exp_of_parts(k, r);
}

/* e^(a b) without rounding the product, which lies between 2 EXP_LEAST and EXP_MOST, or is NaN. */
EXP_INLINE vec exp_of_product(vec a, vec b) {
    const vec round = vec_fill(EXP_ROUND), k = vec_fma(a * b, vec_fill(LOG2_E), round) - round;
    return exp_of_parts(k, vec_fma(k, vec_fill(-LN2_LOW), vec_fma(a, b, k * vec_fill(-LN2_HIGH))));
}

#endif
