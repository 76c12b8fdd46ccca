/* SPDX-License-Identifier: Apache-2.0 */
#include "core/workspace.h"

#include "core/memory.h"

#if defined(__SANITIZE_ADDRESS__)
#define WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WATCHED 1
#endif
#endif
#ifdef WATCHED
#include <sanitizer/asan_interface.h>
#endif

enum { KEEP_BYTES = 64 << 20, OF_A_THREAD = 1 << 20 };

/* Lets the address sanitizer see accesses past the requested part. */
static void watch(const tartan_i_scratch *room, int64_t bytes) {
#ifdef WATCHED
    ASAN_UNPOISON_MEMORY_REGION(room->data, (size_t)bytes);
    ASAN_POISON_MEMORY_REGION((char *)room->data + bytes, (size_t)(room->bytes - bytes));
#else
    (void)room, (void)bytes;
#endif
}

static void give_back(tartan_i_scratch *room) {
    if (room->data != NULL) watch(room, room->bytes);
    tartan_i_free(room->data);
    *room = (tartan_i_scratch){0};
}

/* `const` does not cover the scratch memory of a context. */
static tartan_i_scratch *rooms_of(const tartan_context *context) {
    return ((tartan_context *)context)->scratch;
}

tartan_status tartan_i_workspace_get(const tartan_context *context, tartan_i_room which, void *out_pointer,
                                     int64_t count, int64_t size) {
    tartan_i_scratch *room = &rooms_of(context)[which];
    int64_t bytes;
    *(void **)out_pointer = NULL;
    if (!tartan_i_multiply(count, size, &bytes) || bytes > room->bytes || room->data == NULL) {
        give_back(room);
        PASS(tartan_i_allocate(&room->data, count, size));
        room->bytes = bytes;
    }
    watch(room, bytes);
    *(void **)out_pointer = room->data;
    return TARTAN_OK;
}

void tartan_i_workspace_hold(const tartan_context *context) {
    ((tartan_context *)context)->holds_scratch = true;
}

void tartan_i_workspace_let_go(const tartan_context *context) {
    ((tartan_context *)context)->holds_scratch = false;
    tartan_i_workspace_end(context);
}

void tartan_i_workspace_end(const tartan_context *context) {
    const tartan_i_scratch *rooms = rooms_of(context);
    int64_t bytes = 0;
    if (context->holds_scratch) return;
    for (int i = 0; i < TARTAN_I_ROOMS; i++) bytes += rooms[i].bytes;
    if (bytes > KEEP_BYTES + (int64_t)context->threads * OF_A_THREAD) tartan_i_workspace_free(context);
}

void tartan_i_workspace_free(const tartan_context *context) {
    for (int i = 0; i < TARTAN_I_ROOMS; i++) give_back(&rooms_of(context)[i]);
}
