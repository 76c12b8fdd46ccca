/* SPDX-License-Identifier: Apache-2.0
 * The problems of images: windows, convolutions, and what belongs to these. problem.h includes it. */
#ifndef TARTAN_CUDA_PROBLEM_CONV_H
#define TARTAN_CUDA_PROBLEM_CONV_H

#include "conv/image.h"
#include "index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Windows of images, all in three dimensions (conv/image.h). */
typedef struct tartan_cuda_window_pool {
    bool nothing;
    tartan_i_image mask;
    tartan_i_windows windows;
    bool average;
    double tolerance;
    uint8_t *active;
    int64_t all; /* windows of all images */
} tartan_cuda_window_pool;

typedef struct tartan_cuda_window_gather {
    bool nothing;
    const tartan_layout *layout;
    tartan_i_windows windows;
    tartan_i_image image, blocks;
    bool outside; /* of the image: only these positions are written */
} tartan_cuda_window_gather;

typedef struct tartan_cuda_window_scatter {
    bool nothing;
    const tartan_layout *layout;
    tartan_i_windows windows;
    tartan_i_image image, blocks, base; /* blocks is not set if `zeros`, base only if `based` */
    bool add, relu, overlap, zeros, based;
} tartan_cuda_window_scatter;

/* The longest side of an image for kernels that count positions in 32 bits. */
enum { TARTAN_CUDA_IMAGE_SIDE = 1 << 30 };

/* An image [n, channels, d, h, w]; the size and stride of a dimension that it does not have are 1 and 0. */
typedef struct tartan_cuda_image {
    void *data;
    int32_t dtype;
    int64_t entry, channel, step[TARTAN_I_DIMS]; /* strides in elements */
    int64_t channels, size[TARTAN_I_DIMS];
} tartan_cuda_image;

/* One side of a filter, on which each block has `edge` slots. */
typedef struct tartan_cuda_slots {
    const tartan_i_channels *channels; /* lists in host memory */
    int64_t grid;                      /* block lines, of one tap */
    int32_t edge, stride;              /* stride inside a block, in elements */
} tartan_cuda_slots;

/* Windows of an image; all of it if the layout is NULL. `size`, ... of dimensions d, h, w. */
typedef struct tartan_cuda_active {
    const tartan_layout *layout;
    int64_t count[TARTAN_I_DIMS], size[TARTAN_I_DIMS], stride[TARTAN_I_DIMS], offset[TARTAN_I_DIMS];
    bool dynamic;
} tartan_cuda_active;

/* What all passes of a convolution share. Columns of the filter belong to `in` positions, rows to `out` positions:
 * p_in = p_out * stride + t * dilation - before. */
typedef struct tartan_cuda_taps {
    int64_t kernel[TARTAN_I_DIMS], stride[TARTAN_I_DIMS], dilation[TARTAN_I_DIMS], before[TARTAN_I_DIMS];
    int64_t taps; /* product of kernel */
} tartan_cuda_taps;

/* A number for each channel, or edge class and channel. */
typedef struct tartan_cuda_channel_scalars {
    const void *data; /* of the type of the sums; or NULL */
    int64_t edge_class, channel;
} tartan_cuda_channel_scalars;

/* tartan_op_conv. */
typedef struct tartan_cuda_conv {
    bool nothing;
    int32_t dtype; /* of the filter; `from` may be of f32 where it is of 16 bits */
    int64_t entries;
    tartan_cuda_taps taps;
    bool tf32;      /* f32 factors may be rounded to tf32 */
    bool adjoint;   /* from `out` positions to `in` positions */
    bool per_tap;   /* taps may have different blocks */
    bool depthwise; /* of single elements that join channels alike by 8 */
    tartan_cuda_image from, to;
    tartan_cuda_slots from_slots, to_slots;
    const void *values;
    const tartan_layout *layout;
    tartan_cuda_channel_scalars gain, bias;
    const tartan_i_geometry *geometry; /* of `edges` */
    const tartan_i_edges *edges;       /* in host memory, or NULL */
    bool relu, bias_first, add;
    tartan_cuda_active active;
    bool active_from;
    tartan_cuda_figures figures;
} tartan_cuda_conv;

