/* SPDX-License-Identifier: Apache-2.0
 * The rows of steps.def on f64 numbers that stay in L1. */
#ifndef TARTAN_KERNELS_STEPS_H
#define TARTAN_KERNELS_STEPS_H

#include <stdint.h>

typedef enum tartan_i_step {
#define STEP(name, value) TARTAN_I_STEP_##name,
#define CHAIN(name, first, measure, join)
#include "kernels/steps.def"
#undef STEP
#undef CHAIN
    TARTAN_I_STEPS
} tartan_i_step;

typedef enum tartan_i_chain {
#define STEP(name, value)
#define CHAIN(name, first, measure, join) TARTAN_I_CHAIN_##name,
#include "kernels/steps.def"
#undef STEP
#undef CHAIN
    TARTAN_I_CHAINS
} tartan_i_chain;

typedef struct tartan_i_step_kernels {
    /* to[i] = value of x[i] and y[i], i < n. y may be any n numbers where the row has none; `to` may be x or y. */
    void (*step[TARTAN_I_STEPS])(int64_t n, double p, double q, const double *x, const double *y, double *to);
    /* Chains i < n go on with x[0][i], x[1][i], ... of x [rows][n]; units [n], or any n numbers where the row has none. */
    void (*chain[TARTAN_I_CHAINS])(int64_t rows, int64_t n, const double *x, const double *units,
                                   double *chains);
    /* The same for chains i < count that each have elements of their own: counts[i] runs of `length` elements, the first at x[i]
     * and each `stride` after the one before. */
    void (*runs[TARTAN_I_CHAINS])(int64_t count, const double *const *x, const int64_t *counts,
                                  int64_t length, int64_t stride, const double *units, double *chains);
} tartan_i_step_kernels;

#endif
