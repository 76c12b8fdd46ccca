/* SPDX-License-Identifier: Apache-2.0 */
#include "device/resource.h"

#include "tartan/device.h"

#include <stdatomic.h>
#include <string.h>

/* ---- Memory by address: a treap whose priorities are hashes of the addresses. The lock is held. ---- */

static tartan_i_resource *root;
static atomic_llong live; /* number of nodes; read without the lock, to skip the search if it is 0 */

static uint64_t priority(const tartan_i_resource *r) {
    uint64_t x = (uint64_t)(uintptr_t)r->begin * 0x9e3779b97f4a7c15u;
    return (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
}

/* Splits the tree into resources that begin below `address` and the others. */
static void split(tartan_i_resource *tree, const char *address, tartan_i_resource **low,
                  tartan_i_resource **high) {
    while (tree != NULL) {
        if (tree->begin < address) {
            *low = tree;
            low = &tree->right;
            tree = tree->right;
        } else {
            *high = tree;
            high = &tree->left;
            tree = tree->left;
        }
    }
    *low = *high = NULL;
}

static tartan_i_resource *merge(tartan_i_resource *low, tartan_i_resource *high) {
    tartan_i_resource *result, **link = &result;
    while (low != NULL && high != NULL) {
        if (priority(low) > priority(high)) {
            *link = low;
            link = &low->right;
            low = low->right;
        } else {
            *link = high;
            link = &high->left;
            high = high->left;
        }
    }
    *link = low != NULL ? low : high;
    return result;
}

static void insert(tartan_i_resource *r) {
    tartan_i_resource **link = &root;
    while (*link != NULL && priority(*link) > priority(r))
        link = r->begin < (*link)->begin ? &(*link)->left : &(*link)->right;
    split(*link, r->begin, &r->left, &r->right);
    *link = r;
    atomic_fetch_add(&live, 1);
}

static void take_out(tartan_i_resource *r) {
    tartan_i_resource **link = &root;
    while (*link != r) link = r->begin < (*link)->begin ? &(*link)->left : &(*link)->right;
    *link = merge(r->left, r->right);
    atomic_fetch_sub(&live, 1);
}

static tartan_i_resource *find(const char *address) {
    tartan_i_resource *r = root;
    while (r != NULL && !(address >= r->begin && address < r->end))
        r = address < r->begin ? r->left : r->right;
    return r;
}

/* ---- Which queues use it. The lock is held. ---- */

/* Makes the queue wait for the writer and, before it writes itself, for all readers. May release the lock: the call is
 * counted in r->calls. */
static tartan_status wait_for(const char *function, const tartan_i_resource *r, tartan_i_queue *queue,
                              bool written) {
    if (r->writer.queue != 0) PASS(tartan_i_queue_after_locked(function, queue, r->writer));
    for (int32_t i = 0; written && i < r->room; i++)
        if (r->readers[i].queue != 0) PASS(tartan_i_queue_after_locked(function, queue, r->readers[i]));
    return TARTAN_OK;
}

/* Whether nobody needs to wait for the call any more. */
static bool is_over(tartan_i_mark mark) {
    const tartan_i_queue *queue = tartan_i_queue_find_locked(mark.queue);
    return queue == NULL || mark.call <= queue->done;
}

/* The slot for a reader's mark: its own, else a free one, else NULL. */
static tartan_i_mark *reader_place(tartan_i_resource *r, uint64_t queue) {
    tartan_i_mark *place = NULL;
    for (int32_t i = 0; i < r->room; i++) {
        if (r->readers[i].queue == queue) return &r->readers[i];
        if (place == NULL && is_over(r->readers[i])) place = &r->readers[i];
    }
    return place;
}

/* Adds slots and returns the first of them in *out. There are at most about twice as many as open queues. */
static tartan_status add_places(tartan_i_resource *r, tartan_i_mark **out) {
    tartan_i_mark *more;
    PASS(tartan_i_allocate_zeroed(&more, 2 * r->room, sizeof *more));
    memcpy(more, r->readers, (size_t)r->room * sizeof *more);
    if (r->readers != r->few) tartan_i_free(r->readers);
    r->readers = more;
    *out = more + r->room;
    r->room *= 2;
    return TARTAN_OK;
}

static tartan_status note(tartan_i_resource *r, tartan_i_mark mark, bool written) {
    if (written) {
        r->writer = mark;
        for (int32_t i = 0; i < r->room; i++) r->readers[i].queue = 0;
        return TARTAN_OK;
    }
    if (r->writer.queue == mark.queue && r->writer.call == mark.call) return TARTAN_OK;
    tartan_i_mark *place = reader_place(r, mark.queue);
    if (place == NULL) PASS(add_places(r, &place));
    *place = mark;
    return TARTAN_OK;
}

/* ---- Releasing a resource that was freed and that no call uses any more. The lock is held. ---- */

static int32_t marks_of(const tartan_i_resource *r) {
    return 1 + r->room;
}
static tartan_i_mark mark_of(const tartan_i_resource *r, int32_t i) {
    return i == 0 ? r->writer : r->readers[i - 1];
}

/* An open queue of the resource's device that used it; else any queue of that device; else NULL. */
static tartan_i_queue *last_queue(const tartan_i_resource *r) {
    for (int32_t i = -1; i < marks_of(r); i++) {
        tartan_i_queue *queue = tartan_i_queue_find_locked(i < 0 ? r->home : mark_of(r, i).queue);
        if (queue != NULL && queue->backend == r->backend && queue->device_id == r->device_id) return queue;
    }
    return tartan_i_queue_of_device_locked(r->backend, r->device_id);
}

/* Makes `queue` wait for all work on the resource. Returns a queue whose graph capture forbids that, or NULL. Other waits
 * can fail only for a lost device, which runs nothing any more. */
static tartan_i_queue *wait_for_all(const tartan_i_resource *r, tartan_i_queue *queue) {
    for (int32_t i = 0; i < marks_of(r); i++) {
        tartan_wait wait;
        const tartan_i_mark mark = mark_of(r, i);
        const tartan_status status = tartan_i_queue_try_after_locked(NULL, queue, mark, &wait);
        if (status == TARTAN_ERR_UNSUPPORTED) return tartan_i_queue_find_locked(mark.queue);
        if (status == TARTAN_OK && wait != TARTAN_WAIT_ON_DEVICE) return queue;
    }
    return NULL;
}

/* The same if no queue of the resource's device is left: the host waits for queues of other devices, which have copied
 * from it. Releases the lock meanwhile. */
static tartan_i_queue *wait_on_host(const tartan_i_resource *r) {
    for (int32_t i = 0; i < marks_of(r); i++) {
        const tartan_i_mark mark = mark_of(r, i);
        if (is_over(mark)) continue;
        tartan_i_queue *queue = tartan_i_queue_find_locked(mark.queue);
        if (tartan_i_queue_drain_locked(NULL, queue) == TARTAN_ERR_UNSUPPORTED)
            return tartan_i_queue_find_locked(mark.queue);
    }
    return NULL;
}

/* Gives it back to the backend, in the order of an open device (or NULL). */
static void give_back(tartan_i_resource *r, void *device) {
    if (r->begin != NULL)
        r->backend->release(r->owner, device);
    else
        r->backend->index_release(r->owner, device);
    if (r->readers != r->few) tartan_i_free(r->readers);
    tartan_i_free(r);
}

/* Releases it, or parks it while a capture forbids waiting for work on it. May release the lock. */
static void release_or_park(tartan_i_resource *r) {
    tartan_i_queue *queue = last_queue(r);
    tartan_i_queue *captured = queue != NULL ? wait_for_all(r, queue) : wait_on_host(r);
    if (captured != NULL) {
        r->next_parked = captured->parked;
        captured->parked = r;
    } else if (queue != NULL) {
        give_back(r, queue->contexts->device);
    } else { /* the backend waits for the device */
        tartan_i_order_unlock();
        give_back(r, NULL);
        tartan_i_order_lock();
    }
}

static void release_locked(tartan_i_resource *r) {
    if (r->begin != NULL) take_out(r);
    release_or_park(r);
}

static void retry(tartan_i_resource *parked) {
    while (parked != NULL) {
        tartan_i_resource *r = parked;
        parked = r->next_parked;
        release_or_park(r);
    }
}

static void retry_locked(tartan_i_queue *queue) {
    tartan_i_resource *parked = queue->parked;
    queue->parked = NULL;
    retry(parked);
}

void tartan_i_resource_retry(const tartan_context *context) {
    if (context->queue == NULL) return;
    tartan_i_order_lock();
    retry_locked(context->queue);
    tartan_i_order_unlock();
}

void tartan_i_resource_leave_queue(tartan_context *context) {
    tartan_i_resource *parked;
    tartan_i_queue_leave(context, &parked);
    if (parked == NULL) return;
    tartan_i_order_lock();
    retry(parked);
    tartan_i_order_unlock();
}

/* ---- Making and freeing ---- */

static tartan_i_resource *begin_life(tartan_i_resource *r, const tartan_context *context) {
    r->backend = context->backend;
    r->device_id = context->options.device_id;
    r->writer = tartan_i_queue_mark(context);
    r->home = r->writer.queue;
    r->readers = r->few;
    r->room = TARTAN_I_READERS;
    return r;
}

tartan_status tartan_i_resource_allocate(const char *function, tartan_context *context, int64_t bytes,
                                         tartan_i_resource **out) {
    tartan_status status;
    tartan_i_resource *r = NULL;
    void *memory = NULL;
    NEW_ZEROED(r, 1);
    TRY(context->backend->allocate(function, context->device, bytes, &memory, &r->owner));
    r->begin = memory;
    r->end = r->begin + (bytes > 0 ? bytes : 1);
    *out = begin_life(r, context);
    tartan_i_order_lock();
    insert(r);
    tartan_i_order_unlock();
    return TARTAN_OK;
fail:
    tartan_i_free(r);
    return status;
}

tartan_status tartan_i_resource_of_index(tartan_context *context, void *index, tartan_i_resource **out) {
    tartan_i_resource *r;
    PASS(tartan_i_allocate_zeroed(&r, 1, sizeof *r));
    r->owner = index;
    *out = begin_life(r, context);
    return TARTAN_OK;
}

void tartan_i_resource_free(void *resource) {
    tartan_i_resource *r = resource;
    if (r == NULL) return;
    tartan_i_order_lock();
    r->freed = true;
    if (r->calls == 0) release_locked(r);
    tartan_i_order_unlock();
}

/* ---- Calls ---- */

tartan_status tartan_i_call_enter(const char *function, tartan_context *context, tartan_i_call *out) {
    PASS(tartan_i_context_enter(function, context));
    out->function = function;
    out->context = context;
    out->uses = out->ordered = 0;
    out->room = TARTAN_I_MAX_USES;
    out->use = out->few;
    if (context->queue != NULL) {
        tartan_i_order_lock();
        retry_locked(context->queue);
        tartan_i_queue_begin_locked(context);
        tartan_i_order_unlock();
    }
    return TARTAN_OK;
}

static void add(tartan_i_call *call, const void *address, tartan_i_resource *resource, bool written) {
    call->use[call->uses++] = (tartan_i_use){.address = address, .resource = resource, .written = written};
}

tartan_status tartan_i_call_expect_arrays(tartan_i_call *call, int64_t count) {
    const int64_t needed = call->uses + count + TARTAN_I_MAX_OPERANDS;
    if ((count <= TARTAN_I_MAX_OPERANDS && call->uses == 0) || needed <= call->room) return TARTAN_OK;
    tartan_i_use *more;
    PASS(tartan_i_allocate(&more, 2 * needed, sizeof *more));
    memcpy(more, call->use, (size_t)call->uses * sizeof *more);
    if (call->use != call->few) tartan_i_free(call->use);
    call->use = more, call->room = 2 * needed;
    return TARTAN_OK;
}

void tartan_i_call_uses_array(tartan_i_call *call, const tartan_array *array, bool written) {
    const char *begin, *end;
    if (atomic_load_explicit(&live, memory_order_relaxed) == 0) return;
    tartan_i_array_extent(array, &begin, &end);
    if (begin != end) add(call, begin, NULL, written);
}

void tartan_i_call_uses_layout(tartan_i_call *call, const tartan_layout *layout, bool written) {
    if (tartan_i_is_dynamic(layout) && layout->resource != NULL) add(call, NULL, layout->resource, written);
}

void tartan_i_call_uses_matrix(tartan_i_call *call, const tartan_matrix *matrix, bool written) {
    tartan_i_call_uses_layout(call, matrix->layout, false);
    if (matrix->layout->blocks > 0 && atomic_load_explicit(&live, memory_order_relaxed) != 0)
        add(call, matrix->values, NULL, written);
}

/* Of the operands named last, keeps those whose resource the call does not yet use in the same way. */
static void keep_new_locked(tartan_i_call *call) {
    tartan_i_use *ordered = call->use + call->ordered, *end = ordered;
    for (tartan_i_use *u = ordered; u < call->use + call->uses; u++) {
        if (u->resource == NULL) u->resource = find(u->address);
        bool is_new = u->resource != NULL;
        for (const tartan_i_use *v = call->use; is_new && v < ordered; v++)
            is_new = v->resource != u->resource || v->written != u->written;
        if (is_new) *end++ = *u;
    }
    call->uses = end - call->use;
}

/* Holds what the call uses, makes the context's queue wait for the others, then records the call. */
static tartan_status order_locked(tartan_i_call *call) {
    tartan_i_queue *queue = call->context->queue;
    const tartan_i_mark mark = tartan_i_queue_mark(call->context);
    keep_new_locked(call);
    tartan_i_use *begin = call->use + call->ordered, *end = call->use + call->uses;
    for (tartan_i_use *u = begin; u < end; u++) u->resource->calls++;
    call->ordered = call->uses;
    for (tartan_i_use *u = begin; queue != NULL && u < end; u++)
        PASS(wait_for(call->function, u->resource, queue, u->written));
    for (int32_t written = 0; queue != NULL && written < 2; written++) /* a call may read what it writes */
        for (tartan_i_use *u = begin; u < end; u++)
            if (u->written == (written == 1)) PASS(note(u->resource, mark, u->written));
    return TARTAN_OK;
}

tartan_status tartan_i_call_order(tartan_i_call *call) {
    if (call->ordered == call->uses) return TARTAN_OK;
    tartan_i_order_lock();
    const tartan_status status = order_locked(call);
    tartan_i_order_unlock();
    return status;
}

static void let_go(tartan_i_resource *r) {
    if (--r->calls == 0 && r->freed) release_locked(r);
}

void tartan_i_call_leave(tartan_i_call *call) {
    tartan_context *context = call->context;
    if (call->ordered > 0 || context->queue != NULL) {
        tartan_i_order_lock();
        tartan_i_queue_end_locked(context);
        for (int64_t i = 0; i < call->ordered; i++) let_go(call->use[i].resource);
        tartan_i_order_unlock();
    }
    if (call->use != call->few) tartan_i_free(call->use);
    tartan_i_context_leave(context);
}

/* ---- For other libraries ---- */

/* These may release the lock: the resource is counted as used by a call. */

static tartan_status signal_locked(const char *function, tartan_i_resource *r, int32_t device_id,
                                   void *stream) {
    for (int32_t i = 0; i < marks_of(r); i++) {
        tartan_wait wait;
        const tartan_i_mark mark = mark_of(r, i);
        tartan_i_queue *first = tartan_i_queue_find_locked(mark.queue);
        if (first == NULL || mark.call <= first->done) continue;
        if (first->stream == stream && first->device_id == device_id) continue;
        PASS(r->backend->wait(function, device_id, stream, first->device_id, tartan_i_queue_stream(first),
                              &wait));
        if (wait == TARTAN_WAIT_ON_HOST) PASS(tartan_i_queue_drain_locked(function, first));
    }
    return TARTAN_OK;
}

/* A queue that works with the memory waits for the stream, and counts as its writer: others wait for that queue. If no
 * queue of the device is open, memory is released when all work of the device has ended. */
static tartan_status wait_locked(const char *function, tartan_i_resource *r, int32_t device_id,
                                 void *stream) {
    tartan_i_queue *queue = last_queue(r);
    if (queue == NULL) return TARTAN_OK;
    tartan_i_queue_pin_locked(queue);
    tartan_status status = wait_for(function, r, queue, true);
    if (status == TARTAN_OK) status = tartan_i_queue_wait_stream_locked(function, queue, device_id, stream);
    if (status == TARTAN_OK)
        status = note(r, (tartan_i_mark){.queue = queue->name, .call = ++queue->calls}, true);
    tartan_i_queue_unpin_locked(queue);
    return status;
}

typedef tartan_status (*order_stream)(const char *function, tartan_i_resource *r, int32_t device_id,
                                      void *stream);

static tartan_status with_stream(const char *function, const tartan_array *array, int32_t device_id,
                                 int64_t stream, order_stream order) {
    const char *begin, *end;
    PASS(tartan_i_array_check_either(function, "array", array, false));
    CHECK_IN(function, device_id >= 0, ARGUMENT, "device_id is %d, expected 0 or more", device_id);
    CHECK_IN(function, stream > 0, ARGUMENT,
             "stream is %" PRId64 ", expected an address (1: the default stream)", stream);
    tartan_i_array_extent(array, &begin, &end);
    if (begin == end || array->device_type == TARTAN_CPU) return TARTAN_OK;
    tartan_i_order_lock();
    tartan_i_resource *r = find(begin);
    tartan_status status = TARTAN_OK;
    if (r != NULL) {
        r->calls++;
        status = order(function, r, device_id, (void *)(intptr_t)stream);
        let_go(r);
    }
    tartan_i_order_unlock();
    return status;
}

tartan_status tartan_array_signal_stream(const tartan_array *array, int32_t device_id, int64_t stream) {
    return with_stream(__func__, array, device_id, stream, signal_locked);
}

tartan_status tartan_array_wait_stream(const tartan_array *array, int32_t device_id, int64_t stream) {
    return with_stream(__func__, array, device_id, stream, wait_locked);
}
