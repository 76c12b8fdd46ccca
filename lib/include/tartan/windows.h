/* SPDX-License-Identifier: Apache-2.0
 * Spatial sparsity: operations in selected windows of an image. Along each spatial dimension, window i covers
 * positions offset + i * stride to offset + i * stride + size - 1, i = 0 .. count - 1. Windows may reach beyond the
 * image.
 *
 * The active windows are a layout with blocks of 1 x 1 and a head for each image: count[0] x count[1] for two
 * dimensions, 1 x count[0] for one, (count[0] * count[1]) x count[2] for three. Active windows can thus be saved,
 * drawn and compared like all layouts, and can be dynamic (device.h). Window ids are block ids, in row-major order of
 * (image, window).
 *
 * Functions take the geometry of windows as text: "size=18x18 stride=16x16 offset=-1x-1 count=22x44". A single number
 * applies to all dimensions. By default, stride is size and offset is 0; count follows from the layout if there are
 * one or two dimensions.
 *
 * Images are arrays [n, channels, spatial...] and stacked windows are arrays [windows, channels, size...], both with
 * any strides, so copies between them can also change the memory order. For a dynamic layout, the first length is its
 * capacity. operations.h has the copies between them, tartan_window_gather and tartan_window_scatter.
 * Source: Ren et al., "SBNet: Sparse Blocks Network for Fast Inference" (2018). */
#ifndef TARTAN_WINDOWS_H
#define TARTAN_WINDOWS_H

#include "tartan/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Compute the windows of an image for one or more successive convolutions that run window by window.
 *   image    the spatial lengths of the image, 1 to 3 of them
 *   options  kernel=3x3, or kernel=1x1+3x3+1x1 for a stack, whose receptive field counts; stride=1 (the product over
 *            the stack); size=18x18, the size of the input windows with their halo (size - receptive field must be a
 *            multiple of stride), or output=16x16, the size of the output windows; padding=same (TensorFlow's,
 *            default) or valid
 * *out_input receives the text of the input windows (they overlap by the halo and begin before the image),
 * *out_output that of the output windows, which are adjacent. Both have the same count. Free the texts with
 * tartan_text_free. Errors: ARGUMENT (options; windows larger than the padded image), SHAPE, MEMORY. */
TARTAN_API tartan_status tartan_windows_for_conv(const int64_t *image, int64_t nimage, const char *options,
                                                 char **out_input, char **out_output);

/* The windows that a mask makes active.
 *   mask     [n, spatial...] or [n, 1, spatial...] of f64, f32, f16, bf16 or u8, any strides, in host memory or on
 *            the context's device
 *   windows  the text of the windows; count is required. If it has only single numbers, [n, 1, 5] is a mask of two
 *            dimensions
 *   options  NULL, or pool=max (default): a window is active if its largest element exceeds the tolerance;
 *            pool=average: if its mean does, over all size[0] * size[1] ... positions with 0 outside the image;
 *            tolerance=0.05 (default 0; rounded to the dtype of the mask); capacity=500 (on a device: the largest
 *            number of windows; default all)
 * On the CPU *out is an ordinary layout, and NaN is refused (ARGUMENT). On a device the layout is dynamic, the host
 * does not wait, and NaN exceeds any tolerance. Without active windows the layout has no blocks. Errors: as for
 * tartan_layout_from_device_mask. */
TARTAN_API tartan_status tartan_layout_from_windows(tartan_context *context, const tartan_array *mask,
                                                    const char *windows, const char *options,
                                                    tartan_layout **out);

/* Update the layout in place for the mask of a new frame, as tartan_layout_update_device_mask does. */
TARTAN_API tartan_status tartan_layout_update_windows(tartan_context *context, tartan_layout *layout,
                                                      const tartan_array *mask, const char *windows,
                                                      const char *options);

#ifdef __cplusplus
}
#endif
#endif
