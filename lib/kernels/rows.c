/* SPDX-License-Identifier: Apache-2.0
 * Kernels on rows, for softmax and norms, in the vector vocabulary of lib/simd. Compiled once for each instruction
 * set, portable C among them, and sum type.
 *
 * Element i belongs to chain i modulo TARTAN_I_DOT_CHAINS, whatever the length of a vector, and the chains meet by
 * halves. So every instruction set does the same operations in the same order. */
#include "kernels/rows.h"
#include "simd/simd.h"

#include "simd/exp.h"

#include <math.h>

#define INLINE static inline __attribute__((always_inline))

enum { CHAINS = TARTAN_I_DOT_CHAINS, VECTORS = CHAINS / LANES, UNROLL = VECTORS <= 8 ? VECTORS : 1 };

typedef struct operands {
    const real *x;
    const uint32_t *mask; /* NULL: all elements count */
    vec scale, shift;
    real *out;
} operands;

/* Adds one vector, the elements at, at + 1, ... at + n - 1, to its chain. */
typedef vec (*row_step)(const operands *o, int64_t at, int64_t n, vec chain);

/* Runs `step` over a row of n elements and folds the chains into one vector. All of it is inlined. */
INLINE vec each_vector(const operands *o, int64_t n, vec start, row_step step, vec (*fold)(vec, vec)) {
    vec chains[VECTORS];
#pragma GCC unroll UNROLL
    for (int j = 0; j < VECTORS; j++) chains[j] = start;
    int64_t i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
#pragma GCC unroll UNROLL
        for (int j = 0; j < VECTORS; j++) chains[j] = step(o, i + j * LANES, LANES, chains[j]);
#pragma GCC unroll UNROLL
    for (int j = 0; j < VECTORS; j++) {
        const int64_t rest = n - i - j * LANES;
        if (rest > 0) chains[j] = step(o, i + j * LANES, rest < LANES ? rest : LANES, chains[j]);
    }
#pragma GCC unroll UNROLL
    for (int half = VECTORS / 2; half > 0; half /= 2)
#pragma GCC unroll UNROLL
        for (int j = 0; j < half; j++) chains[j] = fold(chains[j], chains[j + half]);
    return chains[0];
}

INLINE vec add(vec a, vec b) {
    return vec_add(a, b);
}

INLINE vec larger(vec a, vec b) {
    return vec_max(a, b);
}

INLINE vec load(const real *p, int64_t n) {
    return n == LANES ? vec_load(p) : vec_load_first(p, n);
}

INLINE void store(real *p, int64_t n, vec v) {
    if (n == LANES)
        vec_store(p, v);
    else
        vec_store_first(p, n, v);
}

/* The lanes that count, of the n that exist in the vector at element `at`: a multiple of LANES, so no vector has
 * bits of two words. */
INLINE vec_mask lanes(const uint32_t *mask, int64_t at, int64_t n) {
    const uint32_t exist = (1u << n) - 1;
    return vec_mask_of(mask == NULL ? exist : exist & mask[at / 32] >> (at % 32));
}

/* v where elements count, else `absent`. */
INLINE vec counted(const operands *o, int64_t at, int64_t n, vec v, vec absent) {
    if (o->mask == NULL && n == LANES) return v;
    return vec_select(lanes(o->mask, at, n), v, absent);
}

INLINE vec max_step(const operands *o, int64_t at, int64_t n, vec chain) {
    const vec x = counted(o, at, n, load(o->x + at, n), vec_fill(-(real)INFINITY));
    return vec_max(x, chain); /* a NaN leaves the chain */
}

static double row_max(int64_t n, const void *x, const uint32_t *mask) {
    const vec start = vec_fill(-(real)INFINITY);
    /* Two copies of the loop, so that rows without a mask do not pay for it. */
    const operands all = {.x = x}, some = {.x = x, .mask = mask};
    return vec_largest(mask == NULL ? each_vector(&all, n, start, max_step, larger)
                                    : each_vector(&some, n, start, max_step, larger));
}

INLINE vec exp_step(const operands *o, int64_t at, int64_t n, vec chain) {
    const vec x = vec_exp(vec_fma(o->scale, load(o->x + at, n), o->shift));
    const vec result = counted(o, at, n, x, vec_zero());
    store(o->out + at, n, result);
    return vec_add(chain, result);
}

