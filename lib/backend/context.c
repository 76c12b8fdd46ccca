/* SPDX-License-Identifier: Apache-2.0
 * Contexts. They stand here, not in core, because making one opens a backend's device. */
#include "core/context.h"

#include "backend/backend.h"
#include "core/parallel.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 4096 };

void tartan_context_options_init(tartan_context_options *options) {
    if (options == NULL) return;
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    options->device_type = TARTAN_CPU;
    options->determinism = TARTAN_RUN_TO_RUN;
    options->math_mode = TARTAN_MATH_EXACT;
}

static tartan_status create(const char *function, const tartan_context_options *o, tartan_context **out) {
#define REFUSE(condition, status, ...)                                                                       \
    if (!(condition)) return tartan_i_fail(TARTAN_ERR_##status, function, __VA_ARGS__)
    REFUSE(o->struct_size == (int64_t)sizeof *o, ARGUMENT,
           "options->struct_size is %" PRId64 ", expected %zu (set by tartan_context_options_init)",
           o->struct_size, sizeof *o);
    REFUSE(o->threads >= 0 && o->threads <= MAX_THREADS, ARGUMENT, "threads is %d, expected 0 to %d",
           o->threads, MAX_THREADS);
    REFUSE(o->determinism == TARTAN_RUN_TO_RUN || o->determinism == TARTAN_NOT_DETERMINISTIC, ARGUMENT,
           "determinism is %d, expected a tartan_determinism", o->determinism);
    REFUSE(o->math_mode == TARTAN_MATH_EXACT || o->math_mode == TARTAN_MATH_TF32, ARGUMENT,
           "math_mode is %d, expected a tartan_math_mode", o->math_mode);
    REFUSE(o->seed >= 0, ARGUMENT, "seed is %" PRId64 ", expected 0 or more", o->seed);
    REFUSE(o->allow_dense == 0 || o->allow_dense == 1, ARGUMENT, "allow_dense is %d, expected 0 or 1",
           o->allow_dense);
    const char *reason = "";
    const tartan_backend *backend = tartan_i_backend_find(o->device_type, &reason);
    REFUSE(backend != NULL, DEVICE, "no backend for device type %d: %s", o->device_type, reason);
    int32_t devices = backend->devices(&reason);
    REFUSE(o->device_id >= 0 && o->device_id < devices, DEVICE, "device %s:%d is not there: %d devices%s%s",
           backend->name, o->device_id, devices, devices == 0 ? ": " : "", devices == 0 ? reason : "");
#undef REFUSE
    tartan_context *context = NULL;
    tartan_status status;
    NEW_ZEROED(context, 1);
    context->magic = TARTAN_I_CONTEXT;
    context->options = *o;
    context->threads = o->threads > 0 ? o->threads : tartan_i_default_threads();
    context->backend = backend;
    TRY(backend->open(function, o, &context->device));
    *out = context;
    return TARTAN_OK;
fail:
    tartan_i_free(context);
    return status;
}

tartan_status tartan_context_create(const tartan_context_options *options, tartan_context **out) {
    CHECK_OUT(out);
    tartan_context_options defaults;
    tartan_context_options_init(&defaults);
    return create(__func__, options != NULL ? options : &defaults, out);
}

/* "cpu", "cuda", "cuda:1" */
static bool parse_device(const char *device, tartan_context_options *options) {
    static const struct {
        const char *name;
        int32_t type;
    } kinds[] = {{"cpu", TARTAN_CPU}, {"cuda", TARTAN_CUDA}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].name);
        if (strncmp(device, kinds[i].name, length) != 0) continue;
        options->device_type = kinds[i].type;
        if (device[length] == '\0') return true;
        const char *digits = device + length + 1;
        if (device[length] != ':' || strlen(digits) > 4 || strspn(digits, "0123456789") != strlen(digits))
            return false;
        options->device_id = atoi(digits);
        return digits[0] != '\0';
    }
    return false;
}

static tartan_status open_named(const char *function, const char *device, tartan_context_options *options,
                                tartan_context **out) {
    CHECK_IN(function, device != NULL, HANDLE, "device is NULL, expected \"cpu\", \"cuda\" or \"cuda:1\"");
    CHECK_IN(function, parse_device(device, options), ARGUMENT,
             "device is \"%s\", expected \"cpu\", \"cuda\" or \"cuda:1\"", device);
    CHECK_IN(function, options->stream == NULL || options->device_type != TARTAN_CPU, ARGUMENT,
             "stream is %p, expected 0 for \"%s\"", options->stream, device);
    return create(function, options, out);
}

tartan_status tartan_context_open(const char *device, int32_t threads, int64_t seed, tartan_context **out) {
    CHECK_OUT(out);
    tartan_context_options options;
    tartan_context_options_init(&options);
    options.threads = threads;
    options.seed = seed;
    return open_named(__func__, device, &options, out);
}

tartan_status tartan_context_open_stream(const char *device, int32_t threads, int64_t seed, int32_t math_mode,
                                         int32_t determinism, int32_t allow_dense, int64_t stream,
                                         tartan_context **out) {
    CHECK_OUT(out);
    tartan_context_options options;
    tartan_context_options_init(&options);
    options.threads = threads;
    options.seed = seed;
    options.math_mode = math_mode;
    options.determinism = determinism;
    options.allow_dense = allow_dense;
    options.stream = (void *)(intptr_t)stream;
    return open_named(__func__, device, &options, out);
}

void tartan_context_free(tartan_context *context) {
    if (!tartan_i_is(context, TARTAN_I_CONTEXT)) return;
    context->backend->close(context->device);
    context->magic = 0;
    tartan_i_free(context);
}

tartan_status tartan_context_sync(tartan_context *context) {
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_context_enter(__func__, context));
    const tartan_status status = context->backend->sync(__func__, context->device);
    tartan_i_context_leave(context);
    return status;
}

int32_t tartan_context_threads(const tartan_context *context) {
    return tartan_i_is(context, TARTAN_I_CONTEXT) ? context->threads : -1;
}
