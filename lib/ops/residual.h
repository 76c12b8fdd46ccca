/* SPDX-License-Identifier: Apache-2.0
 * A bottleneck unit, checked, and how it runs. */
#ifndef TARTAN_OPS_RESIDUAL_H
#define TARTAN_OPS_RESIDUAL_H

#include "conv/windows.h"
#include "ops/operand.h"

/* One of its convolutions. */
typedef struct tartan_i_residual_part {
    const char *name, *gain_name, *bias_name; /* of the arguments */
    const tartan_conv *conv;
    const tartan_matrix *filter;
    const tartan_array *gain, *bias;
} tartan_i_residual_part;

typedef struct tartan_i_residual {
    const char *function;
    tartan_i_residual_part reduce, spatial, expand;
    const tartan_array *x, *x_gain, *x_bias;
    const tartan_layout *active;
    bool relu, preactivate;
    const tartan_array *y;
    bool in_place;            /* y is x */
    tartan_i_geometry image;  /* of `spatial` over the whole image */
    tartan_i_windows out, in; /* windows of y; with their halo, of x */
    int64_t a, b, c,
        sum; /* elements of a window: input with halo, after `reduce`, after `spatial`, after `expand` */
} tartan_i_residual;

/* Runs it, or describes its operations between tartan_explain_begin and tartan_explain_end. */
tartan_status tartan_i_residual_run(tartan_context *context, const tartan_i_residual *unit);

#endif
