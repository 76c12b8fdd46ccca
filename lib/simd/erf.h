/* SPDX-License-Identifier: Apache-2.0
 * The error function and the distribution function of the normal distribution in the vector vocabulary, after simd/exp.h. All
 * instruction sets give the same bits; docs/numerics.md states the errors.
 *
 *   erf(x)    x + x p(x^2) where |x| < 1, else 1 - e^-x^2 s(x)
 *   Phi(-x)   e^(-x^2 / 2) s(x / sqrt 2) / 2 for x >= 0, and Phi(x) = 1 - Phi(-x)
 *   s(z)      e^z^2 erfc(z) = p(q) / (1 + 2 z) with q = (z - a) / (z + a), which maps z >= 0 to -1 <= q < 1 (Shepherd, Laframboise,
 *             "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", 1981) */
#ifndef TARTAN_SIMD_ERF_H
#define TARTAN_SIMD_ERF_H

#include "simd/exp.h"

/* Minimax polynomials of their degrees, highest power first: of erf(x) / x - 1, with an error of 2^-27.7 of erf(x) for f32 and
 * 2^-54.7 for f64, and of (1 + 2 z) s(z), with an error of 2^-23.9 and 2^-54.5 of it; for f32 its second coefficient is 2^-24 smaller,
 * so that Phi(0) is 1/2. From ERF_MOST on, erf rounds to 1; at
 * NORMAL_LEAST, Phi rounds to 0. */
#if TARTAN_I_REAL == 32
#define ERF_MOST     5.0f
#define ERF_SCALE    2.25f
#define NORMAL_LEAST 15.0f
#define SQRT_HALF    0x1.6a09e6p-1f
static const real erf_terms[] = {0x1.496a3ep-14f, -0x1.a3f7p-11f,  0x1.5405b2p-8f, -0x1.b7f90cp-6f,
                                 0x1.ce2cf8p-4f,  -0x1.81273ep-2f, 0x1.06eba8p-3f};
static const real erfc_terms[] = {0x1.6635fp-13f, 0x1.568858p-12f, -0x1.29614ep-10f, -0x1.50405cp-9f,
                                  0x1.08f7f8p-7f, 0x1.766deap-7f,  -0x1.54824ep-4f,  0x1.5272c8p-3f,
                                  -0x1.0bd67p-3f, -0x1.c39b72p-4f, 0x1.455efp+0f};
#else
#define ERF_MOST     7.0
#define ERF_SCALE    3.5
#define NORMAL_LEAST 40.0
#define SQRT_HALF    0x1.6a09e667f3bcdp-1
static const real erf_terms[] = {-0x1.abae8c3dabc7ap-31, 0x1.d71b26234defdp-27, -0x1.5c072a5a62877p-23,
                                 0x1.b97fd46c12409p-20,  -0x1.f4ca4d7e7aa7p-17, 0x1.f9a2baaa02a8ap-14,
                                 -0x1.c02db03de2239p-11, 0x1.565bccf92b78fp-8,  -0x1.b82ce311fa96p-6,
                                 0x1.ce2f21a040d16p-4,   -0x1.812746b0379bdp-2, 0x1.06eba8214db68p-3};
static const real erfc_terms[] = {
    0x1.7545fee39e7ecp-29, 0x1.7fc5415cf1598p-27,  -0x1.1fdaf73a47a43p-27, -0x1.9a83faee70aa4p-24,
    0x1.4c41edddac8eap-28, 0x1.442b5c25a9cfbp-21,  -0x1.d49c408d197eep-25, -0x1.002ce171662cdp-18,
    0x1.39329eab4db8dp-19, 0x1.970e144953c57p-16,  -0x1.66e5c611691edp-15, -0x1.fda97245d52f9p-14,
    0x1.27e6713194b11p-11, -0x1.3cf36478a332fp-12, -0x1.143c4cdc478abp-8,  0x1.38ec666ec3cedp-6,
    -0x1.8ff5ef764a5d5p-5, 0x1.68610604785bdp-4,   -0x1.d76830c355ee8p-4,  0x1.8f702ec6b2ecfp-4,
    -0x1.59e2c284b0bfdp-7, -0x1.1ebd220ea5937p-3,  0x1.3e0a99a0ee914p+0};
#endif

/* s(z). The quotient q is corrected by its remainder, since a rounded z + a knows less of a small z. */
EXP_INLINE vec erfc_scaled(vec z) {
    const vec a = vec_fill(ERF_SCALE), one = vec_fill(1), inverse = one / (z + a);
    vec q = (z - a) * inverse;
    q = vec_fma(inverse, vec_fma(-q, z, vec_fma(q + one, -a, z)), q);
    return POLYNOMIAL(erfc_terms, q) / vec_fma(vec_fill(2), z, one);
}

EXP_INLINE vec vec_erf(vec x) {
    const vec one = vec_fill(1), size = vec_abs(x), z = vec_min(vec_fill(ERF_MOST), size); /* a NaN stays */
    const vec near = vec_fma(size, POLYNOMIAL(erf_terms, x * x), size);
    const vec far = one - vec_exp(-(z * z)) * erfc_scaled(z);
    return vec_copy_sign(vec_select(vec_greater(one, size), near, far), x);
}

/* The distribution function of the normal distribution, precise where it is small. */
EXP_INLINE vec vec_normal(vec x) {
    const vec half = vec_fill((real)0.5), size = vec_min(vec_fill(NORMAL_LEAST), vec_abs(x));
    const vec square = size * size, low = vec_fma(size, size, -square);
    vec power = vec_exp(-half * square);
    power = vec_fma(power, -half * low, power);
    const vec below = half * power * erfc_scaled(size * vec_fill(SQRT_HALF));
    return vec_select(vec_greater(x, vec_zero()), vec_fill(1) - below, below);
}

#endif
