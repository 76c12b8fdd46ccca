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
    (void)op;
    *out_reason = "";
    return true;
}

/* On a dynamic layout, an operation uses the blocks of the last mask. */
static tartan_status run_spmm(const tartan_context *context, const tartan_op_spmm *op) {
    tartan_matrix a;
    tartan_array gates;
    const tartan_op_spmm now = tartan_i_cpu_spmm_now(op, &a, &gates);
    return tartan_i_cpu_spmm(context, &now);
}
static tartan_status run_sddmm(const tartan_context *context, const tartan_op_sddmm *op) {
    tartan_op_sddmm now = *op;
    tartan_matrix s;
    now.s = (tartan_matrix *)tartan_i_cpu_matrix_now(op->s, &s);
    return tartan_i_cpu_sddmm(context, &now);
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
    .spmm = run_spmm,
    .sddmm = run_sddmm,
    .gate_gradient = tartan_i_cpu_gate_gradient,
    .growth_score = tartan_i_cpu_growth_score,
    .block_copy = tartan_i_cpu_block_copy,
    .block_norms = tartan_i_cpu_block_norms,
    .elementwise = tartan_i_cpu_elementwise,
    .elements = tartan_i_cpu_elements,
    .reduce = tartan_i_cpu_reduce,
    .compare = tartan_i_cpu_compare,
    .attention_forward = tartan_i_cpu_attention_forward,
    .attention_backward = tartan_i_cpu_attention_backward,
    .attention_bias_gradient = tartan_i_cpu_attention_bias_gradient,
    .attention_merge = tartan_i_cpu_attention_merge,
    .block_softmax = tartan_i_cpu_block_softmax,
    .block_softmax_gradient = tartan_i_cpu_block_softmax_gradient,
    .window_pool = tartan_i_cpu_window_pool,
    .window_gather = tartan_i_cpu_window_gather,
    .window_scatter = tartan_i_cpu_window_scatter,
    .conv = tartan_i_cpu_conv,
    .conv_filter_gradient = tartan_i_cpu_conv_filter_gradient,
    .channel_linear = tartan_i_cpu_channel_linear,
    .channel_linear_gradient = tartan_i_cpu_channel_linear_gradient,
    .conv_normalize = tartan_i_cpu_conv_normalize,
    .conv_normalize_gradient = tartan_i_cpu_conv_normalize_gradient,
    .explain = tartan_i_cpu_explain,
};
