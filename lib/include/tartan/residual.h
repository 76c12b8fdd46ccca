/* SPDX-License-Identifier: Apache-2.0
 * The bottleneck unit of residual networks in the active windows of an image: three convolutions and the shortcut, from one
 * gather to one scatter.
 *
 * Source: He et al., "Deep Residual Learning for Image Recognition" (2016); Ren et al., "SBNet: Sparse Blocks Network for Fast
 * Inference" (2018). */
#ifndef TARTAN_RESIDUAL_H
#define TARTAN_RESIDUAL_H

#include "tartan/conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the active windows, with relu(v) = max(v, 0) and `*` a convolution:
 *
 *     a = x,  or with preactivate=1  relu(x_gain x + x_bias)
 *     b = relu(reduce_gain (reduce * a) + reduce_bias)
 *     c = relu(spatial_gain (spatial * b) + spatial_bias)
 *     y = relu(x + expand_gain (expand * c) + expand_bias),  with relu=0 without this last relu
 *
 * These are the numbers that the unit computed over the whole image has there: b is 0 outside of the image. All other
 * positions of y are those of x, and what x holds beyond the windows and their halo has no effect on the windows.
 *   x          [n, C, spatial...], 1 to 3 dimensions
 *   reduce     a convolution with one tap, stride 1 and no padding, from C channels on; expand the same, to C channels
 *   spatial    a convolution with stride 1 whose output has the size of its input, as with padding=same and odd kernels.
 *              Its input channels are the outputs of `reduce`, its outputs the inputs of `expand`. None is transposed
 *   ..._filter filters on the layouts of the convolutions, of the dtype of x; dense or block-sparse
 *   ..._gain, ..._bias  NULL (1, 0) or [output channels], f64 with f64, else f32: batch normalisation of inference
 *              has gain = scale / sqrt(variance + epsilon) and bias = shift - gain mean. x_gain and x_bias: [C]
 *   options    NULL, or relu=0 (default 1), preactivate=1 (default 0; ResNet v2 is "preactivate=1 relu=0")
 *   active     a layout of windows of y (windows.h); it may be dynamic, and costs the time of its capacity then
 *   windows    size, stride, offset and count of these windows, which may not overlap (stride >= size) nor be larger than
 *              the image
 *   y          of the shape and dtype of x. It may be x itself, which is then updated in place, and saves copying the image
 * Scratch memory: for each active window, its part of b with halo. Beyond that, the CPU needs room for a few windows of x and
 * y for each thread; devices need it for all active windows.
 * No gradient: for training, compose tartan_window_gather, tartan_conv_forward, tartan_channel_linear and
 * tartan_window_scatter, which have theirs.
 * Errors: HANDLE, SHAPE, DTYPE, LAYOUT, ARGUMENT (options; windows that overlap or exceed the image; convolutions of another
 * kind), OVERFLOW, UNSUPPORTED (memory of another device), MEMORY. */
TARTAN_API tartan_status tartan_residual_forward(
    tartan_context *context, const tartan_array *x, const tartan_array *x_gain, const tartan_array *x_bias,
    const tartan_conv *reduce, const tartan_matrix *reduce_filter, const tartan_array *reduce_gain,
    const tartan_array *reduce_bias, const tartan_conv *spatial, const tartan_matrix *spatial_filter,
    const tartan_array *spatial_gain, const tartan_array *spatial_bias, const tartan_conv *expand,
    const tartan_matrix *expand_filter, const tartan_array *expand_gain, const tartan_array *expand_bias,
    const char *options, const tartan_layout *active, const char *windows, tartan_array *y);

#ifdef __cplusplus
}
#endif
#endif
