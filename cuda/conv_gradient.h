/* SPDX-License-Identifier: Apache-2.0
 * How the kernel conv_filter_gradient_wgmma divides the gradient of a filter. Plain C, tested without a GPU.
 *
 * A CTA has tiles of 64 x 64 of the dense gradient: one of output channels by one of input channels at some taps, or, where kernels
 * have one column, by some of input channels. It goes through its share of the positions in stages, rows of y and as many of x,
 * which TMA loads as boxes. Rows of both have the same pitch in shared memory, so a tap is another address of the same pixels of
 * x: what follows a row are zeros of y, for which the pitch has room. With strides each tap has a box of its own. */
#ifndef TARTAN_CUDA_CONV_GRADIENT_H
#define TARTAN_CUDA_CONV_GRADIENT_H

#include "conv_few.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TARTAN_CUDA_GRADIENT_GROUPS = 3,   /* warpgroups of a CTA, at most: a row of taps each */
    TARTAN_CUDA_GRADIENT_PRODUCTS = 3, /* tiles of a warpgroup, at most */
    TARTAN_CUDA_GRADIENT_STAGES = 4,
    TARTAN_CUDA_GRADIENT_CTAS = 3,                 /* of an SM, with one warpgroup */
    TARTAN_CUDA_GRADIENT_LINE = 128,               /* bytes of a position */
    TARTAN_CUDA_GRADIENT_SUMS = 64 * (64 + 4) * 4, /* bytes of the sums of a tile */
    TARTAN_CUDA_GRADIENT_BOX = 256                 /* positions of a side of a box */
};

typedef struct tartan_cuda_gradient_form {
    tartan_cuda_dense_side row, col;
    int32_t groups, products;   /* of a CTA; of a warpgroup: 1 or 3 */
    int32_t tap_rows, tap_cols; /* of a CTA */
    int32_t cols;               /* tiles of input channels of a CTA */
    bool shared;                /* all taps of a CTA read one box */
    int32_t rows, images;       /* of y in a stage */
    int32_t pitch;              /* positions from a row to the next */
    int32_t box_rows;           /* of x */
    int32_t steps;              /* products of 16 positions in a stage */
    int32_t y_bytes, x_bytes;   /* room for a box, and for zeros behind it */
    int32_t stage_bytes;
    int32_t strips;        /* stages of a plane of an image */
    int32_t all;           /* stages of all positions */
    double jobs;           /* clusters */
    int32_t splits, share; /* CTAs of a cluster, which share them; stages of each, at most */
    int32_t stages;        /* that shared memory holds */
    int64_t bytes;         /* of shared memory */
    double us;             /* how long it takes, about; infinite if the kernel can't compute it */
} tartan_cuda_gradient_form;

/* Fills in what follows from groups, products, tiles, rows and images, up to `jobs`; false if there is no such form. */
bool tartan_cuda_gradient_form_complete(const tartan_cuda_conv_filter_gradient *p,
                                        tartan_cuda_gradient_form *f);

tartan_cuda_gradient_form tartan_cuda_gradient_form_of(const tartan_cuda_chip *chip,
                                                       const tartan_cuda_conv_filter_gradient *p);

#ifdef __cplusplus
}
#endif
#endif
