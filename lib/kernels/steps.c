/* SPDX-License-Identifier: Apache-2.0
 * Arithmetic of matrices (steps.def) in the vector vocabulary of lib/simd, compiled once for each instruction set. */
#include "kernels/steps.h"

#include "kernels/rows.h"

#include <stddef.h>

#if TARTAN_I_REAL == 64
#include "kernels/words.h"

#include <math.h>

/* ---- Words of their own ---- */

#define POWER(x, p) power(x, p)
#define ROUND(x)    nearest(x)

/* The C library's function, so that all instruction sets have its bits. */
INLINE vec power(vec x, vec p) {
    real numbers[LANES], exponents[LANES];
    vec_store(numbers, x);
    vec_store(exponents, p);
    for (int i = 0; i < LANES; i++) numbers[i] = pow(numbers[i], exponents[i]);
    return vec_load(numbers);
}

/* The sum with 2^52 has no fractional bits; larger numbers have none themselves. */
INLINE vec nearest(vec x) {
    const vec size = vec_abs(x), whole = vec_fill(0x1p52);
    return vec_select(vec_greater(whole, size), vec_copy_sign((size + whole) - whole, x), x);
}

/* ---- What the rows say ---- */

#define STEP(name, value)                                                                                    \
    INLINE vec value_of_##name(vec x, vec y, vec p, vec q) {                                                 \
        (void)y, (void)p, (void)q;                                                                           \
        return value;                                                                                        \
    }
#define CHAIN(name, first, measure, join)                                                                    \
    INLINE vec joined_by_##name(vec x, vec y, vec u) {                                                       \
        (void)u;                                                                                             \
        x = measure;                                                                                         \
        return join;                                                                                         \
    }
#include "kernels/steps.def"
#undef STEP
#undef CHAIN

/* ---- Loops ---- */

/* Vectors of chains at a time; the compiler makes vectors of portable C's. */
enum { TOGETHER = LANES > 1 ? 4 : 8, UNROLL = LANES > 1 ? 4 : 1 };

INLINE void run_step(int64_t n, double all_p, double all_q, const double *x, const double *y, double *to,
                     vec (*f)(vec, vec, vec, vec)) {
    const vec p = vec_fill(all_p), q = vec_fill(all_q);
#define ONE(at, lanes) store_reals(to, at, lanes, f(load_reals(x, at, lanes), load_reals(y, at, lanes), p, q))
    EACH_VECTOR(n, ONE);
#undef ONE
}

/* `count` vectors of chains at a time, of which the last has `lanes`. */
INLINE void run_chains(int64_t rows, int64_t n, const double *x, const double *units, double *chains,
                       const int count, int64_t lanes, vec (*f)(vec, vec, vec)) {
    vec y[TOGETHER], u[TOGETHER];
#pragma GCC unroll UNROLL
    for (int j = 0; j < count; j++) {
        y[j] = load_reals(chains, j * LANES, j < count - 1 ? LANES : lanes);
        u[j] = load_reals(units, j * LANES, j < count - 1 ? LANES : lanes);
    }
    for (int64_t i = 0; i < rows; i++, x += n)
#pragma GCC unroll UNROLL
        for (int j = 0; j < count; j++)
            y[j] = f(load_reals(x, j * LANES, j < count - 1 ? LANES : lanes), y[j], u[j]);
#pragma GCC unroll UNROLL
    for (int j = 0; j < count; j++) store_reals(chains, j * LANES, j < count - 1 ? LANES : lanes, y[j]);
}

INLINE void run_chain(int64_t rows, int64_t n, const double *x, const double *units, double *chains,
                      vec (*f)(vec, vec, vec)) {
    int64_t at = 0;
    for (; at + TOGETHER * LANES <= n; at += TOGETHER * LANES)
        run_chains(rows, n, x + at, units + at, chains + at, TOGETHER, LANES, f);
    for (; at + LANES <= n; at += LANES) run_chains(rows, n, x + at, units + at, chains + at, 1, LANES, f);
    if (at < n) run_chains(rows, n, x + at, units + at, chains + at, 1, n - at, f);
}

/* `together` chains side by side, one in each vector: a chain alone would wait for each of its sums. */
enum { SIDE_BY_SIDE = 8 };
INLINE void run_side_by_side(const int together, const double *const *x, const int64_t *counts,
                             int64_t length, int64_t stride, const double *units, double *chains,
                             vec (*f)(vec, vec, vec)) {
    vec y[SIDE_BY_SIDE], u[SIDE_BY_SIDE];
    const double *at[SIDE_BY_SIDE];
    int64_t least = counts[0];
#pragma GCC unroll SIDE_BY_SIDE
    for (int j = 0; j < together; j++) {
        y[j] = load_reals(chains, j, 1);
        u[j] = load_reals(units, j, 1);
        at[j] = x[j];
        least = counts[j] < least ? counts[j] : least;
    }
    for (int64_t k = 0; k < least * stride; k += stride)
        for (int64_t c = k; c < k + length; c++)
#pragma GCC unroll SIDE_BY_SIDE
            for (int j = 0; j < together; j++) y[j] = f(load_reals(at[j], c, 1), y[j], u[j]);
#pragma GCC unroll SIDE_BY_SIDE
    for (int j = 0; j < together; j++) {
        for (int64_t k = least * stride; k < counts[j] * stride; k += stride)
            for (int64_t c = k; c < k + length; c++) y[j] = f(load_reals(at[j], c, 1), y[j], u[j]);
        store_reals(chains, j, 1, y[j]);
    }
}

INLINE void run_runs(int64_t count, const double *const *x, const int64_t *counts, int64_t length,
                     int64_t stride, const double *units, double *chains, vec (*f)(vec, vec, vec)) {
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE <= count; i += SIDE_BY_SIDE)
        run_side_by_side(SIDE_BY_SIDE, x + i, counts + i, length, stride, units + i, chains + i, f);
    for (; i < count; i++) run_side_by_side(1, x + i, counts + i, length, stride, units + i, chains + i, f);
}

/* ---- The table ---- */

#define STEP(name, value)                                                                                    \
    static void step_##name(int64_t n, double p, double q, const double *x, const double *y, double *to) {   \
        run_step(n, p, q, x, y, to, value_of_##name);                                                        \
    }
#define CHAIN(name, first, measure, join)                                                                    \
    static void chain_##name(int64_t rows, int64_t n, const double *x, const double *units,                  \
                             double *chains) {                                                               \
        run_chain(rows, n, x, units, chains, joined_by_##name);                                              \
    }                                                                                                        \
    static void runs_##name(int64_t count, const double *const *x, const int64_t *counts, int64_t length,    \
                            int64_t stride, const double *units, double *chains) {                           \
        run_runs(count, x, counts, length, stride, units, chains, joined_by_##name);                         \
    }
#include "kernels/steps.def"
#undef STEP
#undef CHAIN

static const tartan_i_step_kernels table = {
#define STEP(name, value) .step[TARTAN_I_STEP_##name] = step_##name,
#define CHAIN(name, first, measure, join)                                                                    \
    .chain[TARTAN_I_CHAIN_##name] = chain_##name, .runs[TARTAN_I_CHAIN_##name] = runs_##name,
#include "kernels/steps.def"
#undef STEP
#undef CHAIN
};
#endif

void STEPS_FILL(tartan_i_kernels *kernels) {
#if TARTAN_I_REAL == 64
    kernels->steps = &table;
#else
    kernels->steps = NULL;
#endif
}
