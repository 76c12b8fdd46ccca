/* SPDX-License-Identifier: Apache-2.0
 * Contexts. They are here, not in core, because making one opens a backend's device. */
#include "core/context.h"

#include "core/options.h"
#include "core/parallel.h"
#include "core/workspace.h"
#include "device/resource.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 4096, MAX_HOOKS = 4096 };

/* ---- Device and options ---- */

/* "cpu", "cuda", "cuda:1" */
static bool parse_device(const char *device, tartan_i_context_options *o) {
    static const struct {
        const char *name;
        int32_t type;
    } kinds[] = {{"cpu", TARTAN_CPU}, {"cuda", TARTAN_CUDA}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t length = strlen(kinds[i].name);
        if (strncmp(device, kinds[i].name, length) != 0) continue;
        o->device_type = kinds[i].type;
        if (device[length] == '\0') return true;
        const char *digits = device + length + 1;
        if (device[length] != ':' || strlen(digits) > 4 || strspn(digits, "0123456789") != strlen(digits))
            return false;
        o->device_id = atoi(digits);
        return digits[0] != '\0';
    }
    return false;
}

enum option { THREADS, SEED, MATH, ALLOW_DENSE, STREAM, OPTIONS };

/* Names, and the largest value of options that take a number. */
static const struct {
    const char *name;
    int64_t high;
} known[OPTIONS] = {
    [THREADS] = {"threads", MAX_THREADS}, [SEED] = {"seed", INT64_MAX},     [MATH] = {"math", 0},
    [ALLOW_DENSE] = {"allow_dense", 1},   [STREAM] = {"stream", INT64_MAX},
};

static tartan_status set_option(const char *function, int which, const tartan_i_option *option,
                                tartan_i_context_options *o) {
    const int shown = option->value_length < 64 ? option->value_length : 64;
    if (which == MATH) {
        o->tf32 = tartan_i_option_value_is(option, "tf32");
        o->parts = tartan_i_option_value_is(option, "bf16x3")   ? 2
                   : tartan_i_option_value_is(option, "bf16x6") ? 3
                                                                : 0;
        CHECK_IN(function, o->tf32 || o->parts > 0 || tartan_i_option_value_is(option, "exact"), ARGUMENT,
                 "math is '%.*s', expected exact, tf32, bf16x3 or bf16x6", shown, option->value);
        return TARTAN_OK;
    }
    int64_t number = -1;
    const bool whole = tartan_i_option_whole(option, &number);
    CHECK_IN(function, whole && number >= 0 && number <= known[which].high, ARGUMENT,
             "%s is %.*s, expected a whole number 0 .. %" PRId64, known[which].name, shown, option->value,
             known[which].high);
    if (which == THREADS) o->threads = (int32_t)number;
    if (which == SEED) o->seed = number;
    if (which == ALLOW_DENSE) o->allow_dense = number == 1;
    if (which == STREAM) o->stream = (void *)(intptr_t)number;
    return TARTAN_OK;
}

static tartan_status parse_options(const char *function, const char *text, tartan_i_context_options *o) {
    bool given[OPTIONS] = {false}, more;
    tartan_i_option option;
    for (;;) {
        int i = 0;
        PASS(tartan_i_option_next(function, "options", &text, &option, &more));
        if (!more) return TARTAN_OK;
        while (i < OPTIONS && !tartan_i_option_is(&option, known[i].name)) i++;
        CHECK_IN(function, i < OPTIONS, ARGUMENT,
                 "options has '%.*s', expected one of threads, seed, math, allow_dense and stream",
                 option.shown, option.word);
        CHECK_IN(function, !given[i], ARGUMENT, "options has %s twice, expected it once", known[i].name);
        PASS(set_option(function, i, &option, o));
        given[i] = true;
    }
}

/* The caller's struct may be older (smaller) or newer (larger) than ours. */
static tartan_status take_hooks(const char *function, const tartan_hooks *hooks, tartan_hooks *out) {
    if (hooks == NULL) return TARTAN_OK;
    const int64_t size = hooks->struct_size, ours = (int64_t)sizeof *hooks;
    CHECK_IN(function, size >= (int64_t)sizeof size && size <= MAX_HOOKS && size % 8 == 0, ARGUMENT,
             "hooks->struct_size is %" PRId64 ", expected sizeof(tartan_hooks), which is %" PRId64 " here",
             size, ours);
    const char *bytes = (const char *)hooks;
    for (int64_t i = ours; i < size; i++)
        CHECK_IN(function, bytes[i] == 0, ARGUMENT,
                 "hooks has %" PRId64 " bytes, not all of them 0 after the first %" PRId64
                 ", expected 0 in fields that this version of the library does not know",
                 size, ours);
    memcpy(out, hooks, (size_t)(size < ours ? size : ours));
    return TARTAN_OK;
}

