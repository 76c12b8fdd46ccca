/* SPDX-License-Identifier: Apache-2.0
 * The CUDA plug-in's backend table. */
#include "blas.h"
#include "device_memory.h"
#include "explain.h"
#include "index_cache.h"
#include "index_dynamic.h"
#include "kernels.h"
#include "kernels/blocks.h"
#include "usable.h"

#include <cstdio>

namespace {

/* ---- Devices ---- */

/* 0 if there is none. */
int driver_version() {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess) return driver;
    (void)cudaGetLastError();
    return 0;
}

/* Made once: the text of devices() must stay. */
struct driver_refusal {
    char text[256];
    driver_refusal() { tartan_cuda_driver_refusal(driver_version(), CUDART_VERSION, text, sizeof text); }
};

int32_t devices(const char **out_reason) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess) {
        *out_reason = count > 0 ? "" : "the CUDA driver sees no device";
        return count;
    }
    (void)cudaGetLastError(); /* the error is not to be found by a later call */
    *out_reason = cudaGetErrorString(error);
    if (error == cudaErrorInsufficientDriver) {
        static const driver_refusal refusal;
        *out_reason = refusal.text;
    }
    return 0;
}

void describe(int32_t device, char *text, int64_t size) {
    cudaDeviceProp p;
    const cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(text, (size_t)size, "{\"device\": %d, \"error\": \"%s\"}", device,
                 cudaGetErrorString(error));
        return;
    }
    const tartan_cuda_card card = {p.name,
                                   device,
                                   p.major,
                                   p.minor,
                                   p.multiProcessorCount,
                                   p.l2CacheSize,
                                   driver_version(),
                                   CUDART_VERSION,
                                   (int64_t)p.totalGlobalMem};
    tartan_cuda_describe(&card, text, size);
}

tartan_status open_device(const char *function, const tartan_i_context_options *options, void **out_device) {
    tartan_cuda_queue *queue = nullptr;
    PASS(tartan_cuda_queue_open(function, options->device_id, options->stream, &queue));
    const tartan_status status = options->allow_dense ? tartan_cuda_blas_open(function, queue) : TARTAN_OK;
    if (status != TARTAN_OK) {
        tartan_cuda_queue_close(queue);
        return status;
    }
    *out_device = queue;
    return TARTAN_OK;
}

void close_device(void *device) {
    tartan_cuda_queue_close((tartan_cuda_queue *)device);
}

/* ---- Memory ---- */

/* Refuses what would wait for a stream whose work is only being recorded. */
tartan_status check_waiting(const char *function, tartan_cuda_queue *queue) {
    bool capturing;
    PASS(tartan_cuda_capturing(function, queue, &capturing));
    if (!capturing) return TARTAN_OK;
    return tartan_cuda_host->fail(
        TARTAN_ERR_UNSUPPORTED, function,
        "the stream of the context is being captured in a graph, expected no waiting and no "
        "copies from or to the host meanwhile");
}

tartan_status sync_device(const char *function, void *device) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    PASS(check_waiting(function, queue));
    return tartan_cuda_check(function, cudaStreamSynchronize(queue->stream), "waiting for the device");
}

tartan_status allocate(const char *function, void *device, int64_t bytes, void **out_pointer,
                       void **out_owner) {
    return tartan_cuda_memory_allocate(function, (tartan_cuda_queue *)device, bytes, out_pointer, out_owner);
}

/* Pageable memory has been read when the copy returns; memory that the driver knows is read later. */
bool is_read_later(const void *pointer) {
    cudaPointerAttributes attributes = {};
    if (cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess)
        return attributes.type != cudaMemoryTypeUnregistered;
    (void)cudaGetLastError();
    return true;
}

tartan_status copy(const char *function, void *device, void *to, const void *from, int64_t bytes,
                   tartan_copy_kind kind) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    tartan_cuda_relaxed relaxed;
    if (bytes == 0 && kind != TARTAN_COPY_TO_HOST) return TARTAN_OK;
    if (kind == TARTAN_COPY_ON_DEVICE) {
        PASS(tartan_cuda_check_pointer(function, queue, "the source", from));
        PASS(tartan_cuda_check_pointer(function, queue, "the target", to));
    } else {
        PASS(check_waiting(function, queue));
    }
    if (bytes > 0)
        PASS(tartan_cuda_check(function,
                               cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, queue->stream),
                               kind == TARTAN_COPY_TO_HOST     ? "copying to the host"
                               : kind == TARTAN_COPY_TO_DEVICE ? "copying to the device"
                                                               : "copying on the device"));
    if (kind == TARTAN_COPY_TO_HOST || (kind == TARTAN_COPY_TO_DEVICE && is_read_later(from)))
        return tartan_cuda_check(function, cudaStreamSynchronize(queue->stream), "waiting for a copy");
    return TARTAN_OK;
}

