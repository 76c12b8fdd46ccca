/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary in portable C, with vectors of one element: the reference for the others. It has no
 * operations for products, whose portable form is kernels/portable.c. See simd/simd.h. */
#ifndef TARTAN_SIMD_C_H
#define TARTAN_SIMD_C_H

#include <stdbool.h>

typedef real vec;
enum { LANES = 1, VEC_REGISTERS = 16 };
#define vec_zero()          ((real)0)
#define vec_fill(x)         ((real)(x))
#define vec_load(p)         (*(p))
#define vec_store(p, v)     (*(p) = (v))
#define vec_add(a, b)       ((a) + (b))
#define vec_sub(a, b)       ((a) - (b))
#define vec_mul(a, b)       ((a) * (b))
#define vec_div(a, b)       ((a) / (b))
#define vec_fma(a, b, c)    REAL_FMA(a, b, c)
#define vec_sum(v)          (v)
#define vec_largest(v)      (v)
#define vec_prefetch(p)     __builtin_prefetch(p)
#define vec_prefetch_far(p) __builtin_prefetch(p, 0, 2)

/* Fewer than one element are none. */
static inline vec vec_load_first(const real *p, int64_t n) {
    (void)p, (void)n;
    return 0;
}
static inline void vec_store_first(real *p, int64_t n, vec v) {
    (void)p, (void)n, (void)v;
}

static inline vec vec_max(vec a, vec b) {
    return a > b ? a : b;
}
static inline vec vec_min(vec a, vec b) {
    return a < b ? a : b;
}

typedef bool vec_mask;
#define vec_mask_of(bits)   (((bits)&1) != 0)
#define vec_bits_of_mask(m) ((uint32_t)(m))
#define vec_greater(a, b)   ((a) > (b))
#define vec_is_nan(a)       ((a) != (a))
#define vec_select(m, a, b) ((m) ? (a) : (b))

typedef real_bits vec_bits;
#define VEC_BITS

#if TARTAN_I_REAL == 32
#define vec_sqrt(a) __builtin_sqrtf(a)
#else
#define vec_sqrt(a)         __builtin_sqrt(a)
#define vec_load_f32(p)     ((double)*(p))
#define vec_store_f32(p, v) (*(p) = (float)(v))
#endif

typedef uint64_t vec_u64;
enum { U64_LANES = 1 };
#define vec_u64_product(a, b) ((uint64_t)(uint32_t)(a) * (uint32_t)(b))
#define vec_u64_upper(a)      ((a) >> 32)
static inline void vec_u64_store_pairs(uint64_t *p, vec_u64 a, vec_u64 b) {
    p[0] = a, p[1] = b;
}

#endif