/* ---- Making and freeing ---- */

static tartan_status open_device(const char *function, const tartan_i_context_options *o,
                                 const tartan_backend **out_backend, void **out_device) {
    const char *reason = "";
    const tartan_backend *backend = tartan_i_backend_find(o->device_type, &reason);
    CHECK_IN(function, backend != NULL, DEVICE, "no backend for device type %d: %s", o->device_type, reason);
    const int32_t devices = backend->devices(&reason);
    CHECK_IN(function, o->device_id < devices, DEVICE, "device %s:%d does not exist: %d devices%s%s",
             backend->name, o->device_id, devices, devices == 0 ? ": " : "", devices == 0 ? reason : "");
    *out_backend = backend;
    return backend->open(function, o, out_device);
}

static void set_name(tartan_context *context) {
    const tartan_i_context_options *o = &context->options;
    if (o->device_type == TARTAN_CPU)
        snprintf(context->name, sizeof context->name, "cpu");
    else
        snprintf(context->name, sizeof context->name, "cuda:%d", o->device_id);
}

/* Waits for all earlier work and notes that nobody needs to wait for it again. */
static tartan_status drain(const char *function, const tartan_context *context) {
    if (context->queue == NULL) return TARTAN_OK;
    tartan_i_order_lock();
    const tartan_status status = tartan_i_queue_drain_locked(function, context->queue);
    tartan_i_order_unlock();
    return status;
}

/* A queue without contexts counts as drained, so the last context waits before it leaves. During a graph capture
 * nothing can wait, but captured work does not run now either. */
static void end_context(tartan_context *context) {
    (void)drain(NULL, context);
    tartan_i_resource_leave_queue(context);
    context->backend->close(context->device);
    tartan_i_workspace_free(context);
    tartan_i_free(context->interrupt);
    tartan_i_free(context);
}

tartan_status tartan_context_create(const char *device, const char *options, const tartan_hooks *hooks,
                                    tartan_context **out) {
    tartan_status status;
    tartan_context *context = NULL;
    tartan_i_context_options o = {0};
    CHECK_OUT(out);
    CHECK(device != NULL, HANDLE, "device is NULL, expected \"cpu\", \"cuda\" or \"cuda:1\"");
    CHECK(parse_device(device, &o), ARGUMENT, "device is \"%.64s\", expected \"cpu\", \"cuda\" or \"cuda:1\"",
          device);
    PASS(parse_options(__func__, options != NULL ? options : "", &o));
    PASS(take_hooks(__func__, hooks, &o.hooks));
    CHECK(o.stream == NULL || o.device_type != TARTAN_CPU, ARGUMENT, "stream is %p, expected 0 for \"%s\"",
          o.stream, device);
    NEW_ZEROED(context, 1);
    context->magic = TARTAN_I_CONTEXT;
    context->options = o;
    context->threads = o.threads > 0 ? o.threads : tartan_i_default_threads();
    context->end = end_context;
    set_name(context);
    TRY(open_device(__func__, &o, &context->backend, &context->device));
    status = tartan_i_queue_join(context);
    if (status != TARTAN_OK) context->backend->close(context->device);
    TRY(status);
    *out = context;
    return TARTAN_OK;
fail:
    tartan_i_free(context);
    return status;
}

void tartan_context_free(tartan_context *context) {
    if (!tartan_i_is(context, TARTAN_I_CONTEXT)) return;
    context->magic = 0;
    if (__atomic_exchange_n(&context->busy, TARTAN_I_ENDING, __ATOMIC_ACQ_REL) == TARTAN_I_IDLE)
        end_context(context);
}

tartan_status tartan_context_set_interrupt(tartan_context *context, tartan_interrupt ask, void *user) {
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_context_enter(__func__, context));
    const tartan_status status = tartan_i_interrupt_set(context, ask, user);
    tartan_i_context_leave(context);
    return status;
}

