/* SPDX-License-Identifier: Apache-2.0
 * The error function and the distribution function of the normal distribution in the vector vocabulary, after simd/exp.h. All
 * instruction sets give the same bits; docs/numerics.md states the errors.
 *
 *   erf(x)    x + x p(x^2) where |x| < 1, else 1 - e^-x^2 s(x) with s(x) = e^x^2 erfc(x)
 *   Phi(-x)   e^(-x^2 / 2) s(x) with s(x) = e^(x^2 / 2) Phi(-x) for x >= 0, and Phi(x) = 1 - Phi(-x)
 *   s(x)      t p(1 - 2 a t) with t = 1 / (x + a): 1 - 2 a t maps x >= 0 to -1 <= q < 1, after Shepherd and Laframboise, "Chebyshev
 *             approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", 1981 */
#ifndef TARTAN_SIMD_ERF_H
#define TARTAN_SIMD_ERF_H

#include "simd/exp.h"

/* Minimax polynomials of their degrees, highest power first: of erf(x) / x - 1, with an error of 2^-27.7 of erf(x) for f32 and
 * 2^-54.7 for f64; of s(x) / t for erf, with an error of 2^-25.7 of it and 2^-55.7; and for Phi, with 2^-25.5 and 2^-54.6. From
 * ERF_MOST on, erf rounds to 1; at NORMAL_LEAST, Phi rounds to 0. */
#if TARTAN_I_REAL == 32
#define ERF_MOST     5.0f
#define NORMAL_LEAST 15.0f
static const real erf_terms[] = {0x1.496a3ep-14f, -0x1.a3f7p-11f,  0x1.5405b2p-8f, -0x1.b7f90cp-6f,
                                 0x1.ce2cf8p-4f,  -0x1.81273ep-2f, 0x1.06eba8p-3f};
static const real erfc_terms[] = {0x1.19148cp-14f, 0x1.931816p-15f, -0x1.31a7e2p-11f, -0x1.b369d6p-11f,
                                  0x1.905788p-9f,  0x1.a847ccp-8f,  -0x1.604de6p-6f,  -0x1.2a86eap-5f,
                                  0x1.1e2dcp-2f,   -0x1.5fd388p-1f, 0x1.058672p+0f};
static const real normal_terms[] = {-0x1.121e08p-13f, 0x1.779776p-13f, 0x1.9a431p-10f,  -0x1.ccbde4p-9f,
                                    -0x1.ed04cap-8f,  0x1.eed728p-5f,  -0x1.7e0036p-3f, 0x1.8c6d8ep-2f,
                                    -0x1.373e38p-1f,  0x1.82b4bcp-1f};
#else
#define ERF_MOST     7.0
#define NORMAL_LEAST 40.0
static const real erf_terms[] = {-0x1.abae8c3dabc7ap-31, 0x1.d71b26234defdp-27, -0x1.5c072a5a62877p-23,
                                 0x1.b97fd46c12409p-20,  -0x1.f4ca4d7e7aa7p-17, 0x1.f9a2baaa02a8ap-14,
                                 -0x1.c02db03de2239p-11, 0x1.565bccf92b78fp-8,  -0x1.b82ce311fa96p-6,
                                 0x1.ce2f21a040d16p-4,   -0x1.812746b0379bdp-2, 0x1.06eba8214db68p-3};
static const real erfc_terms[] = {
    -0x1.9fae3c52f737ep-28, -0x1.033e3b5e7dacfp-26, 0x1.ab96793408a7dp-26,  0x1.e3fb5d1e8adb4p-24,
    0x1.7ddfef93d1f6bp-25,  -0x1.58fdf3bab4807p-22, -0x1.4a92cd5ff6c96p-21, -0x1.edf860df70b25p-29,
    0x1.1078b992491e2p-19,  0x1.e99df89fe271ap-19,  -0x1.31776053e5874p-20, -0x1.0e7e5402d6e6ap-16,
    -0x1.6bf038b3bf21ap-16, 0x1.1e772d1f1fed7p-15,  0x1.2ef9b72ce9684p-13,  0x1.2053f093e9200p-15,
    -0x1.5ba434753b806p-11, -0x1.b6fbf967cbff5p-11, 0x1.9517bb5ce20dbp-9,   0x1.a89eaff81ceacp-8,
    -0x1.606e41550fbbap-6,  -0x1.2a88e6107d240p-5,  0x1.1e2deea6b1107p-2,   -0x1.5fd386754eff9p-1,
    0x1.058671b52c776p+0};
static const real normal_terms[] = {
    -0x1.52e0c4f0af6b3p-30, -0x1.a78b2077f6e91p-32, 0x1.fae8d5643c9f0p-27, 0x1.16d1749b5328dp-26,
    -0x1.4ca106ccd8d82p-24, -0x1.50cd0be2bbf66p-23, 0x1.1bea5c2151a17p-22, 0x1.125c0bf67761cp-20,
    -0x1.4fc6493c018b8p-21, -0x1.8d4b045bbd060p-18, 0x1.7fe8105290d19p-21, 0x1.26d07a47da6e7p-15,
    -0x1.0012534c1e857p-19, -0x1.e4a4230584751p-13, 0x1.17a4a72f7063cp-13, 0x1.ab825fb683f10p-10,
    -0x1.c81719cc1cc14p-9,  -0x1.ee276104560fep-8,  0x1.eec4cc3e47b26p-5,  -0x1.7dff2bff6840ep-3,
    0x1.8c6dbf2cfc2c8p-2,   -0x1.373e3a893c28ap-1,  0x1.82b4bb8c94dcep-1};
#endif
#define ERF_SHIFT    2
#define NORMAL_SHIFT 4

/* t p(1 - 2 a t). t is corrected by its remainder, since a rounded x + a knows less of a small x. */
EXP_INLINE vec tail(const real *terms, const int n, const real shift, vec x) {
    const vec one = vec_fill(1), a = vec_fill(shift), inverse = one / (x + a);
    const vec rest = vec_fma(-inverse, x, vec_fma(-inverse, a, one)), t = vec_fma(inverse, rest, inverse);
    return t * vec_polynomial(terms, n, vec_fma(t, vec_fill(-2 * shift), one));
}
#define TAIL(terms, shift, x) tail(terms, (int)(sizeof(terms) / sizeof(terms)[0]), shift, x)

EXP_INLINE vec vec_erf(vec x) {
    const vec one = vec_fill(1), size = vec_abs(x), z = vec_min(vec_fill(ERF_MOST), size); /* a NaN stays */
    const vec near = vec_fma(size, POLYNOMIAL(erf_terms, x * x), size);
    const vec far = one - exp_of_product(-z, z) * TAIL(erfc_terms, ERF_SHIFT, z);
    return vec_copy_sign(vec_select(vec_greater(one, size), near, far), x);
}

/* The distribution function of the normal distribution, precise where it is small. */
EXP_INLINE vec vec_normal(vec x) {
    const vec size = vec_min(vec_fill(NORMAL_LEAST), vec_abs(x));
    const vec below =
        exp_of_product(vec_fill((real)-0.5) * size, size) * TAIL(normal_terms, NORMAL_SHIFT, size);
    return vec_select(vec_greater(x, vec_zero()), vec_fill(1) - below, below);
}

#endif
