/* SPDX-License-Identifier: Apache-2.0
 * Norms and sums of lines (kernels/norms.h) in the vector vocabulary of lib/simd, compiled once for each instruction set.
 * Everything is computed in f64; elements are of f32 or f64. */
#include "kernels/norms.h"

#include "kernels/rows.h"

#include <stddef.h>

#if TARTAN_I_REAL == 64
#include "kernels/words.h"

#include <math.h>

enum { CHAINS = 16, VECTORS = CHAINS / LANES, UNROLL = LANES > 1 ? VECTORS : 1, PART = 16 * CHAINS };

#define RSQRT(x) (vec_fill(1) / vec_sqrt(x))

/* ---- Elements ---- */

INLINE vec load(bool narrow, const void *p, int64_t at, int64_t n) {
    const float *from = (const float *)p + at;
    float rest[LANES] = {0};
    if (!narrow) return load_reals(p, at, n);
    if (n == LANES) return vec_load_f32(from);
    memcpy(rest, from, (size_t)n * sizeof *rest);
    return vec_load_f32(rest);
}

INLINE void store(bool narrow, void *p, int64_t at, int64_t n, vec v) {
    float *to = (float *)p + at, rest[LANES];
    if (!narrow) {
        store_reals(p, at, n, v);
    } else if (n == LANES) {
        vec_store_f32(to, v);
    } else {
        vec_store_f32(rest, v);
        memcpy(to, rest, (size_t)n * sizeof *rest);
    }
}

/* A line at work. All functions below are inlined, so `narrow` and `centered` decide nothing while they run. */
typedef struct operands {
    bool narrow;   /* elements are of f32 */
    bool centered; /* high + low is subtracted from them */
    int64_t n;
    const void *x, *gain, *y_grad;
    vec high, low, scale;
} operands;

INLINE vec number_at(const operands *o, int64_t at, int64_t n) {
    vec x = load(o->narrow, o->x, at, n);
    if (!o->centered) return x;
    x = x - o->high;
    if (o->narrow) return x; /* the mean of f32 numbers needs no second part */
    return x - o->low;
}

/* ---- Sums ---- */

/* Two sums at a time; of one, the second stays 0. */
typedef struct pair {
    vec first, second;
} pair;
typedef struct two {
    double first, second;
} two;

/* Adds what the elements at a place give. */
typedef void (*adding)(const operands *o, int64_t at, int64_t n, pair *sums);

INLINE void add_numbers(const operands *o, int64_t at, int64_t n, pair *sums) {
    sums->first = sums->first + number_at(o, at, n);
}

INLINE void add_squares(const operands *o, int64_t at, int64_t n, pair *sums) {
    const vec x = number_at(o, at, n);
    sums->first = vec_fma(x, x, sums->first);
}

INLINE void add_both(const operands *o, int64_t at, int64_t n, pair *sums) {
    const vec x = number_at(o, at, n);
    sums->first = sums->first + x;
    sums->second = vec_fma(x, x, sums->second);
}

/* g = y_grad gain, and g x. */
INLINE void add_slopes(const operands *o, int64_t at, int64_t n, pair *sums) {
    const vec g = load(o->narrow, o->y_grad, at, n) * load(false, o->gain, at, n);
    sums->first = sums->first + g;
    sums->second = vec_fma(g, number_at(o, at, n), sums->second);
}

INLINE void add_at(const operands *o, int64_t at, int64_t n, adding add, pair *chain) {
    const pair old = *chain;
    add(o, at, n, chain);
    if (n == LANES) return;
    const vec_mask given = vec_mask_of((1u << n) - 1);
    chain->first = vec_select(given, chain->first, old.first);
    chain->second = vec_select(given, chain->second, old.second);
}

/* Knuth's exact sum: total + low. */
INLINE void add_chain(vec chain, vec *total, vec *low) {
    const vec sum = *total + chain, part = sum - *total;
    *low = *low + ((*total - (sum - part)) + (chain - part));
    *total = sum;
}

INLINE double all_of(vec total[VECTORS], const vec low[VECTORS]) {
#pragma GCC unroll UNROLL
    for (int j = 0; j < VECTORS; j++) { /* beside an infinity, `low` is no number */
        const vec_mask finite = vec_greater(vec_fill((real)INFINITY), vec_abs(total[j]));
        total[j] = total[j] + vec_select(finite, low[j], vec_zero());
    }
#pragma GCC unroll UNROLL
    for (int half = VECTORS / 2; half > 0; half /= 2)
#pragma GCC unroll UNROLL
        for (int j = 0; j < half; j++) total[j] = total[j] + total[j + half];
    return vec_sum(total[0]);
}

