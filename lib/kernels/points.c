/* SPDX-License-Identifier: Apache-2.0
 * The element-wise functions of points.def in the vector vocabulary of lib/simd, compiled once for each instruction set and sum type. */
#include "kernels/points.h"

#include "kernels/rows.h"
#include "simd/simd.h"

#include "simd/erf.h"
#include "simd/exp.h"
#include "simd/expm1.h"
#include "simd/log.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- The words of the expressions ---- */

#define NUM(x)          vec_fill((real)(x))
#define FMA(a, b, c)    vec_fma(a, b, c)
#define MAX(a, b)       vec_max(a, b)
#define MIN(a, b)       vec_min(a, b)
#define GREATER(a, b)   vec_greater(a, b)
#define SELECT(m, a, b) vec_select(m, a, b)
#define EQUAL(a, b)     equal(a, b)
#define SQRT(x)         vec_sqrt(x)
#define EXP(x)          vec_exp(x)
#define EXPM1(x)        vec_expm1(x)
#define LOG(x)          vec_log(x)
#define TANH(x)         vec_tanh(x)
#define ERF(x)          vec_erf(x)
#define SIGMOID(x)      vec_sigmoid(x)
#define NORMAL(x)       vec_normal(x)

/* Equal numbers have equal bits or are zeros; a NaN stays one whatever bits are added. */
INLINE vec equal(vec a, vec b) {
    return vec_of_bits(vec_bits_of(a) | vec_bits_of(b));
}

/* ---- What the rows say, for a vector ---- */

#define POINT1(name, help, value, gradient) POINT1_WITH(name, p, 0, "", "", help, value, gradient)
#define POINT1_WITH(name, parameter, initial, range, about, help, value, gradient)                           \
    INLINE vec value_of_##name(vec x, vec p) {                                                               \
        (void)p;                                                                                             \
        return value;                                                                                        \
    }                                                                                                        \
    INLINE vec gradient_of_##name(vec x, vec y, vec g, vec p) {                                              \
        (void)x, (void)y, (void)p;                                                                           \
        return gradient;                                                                                     \
    }
#define POINT2(name, help, value, of_a, of_b)                                                                \
    INLINE vec value_of_##name(vec a, vec b) {                                                               \
        return value;                                                                                        \
    }                                                                                                        \
    INLINE vec a_gradient_of_##name(vec a, vec b, vec y, vec g) {                                            \
        (void)a, (void)b, (void)y;                                                                           \
        return of_a;                                                                                         \
    }                                                                                                        \
    INLINE vec b_gradient_of_##name(vec a, vec b, vec y, vec g) {                                            \
        (void)a, (void)b, (void)y;                                                                           \
        return of_b;                                                                                         \
    }
#include "kernels/points.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2

/* ---- Loops ---- */

INLINE vec load(const void *p, int64_t i, int64_t n) {
    const real *from = (const real *)p + i;
    return n == LANES ? vec_load(from) : vec_load_first(from, n);
}

INLINE void store(void *p, int64_t i, int64_t n, vec v) {
    real *to = (real *)p + i;
    if (n == LANES)
        vec_store(to, v);
    else
        vec_store_first(to, n, v);
}

/* Calls step(i, lanes) for whole vectors, and for the rest. */
#define EACH_VECTOR(step)                                                                                    \
    int64_t i = 0;                                                                                           \
    for (; i + LANES <= n; i += LANES) step(i, LANES);                                                       \
    if (i < n) step(i, n - i)

INLINE void value1(int64_t n, double p, const void *x, void *y, vec (*f)(vec, vec)) {
    const vec all = vec_fill((real)p);
#define STEP(i, lanes) store(y, i, lanes, f(load(x, i, lanes), all))
    EACH_VECTOR(STEP);
#undef STEP
}

INLINE void gradient1(int64_t n, double p, const void *x, const void *y, const void *g, void *x_grad,
                      vec (*f)(vec, vec, vec, vec)) {
    const vec all = vec_fill((real)p);
#define STEP(i, lanes)                                                                                       \
    store(x_grad, i, lanes, f(load(x, i, lanes), load(y, i, lanes), load(g, i, lanes), all))
    EACH_VECTOR(STEP);
#undef STEP
}

INLINE void value2(int64_t n, const void *a, const void *b, void *y, vec (*f)(vec, vec)) {
#define STEP(i, lanes) store(y, i, lanes, f(load(a, i, lanes), load(b, i, lanes)))
    EACH_VECTOR(STEP);
#undef STEP
}

INLINE void gradient2(int64_t n, const void *a, const void *b, const void *y, const void *g, void *out,
                      vec (*f)(vec, vec, vec, vec)) {
#define STEP(i, lanes)                                                                                       \
    store(out, i, lanes, f(load(a, i, lanes), load(b, i, lanes), load(y, i, lanes), load(g, i, lanes)))
    EACH_VECTOR(STEP);
#undef STEP
}

/* ---- The tables ---- */

#define POINT1(name, help, value, gradient) POINT1_WITH(name, p, 0, "", "", help, value, gradient)
#define POINT1_WITH(name, parameter, initial, range, about, help, value, gradient)                           \
    static void value_##name(int64_t n, double p, const void *x, void *y) {                                  \
        value1(n, p, x, y, value_of_##name);                                                                 \
    }                                                                                                        \
    static void gradient_##name(int64_t n, double p, const void *x, const void *y, const void *g,            \
                                void *x_grad) {                                                              \
        gradient1(n, p, x, y, g, x_grad, gradient_of_##name);                                                \
    }
#define POINT2(name, help, value, of_a, of_b)                                                                \
    static void value_##name(int64_t n, const void *a, const void *b, void *y) {                             \
        value2(n, a, b, y, value_of_##name);                                                                 \
    }                                                                                                        \
    static void a_gradient_##name(int64_t n, const void *a, const void *b, const void *y, const void *g,     \
                                  void *out) {                                                               \
        gradient2(n, a, b, y, g, out, a_gradient_of_##name);                                                 \
    }                                                                                                        \
    static void b_gradient_##name(int64_t n, const void *a, const void *b, const void *y, const void *g,     \
                                  void *out) {                                                               \
        gradient2(n, a, b, y, g, out, b_gradient_of_##name);                                                 \
    }
#include "kernels/points.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2

static const tartan_i_point1_kernels rows1[] = {
#define POINT1(name, help, value, gradient)                                {value_##name, gradient_##name},
#define POINT1_WITH(name, p, initial, range, about, help, value, gradient) {value_##name, gradient_##name},
#define POINT2(name, help, value, of_a, of_b)
#include "kernels/points.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
};

static const tartan_i_point2_kernels rows2[] = {
#define POINT1(name, help, value, gradient)
#define POINT1_WITH(name, p, initial, range, about, help, value, gradient)
#define POINT2(name, help, value, of_a, of_b) {value_##name, {a_gradient_##name, b_gradient_##name}},
#include "kernels/points.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
};

void POINTS_FILL(tartan_i_kernels *kernels) {
    kernels->point1 = rows1;
    kernels->point2 = rows2;
}
