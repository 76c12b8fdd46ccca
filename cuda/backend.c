/* SPDX-License-Identifier: Apache-2.0
 * The CUDA plug-in's backend table. */
#include "backend/operation.h"
#include "device.h"
#include "explain.h"

static bool supports(void *device, const tartan_op *op, const char **out_reason) {
    const char *why = tartan_cuda_op_refuses(tartan_cuda_queue_chip(device), op);
    if (why != NULL) *out_reason = why;
    return why == NULL;
}

enum { SEEN = 512, REGION_BITS = 21 };

/* Refuses memory that is not the device's. The driver is asked once for each 2 MiB, all of which belong to one device; asking takes
 * longer than all other checks of an array. */
static tartan_status check_once(tartan_cuda_queue *queue, const char *function, const char *name,
                                const void *pointer, uintptr_t seen[SEEN]) {
    const uintptr_t region = (uintptr_t)pointer >> REGION_BITS;
    uintptr_t *place = &seen[region % SEEN];
    if (*place == region) return TARTAN_OK;
    PASS(tartan_cuda_check_pointer(function, queue, name, pointer));
    *place = region;
    return TARTAN_OK;
}

/* Refuses operands that are not in the device's memory. */
static tartan_status check_operands(tartan_cuda_queue *queue, const tartan_op *op) {
    uintptr_t seen[SEEN];
    for (int32_t i = 0; i < SEEN; i++) seen[i] = 0; /* no region */
    for (int32_t i = 0; i < op->noperands; i++) {
        const tartan_i_operand *one = &op->operands[i];
        const void *pointer = NULL;
        if (one->matrix != NULL && one->matrix->layout->blocks > 0) pointer = one->matrix->values;
        if (pointer != NULL) PASS(tartan_cuda_check_pointer(op->function, queue, one->name, pointer));
        for (int64_t j = 0; j < one->arrays; j++)
            if (!tartan_i_array_is_empty(&one->array[j]))
                PASS(check_once(queue, op->function, one->name, one->array[j].data, seen));
    }
    return TARTAN_OK;
}

static tartan_status launch(tartan_cuda_queue *queue, const char *function,
                            const tartan_cuda_kernels *kernels, const void *problem) {
    const tartan_cuda_chip *chip = tartan_cuda_queue_chip(queue);
    const int32_t chosen = tartan_cuda_choose(kernels, chip, problem);
    if (chosen < 0)
        return tartan_cuda_host->fail(
            TARTAN_ERR_UNSUPPORTED, function, "no kernel can do it: %s",
            tartan_cuda_kernel_refuses(&kernels->rows[kernels->count - 1], chip, problem));
    return kernels->rows[chosen].launch(function, queue, problem);
}

static tartan_status run(const tartan_context *context, const tartan_op *op) {
    tartan_cuda_problem room;
    const void *problem;
    PASS(tartan_cuda_problem_of(tartan_cuda_host, context, op, &room, &problem));
    if (room.nothing) return TARTAN_OK;
    tartan_cuda_queue *queue = context->device;
    tartan_cuda_entered entered;
    tartan_cuda_enter(context->options.device_id, &entered);
    tartan_status status = check_operands(queue, op);
    if (status == TARTAN_OK) status = launch(queue, op->function, tartan_cuda_kernels_of(op->kind), problem);
    tartan_cuda_leave(&entered);
    return status;
}

static tartan_status explain(const tartan_context *context, const tartan_op *op, tartan_i_text *text) {
    tartan_cuda_problem room;
    const void *problem;
    PASS(tartan_cuda_problem_of(tartan_cuda_host, context, op, &room, &problem));
    tartan_cuda_explain(tartan_cuda_host, tartan_cuda_kernels_of(op->kind),
                        tartan_cuda_queue_chip(context->device), problem, text);
    return text->status;
}

static const tartan_backend backend = {
    .abi = TARTAN_BACKEND_ABI,
    .name = "cuda",
    .device_type = TARTAN_CUDA,
    .devices = tartan_cuda_devices,
    .describe = tartan_cuda_describe_device,
    .open = tartan_cuda_open,
    .close = tartan_cuda_close,
    .stream = tartan_cuda_stream,
    .wait = tartan_cuda_wait,
    .drain = tartan_cuda_drain,
    .allocate = tartan_cuda_memory_allocate,
    .release = tartan_cuda_memory_release,
    .scratch = tartan_cuda_memory_scratch,
    .scratch_free = tartan_cuda_memory_scratch_free,
    .copy = tartan_cuda_copy,
    .clear = tartan_cuda_clear,
    .index_create = tartan_cuda_index_create,
    .index_from_mask = tartan_cuda_index_update,
    .index_from_scores = tartan_cuda_index_from_scores,
    .index_fetch = tartan_cuda_index_fetch,
    .index_release = tartan_cuda_index_release,
    .supports = supports,
    .run = run,
    .explain = explain,
};

__attribute__((visibility("default"))) const tartan_backend *tartan_plugin_get(const tartan_host *host);

const tartan_backend *tartan_plugin_get(const tartan_host *host) {
    if (host->abi == TARTAN_BACKEND_ABI) tartan_cuda_host = host;
    return &backend;
}
