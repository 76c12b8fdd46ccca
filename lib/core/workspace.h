/* SPDX-License-Identifier: Apache-2.0
 * Scratch memory of a context. It stays from call to call, because the system zeroes new pages one by one: for a product
 * of a few milliseconds that takes as long as the product. Calls of one context come one after the other, so they
 * share it. */
#ifndef TARTAN_CORE_WORKSPACE_H
#define TARTAN_CORE_WORKSPACE_H

#include "core/context.h"

/* count * size bytes in `room`, not initialised, at *(void **)out_pointer; good until the next call for that room.
 * Errors: OVERFLOW, MEMORY; the other rooms stay good. */
tartan_status tartan_i_workspace_get(const tartan_context *context, tartan_i_room room, void *out_pointer,
                                     int64_t count, int64_t size);

/* At the end of an operation: gives memory back unless all rooms together are small enough to be kept. */
void tartan_i_workspace_end(const tartan_context *context);

/* Gives all of it back. */
void tartan_i_workspace_free(const tartan_context *context);

#endif
