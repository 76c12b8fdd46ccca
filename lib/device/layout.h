/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_DEVICE_LAYOUT_H
#define TARTAN_DEVICE_LAYOUT_H

#include "device/resource.h"

/* One more reference to an ordinary layout, or an ordinary layout of the current blocks of a dynamic one, fetched
 * after the context's earlier work. The layout must be on the context's device, and the call must have named it
 * (tartan_i_call_uses_layout). Errors: LAYOUT (the last mask had more blocks than the capacity), MEMORY, DEVICE. */
tartan_status tartan_i_layout_now(const tartan_i_call *call, const tartan_layout *layout,
                                  tartan_layout **out);

#endif
