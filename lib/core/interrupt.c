/* SPDX-License-Identifier: Apache-2.0 */
#include "core/interrupt.h"

#include "core/clock.h"
#include "core/memory.h"
#include "core/parallel.h"

static double seconds_between = 0.01;

void tartan_i_interrupt_every(double seconds) {
    seconds_between = seconds;
}

void tartan_i_interrupt_begin(struct tartan_i_interrupt *interrupt) {
    interrupt->thread = tartan_i_thread_number();
    __atomic_store_n(&interrupt->stopped, 0, __ATOMIC_RELAXED);
}

bool tartan_i_interrupt_poll(struct tartan_i_interrupt *interrupt) {
    if (__atomic_load_n(&interrupt->stopped, __ATOMIC_RELAXED) != 0) return true;
    if (interrupt->thread != tartan_i_thread_number() || tartan_i_seconds() < interrupt->next) return false;
    const bool stop = interrupt->ask(interrupt->user) != 0;
    interrupt->next = tartan_i_seconds() + seconds_between;
    if (stop) __atomic_store_n(&interrupt->stopped, 1, __ATOMIC_RELAXED);
    return stop;
}

tartan_status tartan_i_interrupt_status(const char *function, const tartan_context *context,
                                        tartan_status status) {
    if (status != TARTAN_OK || !tartan_i_stopped(context)) return status;
    return tartan_i_fail(TARTAN_ERR_INTERRUPTED, function, "the caller asked to stop");
}

tartan_status tartan_i_interrupt_set(tartan_context *context, tartan_interrupt ask, void *user) {
    if (ask == NULL) {
        tartan_i_free(context->interrupt);
        context->interrupt = NULL;
        return TARTAN_OK;
    }
    tartan_status status = TARTAN_OK;
    if (context->interrupt == NULL) NEW_ZEROED(context->interrupt, 1);
    *context->interrupt = (struct tartan_i_interrupt){.ask = ask, .user = user};
fail:
    return status;
}
