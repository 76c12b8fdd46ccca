/* SPDX-License-Identifier: Apache-2.0
 * Status codes, the text of the last error, and versions. */
#ifndef TARTAN_STATUS_H
#define TARTAN_STATUS_H

#include <stdint.h>

#if defined(SWIG)
#define TARTAN_API
#elif defined(__GNUC__)
#define TARTAN_API __attribute__((visibility("default")))
#else
#define TARTAN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TARTAN_VERSION_MAJOR 0
#define TARTAN_VERSION_MINOR 1
#define TARTAN_VERSION_PATCH 0
#define TARTAN_ABI_VERSION   0

/* Every status: name, code and default text. Codes are never renumbered. The enum, the texts, the exceptions of the
 * bindings and the test that every status occurs are generated from this list. */
#define TARTAN_STATUS_LIST(X)                                                                                \
    X(OK, 0, "success")                                                                                      \
    X(ERR_ARGUMENT, -1, "an argument has a value that is not allowed")                                       \
    X(ERR_HANDLE, -2, "a handle is NULL, closed or not one of Tartan's")                                     \
    X(ERR_SHAPE, -3, "sizes do not fit together")                                                            \
    X(ERR_DTYPE, -4, "a dtype is unknown or does not fit the others")                                        \
    X(ERR_LAYOUT, -5, "block indices are out of range, repeated or unsorted")                                \
    X(ERR_UNSUPPORTED, -6, "no backend of this build can do this")                                           \
    X(ERR_MEMORY, -7, "out of memory")                                                                       \
    X(ERR_OVERFLOW, -8, "a product of sizes exceeds what can be addressed")                                  \
    X(ERR_DEVICE, -9, "a device failed or does not exist")                                                   \
    X(ERR_FILE, -10, "the operating system refused a file operation")                                        \
    X(ERR_FORMAT, -11, "a file is damaged or not in Tartan's format")                                        \
    X(ERR_VERSION, -12, "a file or plug-in is of a newer version")                                           \
    X(ERR_NOT_FOUND, -13, "no object of this name")                                                          \
    X(ERR_INTERNAL, -14, "an internal check failed: please report this")                                     \
    X(ERR_INTERRUPTED, -15, "the caller asked to stop")

typedef enum tartan_status {
#define TARTAN_STATUS_ENUM(name, code, text) TARTAN_##name = code,
    TARTAN_STATUS_LIST(TARTAN_STATUS_ENUM)
#undef TARTAN_STATUS_ENUM
} tartan_status;

/* The text of the last error on the calling thread: the function, the argument, its value and what was expected. ""
 * if no call has failed yet; a success does not clear it. Never NULL. The string is valid until the next error on
 * this thread; do not free it. */
TARTAN_API const char *tartan_last_error(void);

/* The name and the default text of a status code, for instance "ERR_SHAPE" and "sizes do not fit together"; "UNKNOWN"
 * and "unknown status" for any other number. Static strings. */
TARTAN_API const char *tartan_status_name(int32_t status);
TARTAN_API const char *tartan_status_text(int32_t status);

/* The version of the library, "0.1.0", and of its ABI: if the latter changes, recompile the callers. */
TARTAN_API const char *tartan_version(void);
TARTAN_API int32_t tartan_abi_version(void);

/* Free a text that a function returned through a `char **out_text`. NULL is allowed. */
TARTAN_API void tartan_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
