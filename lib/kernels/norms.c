/* SPDX-License-Identifier: Apache-2.0
 * Norms and sums of lines (kernels/norms.h) in the vector vocabulary of lib/simd, compiled once for each instruction set.
 * Everything is computed in f64; elements are of f32 or f64. */
#include "kernels/norms.h"

#include "kernels/rows.h"

#include <stddef.h>

#if TARTAN_I_REAL == 64
#include "kernels/words.h"

#include <math.h>

enum { CHAINS = 16, VECTORS = CHAINS / LANES, UNROLL = VECTORS <= 16 ? VECTORS : 1, PART = 16 * CHAINS };

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
    const void *x, *gain, *bias, *y_grad;
    vec high, low, scale;
} operands;

INLINE vec number_at(const operands *o, int64_t at, int64_t n) {
    vec x = load(o->narrow, o->x, at, n);
    if (!o->centered) return x;
    x = x - o->high;
    if (o->narrow) return x; /* the mean of f32 numbers needs no second part */
    return x - o->low;
}

INLINE vec square_at(const operands *o, int64_t at, int64_t n) {
    const vec x = number_at(o, at, n);
    return x * x;
}

INLINE vec normal_at(const operands *o, int64_t at, int64_t n) {
    return number_at(o, at, n) * o->scale;
}

INLINE vec g_at(const operands *o, int64_t at, int64_t n) {
    return load(o->narrow, o->y_grad, at, n) * load(false, o->gain, at, n);
}

/* ---- Sums ---- */

typedef vec (*line_term)(const operands *o, int64_t at, int64_t n);

INLINE vec term_at(const operands *o, int64_t at, int64_t n, line_term term) {
    const vec v = term(o, at, n);
    return n == LANES ? v : vec_select(vec_mask_of((1u << n) - 1), v, vec_zero());
}

