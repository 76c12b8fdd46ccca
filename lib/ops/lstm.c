/* SPDX-License-Identifier: Apache-2.0
 * The gates of an LSTM, which become rows of kernels/fused.def. */
#include "backend/backend.h"
#include "core/array.h"
#include "core/workspace.h"
#include "device/run.h"
#include "ops/checks.h"
#include "ops/fused.h"

#define OPERAND(name, parts) tartan_i_fused_operand_of(#name, given.name, parts)

tartan_status tartan_i_check_lstm_gates(tartan_op *any, const tartan_context *context) {
    const tartan_op_lstm_gates given = any->lstm_gates;
    tartan_op_fused *op = &any->fused;
    (void)context;
    *op = tartan_i_fused_of(given.function, TARTAN_I_FUSED_lstm_gates, given.c, 60);
    op->p[0] = given.forget_bias;
    op->in[0] = OPERAND(c, 1);
    op->in[1] = OPERAND(gates, 4);
    op->in[2] = OPERAND(bias, 4);
    op->out[0] = OPERAND(c_next, 1);
    op->out[1] = OPERAND(h, 1);
    return TARTAN_OK;
}

/* ---- Gradients: of the gates, then their sum for the bias ---- */

static tartan_status step(tartan_i_call *call, const tartan_op *op) {
    return tartan_i_explaining() ? tartan_i_explain(call->context, op) : tartan_i_call_run(call, op);
}

static tartan_op gates_of(const tartan_op_lstm_gates_gradient given) {
    tartan_op op = {.kind = TARTAN_OP_FUSED,
                    .fused =
                        tartan_i_fused_of(given.function, TARTAN_I_FUSED_lstm_gates_gradient, given.c, 80)};
    op.fused.p[0] = given.forget_bias;
    op.fused.in[0] = OPERAND(c, 1);
    op.fused.in[1] = OPERAND(gates, 4);
    op.fused.in[2] = OPERAND(bias, 4);
    op.fused.in[3] = OPERAND(c_next_grad, 1);
    op.fused.in[4] = OPERAND(h_grad, 1);
    op.fused.out[0] = OPERAND(c_grad, 1);
    op.fused.out[1] = OPERAND(gates_grad, 4);
    return op;
}

/* An array like `gates` in memory of the call. */
static tartan_status get_memory(const tartan_op_lstm_gates_gradient *given, const tartan_context *context,
                                tartan_array *gates_grad, void **scratch) {
    void *memory = NULL;
    int64_t elements = 1;
    *gates_grad = *given->gates;
    gates_grad->dtype = tartan_i_sum_dtype(given->c->dtype);
    for (int32_t d = gates_grad->ndim - 1; d >= 0; d--) {
        gates_grad->strides[d] = elements;
        elements *= gates_grad->shape[d];
    }
    const int64_t bytes = elements * tartan_dtype_bytes(gates_grad->dtype);
    if (tartan_i_explaining() || bytes == 0) return TARTAN_OK;
    if (context->options.device_type == TARTAN_CPU) {
        PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_CHAIN, &memory, bytes, 1));
    } else {
        PASS(context->backend->scratch(given->function, context->device, bytes, scratch));
        memory = *scratch;
    }
    gates_grad->data = memory;
    return TARTAN_OK;
}

static tartan_status run_steps(tartan_i_call *call, const tartan_op_lstm_gates_gradient *given) {
    const tartan_op gates = gates_of(*given);
    const tartan_op sum = {.kind = TARTAN_OP_POINT2_GRADIENT,
                           .point2_gradient = {.function = given->function,
                                               .row = TARTAN_I_POINT2_add,
                                               .a = given->gates_grad,
                                               .b = given->bias_grad,
                                               .y_grad = given->gates_grad,
                                               .b_grad = given->bias_grad}};
    if (given->c_grad != NULL || given->gates_grad != NULL) PASS(step(call, &gates));
    return given->bias_grad != NULL ? step(call, &sum) : TARTAN_OK;
}

tartan_status tartan_i_run_lstm_gates_gradient(const tartan_op *any, tartan_context *context) {
    enum { PARTS_OF_SUMS = 64 };
    tartan_op_lstm_gates_gradient given = any->lstm_gates_gradient;
    tartan_array gates_grad;
    tartan_i_call call;
    tartan_status status;
    void *room, *scratch = NULL;
    PASS(tartan_i_call_enter(given.function, context, &call));
    tartan_i_workspace_hold(context);
    if (given.bias_grad != NULL && given.gates_grad == NULL) {
        TRY(get_memory(&given, context, &gates_grad, &scratch));
        given.gates_grad = &gates_grad;
    }
    /* On the CPU the second step can't fail for want of memory then. */
    if (given.bias_grad != NULL && context->options.device_type == TARTAN_CPU)
        TRY(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &room,
                                   PARTS_OF_SUMS * tartan_i_array_elements(given.bias_grad), sizeof(double)));
    status = run_steps(&call, &given);
    if (scratch != NULL) context->backend->scratch_free(context->device, scratch);
fail:
    tartan_i_workspace_let_go(context);
    tartan_i_call_leave(&call);
    return status;
}
