/* SPDX-License-Identifier: Apache-2.0
 * How functions fail. Every function that can fail has the shape: check, get memory, compute, commit. */
#ifndef TARTAN_CORE_STATUS_H
#define TARTAN_CORE_STATUS_H

#include "tartan/status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>

/* Writes "function: message" into the thread's buffer, unless `function` is NULL, and returns `status`. */
tartan_status tartan_i_fail(tartan_status status, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* CHECK(condition, SHAPE, "b has %lld rows, expected %lld", ...) leaves the function at once: use it while
 * nothing is held. FAIL does so unconditionally. CHECK_IN and FAIL_IN do the same in the name of the public function
 * `function`, for the helpers of it. */
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
        CHECK((out) != NULL, HANDLE, #out " is NULL, expected a place for the result");                      \
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

/* Handles start with a number that says what they are; freeing overwrites it. */
enum tartan_i_magic {
    TARTAN_I_LAYOUT = 0x544c4159, /* "TLAY" */
    TARTAN_I_DYNAMIC =
        0x5444594e,               /* "TDYN": a layout whose blocks change, so that most functions refuse it */
    TARTAN_I_MATRIX = 0x544d4154, /* "TMAT" */
    TARTAN_I_CONTEXT = 0x54435458,    /* "TCTX" */
    TARTAN_I_FILE = 0x5446494c,       /* "TFIL" */
    TARTAN_I_BUFFER = 0x54425546,     /* "TBUF" */
    TARTAN_I_BLOCK_MASK = 0x54424d4b, /* "TBMK" */
};
static inline bool tartan_i_is(const void *handle, uint32_t magic) {
    return handle != NULL && *(const uint32_t *)handle == magic;
}
#define CHECK_HANDLE(handle, MAGIC, noun)                                                                    \
    do {                                                                                                     \
        if (!tartan_i_is((handle), TARTAN_I_##MAGIC))                                                        \
            return tartan_i_fail_handle(__func__, #handle, (handle), noun);                                  \
    } while (0)

/* Fails for a handle `name` that is no open `noun`: HANDLE, or UNSUPPORTED where a layout is expected and its blocks
 * change. */
tartan_status tartan_i_fail_handle(const char *function, const char *name, const void *handle,
                                   const char *noun);

/* Checks a list argument: `count` must be `expected` (what that is: `meaning`), the pointer not NULL unless it is 0.
 * CHECK_LIST does so for the argument `list` with its length `nlist`. Errors: SHAPE, HANDLE. */
tartan_status tartan_i_list_check(const char *function, const char *name, const void *list, int64_t count,
                                  int64_t expected, const char *meaning);
#define CHECK_LIST(list, expected, meaning)                                                                  \
    PASS(tartan_i_list_check(__func__, #list, (list), n##list, (expected), (meaning)))

#endif
