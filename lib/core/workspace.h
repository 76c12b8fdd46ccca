/* SPDX-License-Identifier: Apache-2.0
 * Scratch memory of a context. It is kept between calls, because the system zeroes new pages one by one, which
 * would take as long as a product of a few milliseconds. Calls on one context never run at the same time, so they
 * share it. */
#ifndef TARTAN_CORE_WORKSPACE_H
#define TARTAN_CORE_WORKSPACE_H

#include "core/context.h"

/* count * size uninitialised bytes in `room`, at *(void **)out_pointer; valid until the next call for that room.
 * Errors: OVERFLOW, MEMORY; the other rooms stay valid. */
tartan_status tartan_i_workspace_get(const tartan_context *context, tartan_i_room room, void *out_pointer,
                                     int64_t count, int64_t size);

/* At the end of an operation: frees the memory unless all rooms together are small enough to keep. */
void tartan_i_workspace_end(const tartan_context *context);

/* For a call of several operations: until it lets go, the ends of operations free nothing. So an operation that runs again
 * with operands no larger than before cannot fail for want of memory. */
void tartan_i_workspace_hold(const tartan_context *context);
void tartan_i_workspace_let_go(const tartan_context *context);

/* Frees all of it. */
void tartan_i_workspace_free(const tartan_context *context);

#endif
