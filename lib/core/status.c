/* SPDX-License-Identifier: Apache-2.0 */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Fixed, so that failing never allocates. */
static _Thread_local char last_error[1024];

tartan_status tartan_i_fail(tartan_status status, const char *function, const char *format, ...) {
    /* Errors of internal helpers name the public function that called them. */
    if (function == NULL) return status;
    int used = snprintf(last_error, sizeof last_error, "%s: ", function);
    if (used < 0 || (size_t)used >= sizeof last_error) return status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error + used, sizeof last_error - (size_t)used, format, arguments);
    va_end(arguments);
    return status;
}

const char *tartan_last_error(void) {
    return last_error;
}

const char *tartan_status_name(int32_t status) {
    switch (status) {
#define NAME(name, code, text)                                                                               \
    case code:                                                                                               \
        return #name;
        TARTAN_STATUS_LIST(NAME)
#undef NAME
    }
    return "UNKNOWN";
}

const char *tartan_status_text(int32_t status) {
    switch (status) {
#define TEXT(name, code, text)                                                                               \
    case code:                                                                                               \
        return text;
        TARTAN_STATUS_LIST(TEXT)
#undef TEXT
    }
    return "unknown status";
}

#define STRING(x)                    #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)

const char *tartan_version(void) {
    return VERSION(TARTAN_VERSION_MAJOR, TARTAN_VERSION_MINOR, TARTAN_VERSION_PATCH);
}

int32_t tartan_abi_version(void) {
    return TARTAN_ABI_VERSION;
}

tartan_status tartan_i_fail_handle(const char *function, const char *name, const void *handle,
                                   const char *noun) {
    if (tartan_i_is(handle, TARTAN_I_DYNAMIC) && strcmp(noun, "layout") == 0)
        return tartan_i_fail(TARTAN_ERR_UNSUPPORTED, function,
                             "%s is dynamic, expected an ordinary layout (tartan_layout_to_host makes one)",
                             name);
    if (tartan_i_is(handle, TARTAN_I_VARIABLE) && strcmp(noun, "layout") == 0)
        return tartan_i_fail(TARTAN_ERR_UNSUPPORTED, function,
                             "%s has blocks of different sizes, which are not supported here", name);
    return tartan_i_fail(TARTAN_ERR_HANDLE, function, "%s is %s, expected an open %s", name,
                         handle == NULL ? "NULL" : "closed or not one of Tartan's", noun);
}

tartan_status tartan_i_list_check(const char *function, const char *name, const void *list, int64_t count,
                                  int64_t expected, const char *meaning) {
    CHECK_IN(function, count == expected, SHAPE, "%s has %" PRId64 " entries, expected %" PRId64 " (%s)",
             name, count, expected, meaning);
    CHECK_IN(function, list != NULL || count == 0, HANDLE, "%s is NULL, expected %" PRId64 " entries (%s)",
             name, expected, meaning);
    return TARTAN_OK;
}