/* With `both`, both sums. */
INLINE two sums_of(const operands *o, adding add, bool both) {
    vec total[VECTORS], low[VECTORS], other_total[VECTORS], other_low[VECTORS];
    for (int j = 0; j < VECTORS; j++) total[j] = low[j] = other_total[j] = other_low[j] = vec_zero();
    for (int64_t begin = 0; begin < o->n; begin += PART) {
        const int64_t end = o->n - begin < PART ? o->n : begin + PART;
        int64_t i = begin;
        pair chain[VECTORS];
#pragma GCC unroll UNROLL
        for (int j = 0; j < VECTORS; j++) chain[j].first = chain[j].second = vec_zero();
        for (; i + CHAINS <= end; i += CHAINS)
#pragma GCC unroll UNROLL
            for (int j = 0; j < VECTORS; j++) add(o, i + j * LANES, LANES, &chain[j]);
#pragma GCC unroll UNROLL
        for (int j = 0; j < VECTORS; j++) {
            const int64_t rest = end - i - j * LANES;
            if (rest > 0) add_at(o, i + j * LANES, rest < LANES ? rest : LANES, add, &chain[j]);
        }
#pragma GCC unroll UNROLL
        for (int j = 0; j < VECTORS; j++) {
            add_chain(chain[j].first, &total[j], &low[j]);
            if (both) add_chain(chain[j].second, &other_total[j], &other_low[j]);
        }
    }
    return (two){all_of(total, low), both ? all_of(other_total, other_low) : 0};
}

INLINE double length_of(const operands *o) {
    return (double)(o->n > 0 ? o->n : 1);
}

INLINE double mean_of(const operands *o, adding add) {
    return sums_of(o, add, false).first / length_of(o);
}

/* ---- What the rows say ---- */

typedef vec (*line_scale)(vec mean, vec n, vec p);
typedef vec (*line_value)(vec x, vec scale, vec gain, vec bias);
typedef vec (*line_gradient)(vec z, vec g, vec mean_g, vec mean_gz, vec scale, vec n, vec p);

INLINE double first_lane(vec v) {
    real lanes[LANES];
    vec_store(lanes, v);
    return lanes[0];
}

/* The mean of squares, after the mean if numbers are centered. One loop gives both where that costs no precision: f32 numbers whose mean
 * is not above their deviation. Otherwise the differences to the mean are squared. */
INLINE double squares_of(operands *o, bool centered) {
    o->high = o->low = vec_zero();
    if (!centered) return mean_of(o, add_squares);
    if (o->narrow) {
        const two sums = sums_of(o, add_both, true);
        const double mean = sums.first / length_of(o), squares = sums.second / length_of(o);
        const double variance = squares - mean * mean;
        o->high = vec_fill(mean);
        o->centered = true;
        return squares <= 2 * variance ? variance : mean_of(o, add_squares);
    }
    o->high = vec_fill(mean_of(o, add_numbers));
    o->centered = true;
    o->low = vec_fill(mean_of(o, add_numbers));
    return mean_of(o, add_squares);
}

/* Calls step(at, lanes) for whole vectors, CHAINS elements at a time with begin(at) before them, and for the rest. */
#define EACH_PLACE(length, begin, step)                                                                      \
    int64_t at = 0;                                                                                          \
    for (; at + CHAINS <= (length); at += CHAINS) {                                                          \
        begin(at);                                                                                           \
        _Pragma("GCC unroll UNROLL") for (int j = 0; j < VECTORS; j++) step(at + j * LANES, LANES);          \
    }                                                                                                        \
    for (; at < (length); at += LANES) step(at, (length)-at < LANES ? (length)-at : LANES)

/* Prefetches the lines after a group. */
INLINE void fetch(const tartan_i_norm_memory *m, int count, int64_t bytes, int64_t at) {
#pragma GCC unroll 4
    for (int l = 0; l < count; l++) vec_prefetch_far(m->data + (count + l) * m->step + at * bytes);
}

