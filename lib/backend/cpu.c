/* SPDX-License-Identifier: Apache-2.0
 * The CPU backend's table. */
#include "backend/cpu.h"

#include "core/cpu.h"

#include <stdio.h>

static int32_t cpu_devices(const char **out_reason) {
    *out_reason = "";
    return 1;
}

static void cpu_describe(int32_t i, char *text, int64_t size) {
    (void)i;
    snprintf(text, (size_t)size, "{\"kernels\": \"%s\", \"threads\": %d}", tartan_cpu_kernels(),
             tartan_i_default_threads());
}

static tartan_status cpu_open(const char *function, const tartan_i_context_options *options,
                              void **out_device) {
    (void)function;
    (void)options;
    *out_device = NULL;
    return TARTAN_OK;
}

static void cpu_close(void *device) {
    (void)device;
}

static tartan_status cpu_allocate(const char *function, void *device, int64_t bytes, void **out_pointer,
                                  void **out_owner) {
    (void)function;
    (void)device;
    *out_owner = NULL;
    PASS(tartan_i_allocate(out_pointer, bytes, 1));
    *out_owner = *out_pointer;
    return TARTAN_OK;
}

static tartan_status cpu_copy(const char *function, void *device, void *to, const void *from, int64_t bytes,
                              tartan_copy_kind kind) {
    (void)function;
    (void)device;
    (void)kind;
    memcpy(to, from, (size_t)bytes);
    return TARTAN_OK;
}

static tartan_status cpu_clear(const char *function, void *device, void *to, int64_t bytes) {
    (void)function;
    (void)device;
    memset(to, 0, (size_t)bytes);
    return TARTAN_OK;
}

static void cpu_release(void *owner, void *device) {
    (void)device;
    tartan_i_free(owner);
}

static bool cpu_supports(void *device, const tartan_op *op, const char **out_reason) {
    (void)device;
    *out_reason = "it does not have this operation";
    return tartan_i_cpu_table[op->kind].count > 0;
}

const tartan_backend tartan_i_backend_cpu = {
    .abi = TARTAN_BACKEND_ABI,
    .name = "cpu",
    .device_type = TARTAN_CPU,
    .devices = cpu_devices,
    .describe = cpu_describe,
    .open = cpu_open,
    .close = cpu_close,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .index_create = tartan_i_cpu_index_create,
    .index_from_mask = tartan_i_cpu_index_from_mask,
    .index_from_scores = tartan_i_cpu_index_from_scores,
    .index_fetch = tartan_i_cpu_index_fetch,
    .index_release = tartan_i_cpu_index_release,
    .supports = cpu_supports,
    .run = tartan_i_cpu_run,
    .explain = tartan_i_cpu_explain,
};
