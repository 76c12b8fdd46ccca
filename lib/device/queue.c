/* SPDX-License-Identifier: Apache-2.0 */
#include "device/queue.h"

#include "core/parallel.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unpinned = PTHREAD_COND_INITIALIZER;
static tartan_i_queue *queues;
static uint64_t names;

/* cudaStreamPerThread is a different stream in each thread, so contexts on it do not share a queue. Other threads cannot
 * name it, but the legacy default stream waits for its earlier work, and its later work for the legacy stream. */
#define STREAM_OF_THREAD ((void *)2)
#define STREAM_LEGACY    ((void *)1)

void tartan_i_order_lock(void) {
    pthread_mutex_lock(&lock);
}

void tartan_i_order_unlock(void) {
    pthread_mutex_unlock(&lock);
}

/* A forked child must not inherit the lock held by a thread that does not exist in it. */
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(tartan_i_order_lock, tartan_i_order_unlock, tartan_i_order_unlock);
}

/* ---- Contexts come and go ---- */

tartan_status tartan_i_queue_join(tartan_context *context) {
    const tartan_backend *backend = context->backend;
    tartan_i_queue *queue, *made;
    if (backend->wait == NULL) return TARTAN_OK;
    void *stream = backend->stream(context->device);
    PASS(tartan_i_allocate_zeroed(&made, 1, sizeof *made));
    tartan_i_order_lock();
    for (queue = queues; queue != NULL; queue = queue->next)
        if (queue->backend == backend && queue->device_id == context->options.device_id &&
            queue->stream == stream && stream != STREAM_OF_THREAD)
            break;
    if (queue == NULL) {
        queue = made;
        made = NULL;
        queue->name = ++names;
        queue->backend = backend;
        queue->device_id = context->options.device_id;
        queue->stream = stream;
        queue->thread = stream == STREAM_OF_THREAD ? tartan_i_thread_number() : 0;
        queue->next = queues;
        queues = queue;
    }
    context->queue = queue;
    context->thread = queue->thread;
    context->next = queue->contexts;
    queue->contexts = context;
    tartan_i_order_unlock();
    tartan_i_free(made);
    return TARTAN_OK;
}

void tartan_i_queue_leave(tartan_context *context, struct tartan_i_resource **out_parked) {
    tartan_i_queue *queue = context->queue, *ended = NULL;
    *out_parked = NULL;
    if (queue == NULL) return;
    tartan_i_order_lock();
    while (queue->pins > 0) pthread_cond_wait(&unpinned, &lock); /* the backend may destroy the stream */
    tartan_context **link = &queue->contexts;
    while (*link != context) link = &(*link)->next;
    *link = context->next;
    if (queue->contexts == NULL) {
        tartan_i_queue **place = &queues;
        while (*place != queue) place = &(*place)->next;
        *place = queue->next;
        *out_parked = queue->parked;
        ended = queue;
    }
    tartan_i_order_unlock();
    tartan_i_free(ended);
}

tartan_i_queue *tartan_i_queue_find_locked(uint64_t name) {
    tartan_i_queue *queue = name != 0 ? queues : NULL;
    while (queue != NULL && queue->name != name) queue = queue->next;
    return queue;
}

tartan_i_queue *tartan_i_queue_of_device_locked(const tartan_backend *backend, int32_t device_id) {
    tartan_i_queue *queue = queues;
    while (queue != NULL && (queue->backend != backend || queue->device_id != device_id)) queue = queue->next;
    return queue;
}

/* ---- Calls ---- */

void tartan_i_queue_begin_locked(tartan_context *context) {
    if (context->queue != NULL) context->call = ++context->queue->calls;
}

void tartan_i_queue_end_locked(tartan_context *context) {
    context->call = 0;
}

tartan_i_mark tartan_i_queue_mark(const tartan_context *context) {
    return (tartan_i_mark){.queue = context->queue != NULL ? context->queue->name : 0, .call = context->call};
}

int64_t tartan_i_queue_asked_locked(const tartan_i_queue *queue) {
    int64_t asked = queue->calls;
    for (const tartan_context *c = queue->contexts; c != NULL; c = c->next)
        if (c->call != 0 && c->call <= asked) asked = c->call - 1;
    return asked;
}

/* ---- Waiting ---- */

static int64_t seen_of(const tartan_i_queue *queue, uint64_t name) {
    for (int32_t i = 0; i < TARTAN_I_QUEUES_SEEN; i++)
        if (queue->seen[i].queue == name) return queue->seen[i].call;
    return 0;
}