INLINE void value_lines(bool narrow, bool centered, int count, line_scale scale, line_value value,
                        tartan_i_norm_group *g) {
    operands o[TARTAN_I_NORM_LINES];
    const int64_t bytes = narrow ? sizeof(float) : sizeof(double);
#pragma GCC unroll 1
    for (int l = 0; l < count; l++) {
        o[l] = (operands){.narrow = narrow, .n = g->n, .x = g->x.data + l * g->x.step};
        const vec squares = vec_fill(squares_of(&o[l], centered));
        o[l].scale = scale(squares, vec_fill((real)g->n), vec_fill(g->p));
        g->center[l] = first_lane(o[l].high + o[l].low);
        g->scale[l] = first_lane(o[l].scale);
    }
#define BEGIN(at) fetch(&g->x, count, bytes, at)
#define STEP(at, lanes)                                                                                      \
    do {                                                                                                     \
        const vec gain = load(false, g->gain, at, lanes), bias = load(false, g->bias, at, lanes);            \
        _Pragma("GCC unroll 4") for (int l = 0; l < count; l++)                                              \
            store(narrow, g->y.data + l * g->y.step, at, lanes,                                              \
                  value(number_at(&o[l], at, lanes), o[l].scale, gain, bias));                               \
    } while (0)
    EACH_PLACE(g->n, BEGIN, STEP);
#undef STEP
#undef BEGIN
}

INLINE void gradient_lines(bool narrow, bool centered, int count, line_gradient gradient,
                           const tartan_i_norm_gradient_group *g) {
    operands o[TARTAN_I_NORM_LINES];
    vec mean_g[TARTAN_I_NORM_LINES], mean_gz[TARTAN_I_NORM_LINES];
    const int64_t bytes = narrow ? sizeof(float) : sizeof(double);
    const vec length = vec_fill((real)g->n), p = vec_fill(g->p);
#pragma GCC unroll 1
    for (int l = 0; l < count; l++) {
        o[l] = (operands){.narrow = narrow, .centered = centered, .n = g->n, .gain = g->gain};
        o[l].x = g->x.data + l * g->x.step, o[l].y_grad = g->y_grad.data + l * g->y_grad.step;
        o[l].high = vec_fill(g->center[l]), o[l].low = vec_zero(), o[l].scale = vec_fill(g->scale[l]);
        mean_g[l] = mean_gz[l] = vec_zero();
        if (g->x_grad.data == NULL) continue;
        const two sums = sums_of(&o[l], add_slopes, true);
        mean_g[l] = vec_fill(sums.first / length_of(&o[l]));
        mean_gz[l] = vec_fill(sums.second * g->scale[l] / length_of(&o[l]));
    }
#define BEGIN(at) fetch(&g->x, count, bytes, at), fetch(&g->y_grad, count, bytes, at)
#define STEP(at, lanes)                                                                                      \
    do {                                                                                                     \
        const vec gain = load(false, g->gain, at, lanes);                                                    \
        vec of_gain = g->gain_sums != NULL ? load(false, g->gain_sums, at, lanes) : gain,                    \
            of_bias = g->bias_sums != NULL ? load(false, g->bias_sums, at, lanes) : gain;                    \
        _Pragma("GCC unroll 4") for (int l = 0; l < count; l++) {                                            \
            const vec z = number_at(&o[l], at, lanes) * o[l].scale,                                          \
                      y_grad = load(narrow, o[l].y_grad, at, lanes);                                         \
            of_gain = vec_fma(y_grad, z, of_gain);                                                           \
            of_bias = of_bias + y_grad;                                                                      \
            if (g->x_grad.data == NULL) continue;                                                            \
            store(narrow, g->x_grad.data + l * g->x_grad.step, at, lanes,                                    \
                  gradient(z, y_grad * gain, mean_g[l], mean_gz[l], o[l].scale, length, p));                 \
        }                                                                                                    \
        if (g->gain_sums != NULL) store(false, g->gain_sums, at, lanes, of_gain);                            \
        if (g->bias_sums != NULL) store(false, g->bias_sums, at, lanes, of_bias);                            \
    } while (0)
    EACH_PLACE(g->n, BEGIN, STEP);
#undef STEP
#undef BEGIN
}

/* The lines of a group: together if it is whole, else one by one. */
INLINE void value_group(bool narrow, bool centered, line_scale scale, line_value value,
                        tartan_i_norm_group *g) {
    if (g->lines == TARTAN_I_NORM_LINES) {
        value_lines(narrow, centered, TARTAN_I_NORM_LINES, scale, value, g);
        return;
    }
    for (int64_t l = 0; l < g->lines; l++) {
        tartan_i_norm_group one = *g;
        one.x.data += l * g->x.step, one.y.data += l * g->y.step;
        value_lines(narrow, centered, 1, scale, value, &one);
        g->center[l] = one.center[0], g->scale[l] = one.scale[0];
    }
}

