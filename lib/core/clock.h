/* SPDX-License-Identifier: Apache-2.0
 * The clock that durations are measured with. */
#ifndef TARTAN_CORE_CLOCK_H
#define TARTAN_CORE_CLOCK_H

#include <time.h>

/* Seconds of a monotonic clock. */
static inline double tartan_i_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
