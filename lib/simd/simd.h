/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary, for the type `real` (simd/real.h) and the instruction set TARTAN_I_ISA. Intrinsics
 * live in this folder alone. A header of it defines:
 *
 *   vec, LANES                            a vector and its elements
 *   vec_zero() vec_fill(x)                all lanes 0 or x
 *   vec_load(p) vec_store(p, v)           LANES reals, any alignment
 *   vec_load_first(p, n)                  n < LANES reals, then zeros; touches no other memory
 *   vec_store_first(p, n, v)              the first n < LANES; touches no other memory
 *   vec_add vec_sub vec_mul vec_div vec_sqrt vec_fma(a, b, c)
 *                                         per lane, rounded once as IEEE 754 says; fma is a * b + c
 *   vec_max(a, b) vec_min(a, b)           a > b ? a : b, a < b ? a : b: b if either is NaN or both are zero
 *   vec_sum(v) vec_largest(v)             of all lanes: lane i with lane i + LANES / 2, and so on by halves
 *   vec_mask                              one truth value for each lane
 *   vec_mask_of(bits)                     lane i is bit i of `bits`; higher bits do not matter
 *   vec_bits_of_mask(m)                   and back
 *   vec_greater(a, b)                     false if either is NaN
 *   vec_is_nan(a)                         of a variable, which the macro names twice
 *   vec_select(m, a, b)                   m ? a : b
 *   vec_prefetch(p)                       asks for the cache line of p, which need not be readable
 *   vec_prefetch_far(p)                   the same, for a larger cache than the first
 *   vec_u64, U64_LANES                    as many integers of 64 bits as a register has; + - & | ^ << >> work on them
 *   vec_u64_product(a, b)                 of the lower halves of each
 *   vec_u64_upper(a)                      the upper half in place of the lower; the upper one then does not matter
 *   vec_u64_store_pairs(p, a, b)          p[2 i] = a[i], p[2 i + 1] = b[i]
 *   vec_scale(v, k)                       for vec_exp; see simd/exp.h. May be left out
 *   vec_load_f32(p) vec_store_f32(p, v)   LANES f32 numbers (f64 only); rounded to nearest even
 *
 * and, except in simd/c.h, for products:
 *
 *   vec_load_f16 vec_store_f16 ...bf16    LANES 16-bit numbers, rounded to nearest even (f32 only)
 *   vec_load_halves(p, q) vec_store_halves(p, q, v)
 *                                         the lower half of the lanes at p, the upper one at q
 *   vec_load_twice(p) vec_fill_halves(x, y)
 *                                         the same half a vector, or number, in both halves; x and y in all lanes of each. With
 *   vec_place_of(i) vec_spread_halves(v, place)
 *                                         lane i of each half of v in all lanes of that half. All four may be left out
 *   part_vec, TILE                        TILE reals: a vector, or part of one; with
 *   part_zero part_fill part_load part_store part_fma   as those of vec, and
 *   part_transpose(in, in_row, out)       lane i of out[j] = in[i][j] of TILE x TILE reals
 *   VEC_STRIP_ROWS                        rows of a strip of 1, 2, 3 vectors whose sums fit in registers
 *   VEC_SPREAD_ROWS                       best rows of a strip of spread vectors
 *   PEAK_CHAINS                           sums that fill the register file
 *
 * Vectors are types of GCC and Clang, or reals, so + - * / work on them. This header adds, for all instruction sets:
 *
 *   vec_bits                              LANES integers as wide as a real; + - & | ^ << >> work on them
 *   vec_bits_of(v) vec_of_bits(b)         the representation of each lane, and back
 *   vec_abs(v) vec_copy_sign(v, s)        |v|; |v| with the sign of s
 *   vec_power(t)                          2^k, where the integer k stands in the lowest bits of t */
#ifndef TARTAN_SIMD_SIMD_H
#define TARTAN_SIMD_SIMD_H

#include "simd/real.h"

#include <stdint.h>

#define SIMD_TEXT(x)     #x
#define SIMD_HEADER(isa) SIMD_TEXT(isa.h)
#include SIMD_HEADER(TARTAN_I_ISA)

#include <string.h>

#ifndef VEC_BITS
typedef real_bits vec_bits __attribute__((vector_size(sizeof(vec))));
#endif
#define REAL_SIGN ((real_bits)1 << (8 * sizeof(real) - 1))

static inline vec_bits vec_bits_of(vec v) {
    vec_bits bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
static inline vec vec_of_bits(vec_bits bits) {
    vec v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
static inline vec vec_abs(vec v) {
    return vec_of_bits(vec_bits_of(v) & ~REAL_SIGN);
}
static inline vec vec_copy_sign(vec v, vec sign) {
    return vec_of_bits((vec_bits_of(v) & ~REAL_SIGN) | (vec_bits_of(sign) & REAL_SIGN));
}
static inline vec vec_power(vec t) {
    return vec_of_bits((vec_bits_of(t) << REAL_FRACTION_BITS) + vec_bits_of(vec_fill(1)));
}

#endif
