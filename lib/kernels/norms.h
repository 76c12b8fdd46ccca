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

typedef struct tartan_i_norm_line {
    int64_t n;
    double p;
    const void *x;
    void *y; /* may be x */
    const double *gain, *bias;
    const char *next;     /* memory to fetch meanwhile, such as the next line; or NULL */
    double center, scale; /* results: the mean, or 0 where nothing is subtracted; the factor of the line */
} tartan_i_norm_line;

typedef struct tartan_i_norm_gradient_line {
    int64_t n;
    double p;             /* used by rows for BOTH alone */
    double center, scale; /* of the line, from the norm */
    const void *x, *y_grad;
    const double *gain;
    void *x_grad;                  /* may be x or y_grad, or NULL */
    double *gain_sums, *bias_sums; /* [n] each, to which those of this line are added; or NULL */
} tartan_i_norm_gradient_line;

typedef struct tartan_i_line_kernels {
    struct {
        void (*value)(tartan_i_norm_line *line);
        void (*gradient)(const tartan_i_norm_gradient_line *line);
    } norms[TARTAN_I_NORM_ROWS];

    /* The sum of x, and that of its squares; and sums[i] += x[i]. */
    double (*sum)(int64_t n, const void *x);
    double (*squares)(int64_t n, const void *x);
    void (*add)(int64_t n, const void *x, double *sums);
} tartan_i_line_kernels;

#endif
