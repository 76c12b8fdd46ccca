/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a convolution's filter on the CPU: what its files share. */
#ifndef TARTAN_BACKEND_CPU_CONV_GRADIENT_H
#define TARTAN_BACKEND_CPU_CONV_GRADIENT_H

#include "backend/cpu_conv.h"

typedef struct tartan_i_cpu_gradient {
    const tartan_context *context;
    const tartan_op_conv_filter_gradient *op;
    tartan_i_kernels k;
    const tartan_layout *layout;
    tartan_i_image in, out;
    tartan_i_cpu_active windows, map; /* of `out`, of `in`: one of them without a layout */
    int64_t width;                    /* of a block's sums */
    tartan_i_cpu_line in_lines[TARTAN_I_DIMS], out_lines[TARTAN_I_DIMS];
    tartan_i_cpu_tiling in_tiling, out_tiling;
    tartan_i_cpu_piece *pieces;
    int64_t npieces;
    const tartan_i_cpu_piece *piece; /* at work */
    tartan_i_pair *pairs;            /* a row of its positions each */
    int64_t npairs;
    char *in_box, *out_box, *sums; /* sums: [blocks][block rows][width] */

    /* Of depthwise filters. */
    bool depthwise, plain;         /* plain: both images are read in place */
    int64_t channels, taps, pitch; /* sums are [taps][pitch] then, and a line of zeros follows */
    tartan_i_line *lines;          /* [threads][taps] */
    int64_t parts, shares;         /* workers share channels, then taps */
} tartan_i_cpu_gradient;

/* Depthwise filters: how the work is shared; a worker's part, of all pieces in place or of the packed one at work; storing the
 * results. */
void tartan_i_cpu_depthwise_gradient_plan(tartan_i_cpu_gradient *p);
void tartan_i_cpu_depthwise_gradient_task(void *plan, int32_t worker);
void tartan_i_cpu_depthwise_gradient_store(const tartan_i_cpu_gradient *p);

#endif