INLINE void gradient_group(bool narrow, bool centered, line_gradient gradient,
                           const tartan_i_norm_gradient_group *g) {
    if (g->lines == TARTAN_I_NORM_LINES) {
        gradient_lines(narrow, centered, TARTAN_I_NORM_LINES, gradient, g);
        return;
    }
    for (int64_t l = 0; l < g->lines; l++) {
        tartan_i_norm_gradient_group one = *g;
        one.x.data += l * g->x.step, one.y_grad.data += l * g->y_grad.step;
        if (one.x_grad.data != NULL) one.x_grad.data += l * g->x_grad.step;
        one.center[0] = g->center[l], one.scale[0] = g->scale[l];
        gradient_lines(narrow, centered, 1, gradient, &one);
    }
}

#define CENTERED true
#define PLAIN    false
#define NORM(name, centered, epsilon, factor, result, slope)                                                 \
    INLINE vec scale_of_##name(vec mean, vec n, vec p) {                                                     \
        (void)n, (void)p;                                                                                    \
        return factor;                                                                                       \
    }                                                                                                        \
    INLINE vec value_of_##name(vec x, vec scale, vec gain, vec bias) {                                       \
        (void)gain, (void)bias;                                                                              \
        return result;                                                                                       \
    }                                                                                                        \
    INLINE vec gradient_of_##name(vec z, vec g, vec mean_g, vec mean_gz, vec scale, vec n, vec p) {          \
        (void)z, (void)g, (void)mean_g, (void)mean_gz, (void)scale, (void)n, (void)p;                        \
        return slope;                                                                                        \
    }                                                                                                        \
    static void name##_f32(tartan_i_norm_group *group) {                                                     \
        value_group(true, centered, scale_of_##name, value_of_##name, group);                                \
    }                                                                                                        \
    static void name##_f64(tartan_i_norm_group *group) {                                                     \
        value_group(false, centered, scale_of_##name, value_of_##name, group);                               \
    }                                                                                                        \
    static void name##_gradient_f32(const tartan_i_norm_gradient_group *group) {                             \
        gradient_group(true, centered, gradient_of_##name, group);                                           \
    }                                                                                                        \
    static void name##_gradient_f64(const tartan_i_norm_gradient_group *group) {                             \
        gradient_group(false, centered, gradient_of_##name, group);                                          \
    }
#include "kernels/norms.def"
#undef NORM

/* ---- Sums alone, and the table ---- */

#define SUMS(kind, is_f32)                                                                                   \
    static double sum_##kind(int64_t n, const void *x) {                                                     \
        const operands o = {.narrow = (is_f32), .n = n, .x = x};                                             \
        return sums_of(&o, add_numbers, false).first;                                                        \
    }                                                                                                        \
    static double squares_##kind(int64_t n, const void *x) {                                                 \
        const operands o = {.narrow = (is_f32), .n = n, .x = x};                                             \
        return sums_of(&o, add_squares, false).first;                                                        \
    }                                                                                                        \
    static void add_##kind(int64_t n, const void *x, double *sums) {                                         \
        EACH_VECTOR(n, ADD_##kind);                                                                          \
    }
#define ADD_f32(at, lanes)                                                                                   \
    store(false, sums, at, lanes, load(false, sums, at, lanes) + load(true, x, at, lanes))
#define ADD_f64(at, lanes)                                                                                   \
    store(false, sums, at, lanes, load(false, sums, at, lanes) + load(false, x, at, lanes))
SUMS(f32, true)
SUMS(f64, false)

static const tartan_i_line_kernels lines[2] = {
#define NORM(name, ...) {name##_f32, name##_gradient_f32},
    {{
#include "kernels/norms.def"
     },
     sum_f32,
     squares_f32,
     add_f32},
#undef NORM
#define NORM(name, ...) {name##_f64, name##_gradient_f64},
    {{
#include "kernels/norms.def"
     },
     sum_f64,
     squares_f64,
     add_f64},
#undef NORM
};
#endif

void NORMS_FILL(tartan_i_kernels *kernels) {
#if TARTAN_I_REAL == 64
    kernels->lines = lines;
#else
    kernels->lines = NULL;
#endif
}