INLINE double sum_of(const operands *o, line_term term) {
    vec total[VECTORS], low[VECTORS];
    for (int j = 0; j < VECTORS; j++) total[j] = low[j] = vec_zero();
    for (int64_t begin = 0; begin < o->n; begin += PART) {
        const int64_t end = o->n - begin < PART ? o->n : begin + PART;
        int64_t i = begin;
        vec chain[VECTORS];
#pragma GCC unroll UNROLL
        for (int j = 0; j < VECTORS; j++) chain[j] = vec_zero();
        for (; i + CHAINS <= end; i += CHAINS)
#pragma GCC unroll UNROLL
            for (int j = 0; j < VECTORS; j++) chain[j] = chain[j] + term_at(o, i + j * LANES, LANES, term);
#pragma GCC unroll UNROLL
        for (int j = 0; j < VECTORS; j++) {
            const int64_t rest = end - i - j * LANES;
            if (rest > 0) chain[j] = chain[j] + term_at(o, i + j * LANES, rest < LANES ? rest : LANES, term);
        }
#pragma GCC unroll UNROLL
        for (int j = 0; j < VECTORS; j++) { /* Knuth's exact sum: total + low */
            const vec sum = total[j] + chain[j], part = sum - total[j];
            low[j] = low[j] + ((total[j] - (sum - part)) + (chain[j] - part));
            total[j] = sum;
        }
    }
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

INLINE vec mean_of(const operands *o, line_term term) {
    return vec_fill(sum_of(o, term) / (double)(o->n > 0 ? o->n : 1));
}

INLINE double first_lane(vec v) {
    real lanes[LANES];
    vec_store(lanes, v);
    return lanes[0];
}

/* ---- What the rows say ---- */

typedef vec (*line_scale)(vec mean, vec n, vec p);
typedef vec (*line_value)(vec x, vec scale, vec gain, vec bias);
typedef vec (*line_gradient)(vec z, vec g, vec mean_g, vec mean_gz, vec scale, vec n, vec p);

INLINE void value_step(const operands *o, int64_t at, int64_t n, void *y, line_value value,
                       const char *next) {
    if (next != NULL) vec_prefetch(next + at * (o->narrow ? 4 : 8));
    const vec gain = load(false, o->gain, at, n), bias = load(false, o->bias, at, n);
    store(o->narrow, y, at, n, value(number_at(o, at, n), o->scale, gain, bias));
}

INLINE void value_line(bool narrow, bool centered, line_term term, line_scale scale, line_value value,
                       tartan_i_norm_line *line) {
    operands o = {.narrow = narrow, .n = line->n, .x = line->x, .gain = line->gain, .bias = line->bias};
    o.high = o.low = vec_zero();
    if (centered) {
        o.high = mean_of(&o, number_at);
        o.centered = true;
        if (!narrow) o.low = mean_of(&o, number_at);
    }
    o.scale = scale(mean_of(&o, term), vec_fill((real)o.n), vec_fill(line->p));
#define STEP(at, n) value_step(&o, at, n, line->y, value, line->next)
    EACH_VECTOR(line->n, STEP);
#undef STEP
    line->center = first_lane(o.high + o.low);
    line->scale = first_lane(o.scale);
}

INLINE vec gz_at(const operands *o, int64_t at, int64_t n) {
    return g_at(o, at, n) * normal_at(o, at, n);
}

INLINE void add_step(double *sums, int64_t at, int64_t n, vec v) {
    if (sums != NULL) store(false, sums, at, n, load(false, sums, at, n) + v);
}

INLINE void gradient_step(const operands *o, int64_t at, int64_t n, vec mean_g, vec mean_gz,
                          const tartan_i_norm_gradient_line *line, line_gradient gradient) {
    const vec z = normal_at(o, at, n), y_grad = load(o->narrow, o->y_grad, at, n);
    const vec g = y_grad * load(false, o->gain, at, n);
    add_step(line->gain_sums, at, n, y_grad * z);
    add_step(line->bias_sums, at, n, y_grad);
    if (line->x_grad != NULL)
        store(o->narrow, line->x_grad, at, n,
              gradient(z, g, mean_g, mean_gz, o->scale, vec_fill((real)o->n), vec_fill(line->p)));
}

INLINE void gradient_line(bool narrow, bool centered, line_gradient gradient,
                          const tartan_i_norm_gradient_line *line) {
    operands o = {.narrow = narrow, .centered = centered, .n = line->n, .x = line->x, .gain = line->gain};
    o.y_grad = line->y_grad;
    o.high = vec_fill(line->center), o.low = vec_zero();
    o.scale = vec_fill(line->scale);
    const vec mean_g = mean_of(&o, g_at), mean_gz = mean_of(&o, gz_at);
#define STEP(at, n) gradient_step(&o, at, n, mean_g, mean_gz, line, gradient)
    EACH_VECTOR(line->n, STEP);
#undef STEP
}

#define CENTERED true
#define PLAIN    false
#define NORM(name, centered, epsilon, term, factor, result, slope)                                           \
    INLINE vec term_of_##name(const operands *o, int64_t at, int64_t lanes) {                                \
        const vec x = number_at(o, at, lanes);                                                               \
        return term;                                                                                         \
    }                                                                                                        \
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
    static void name##_f32(tartan_i_norm_line *line) {                                                       \
        value_line(true, centered, term_of_##name, scale_of_##name, value_of_##name, line);                  \
    }                                                                                                        \
    static void name##_f64(tartan_i_norm_line *line) {                                                       \
        value_line(false, centered, term_of_##name, scale_of_##name, value_of_##name, line);                 \
    }                                                                                                        \
    static void name##_gradient_f32(const tartan_i_norm_gradient_line *line) {                               \
        gradient_line(true, centered, gradient_of_##name, line);                                             \
    }                                                                                                        \
    static void name##_gradient_f64(const tartan_i_norm_gradient_line *line) {                               \
        gradient_line(false, centered, gradient_of_##name, line);                                            \
    }
#include "kernels/norms.def"
#undef NORM

/* ---- Sums alone, and the table ---- */

#define SUMS(kind, is_f32)                                                                                   \
    static double sum_##kind(int64_t n, const void *x) {                                                     \
        const operands o = {.narrow = (is_f32), .n = n, .x = x};                                             \
        return sum_of(&o, number_at);                                                                        \
    }                                                                                                        \
    static double squares_##kind(int64_t n, const void *x) {                                                 \
        const operands o = {.narrow = (is_f32), .n = n, .x = x};                                             \
        return sum_of(&o, square_at);                                                                        \
    }                                                                                                        \
    static void add_##kind(int64_t n, const void *x, double *sums) {                                         \
        EACH_VECTOR(n, ADD_##kind);                                                                          \
    }
#define ADD_f32(at, lanes) add_step(sums, at, lanes, load(true, x, at, lanes))
#define ADD_f64(at, lanes) add_step(sums, at, lanes, load(false, x, at, lanes))
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
