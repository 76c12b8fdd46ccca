/* SPDX-License-Identifier: Apache-2.0
 * The threads of a process. */
#ifndef TARTAN_THREADS_H
#define TARTAN_THREADS_H

#include "tartan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most threads that any call of this process uses from now on, whatever its context has; 0 for as many as contexts
 * have. Calls that run keep theirs. Loops of a host language are limited by 1 alone. No result depends on it.
 * Errors: ARGUMENT (not 0 .. 4096). */
TARTAN_API tartan_status tartan_set_num_threads(int32_t threads);

/* How many threads a call with a context of default options may use now. */
TARTAN_API int32_t tartan_get_num_threads(void);

#ifdef __cplusplus
}
#endif
#endif