tartan_status clear(const char *function, void *device, void *to, int64_t bytes) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    if (bytes == 0) return TARTAN_OK;
    return tartan_cuda_check(function, cudaMemsetAsync(to, 0, (size_t)bytes, queue->stream),
                             "clearing memory");
}

/* ---- Layouts whose blocks change ---- */

tartan_status plan_create(const char *function, void *device, const tartan_layout *layout, void **out_sets) {
    return tartan_cuda_dynamic_index_create(function, (tartan_cuda_queue *)device, layout, out_sets);
}

tartan_status plan_mask(const char *function, void *device, void *sets, const void *mask) {
    return tartan_cuda_dynamic_index_update(function, (tartan_cuda_queue *)device, sets, mask);
}

tartan_status plan_fetch(const char *function, void *device, void *sets, int64_t *out_blocks,
                         int64_t *out_row_pointers, int32_t *out_block_cols) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    PASS(check_waiting(function, queue));
    return tartan_cuda_dynamic_index_fetch(function, queue, sets, out_blocks, out_row_pointers,
                                           out_block_cols);
}

/* ---- Operations ---- */

const tartan_cuda_spmm_launch spmm_launchers[TARTAN_CUDA_SPMM_KERNELS] = {
    tartan_cuda_spmm_plain, tartan_cuda_spmm_simt,   tartan_cuda_spmm_mma,
    tartan_cuda_spmm_wgmma, tartan_cuda_spmm_narrow, tartan_cuda_spmm_dense,
};
const tartan_cuda_sddmm_launch sddmm_launchers[TARTAN_CUDA_SDDMM_KERNELS] = {
    tartan_cuda_sddmm_plain,
    tartan_cuda_sddmm_mma,
    tartan_cuda_sddmm_wgmma,
};

bool supports(void *, const tartan_op *op, const char **out_reason) {
    tartan_i_operand operands[TARTAN_I_MAX_OPERANDS];
    const int32_t count = tartan_cuda_host->operands(op, operands);
    for (int32_t i = 0; i < count; i++)
        if (operands[i].matrix != nullptr && operands[i].matrix->layout->blocks > INT32_MAX) {
            *out_reason = "the layout has 2^31 blocks or more";
            return false;
        }
    return true;
}

bool is_empty(const tartan_array *array) {
    for (int32_t d = 0; d < array->ndim; d++)
        if (array->shape[d] == 0) return true;
    return false;
}

/* Refuses operands that are not in the device's memory. */
tartan_status check_operands(tartan_cuda_queue *queue, const tartan_op *op) {
    tartan_i_operand operands[TARTAN_I_MAX_OPERANDS];
    const int32_t count = tartan_cuda_host->operands(op, operands);
    for (int32_t i = 0; i < count; i++) {
        const tartan_i_operand *one = &operands[i];
        const void *pointer = nullptr;
        if (one->matrix != nullptr && one->matrix->layout->blocks > 0) pointer = one->matrix->values;
        if (one->array != nullptr && !is_empty(one->array)) pointer = one->array->data;
        if (pointer != nullptr) PASS(tartan_cuda_check_pointer(op->function, queue, one->name, pointer));
    }
    return TARTAN_OK;
}

/* Any operation of its struct, for what is done for all. */
#define ANY_OF(NAME, name)                                                                                   \
    tartan_op any_of(const tartan_op_##name &op) {                                                           \
        tartan_op any = {};                                                                                  \
        any.kind = TARTAN_OP_##NAME;                                                                         \
        any.name = op;                                                                                       \
        return any;                                                                                          \
    }
TARTAN_I_OPERATIONS(ANY_OF)
#undef ANY_OF

/* Makes the context's device current, checks the operands and runs work(queue, op). */
template <typename Op, typename Work>
tartan_status run(const tartan_context *context, const Op *op, Work work) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)context->device;
    tartan_cuda_current current(queue->device_id);
    const tartan_op any = any_of(*op);
    PASS(check_operands(queue, &any));
    return work(queue, op);
}

