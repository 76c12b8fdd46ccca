/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/steps.h"

#include "core/workspace.h"
#include "device/run.h"

static bool on_host(const tartan_context *context) {
    return context->options.device_type == TARTAN_CPU;
}

tartan_status tartan_i_steps_begin(const char *function, tartan_context *context, int64_t bytes,
                                   tartan_i_steps *out) {
    tartan_status status;
    out->count = 0;
    out->memory = out->owner = NULL;
    PASS(tartan_i_call_enter(function, context, &out->call));
    tartan_i_workspace_hold(context);
    if (bytes == 0 || tartan_i_explaining()) return TARTAN_OK;
    if (on_host(context)) {
        TRY(tartan_i_workspace_get(context, TARTAN_I_ROOM_CHAIN, &out->memory, bytes, 1));
    } else {
        TRY(context->backend->scratch(function, context->device, bytes, &out->owner));
        out->memory = out->owner;
    }
    TRY(context->backend->clear(function, context->device, out->memory, bytes));
    return TARTAN_OK;
fail:
    if (out->owner != NULL) context->backend->scratch_free(context->device, out->owner);
    tartan_i_workspace_let_go(context);
    tartan_i_call_leave(&out->call);
    return status;
}

void tartan_i_steps_add_spmm(tartan_i_steps *steps, const tartan_matrix *a, const tartan_array *gates,
                             const tartan_array *b, double alpha, bool right, bool transpose,
                             const tartan_array *c) {
    tartan_op_spmm *op = &tartan_i_steps_add(steps, TARTAN_OP_SPMM)->spmm;
    op->a = a;
    op->gates = gates;
    op->b = b;
    op->alpha = alpha;
    op->side = right ? TARTAN_I_SPMM_SIDE_RIGHT : TARTAN_I_SPMM_SIDE_LEFT;
    op->transpose = transpose;
    op->c = c;
}

void tartan_i_steps_add_sddmm(tartan_i_steps *steps, const tartan_array *x, const tartan_array *y,
                              const tartan_array *gates, double alpha, double beta, tartan_matrix *s) {
    tartan_op_sddmm *op = &tartan_i_steps_add(steps, TARTAN_OP_SDDMM)->sddmm;
    op->x = x;
    op->y = y;
    op->pairs = 1;
    op->gates = gates;
    op->alpha = alpha;
    op->beta = beta;
    op->s = s;
}

tartan_status tartan_i_steps_run_each(tartan_i_steps *steps) {
    for (int32_t i = 0; i < steps->count; i++)
        PASS(tartan_i_explaining() ? tartan_i_explain(steps->call.context, &steps->ops[i])
                                   : tartan_i_call_run(&steps->call, &steps->ops[i]));
    return TARTAN_OK;
}

tartan_status tartan_i_steps_rehearse(tartan_i_steps *steps) {
    tartan_context *context = steps->call.context;
    if (steps->count <= 1 || !on_host(context) || tartan_i_explaining()) return TARTAN_OK;
    context->rehearses = true;
    const tartan_status status = tartan_i_steps_run_each(steps);
    context->rehearses = false;
    return status;
}

void tartan_i_steps_end(tartan_i_steps *steps) {
    tartan_context *context = steps->call.context;
    if (steps->owner != NULL) context->backend->scratch_free(context->device, steps->owner);
    tartan_i_workspace_let_go(context);
    tartan_i_call_leave(&steps->call);
}

tartan_status tartan_i_steps_run(tartan_i_steps *steps) {
    tartan_status status = tartan_i_steps_rehearse(steps);
    if (status == TARTAN_OK) status = tartan_i_steps_run_each(steps);
    tartan_i_steps_end(steps);
    return status;
}
