/* SPDX-License-Identifier: Apache-2.0
 * Error handling. Every function that can fail goes in this order: check, allocate, compute, commit. */
#ifndef TARTAN_CORE_STATUS_H
#define TARTAN_CORE_STATUS_H

#include "tartan/status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>

/* Writes "function: message" into the thread's buffer, unless `function` is NULL, and returns `status`. */
tartan_status tartan_i_fail(tartan_status status, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* CHECK(condition, SHAPE, "b has %lld rows, expected %lld", ...) returns from the function at once, so use it while
 * nothing is held. FAIL does so unconditionally. CHECK_IN and FAIL_IN are for helpers: the error names the public
 * function `function`. */
#define FAIL(code, ...)              return tartan_i_fail(TARTAN_ERR_##code, __func__, __VA_ARGS__)
#define FAIL_IN(function, code, ...) return tartan_i_fail(TARTAN_ERR_##code, (function), __VA_ARGS__)
#define CHECK(condition, code, ...)                                                                          \
    do {                                                                                                     \
        if (!(condition)) FAIL(code, __VA_ARGS__);                                                           \
    } while (0)
#define CHECK_IN(function, condition, code, ...)                                                             \
    do {                                                                                                     \
        if (!(condition)) FAIL_IN(function, code, __VA_ARGS__);                                              \
    } while (0)

/* CHECK_OUT(out) refuses a NULL out-pointer and clears what it points to. */
#define CHECK_OUT(out)                                                                                       \
    do {                                                                                                     \
        CHECK((out) != NULL, HANDLE, #out " is NULL, expected a pointer for the result");                    \
        *(out) = NULL;                                                                                       \
    } while (0)

/* TRY(call) stores the status of a call in `status` and goes to `fail` if it is not OK; PASS returns it. */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        if ((status = (call)) != TARTAN_OK) goto fail;                                                       \
    } while (0)
#define PASS(call)                                                                                           \
    do {                                                                                                     \
        tartan_status passed_status = (call);                                                                \
        if (passed_status != TARTAN_OK) return passed_status;                                                \
    } while (0)

/* Handles start with a number that tells their type; freeing overwrites it. */
enum tartan_i_magic {
    TARTAN_I_LAYOUT = 0x544c4159,     /* "TLAY" */
    TARTAN_I_DYNAMIC = 0x5444594e,    /* "TDYN": a dynamic layout, which most functions refuse */
    TARTAN_I_VARIABLE = 0x54564152,   /* "TVAR": a layout of blocks of different sizes, likewise */
    TARTAN_I_MATRIX = 0x544d4154,     /* "TMAT" */
    TARTAN_I_CONTEXT = 0x54435458,    /* "TCTX" */
    TARTAN_I_FILE = 0x5446494c,       /* "TFIL" */
    TARTAN_I_BUFFER = 0x54425546,     /* "TBUF" */
    TARTAN_I_BLOCK_MASK = 0x54424d4b, /* "TBMK" */
    TARTAN_I_CONV = 0x54434f4e,       /* "TCON" */
    TARTAN_I_SPARSIFIER = 0x54535052, /* "TSPR" */
};
static inline bool tartan_i_is(const void *handle, uint32_t magic) {
    return handle != NULL && *(const uint32_t *)handle == magic;
}
#define CHECK_HANDLE(handle, MAGIC, noun)                                                                    \
    do {                                                                                                     \
        if (!tartan_i_is((handle), TARTAN_I_##MAGIC))                                                        \
            return tartan_i_fail_handle(__func__, #handle, (handle), noun);                                  \
    } while (0)

/* Fails because handle `name` is not an open `noun`: HANDLE, or UNSUPPORTED for a dynamic or variable layout where an
 * ordinary one is expected. */
tartan_status tartan_i_fail_handle(const char *function, const char *name, const void *handle,
                                   const char *noun);

/* Checks a list argument: `count` must be `expected`, which the error text calls `meaning`; the pointer may be NULL
 * only if the count is 0. CHECK_LIST checks the argument `list` with its length `nlist`. Errors: SHAPE, HANDLE. */
tartan_status tartan_i_list_check(const char *function, const char *name, const void *list, int64_t count,
                                  int64_t expected, const char *meaning);
#define CHECK_LIST(list, expected, meaning)                                                                  \
    PASS(tartan_i_list_check(__func__, #list, (list), n##list, (expected), (meaning)))

#endif
