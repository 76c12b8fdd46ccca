/* SPDX-License-Identifier: Apache-2.0
 * The norms of norms.def, and sums, of lines of n contiguous elements of f32 or f64, computed in f64.
 *
 * A sum is 16 chains, of the index modulo 16. Every 256 elements a chain is added to its total, whose rounding errors are
 * kept; in the end chains meet by halves. So it has one order, and its error does not grow with n. */
#ifndef TARTAN_KERNELS_NORMS_H
#define TARTAN_KERNELS_NORMS_H

#include <stdint.h>

typedef enum tartan_i_norm_row {
#define NORM(name, ...) TARTAN_I_NORM_##name,
#include "kernels/norms.def"
#undef NORM
    TARTAN_I_NORM_ROWS
} tartan_i_norm_row;

/* Lines at a time: what belongs to a position of each is loaded once for all of them. */
enum { TARTAN_I_NORM_LINES = 4 };

/* Lines of numbers in memory: the first, and the step from one to the next in bytes. */
typedef struct tartan_i_norm_memory {
    char *data;
    int64_t step;
} tartan_i_norm_memory;

typedef struct tartan_i_norm_group {
    int64_t n, lines; /* 1 .. TARTAN_I_NORM_LINES */
    double p;
    tartan_i_norm_memory x, y; /* y may be x */
    const double *gain, *bias;
    double center[TARTAN_I_NORM_LINES],
        scale[TARTAN_I_NORM_LINES]; /* results: the mean of each line, or 0 where nothing is subtracted;
                                                                       its factor */
} tartan_i_norm_group;

/* The same with what the norm said of each line. */
typedef struct tartan_i_norm_gradient_group {
    int64_t n, lines;
    double p;                               /* used by rows for BOTH alone */
    tartan_i_norm_memory x, y_grad, x_grad; /* x_grad may be x or y_grad, or have no data */
    const double *gain;
    double center[TARTAN_I_NORM_LINES], scale[TARTAN_I_NORM_LINES];
    double *gain_sums,
        *bias_sums; /* [n] each, to which the gradients of these lines are added in their order; or NULL */
} tartan_i_norm_gradient_group;

typedef struct tartan_i_line_kernels {
    struct {
        void (*value)(tartan_i_norm_group *group);
        void (*gradient)(const tartan_i_norm_gradient_group *group);
    } norms[TARTAN_I_NORM_ROWS];

    /* The sum of x, and the sum of its squares; and sums[i] += x[i]. */
    double (*sum)(int64_t n, const void *x);
    double (*squares)(int64_t n, const void *x);
    void (*add)(int64_t n, const void *x, double *sums);
} tartan_i_line_kernels;

#endif
