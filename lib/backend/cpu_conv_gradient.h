/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a convolution's filter on the CPU: what its files share. */
#ifndef TARTAN_BACKEND_CPU_CONV_GRADIENT_H
#define TARTAN_BACKEND_CPU_CONV_GRADIENT_H

#include "backend/cpu_conv.h"

typedef struct tartan_i_cpu_gradient tartan_i_cpu_gradient;
struct tartan_i_cpu_gradient {
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

    bool packed; /* both images are packed, by pieces; else they are read in place */
    /* A worker's part of all pieces in place, or of the packed one at work; its data is the plan. */
    tartan_task add;
    void (*store)(tartan_i_cpu_gradient *p); /* of the results */

    /* Of depthwise filters. */
    bool depthwise;
    int64_t channels, taps;
    int64_t
        pitch; /* channels in whole groups: sums are [group][taps][channels of a group], and a line of zeros follows */
    int64_t parts, shares; /* workers share channels, then taps */
};

/* Plans a gradient of packed images, but leaves out `add` and `store`; and runs a gradient by a plan that has them. */
tartan_i_cpu_gradient tartan_i_cpu_conv_gradient_plan(const tartan_context *context,
                                                      const tartan_op_conv_filter_gradient *op);
tartan_status tartan_i_cpu_conv_gradient_run(tartan_i_cpu_gradient *p);

#endif