/* ---- Waiting ---- */

tartan_status tartan_context_sync(tartan_context *context) {
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_context_enter(__func__, context));
    const tartan_status status = drain(__func__, context);
    if (status == TARTAN_OK) tartan_i_resource_retry(context);
    tartan_i_context_leave(context);
    return status;
}

/* Another thread may free `other` meanwhile: the context stays until the lock is released, and its queue while the host
 * waits for it. */
static tartan_status wait_for_other(const char *function, tartan_context *context, tartan_context *other) {
    if (!tartan_i_is(other, TARTAN_I_CONTEXT))
        return tartan_i_fail_handle(function, "other", other, "context");
    if (other->queue == NULL || other == context) return TARTAN_OK; /* its work is done */
    if (context->queue == NULL) return tartan_i_queue_drain_locked(function, other->queue);
    CHECK_IN(function, context->backend == other->backend, UNSUPPORTED,
             "context is on %s and other on %s, expected one kind of device", context->name, other->name);
    return tartan_i_queue_wait_locked(function, context->queue, other->queue);
}

tartan_status tartan_context_wait(tartan_context *context, tartan_context *other) {
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_context_enter(__func__, context));
    tartan_i_order_lock();
    const tartan_status status = wait_for_other(__func__, context, other);
    tartan_i_order_unlock();
    tartan_i_context_leave(context);
    return status;
}

static tartan_status check_stream(const char *function, const tartan_context *context, int32_t device_id,
                                  int64_t stream) {
    const char *reason;
    if (!tartan_i_is(context, TARTAN_I_CONTEXT))
        return tartan_i_fail_handle(function, "context", context, "context");
    CHECK_IN(function, context->queue != NULL, UNSUPPORTED, "context is on %s, which has no streams",
             context->name);
    CHECK_IN(function, device_id >= 0 && device_id < context->backend->devices(&reason), ARGUMENT,
             "device_id is %d, expected the number of a device", device_id);
    CHECK_IN(function, stream > 0, ARGUMENT,
             "stream is %" PRId64 ", expected an address (1: the default stream)", stream);
    return TARTAN_OK;
}

/* Waits between a context's stream and another library's, `stream`; `first`: the context waits, else the
 * stream does. */
static tartan_status wait_for_stream(const char *function, tartan_context *context, int32_t device_id,
                                     void *stream, bool first) {
    tartan_wait wait;
    const tartan_i_queue *queue = context->queue;
    const tartan_backend *backend = context->backend;
    if (queue->stream == stream && queue->device_id == device_id) return TARTAN_OK;
    if (first)
        PASS(backend->wait(function, queue->device_id, queue->stream, device_id, stream, &wait));
    else
        PASS(backend->wait(function, device_id, stream, queue->device_id, queue->stream, &wait));
    if (wait != TARTAN_WAIT_ON_HOST) return TARTAN_OK;
    return first ? backend->drain(function, device_id, stream) : drain(function, context);
}

tartan_status tartan_context_wait_stream(tartan_context *context, int32_t device_id, int64_t stream) {
    PASS(check_stream(__func__, context, device_id, stream));
    PASS(tartan_i_context_enter(__func__, context));
    const tartan_status status =
        wait_for_stream(__func__, context, device_id, (void *)(intptr_t)stream, true);
    tartan_i_context_leave(context);
    return status;
}

tartan_status tartan_context_signal_stream(tartan_context *context, int32_t device_id, int64_t stream) {
    PASS(check_stream(__func__, context, device_id, stream));
    PASS(tartan_i_context_enter(__func__, context));
    const tartan_status status =
        wait_for_stream(__func__, context, device_id, (void *)(intptr_t)stream, false);
    tartan_i_context_leave(context);
    return status;
}

/* ---- Asking ---- */

int32_t tartan_context_threads(const tartan_context *context) {
    return tartan_i_is(context, TARTAN_I_CONTEXT) ? context->threads : -1;
}

const char *tartan_context_device(const tartan_context *context) {
    return tartan_i_is(context, TARTAN_I_CONTEXT) ? context->name : NULL;
}

int64_t tartan_context_stream(const tartan_context *context) {
    if (!tartan_i_is(context, TARTAN_I_CONTEXT)) return -1;
    return context->queue != NULL ? (int64_t)(intptr_t)context->queue->stream : 0;
}