static double row_exp_sum(int64_t n, double scale, const void *x, double shift, const uint32_t *mask,
                          void *out) {
    const operands all = {
        .x = x, .scale = vec_fill((real)scale), .shift = vec_fill(-(real)shift), .out = out};
    operands some = all;
    some.mask = mask;
    return vec_sum(mask == NULL ? each_vector(&all, n, vec_zero(), exp_step, add)
                                : each_vector(&some, n, vec_zero(), exp_step, add));
}

INLINE void gradient_step(const operands *o, const real *w, int64_t at, int64_t n) {
    const vec x = vec_mul(load(w + at, n), vec_sub(load(o->x + at, n), o->shift));
    const vec result = counted(o, at, n, x, vec_zero());
    store(o->out + at, n, result);
}

INLINE void gradient(const operands *o, const real *w, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) gradient_step(o, w, i, LANES);
    if (i < n) gradient_step(o, w, i, n - i);
}

static void row_gradient(int64_t n, const void *w, const void *x, double shift, const uint32_t *mask,
                         void *out) {
    const operands all = {.x = x, .shift = vec_fill((real)shift), .out = out};
    operands some = all;
    some.mask = mask;
    if (mask == NULL)
        gradient(&all, w, n);
    else
        gradient(&some, w, n);
}

INLINE vec sum_step(const operands *o, int64_t at, int64_t n, vec chain) {
    return vec_add(chain, load(o->x + at, n)); /* adding zeros changes no chain, which is never -0 */
}

static double row_sum(int64_t n, const void *x) {
    const operands all = {.x = x};
    return vec_sum(each_vector(&all, n, vec_zero(), sum_step, add));
}

INLINE vec square_step(const operands *o, int64_t at, int64_t n, vec chain) {
    const vec x = counted(o, at, n, vec_sub(load(o->x + at, n), o->shift), vec_zero());
    return vec_fma(x, x, chain);
}

static double row_square_sum(int64_t n, const void *x, double shift) {
    const operands all = {.x = x, .shift = vec_fill((real)shift)};
    return vec_sum(each_vector(&all, n, vec_zero(), square_step, add));
}

enum { WORD = 64 }; /* elements whose bits are looked at together */

/* Bit i: element i of the n < WORD from x on is above the limit, or NaN; or of WORD. */
INLINE uint64_t above(const real *x, int64_t n, vec limit) {
    uint64_t word = 0;
#pragma GCC unroll 8
    for (int j = 0; j < WORD / LANES; j++) {
        const int64_t rest = n - j * LANES;
        if (rest <= 0) break;
        const vec v = load(x + j * LANES, rest < LANES ? rest : LANES);
        const uint32_t bits = vec_bits_of_mask(vec_greater(v, limit)) | vec_bits_of_mask(vec_is_nan(v));
        word |= (uint64_t)bits << (j * LANES);
    }
    return word;
}

static int64_t row_above(int64_t n, const void *x, const uint32_t *mask, double limit, int32_t *out) {
    const vec limits = vec_fill((real)limit);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i += WORD) {
        const real *const from = (const real *)x + i;
        const int64_t rest = n - i;
        uint64_t word = rest >= WORD ? above(from, WORD, limits) : above(from, rest, limits);
        if (rest < WORD) word &= (UINT64_C(1) << rest) - 1; /* the others were taken as 0 */
        if (mask != NULL) word &= (uint64_t)mask[i / 32] | (rest > 32 ? (uint64_t)mask[i / 32 + 1] << 32 : 0);
        for (; word != 0; word &= word - 1) out[count++] = (int32_t)i + __builtin_ctzll(word);
    }
    return count;
}

#include "kernels/taps.h"

#include "kernels/gradients.h"
#include "kernels/planes.h"

void ROWS_FILL(tartan_i_kernels *kernels) {
    kernels->row_max = row_max;
    kernels->row_exp_sum = row_exp_sum;
    kernels->row_gradient = row_gradient;
    kernels->row_sum = row_sum;
    kernels->row_square_sum = row_square_sum;
    kernels->row_above = row_above;
    kernels->tap_products = tap_products;
    kernels->plane_pack = plane_pack;
    kernels->plane_products = plane_products;
    kernels->tap_gradients = tap_gradients;
}
