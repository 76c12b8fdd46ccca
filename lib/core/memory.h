/* SPDX-License-Identifier: Apache-2.0
 * All memory comes from here. Allocations are 64-byte aligned and counted, and tests can make them fail. */
#ifndef TARTAN_CORE_MEMORY_H
#define TARTAN_CORE_MEMORY_H

#include "core/status.h"

/* Allocates count * size bytes, uninitialised or zeroed, and stores the address in *(void **)out_pointer: not NULL
 * on success, even for 0 bytes; NULL on failure. Errors: OVERFLOW, MEMORY. */
tartan_status tartan_i_allocate(void *out_pointer, int64_t count, int64_t size);
tartan_status tartan_i_allocate_zeroed(void *out_pointer, int64_t count, int64_t size);
void tartan_i_free(void *pointer);

/* Hands memory over to a caller outside of the library, who releases it as that of malloc. */
void tartan_i_hand_over(void *pointer);

/* Memory of so many bytes or more is asked for in huge pages. */
enum { TARTAN_I_HUGE_BYTES = 4 << 20 };

/* A copy of a text, which the caller frees; NULL of NULL. */
tartan_status tartan_i_copy_text(const char *text, char **out);

/* NEW(p, n) allocates n objects of p's type, in functions that have `status` and `fail`. */
#define NEW(pointer, count)        TRY(tartan_i_allocate(&(pointer), (count), sizeof *(pointer)))
#define NEW_ZEROED(pointer, count) TRY(tartan_i_allocate_zeroed(&(pointer), (count), sizeof *(pointer)))

/* a * b into *out; false if that exceeds int64 (a, b >= 0). */
static inline bool tartan_i_multiply(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

/* ceil(a / b) for a >= 0, b > 0, without overflow. */
static inline int64_t tartan_i_ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

/* For tests: the number of live allocations; make the n-th allocation from now fail, counted from 0 (-1: none); the
 * number of allocations requested since then. */
int64_t tartan_i_memory_live(void);
void tartan_i_memory_fail_at(int64_t n);
int64_t tartan_i_memory_asked(void);

/* A growing text. After a failure further calls do nothing and the status stays. */
typedef struct tartan_i_text {
    char *data;
    int64_t length, capacity;
    tartan_status status;
} tartan_i_text;
void tartan_i_text_add(tartan_i_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds `string` as a JSON string with its quotes. */
void tartan_i_text_add_json(tartan_i_text *text, const char *string);

#endif
