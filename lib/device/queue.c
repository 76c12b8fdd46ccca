/* SPDX-License-Identifier: Apache-2.0 */
#include "device/queue.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tartan_i_queue *queues;
static uint64_t names;

/* cudaStreamPerThread is a different stream in each thread, so contexts on it do not share a queue. */
#define STREAM_OF_THREAD ((void *)2)

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
        queue->next = queues;
        queues = queue;
    }
    context->queue = queue;
    context->next = queue->contexts;
    queue->contexts = context;
    tartan_i_order_unlock();
    tartan_i_free(made);
    return TARTAN_OK;
}

void tartan_i_queue_leave(tartan_context *context) {
    tartan_i_queue *queue = context->queue, *ended = NULL;
    if (queue == NULL) return;
    tartan_i_order_lock();
    tartan_context **link = &queue->contexts;
    while (*link != context) link = &(*link)->next;
    *link = context->next;
    if (queue->contexts == NULL) {
        tartan_i_queue **place = &queues;
        while (*place != queue) place = &(*place)->next;
        *place = queue->next;
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

tartan_status tartan_i_queue_wait_locked(const char *function, tartan_i_queue *queue,
                                         const tartan_i_queue *first) {
    if (queue == first) return TARTAN_OK;
    PASS(queue->backend->wait(function, queue->device_id, queue->stream, first->device_id, first->stream));
    remember(queue, (tartan_i_mark){.queue = first->name, .call = tartan_i_queue_asked_locked(first)});
    return TARTAN_OK;
}

tartan_status tartan_i_queue_after_locked(const char *function, tartan_i_queue *queue, tartan_i_mark mark) {
    if (mark.queue == queue->name) return TARTAN_OK;
    const tartan_i_queue *first = tartan_i_queue_find_locked(mark.queue);
    if (first == NULL || mark.call <= first->done || mark.call <= seen_of(queue, mark.queue))
        return TARTAN_OK;
    return tartan_i_queue_wait_locked(function, queue, first);
}
