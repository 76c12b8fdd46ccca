/* SPDX-License-Identifier: Apache-2.0 */
#include "device/run.h"

#include "core/clock.h"

/* Runs an operation whose operands are listed. */
static tartan_status run_listed(tartan_i_call *call, const tartan_op *op) {
    int64_t arrays = 0;
    for (int32_t i = 0; i < op->noperands; i++) arrays += op->operands[i].arrays;
    PASS(tartan_i_call_expect_arrays(call, arrays));
    for (int32_t i = 0; i < op->noperands; i++) {
        const tartan_i_operand *one = &op->operands[i];
        if (one->matrix != NULL)
            tartan_i_call_uses_matrix(call, one->matrix, one->written);
        else if (one->array != NULL)
            for (int64_t j = 0; j < one->arrays; j++)
                tartan_i_call_uses_array(call, &one->array[j], one->written);
        else if (one->layout != NULL)
            tartan_i_call_uses_layout(call, one->layout, false);
    }
    PASS(tartan_i_call_order(call));
    return tartan_i_backend_run(call->context, op);
}

tartan_status tartan_i_call_run(tartan_i_call *call, const tartan_op *op) {
    tartan_i_operand operands[TARTAN_I_MAX_OPERANDS];
    tartan_op listed = *op;
    tartan_i_op_list(&listed, operands);
    return run_listed(call, &listed);
}

/* Whether the host knows how many blocks the operation works on. */
static bool is_counted(const tartan_op *op) {
    for (int32_t i = 0; i < op->noperands; i++) {
        const tartan_i_operand *one = &op->operands[i];
        const tartan_layout *layout = one->matrix != NULL ? one->matrix->layout : one->layout;
        if (layout != NULL && tartan_i_is_dynamic(layout)) return false;
    }
    return true;
}

/* Runs the operation. On the CPU, where it has ended when the call returns, records its rate if that is known. */
static tartan_status run_timed(tartan_i_call *call, const tartan_op *op) {
    tartan_context *context = call->context;
    const bool timed = context->options.device_type == TARTAN_CPU;
    const double begin = timed ? tartan_i_seconds() : 0;
    PASS(run_listed(call, op));
    if (!timed) return TARTAN_OK;
    const double took = tartan_i_seconds() - begin;
    context->last_kind = (int32_t)op->kind + 1;
    context->last_rate = took > 0 && is_counted(op) ? 1e-12 * tartan_i_op_flops(op) / took : 0;
    return TARTAN_OK;
}

static tartan_status enter_and_run(tartan_context *context, const tartan_op *op) {
    tartan_i_call call;
    PASS(tartan_i_call_enter(op->function, context, &call));
    const tartan_status status = tartan_i_explaining() ? tartan_i_explain(context, op) : run_timed(&call, op);
    tartan_i_call_leave(&call);
    return status;
}

tartan_status tartan_i_run(tartan_context *context, const tartan_op *op) {
    if (op->operands != NULL) return enter_and_run(context, op);
    tartan_i_operand operands[TARTAN_I_MAX_OPERANDS];
    tartan_op listed = *op;
    tartan_i_op_list(&listed, operands);
    return enter_and_run(context, &listed);
}
