/* SPDX-License-Identifier: Apache-2.0
 * The update rules of updates.def in the vector vocabulary of lib/simd, compiled once for each instruction set and sum type. */
#include "kernels/updates.h"

#include "kernels/rows.h"
#include "kernels/words.h"

#include <float.h>
#include <stddef.h>

#define C(i)                    numbers[i]
#define VALUE(name, expression) const vec name = (expression)

/* ---- What the rows say, for a vector ---- */

typedef struct operands {
    vec p, g, m, v, r;
} operands;

#define RULE(name, states, ...)                                                                              \
    INLINE void rule_##name(operands *all, const vec *numbers) {                                             \
        vec p = all->p, g = all->g, m = all->m, v = all->v;                                                  \
        const vec r = all->r;                                                                                \
        (void)m, (void)v, (void)r;                                                                           \
        __VA_ARGS__                                                                                          \
        all->p = p, all->m = m, all->v = v;                                                                  \
    }
#include "kernels/updates.def"
#undef RULE

/* ---- Loops ---- */

typedef struct numbers {
    vec factor, rate, all[TARTAN_I_UPDATE_NUMBERS];
} numbers;

INLINE void step(const tartan_i_update_line *u, const numbers *c, int states, bool gated, int64_t i,
                 int64_t lanes, void (*rule)(operands *, const vec *)) {
    const vec p = load_reals(u->p, i, lanes), m = states > 0 ? load_reals(u->m, i, lanes) : vec_zero(),
              v = states > 1 ? load_reals(u->v, i, lanes) : vec_zero();
    operands all = {p, load_reals(u->g, i, lanes) * c->factor, m, v, c->rate};
    if (gated) all.r = all.r * load_reals(u->rates, i, lanes);
    rule(&all, c->all);
    if (gated) {
        const vec gate = vec_abs(load_reals(u->gates, i, lanes));
        const vec_mask live = vec_greater(gate, vec_zero());
        all.p = vec_select(live, all.p, p);
        all.m = vec_select(live, all.m, m);
        all.v = vec_select(live, all.v, v);
    }
    store_reals(u->p, i, lanes, all.p);
    if (states > 0) store_reals(u->m, i, lanes, all.m);
    if (states > 1) store_reals(u->v, i, lanes, all.v);
}

INLINE void update(const tartan_i_update_line *u, int states, bool gated,
                   void (*rule)(operands *, const vec *)) {
    numbers c;
    c.factor = vec_fill((real)u->factor);
    c.rate = vec_fill((real)u->rate);
    for (int i = 0; i < TARTAN_I_UPDATE_NUMBERS; i++) c.all[i] = vec_fill((real)u->numbers[i]);
#define STEP(i, lanes) step(u, &c, states, gated, i, lanes, rule)
    EACH_VECTOR(u->n, STEP);
#undef STEP
}

/* ---- The table ---- */

#define RULE(name, states, ...)                                                                              \
    static void update_##name(const tartan_i_update_line *u) {                                               \
        if (u->gates != NULL)                                                                                \
            update(u, states, true, rule_##name);                                                            \
        else                                                                                                 \
            update(u, states, false, rule_##name);                                                           \
    }
#include "kernels/updates.def"
#undef RULE

#if TARTAN_I_REAL == 64
#define LARGEST DBL_MAX
#else
#define LARGEST FLT_MAX
#endif

static void filter(int64_t n, const tartan_i_gradient_filter *f, const void *g, void *out) {
    const vec largest = vec_fill(LARGEST), most = vec_fill(f->most > 0 ? (real)f->most : 0);
    const vec_mask infs = vec_mask_of(f->zero_infs ? ~0u : 0), nans = vec_mask_of(f->zero_nans ? ~0u : 0);
#define STEP(i, lanes)                                                                                       \
    do {                                                                                                     \
        vec x = load_reals(g, i, lanes);                                                                     \
        const vec at_inf = vec_select(infs, vec_zero(), x), at_nan = vec_select(nans, vec_zero(), x);        \
        x = vec_select(vec_greater(vec_abs(x), largest), at_inf, x);                                         \
        x = vec_select(vec_is_nan(x), at_nan, x);                                                            \
        if (f->most > 0) x = vec_min(most, vec_max(-most, x));                                               \
        store_reals(out, i, lanes, x);                                                                       \
    } while (0)
    EACH_VECTOR(n, STEP);
#undef STEP
}

/* ---- Adafactor ---- */

static void add_squares(int64_t n, const void *g, void *sums) {
#define STEP(i, lanes)                                                                                       \
    do {                                                                                                     \
        const vec x = load_reals(g, i, lanes);                                                               \
        store_reals(sums, i, lanes, vec_fma(x, x, load_reals(sums, i, lanes)));                              \
    } while (0)
    EACH_VECTOR(n, STEP);
#undef STEP
}

static void average(int64_t n, double d, double part, double epsilon, const void *sums, void *means) {
    const vec old = vec_fill((real)d), new = vec_fill((real)(1 - d)), all = vec_fill((real)part),
              more = vec_fill((real)epsilon);
#define STEP(i, lanes)                                                                                       \
    store_reals(                                                                                             \
        means, i, lanes,                                                                                     \
        vec_fma(old, load_reals(means, i, lanes), new *vec_fma(load_reals(sums, i, lanes), all, more)))
    EACH_VECTOR(n, STEP);
#undef STEP
}

static void by_roots(int64_t n, double r, const void *g, const void *means, void *out) {
    const vec factor = vec_fill((real)r);
#define STEP(i, lanes)                                                                                       \
    store_reals(out, i, lanes, load_reals(g, i, lanes) * factor / vec_sqrt(load_reals(means, i, lanes)))
    EACH_VECTOR(n, STEP);
#undef STEP
}

static void move(int64_t n, double decay, double step, const void *x, void *p) {
    const vec kept = vec_fill((real)decay), back = vec_fill((real)-step);
#define STEP(i, lanes)                                                                                       \
    store_reals(p, i, lanes, vec_fma(back, load_reals(x, i, lanes), kept *load_reals(p, i, lanes)))
    EACH_VECTOR(n, STEP);
#undef STEP
}

/* ---- Formats ---- */

static double measure(int64_t n, double most, double least, const void *x, void *out, double counts[2]) {
    const vec one = vec_fill(1), above = vec_fill((real)most), below = vec_fill((real)least);
    vec largest = vec_zero(), large = vec_zero(), small = vec_zero();
#define STEP(i, lanes)                                                                                       \
    do {                                                                                                     \
        const vec size = vec_abs(load_reals(x, i, lanes));                                                   \
        largest = vec_max(size, largest);                                                                    \
        large = large + vec_select(vec_greater(size, above), one, vec_zero());                               \
        small = small + vec_select(vec_greater(size, vec_zero()),                                            \
                                   vec_select(vec_greater(below, size), one, vec_zero()), vec_zero());       \
        store_reals(out, i, lanes, size);                                                                    \
    } while (0)
    EACH_VECTOR(n, STEP);
#undef STEP
    counts[0] = vec_sum(large);
    counts[1] = vec_sum(small);
    return vec_largest(largest);
}

static const tartan_i_update_kernels updates = {
    {
#define RULE(name, states, ...) update_##name,
#include "kernels/updates.def"
#undef RULE
    },
    filter,
    add_squares,
    average,
    by_roots,
    move,
    measure,
};

void UPDATES_FILL(tartan_i_kernels *kernels) {
    kernels->updates = &updates;
}