/* tartan_op_conv_filter_gradient. */
typedef struct tartan_cuda_conv_filter_gradient {
    bool nothing;
    int32_t dtype, s_dtype; /* of x (y_grad may be of f32 where it is of 16 bits); of the gradient */
    bool tf32;              /* f32 factors may be rounded to tf32 */
    bool per_tap;           /* taps may have different blocks */
    bool depthwise;         /* of single elements that join channels alike by 8 */
    int64_t entries;
    tartan_cuda_taps taps;
    tartan_cuda_image in, out;
    tartan_cuda_slots cols, rows;
    void *values;
    const tartan_layout *layout;
    double beta;
    tartan_cuda_active active;
    bool active_in;
    tartan_cuda_figures figures;
} tartan_cuda_conv_filter_gradient;

/* One array of a walk; data is NULL if there is none. */
typedef struct tartan_cuda_walked {
    void *data;
    int32_t dtype;
    int64_t channel, step[TARTAN_MAX_NDIM]; /* strides in elements */
} tartan_cuda_walked;

/* Up to three arrays of one shape [n, channels, ...]; all dimensions but the channels are positions. Neighbouring dimensions
 * that every array steps through as one are joined, unless there are edge classes. */
enum { TARTAN_CUDA_WALKED = 3 };
typedef struct tartan_cuda_walk {
    int32_t dtype; /* of the first array; others may be of f32 where it is of 16 bits */
    int64_t channels, positions;
    int32_t ndim;
    int64_t length[TARTAN_MAX_NDIM];
    tartan_cuda_walked array[TARTAN_CUDA_WALKED];
    bool by_channel;                        /* in memory, channels are nearer to each other than positions */
    bool wide;                              /* 16 bytes of the first array lie together in every array */
    tartan_cuda_channel_scalars gain, bias; /* of the type of the sums */
    const tartan_i_edges *edges;            /* in host memory, or NULL; classes of the last dimensions */
    const tartan_conv *conv;                /* of `edges`, with */
    tartan_i_geometry geometry;
    bool relu, bias_first;
} tartan_cuda_walk;

/* tartan_op_channel_linear: from array 0 to array 1. */
typedef struct tartan_cuda_channel_linear {
    bool nothing;
    tartan_cuda_walk walk;
} tartan_cuda_channel_linear;

/* A gradient for each channel, or edge class and channel; data is NULL if there is none. */
typedef struct tartan_cuda_channel_gradient {
    void *data;
    bool by_class;
    int64_t edge_class, channel;
} tartan_cuda_channel_gradient;

/* tartan_op_channel_linear_gradient: x, y_grad, x_grad. */
typedef struct tartan_cuda_channel_linear_gradient {
    bool nothing;
    tartan_cuda_walk walk;
    tartan_cuda_channel_gradient gain_grad, bias_grad;
} tartan_cuda_channel_linear_gradient;

/* The values of a filter; strides inside a block. */
typedef struct tartan_cuda_filter {
    void *values;
    int32_t dtype;
    int32_t row, col;
} tartan_cuda_filter;

/* tartan_op_conv_normalize. */
typedef struct tartan_cuda_conv_normalize {
    bool nothing;
    const tartan_conv *conv;
    const tartan_layout *layout;
    tartan_cuda_slots outputs;               /* the side of output channels */
    tartan_cuda_filter filter, out_grad, to; /* out_grad is not set forward */
    const void *gain;                        /* of the type of the sums, or NULL */
    int64_t gain_stride;
    double epsilon;
} tartan_cuda_conv_normalize;

typedef struct tartan_cuda_conv_normalize_gradient {
    bool nothing;
    tartan_cuda_conv_normalize in; /* `to`: filter_grad */
    void *gain_grad;               /* of the type of the sums, or NULL */
    int64_t gain_grad_stride;
} tartan_cuda_conv_normalize_gradient;

#ifdef __cplusplus
}
#endif
#endif
