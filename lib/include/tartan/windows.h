/* SPDX-License-Identifier: Apache-2.0
 * Sparse spatial blocks: the windows of an image that matter. Along each spatial dimension, window i covers positions
 * offset + i * stride to offset + i * stride + size - 1, i = 0 .. count - 1; parts outside of the image are allowed.
 *
 * Which windows are active is a layout in blocks of 1 x 1 with a head for each image: count[0] x count[1] for two dimensions,
 * 1 x count[0] for one, (count[0] * count[1]) x count[2] for three. So active windows are saved, drawn and compared like all
 * layouts, and can be dynamic (device.h). Window ids are block ids, in row-major order of (image, window).
 *
 * Functions take windows as a text: "size=18x18 stride=16x16 offset=-1x-1 count=22x44". One number serves for all dimensions;
 * stride is size and offset 0 if not given; count may be left out if there are one or two dimensions, as the layout has it.
 *
 * Images are arrays [n, channels, spatial...], stacked windows [windows, channels, size...], both with any strides, so that
 * changes of memory order happen on the way. Of a dynamic layout, the first length is its capacity. operations.h has the copies
 * between them, tartan_window_gather and tartan_window_scatter.
 *
 * Source: Ren et al., "SBNet: Sparse Blocks Network for Fast Inference" (2018). */
#ifndef TARTAN_WINDOWS_H
#define TARTAN_WINDOWS_H

#include "tartan/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Windows of an image for a convolution, or for several in a row, that is done window by window.
 *   image    its spatial lengths, 1 to 3 of them
 *   options  kernel=3x3 or for a stack kernel=1x1+3x3+1x1 (its receptive field counts); stride=1 (the product over the stack);
 *            size=18x18: that of input windows, halo included (size - receptive field must be a multiple of stride), or
 *            output=16x16: that of output windows; padding=same (TensorFlow's, default) or valid
 * *out_input is the text of the input windows (overlapping by the halo, from before the image on), *out_output that of the
 * output windows, side by side. Both have the same count. The caller frees them with tartan_text_free. Errors: ARGUMENT
 * (options; windows larger than the padded image), SHAPE, MEMORY. */
TARTAN_API tartan_status tartan_windows_for_conv(const int64_t *image, int64_t nimage, const char *options,
                                                 char **out_input, char **out_output);

/* The windows that a mask makes active.
 *   mask     [n, spatial...] or [n, 1, spatial...] of f64, f32, f16, bf16 or u8, any strides, in host memory or on the
 *            context's device
 *   windows  the text; count is required. If all its numbers are single ones, [n, 1, 5] is a mask of two dimensions
 *   options  NULL, or pool=max (default): active if the largest number in the window is above the tolerance; pool=average: if
 *            its sum over all size[0] * size[1] ... positions, 0 outside of the image, divided by their number is;
 *            tolerance=0.05 (default 0; it is rounded to the dtype of the mask); capacity=500 (on a device: room for so many
 *            windows; default all)
 * On the CPU *out is an ordinary layout, and NaN is refused (ARGUMENT). On a device it is dynamic, the host does not wait, and NaN
 * counts as above the tolerance. No active window: no blocks. Errors: as tartan_layout_from_device_mask. */
TARTAN_API tartan_status tartan_layout_from_windows(tartan_context *context, const tartan_array *mask,
                                                    const char *windows, const char *options,
                                                    tartan_layout **out);

/* The same for the mask of a new frame, in place, as tartan_layout_update_device_mask does it. */
TARTAN_API tartan_status tartan_layout_update_windows(tartan_context *context, tartan_layout *layout,
                                                      const tartan_array *mask, const char *windows,
                                                      const char *options);

#ifdef __cplusplus
}
#endif
#endif
