/* SPDX-License-Identifier: Apache-2.0
 * The element-wise functions of points.def in the vector vocabulary of lib/simd, compiled once for each instruction set and sum type. */
#include "kernels/points.h"

#include "kernels/rows.h"
#include "kernels/words.h"

#include "simd/erf.h"
#include "simd/exp.h"
#include "simd/expm1.h"
#include "simd/log.h"

#define EXP(x)     vec_exp(x)
#define EXPM1(x)   vec_expm1(x)
#define LOG(x)     vec_log(x)
#define TANH(x)    vec_tanh(x)
#define ERF(x)     vec_erf(x)
#define SIGMOID(x) vec_sigmoid(x)
#define NORMAL(x)  vec_normal(x)

/* ---- What the rows say, for a vector ---- */

#define POINT1(name, help, value, gradient) POINT1_WITH(name, (), help, value, gradient)
#define POINT1_WITH(name, parameters, help, value, gradient)                                                 \
    INLINE vec value_of_##name(vec x, vec p, vec q, vec r, vec s) {                                          \
        (void)p, (void)q, (void)r, (void)s;                                                                  \
        return value;                                                                                        \
    }                                                                                                        \
    INLINE vec gradient_of_##name(vec x, vec y, vec g, vec p, vec q, vec r, vec s) {                         \
        (void)x, (void)y, (void)p, (void)q, (void)r, (void)s;                                                \
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
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2

/* ---- Loops ---- */

INLINE void value1(int64_t n, const double *of, const void *x, void *y, vec (*f)(vec, vec, vec, vec, vec)) {
    const vec p = vec_fill((real)of[0]), q = vec_fill((real)of[1]), r = vec_fill((real)of[2]),
              s = vec_fill((real)of[3]);
#define STEP(i, lanes) store_reals(y, i, lanes, f(load_reals(x, i, lanes), p, q, r, s))
    EACH_VECTOR(n, STEP);
#undef STEP
}

INLINE void gradient1(int64_t n, const double *of, const void *x, const void *y, const void *g, void *x_grad,
                      vec (*f)(vec, vec, vec, vec, vec, vec, vec)) {
    const vec p = vec_fill((real)of[0]), q = vec_fill((real)of[1]), r = vec_fill((real)of[2]),
              s = vec_fill((real)of[3]);
#define STEP(i, lanes)                                                                                       \
    store_reals(x_grad, i, lanes,                                                                            \
                f(load_reals(x, i, lanes), load_reals(y, i, lanes), load_reals(g, i, lanes), p, q, r, s))
    EACH_VECTOR(n, STEP);
#undef STEP
}

INLINE void value2(int64_t n, const void *a, const void *b, void *y, vec (*f)(vec, vec)) {
#define STEP(i, lanes) store_reals(y, i, lanes, f(load_reals(a, i, lanes), load_reals(b, i, lanes)))
    EACH_VECTOR(n, STEP);
#undef STEP
}

INLINE void gradient2(int64_t n, const void *a, const void *b, const void *y, const void *g, void *out,
                      vec (*f)(vec, vec, vec, vec)) {
#define STEP(i, lanes)                                                                                       \
    store_reals(out, i, lanes,                                                                               \
                f(load_reals(a, i, lanes), load_reals(b, i, lanes), load_reals(y, i, lanes),                 \
                  load_reals(g, i, lanes)))
    EACH_VECTOR(n, STEP);
#undef STEP
}

/* ---- The tables ---- */

#define POINT1(name, help, value, gradient) POINT1_WITH(name, (), help, value, gradient)
#define POINT1_WITH(name, parameters, help, value, gradient)                                                 \
    static void value_##name(int64_t n, const double *p, const void *x, void *y) {                           \
        value1(n, p, x, y, value_of_##name);                                                                 \
    }                                                                                                        \
    static void gradient_##name(int64_t n, const double *p, const void *x, const void *y, const void *g,     \
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
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2

static const tartan_i_point1_kernels rows1[] = {
#define POINT1(name, help, value, gradient)                  {value_##name, gradient_##name},
#define POINT1_WITH(name, parameters, help, value, gradient) {value_##name, gradient_##name},
#define POINT2(name, help, value, of_a, of_b)
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
};

static const tartan_i_point2_kernels rows2[] = {
#define POINT1(name, help, value, gradient)
#define POINT1_WITH(name, parameters, help, value, gradient)
#define POINT2(name, help, value, of_a, of_b) {value_##name, {a_gradient_##name, b_gradient_##name}},
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
};

void POINTS_FILL(tartan_i_kernels *kernels) {
    kernels->point1 = rows1;
    kernels->point2 = rows2;
}
