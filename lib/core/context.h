/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_CORE_CONTEXT_H
#define TARTAN_CORE_CONTEXT_H

#include "core/status.h"
#include "tartan/context.h"

struct tartan_backend;
struct tartan_i_queue;

/* What a context was created with. */
typedef struct tartan_i_context_options {
    int32_t device_type, device_id;
    int32_t threads; /* 0: not given */
    bool tf32, allow_dense;
    int32_t parts;     /* of bf16 that f32 factors may be split into: 2 or 3; 0: none */
    bool parts_by_any; /* tests: also where instructions for that are missing, so that f32 is faster */
    int64_t seed;
    void *stream; /* NULL: one of its own */
    tartan_hooks hooks;
} tartan_i_context_options;

/* Scratch memory, see core/workspace.h. All rooms may be in use at the same time. */
typedef enum tartan_i_room {
    TARTAN_I_ROOM_LISTS,  /* positions */
    TARTAN_I_ROOM_TEAM,   /* counters of the workers */
    TARTAN_I_ROOM_PIECES, /* the list of work items */
    TARTAN_I_ROOM_PANEL,  /* packed operands, shared by the workers */
    TARTAN_I_ROOM_OWN,    /* private to each worker */
    TARTAN_I_ROOM_SUMS,   /* partial sums */
    TARTAN_I_ROOM_CHAIN,  /* what one operation of a call hands to the next */
    TARTAN_I_ROOMS,
} tartan_i_room;
typedef struct tartan_i_scratch {
    void *data;
    int64_t bytes;
} tartan_i_scratch;

struct tartan_context {
    uint32_t magic; /* TARTAN_I_CONTEXT */
    tartan_i_context_options options;
    char name[16];   /* of the device: "cuda:0" */
    int32_t threads; /* resolved, >= 1 */
    const struct tartan_backend *backend;
    void *device;      /* the backend's own */
    int32_t last_kind; /* 1 + the kind of the last operation that was timed; 0: none */
    double last_rate;  /* its useful TFLOP/s */
    tartan_i_scratch scratch[TARTAN_I_ROOMS];
    bool holds_scratch; /* between tartan_i_workspace_hold and tartan_i_workspace_let_go */
    bool rehearses;     /* operations of the CPU get their memory and compute nothing */
    int32_t busy;       /* a tartan_i_busy, by the __atomic builtins: C++ tests include this header */
    void (*end)(struct tartan_context *context); /* frees it */
    /* The order of work between streams (lib/device/queue.h); of a CPU context NULL and 0. */
    struct tartan_i_queue *queue;
    struct tartan_context *next;          /* on the same queue */
    int64_t call;                         /* the number of the call that is running, or 0 */
    uint64_t thread;                      /* the only one that may work with it; 0: any */
    struct tartan_i_interrupt *interrupt; /* NULL: nobody is asked whether to stop */
};

/* TARTAN_I_ENDING: freed during a call, which ends the context when it leaves. */
typedef enum tartan_i_busy { TARTAN_I_IDLE, TARTAN_I_BUSY, TARTAN_I_ENDING } tartan_i_busy;

uint64_t tartan_i_thread_number(void); /* core/parallel.h */

/* core/interrupt.c: at the start of every call; ask = NULL for nobody. */
void tartan_i_interrupt_begin(struct tartan_i_interrupt *interrupt);
tartan_status tartan_i_interrupt_set(tartan_context *context, tartan_interrupt ask, void *user);

/* Every function that uses a context enters it first and leaves it last, so a second thread is refused and cannot
 * race. */
static inline tartan_status tartan_i_context_enter(const char *function, tartan_context *context) {
    int32_t idle = TARTAN_I_IDLE;
    if (context->thread != 0 && context->thread != tartan_i_thread_number())
        return tartan_i_fail(
            TARTAN_ERR_ARGUMENT, function,
            "context is on the default stream of the thread that made it (stream=2), expected "
            "a call from that thread");
    if (__atomic_compare_exchange_n(&context->busy, &idle, TARTAN_I_BUSY, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
        if (context->interrupt != NULL) tartan_i_interrupt_begin(context->interrupt);
        return TARTAN_OK;
    }
    return tartan_i_fail(TARTAN_ERR_ARGUMENT, function,
                         "context is in use by another thread, expected one at a time");
}
static inline void tartan_i_context_leave(tartan_context *context) {
    int32_t busy = TARTAN_I_BUSY;
    if (!__atomic_compare_exchange_n(&context->busy, &busy, TARTAN_I_IDLE, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        context->end(context);
}

/* A seed argument: itself if >= 0, the context's next one for -1. */
static inline uint64_t tartan_i_seed(const tartan_context *context, int64_t seed) {
    return (uint64_t)(seed >= 0 ? seed : context->options.seed);
}

#endif
