/* SPDX-License-Identifier: Apache-2.0
 * The order of work between streams. Each stream that contexts use is a queue, and its calls are numbered. Device
 * memory records which call of which queue last wrote and read it (resource.h); the next queue waits for that call on
 * the device. The host waits only for work that a captured graph needs and does not contain. A backend without `wait`
 * (the CPU's) has no queues: its work is done when a call returns.
 *
 * One lock guards all queues and resources. Functions that end in _locked are called with it held; those that may wait on
 * the host release it meanwhile. */
#ifndef TARTAN_DEVICE_QUEUE_H
#define TARTAN_DEVICE_QUEUE_H

#include "backend/backend.h"
#include "backend/operation.h"

/* A call of a queue. Queue numbers are never reused, and the work of a closed queue has ended. */
typedef struct tartan_i_mark {
    uint64_t queue; /* 0: none */
    int64_t call;
} tartan_i_mark;

enum { TARTAN_I_QUEUES_SEEN = 16 };

typedef struct tartan_i_queue {
    struct tartan_i_queue *next; /* of all that are open */
    uint64_t name;
    const tartan_backend *backend;
    int32_t device_id;
    void *stream;
    tartan_context *contexts; /* those on this stream, linked by `next` */
    int64_t calls;            /* the number of the last one */
    int64_t done;             /* the host has waited for the calls up to this one */
    uint64_t thread;          /* the only one that may use the stream (tartan_i_thread_number); 0: any */
    int32_t pins;             /* threads that wait for it on the host; contexts leave after them */
    struct tartan_i_resource *parked; /* freed, but a capture forbids waiting for work on them; retried by the
                                         queue's next call (resource.h) */
    /* Up to which call of other queues this one has waited. The oldest entry is overwritten, which costs a needless
     * wait at most. */
    tartan_i_mark seen[TARTAN_I_QUEUES_SEEN];
    int32_t next_seen;
} tartan_i_queue;

void tartan_i_order_lock(void);
void tartan_i_order_unlock(void);

/* Adds a context with an open device to the queue of its stream, and removes it. *out_parked is what was parked on the
 * queue if it has ended. Errors: MEMORY. */
tartan_status tartan_i_queue_join(tartan_context *context);
void tartan_i_queue_leave(tartan_context *context, struct tartan_i_resource **out_parked);

/* Begin and end a numbered call of the context; no effect on a context without a queue. */
void tartan_i_queue_begin_locked(tartan_context *context);
void tartan_i_queue_end_locked(tartan_context *context);

/* The mark of the context's present call. */
tartan_i_mark tartan_i_queue_mark(const tartan_context *context);

/* The open queue of that name, or NULL; an open queue of that device, or NULL. */
tartan_i_queue *tartan_i_queue_find_locked(uint64_t name);
tartan_i_queue *tartan_i_queue_of_device_locked(const tartan_backend *backend, int32_t device_id);

/* Later work of `queue` starts after the call `mark`. May release the lock. Errors: those of the backend's wait; no
 * text if `function` is NULL. */
tartan_status tartan_i_queue_after_locked(const char *function, tartan_i_queue *queue, tartan_i_mark mark);

/* The same, but the host does not wait and the lock is kept. *out_wait is TARTAN_WAIT_ON_DEVICE if the queue waits or
 * does not need to. */
tartan_status tartan_i_queue_try_after_locked(const char *function, tartan_i_queue *queue, tartan_i_mark mark,
                                              tartan_wait *out_wait);

/* Later work of `queue` starts after all earlier work of `first`'s stream, Tartan's or not. May release the lock. */
tartan_status tartan_i_queue_wait_locked(const char *function, tartan_i_queue *queue, tartan_i_queue *first);

/* The host waits for the queue's work; releases the lock meanwhile. */
tartan_status tartan_i_queue_drain_locked(const char *function, tartan_i_queue *queue);

/* Later work of `queue` starts after the earlier work of another library's stream. May release the lock. */
tartan_status tartan_i_queue_wait_stream_locked(const char *function, tartan_i_queue *queue,
                                                int32_t device_id, void *stream);

/* A pinned queue, and its contexts, stay while the lock is released. */
void tartan_i_queue_pin_locked(tartan_i_queue *queue);
void tartan_i_queue_unpin_locked(tartan_i_queue *queue);

/* The queue's stream, by the name that it has in this thread. */
void *tartan_i_queue_stream(const tartan_i_queue *queue);

/* The number of the last call whose work is certainly in the stream, whatever other threads are enqueuing now. */
int64_t tartan_i_queue_asked_locked(const tartan_i_queue *queue);

#endif