static void remember(tartan_i_queue *queue, tartan_i_mark mark) {
    for (int32_t i = 0; i < TARTAN_I_QUEUES_SEEN; i++)
        if (queue->seen[i].queue == mark.queue) {
            queue->seen[i] = mark;
            return;
        }
    queue->seen[queue->next_seen] = mark;
    queue->next_seen = (queue->next_seen + 1) % TARTAN_I_QUEUES_SEEN;
}

void *tartan_i_queue_stream(const tartan_i_queue *queue) {
    return queue->thread != 0 && queue->thread != tartan_i_thread_number() ? STREAM_LEGACY : queue->stream;
}

void tartan_i_queue_pin_locked(tartan_i_queue *queue) {
    queue->pins++;
}

void tartan_i_queue_unpin_locked(tartan_i_queue *queue) {
    if (--queue->pins == 0) pthread_cond_broadcast(&unpinned);
}

tartan_status tartan_i_queue_drain_locked(const char *function, tartan_i_queue *queue) {
    const int64_t asked = tartan_i_queue_asked_locked(queue);
    void *stream = tartan_i_queue_stream(queue);
    tartan_i_queue_pin_locked(queue);
    tartan_i_order_unlock();
    const tartan_status status = queue->backend->drain(function, queue->device_id, stream);
    tartan_i_order_lock();
    if (status == TARTAN_OK && asked > queue->done) queue->done = asked;
    tartan_i_queue_unpin_locked(queue);
    return status;
}

tartan_status tartan_i_queue_wait_stream_locked(const char *function, tartan_i_queue *queue,
                                                int32_t device_id, void *stream) {
    tartan_wait wait;
    const tartan_backend *backend = queue->backend;
    if (queue->stream == stream && queue->device_id == device_id) return TARTAN_OK;
    PASS(backend->wait(function, queue->device_id, tartan_i_queue_stream(queue), device_id, stream, &wait));
    if (wait != TARTAN_WAIT_ON_HOST) return TARTAN_OK;
    tartan_i_order_unlock();
    const tartan_status status = backend->drain(function, device_id, stream);
    tartan_i_order_lock();
    return status;
}

/* Waits on the device, and remembers that. A wait inside a graph orders the graph's replays and nothing else. */
static tartan_status wait_on_device(const char *function, tartan_i_queue *queue, const tartan_i_queue *first,
                                    tartan_wait *out_wait) {
    PASS(queue->backend->wait(function, queue->device_id, tartan_i_queue_stream(queue), first->device_id,
                              tartan_i_queue_stream(first), out_wait));
    if (*out_wait == TARTAN_WAIT_ON_DEVICE)
        remember(queue, (tartan_i_mark){.queue = first->name, .call = tartan_i_queue_asked_locked(first)});
    return TARTAN_OK;
}

tartan_status tartan_i_queue_wait_locked(const char *function, tartan_i_queue *queue, tartan_i_queue *first) {
    tartan_wait wait;
    if (queue == first) return TARTAN_OK;
    PASS(wait_on_device(function, queue, first, &wait));
    return wait == TARTAN_WAIT_ON_HOST ? tartan_i_queue_drain_locked(function, first) : TARTAN_OK;
}

/* The queue of the call, if it is still to be waited for; else NULL. */
static tartan_i_queue *to_wait_for(const tartan_i_queue *queue, tartan_i_mark mark) {
    if (mark.queue == queue->name) return NULL;
    tartan_i_queue *first = tartan_i_queue_find_locked(mark.queue);
    if (first == NULL || mark.call <= first->done || mark.call <= seen_of(queue, mark.queue)) return NULL;
    return first;
}

tartan_status tartan_i_queue_after_locked(const char *function, tartan_i_queue *queue, tartan_i_mark mark) {
    tartan_i_queue *first = to_wait_for(queue, mark);
    return first != NULL ? tartan_i_queue_wait_locked(function, queue, first) : TARTAN_OK;
}

tartan_status tartan_i_queue_try_after_locked(const char *function, tartan_i_queue *queue, tartan_i_mark mark,
                                              tartan_wait *out_wait) {
    const tartan_i_queue *first = to_wait_for(queue, mark);
    *out_wait = TARTAN_WAIT_ON_DEVICE;
    return first != NULL ? wait_on_device(function, queue, first, out_wait) : TARTAN_OK;
}
