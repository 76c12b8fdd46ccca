/* SPDX-License-Identifier: Apache-2.0 */
#include "core/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

static atomic_llong live;
static atomic_llong asked;
static atomic_llong fail_at = -1;

static tartan_status allocate(void **out, int64_t count, int64_t size) {
    *out = NULL;
    int64_t bytes;
    CHECK(count >= 0 && tartan_i_multiply(count, size, &bytes) && bytes <= INT64_MAX / 2, OVERFLOW,
          "%" PRId64 " elements of %" PRId64 " bytes exceed what can be addressed", count, size);
    long long index = atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
    long long doomed = atomic_load_explicit(&fail_at, memory_order_relaxed);
    /* Large memory gets huge pages where the system gives them on request: fewer misses when looking up addresses. */
    const size_t alignment = bytes >= TARTAN_I_HUGE_BYTES ? HUGE_PAGE : ALIGNMENT;
    const size_t rounded = ((size_t)bytes + alignment) / alignment * alignment;
    if (index != doomed) *out = aligned_alloc(alignment, rounded);
#ifdef MADV_HUGEPAGE
    if (alignment == HUGE_PAGE && *out != NULL) (void)madvise(*out, rounded, MADV_HUGEPAGE);
#endif
    CHECK(*out != NULL, MEMORY, "could not get %" PRId64 " bytes", bytes);
    atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return TARTAN_OK;
}

tartan_status tartan_i_allocate(void *out_pointer, int64_t count, int64_t size) {
    return allocate(out_pointer, count, size);
}

tartan_status tartan_i_allocate_zeroed(void *out_pointer, int64_t count, int64_t size) {
    PASS(allocate(out_pointer, count, size));
    memset(*(void **)out_pointer, 0, (size_t)(count * size));
    return TARTAN_OK;
}

void tartan_i_free(void *pointer) {
    if (pointer == NULL) return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(pointer);
}

void tartan_i_hand_over(void *pointer) {
    if (pointer != NULL) atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
}

int64_t tartan_i_memory_live(void) {
    return atomic_load(&live);
}

void tartan_i_memory_fail_at(int64_t n) {
    atomic_store(&asked, 0);
    atomic_store(&fail_at, n);
}

int64_t tartan_i_memory_asked(void) {
    return atomic_load(&asked);
}

static bool text_reserve(tartan_i_text *text, int64_t more) {
    if (text->status != TARTAN_OK) return false;
    if (text->data != NULL && text->length + more < text->capacity) return true;
    int64_t capacity = 2 * (text->length + more) + 256;
    char *data;
    text->status = tartan_i_allocate(&data, capacity, 1);
    if (text->status != TARTAN_OK) return false;
    data[0] = '\0';
    if (text->data != NULL) memcpy(data, text->data, (size_t)text->length + 1);
    tartan_i_free(text->data);
    text->data = data;
    text->capacity = capacity;
    return true;
}

void tartan_i_text_add(tartan_i_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int need = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (need < 0 || !text_reserve(text, need)) return;
    va_start(arguments, format);
    vsnprintf(text->data + text->length, (size_t)need + 1, format, arguments);
    va_end(arguments);
    text->length += need;
}

void tartan_i_text_add_json(tartan_i_text *text, const char *string) {
    tartan_i_text_add(text, "\"");
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        if (*c == '"' || *c == '\\')
            tartan_i_text_add(text, "\\%c", *c);
        else if (*c < 0x20)
            tartan_i_text_add(text, "\\u%04x", *c);
        else
            tartan_i_text_add(text, "%c", *c);
    }
    tartan_i_text_add(text, "\"");
}

void tartan_text_free(char *text) {
    tartan_i_free(text);
}

tartan_status tartan_i_copy_text(const char *text, char **out) {
    *out = NULL;
    if (text == NULL) return TARTAN_OK;
    int64_t size = (int64_t)strlen(text) + 1;
    PASS(tartan_i_allocate(out, size, 1));
    memcpy(*out, text, (size_t)size);
    return TARTAN_OK;
}
