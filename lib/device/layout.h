/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_DEVICE_LAYOUT_H
#define TARTAN_DEVICE_LAYOUT_H

#include "device/resource.h"

/* One more reference to an ordinary layout, or an ordinary layout of the current blocks of a dynamic one, fetched
 * after the context's earlier work. The layout must be on the context's device, and the call must have named it
 * (tartan_i_call_uses_layout). Errors: LAYOUT (the last mask had more blocks than the capacity), MEMORY, DEVICE. */
tartan_status tartan_i_layout_now(const tartan_i_call *call, const tartan_layout *layout,
                                  tartan_layout **out);

/* The bytes of a mask of 1 x 1 blocks as an array [heads, rows, cols] on a context's device. */
tartan_array tartan_i_layout_grid(const tartan_shape *shape, void *bytes,
                                  const tartan_i_context_options *options);

/* A dynamic layout of the windows that op->mask makes active, with room for `capacity` of them (0: all); and its next mask.
 * The mask, checked, is in host memory or on the context's device; op->active is not given. Errors: as
 * tartan_layout_from_device_mask. */
tartan_status tartan_i_layout_from_windows(tartan_context *context, const tartan_shape *shape,
                                           const tartan_op_window_pool *op, int64_t capacity,
                                           tartan_layout **out);
tartan_status tartan_i_layout_update_windows(tartan_context *context, tartan_layout *layout,
                                             const tartan_op_window_pool *op);

#endif
