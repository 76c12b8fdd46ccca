/* SPDX-License-Identifier: Apache-2.0
 * The element-wise functions of points.def on n contiguous reals. Operands are where they were for the caller, or copies that stay
 * in L1; an output may be any of the inputs. What an expression does not mention may be any n reals. */
#ifndef TARTAN_KERNELS_POINTS_H
#define TARTAN_KERNELS_POINTS_H

#include <stdint.h>

/* The places of rows in the tables. */
typedef enum tartan_i_point1_row {
#define POINT1(name, help, value, gradient)                  TARTAN_I_POINT1_##name,
#define POINT1_WITH(name, parameters, help, value, gradient) TARTAN_I_POINT1_##name,
#define POINT2(name, help, value, of_a, of_b)
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
    TARTAN_I_POINT1_ROWS
} tartan_i_point1_row;

typedef enum tartan_i_point2_row {
#define POINT1(name, help, value, gradient)
#define POINT1_WITH(name, parameters, help, value, gradient)
#define POINT2(name, help, value, of_a, of_b) TARTAN_I_POINT2_##name,
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
    TARTAN_I_POINT2_ROWS
} tartan_i_point2_row;

/* Rows of the two tables: y = f(x), and x_grad for g = y_grad. p has TARTAN_I_POINT_PARAMETERS numbers, of which a function uses
 * those that it has parameters for. */
typedef struct tartan_i_point1_kernels {
    void (*value)(int64_t n, const double *p, const void *x, void *y);
    void (*gradient)(int64_t n, const double *p, const void *x, const void *y, const void *g, void *x_grad);
} tartan_i_point1_kernels;

/* y = f(a, b), and the gradients with respect to a and to b. */
typedef struct tartan_i_point2_kernels {
    void (*value)(int64_t n, const void *a, const void *b, void *y);
    void (*gradient[2])(int64_t n, const void *a, const void *b, const void *y, const void *g, void *out);
} tartan_i_point2_kernels;

#endif