tartan_status run_spmm(const tartan_context *context, const tartan_op_spmm *op) {
    if (is_empty(op->c)) return TARTAN_OK;
    return run(context, op, [&](tartan_cuda_queue *queue, const tartan_op_spmm *) {
        const tartan_layout *layout = op->a->layout;
        const tartan_cuda_figures *figures = nullptr;
        PASS(tartan_cuda_figures_get(layout, &figures));
        tartan_cuda_spmm p;
        tartan_cuda_spmm_of(context, op, &p);
        const int32_t kernel = tartan_cuda_spmm_choose(&queue->chip, &p, figures);
        return spmm_launchers[kernel](op->function, queue, layout, &p);
    });
}

tartan_status run_sddmm(const tartan_context *context, const tartan_op_sddmm *op) {
    if (op->s->layout->blocks == 0) return TARTAN_OK;
    return run(context, op, [&](tartan_cuda_queue *queue, const tartan_op_sddmm *) {
        tartan_cuda_sddmm p;
        tartan_cuda_sddmm_of(context, op, &p);
        const int32_t kernel = tartan_cuda_sddmm_choose(&queue->chip, &p);
        return sddmm_launchers[kernel](op->function, queue, op->s->layout, &p);
    });
}

tartan_status run_gate_gradient(const tartan_context *context, const tartan_op_gate_gradient *op) {
    return run(context, op, tartan_cuda_gate_gradient);
}

tartan_status run_growth_score(const tartan_context *context, const tartan_op_growth_score *op) {
    return run(context, op, tartan_cuda_growth_score);
}

tartan_cuda_blocks blocks_of(const tartan_matrix *matrix) {
    return {matrix->values, matrix->dtype, matrix->block_order, matrix->layout};
}

tartan_status run_block_copy(const tartan_context *context, const tartan_op_block_copy *op) {
    return run(context, op, [](tartan_cuda_queue *queue, const tartan_op_block_copy *copy) {
        const tartan_cuda_blocks from = blocks_of(copy->from), to = blocks_of(copy->to);
        if (copy->targets != nullptr)
            return tartan_cuda_blocks_scatter(copy->function, queue, &to, &from, copy->targets);
        return tartan_cuda_blocks_gather(copy->function, queue, &to, &from, copy->sources, copy->transpose);
    });
}

tartan_status run_block_norms(const tartan_context *context, const tartan_op_block_norms *op) {
    return run(context, op, [](tartan_cuda_queue *queue, const tartan_op_block_norms *norms) {
        const tartan_cuda_blocks from = blocks_of(norms->matrix);
        return tartan_cuda_blocks_norms(norms->function, queue, &from, norms->norm,
                                        (double *)norms->norms->data);
    });
}

tartan_status explain(const tartan_context *context, const tartan_op *op, tartan_i_text *text) {
    const tartan_cuda_queue *queue = (const tartan_cuda_queue *)context->device;
    if (op->kind == TARTAN_OP_SPMM) {
        const tartan_cuda_figures *figures = nullptr;
        PASS(tartan_cuda_figures_get(op->spmm.a->layout, &figures));
        tartan_cuda_spmm p;
        tartan_cuda_spmm_of(context, &op->spmm, &p);
        tartan_cuda_explain_spmm(tartan_cuda_host, &queue->chip, &p, figures, text);
    } else {
        tartan_cuda_sddmm p;
        tartan_cuda_sddmm_of(context, &op->sddmm, &p);
        tartan_cuda_explain_sddmm(tartan_cuda_host, &queue->chip, &p, text);
    }
    return text->status;
}

const tartan_backend backend = {
    TARTAN_BACKEND_ABI,
    "cuda",
    TARTAN_CUDA,
    devices,
    describe,
    open_device,
    close_device,
    sync_device,
    allocate,
    tartan_cuda_memory_release,
    copy,
    clear,
    plan_create,
    plan_mask,
    plan_fetch,
    tartan_cuda_dynamic_index_release,
    supports,
    run_spmm,
    run_sddmm,
    run_gate_gradient,
    run_growth_score,
    run_block_copy,
    run_block_norms,
    explain,
};

} // namespace

extern "C" __attribute__((visibility("default"))) const tartan_backend *
tartan_plugin_get(const tartan_host *host);
const tartan_backend *tartan_plugin_get(const tartan_host *host) {
    tartan_cuda_host = host;
    return &backend;
}
