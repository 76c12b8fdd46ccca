/* SPDX-License-Identifier: Apache-2.0
 * Ending a long call early because the caller asks for it (tartan_context_set_interrupt). */
#ifndef TARTAN_CORE_INTERRUPT_H
#define TARTAN_CORE_INTERRUPT_H

#include "core/context.h"

struct tartan_i_interrupt {
    tartan_interrupt ask;
    void *user;
    uint64_t thread; /* the one that made the call: only it may ask */
    double next;     /* the time from which on it asks again */
    int32_t stopped; /* 1: the answer was yes; the rest of the call does nothing */
};

/* The slow path of tartan_i_stop. */
bool tartan_i_interrupt_poll(struct tartan_i_interrupt *interrupt);

/* Whether the call is to end now. Tasks that may take long ask between pieces of their work of some microseconds or
 * more, leave the rest undone if the answer is true, and return as usual: the backend's caller reports INTERRUPTED. */
static inline bool tartan_i_stop(const tartan_context *context) {
    return context->interrupt != NULL && tartan_i_interrupt_poll(context->interrupt);
}

/* Whether the call was stopped; asks nobody. */
static inline bool tartan_i_stopped(const tartan_context *context) {
    return context->interrupt != NULL && __atomic_load_n(&context->interrupt->stopped, __ATOMIC_RELAXED) != 0;
}

/* INTERRUPTED if the call was stopped, else `status`. */
tartan_status tartan_i_interrupt_status(const char *function, const tartan_context *context,
                                        tartan_status status);

/* For tests: seconds between two questions, 0.01 by default. */
void tartan_i_interrupt_every(double seconds);

#endif
