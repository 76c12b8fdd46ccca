/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_DEVICE_LAYOUT_H
#define TARTAN_DEVICE_LAYOUT_H

#include "backend/backend.h"

/* One more reference to an ordinary layout, or the ordinary layout of the blocks that one has now, fetched after all work
 * asked for before. The context, which is of the layout's device, has been entered. Errors: LAYOUT (the last mask had
 * more blocks than there is room for), MEMORY, DEVICE. */
tartan_status tartan_i_layout_now(const char *function, const tartan_context *context,
                                  const tartan_layout *layout, tartan_layout **out);

#endif
