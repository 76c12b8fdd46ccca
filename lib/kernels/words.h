/* SPDX-License-Identifier: Apache-2.0
 * The words of the expressions in points.def, norms.def and steps.def, on vectors of reals, and loops over reals. */
#ifndef TARTAN_KERNELS_WORDS_H
#define TARTAN_KERNELS_WORDS_H

#include "simd/simd.h"

#define INLINE static inline __attribute__((always_inline))

#define NUM(x)             vec_fill((real)(x))
#define PRODUCT(a, b)      ((a) * (b))
#define FMA(a, b, c)       vec_fma(a, b, c)
#define MAX(a, b)          vec_max(a, b)
#define MIN(a, b)          vec_min(a, b)
#define GREATER(a, b)      vec_greater(a, b)
#define SELECT(m, a, b)    vec_select(m, a, b)
#define EQUAL(a, b)        equal(a, b)
#define KEEP_NAN(x, value) keep_nan(x, value)
#define ABS(x)             vec_abs(x)
#define SQRT(x)            vec_sqrt(x)

/* Equal numbers have equal bits or are zeros; a NaN stays one whatever bits are added. */
INLINE vec equal(vec a, vec b) {
    return vec_of_bits(vec_bits_of(a) | vec_bits_of(b));
}

INLINE vec keep_nan(vec x, vec value) {
    return vec_select(vec_is_nan(x), x, value);
}

INLINE vec load_reals(const void *p, int64_t i, int64_t n) {
    const real *from = (const real *)p + i;
    return n == LANES ? vec_load(from) : vec_load_first(from, n);
}

INLINE void store_reals(void *p, int64_t i, int64_t n, vec v) {
    real *to = (real *)p + i;
    if (n == LANES)
        vec_store(to, v);
    else
        vec_store_first(to, n, v);
}

/* Calls step(at, lanes) for whole vectors, and for the rest. */
#define EACH_VECTOR(n, step)                                                                                 \
    int64_t at = 0;                                                                                          \
    for (; at + LANES <= (n); at += LANES) step(at, LANES);                                                  \
    if (at < (n)) step(at, (n)-at)

#endif
