/* SPDX-License-Identifier: Apache-2.0
 * The number of threads of a process. */
#ifndef TARTAN_THREADS_H
#define TARTAN_THREADS_H

#include "tartan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limit the threads of every later call of this process, whatever its context has; 0 removes the limit. Running
 * calls keep their threads. Parallel loops of a host language only respect a limit of 1. No result depends on the
 * limit.
 * Errors: ARGUMENT (not 0 .. 4096). */
TARTAN_API tartan_status tartan_set_num_threads(int32_t threads);

/* The number of threads that a call on a context with default options may use now. */
TARTAN_API int32_t tartan_get_num_threads(void);

#ifdef __cplusplus
}
#endif
#endif
