/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_DEVICE_LAYOUT_H
#define TARTAN_DEVICE_LAYOUT_H

#include "device/resource.h"

/* One more reference to an ordinary layout, or an ordinary layout of the blocks that one has now, fetched after the
 * context's earlier work. The layout is of the context's device, and the call has said that it uses it. Errors: LAYOUT
 * (the last mask had more blocks than there is room for), MEMORY, DEVICE. */
tartan_status tartan_i_layout_now(const tartan_i_call *call, const tartan_layout *layout,
                                  tartan_layout **out);

#endif
