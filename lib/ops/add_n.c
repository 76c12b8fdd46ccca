/* SPDX-License-Identifier: Apache-2.0
 * The sum of any number of arrays: as many at a time as a row of kernels/fused.def has inputs. */
#include "core/array.h"
#include "ops/checks.h"
#include "ops/fused.h"
#include "ops/steps.h"

static tartan_status check(const tartan_op_add_n *op) {
    const int32_t dtype = op->x[0].dtype;
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    for (int64_t i = 1; i < op->count; i++) {
        const tartan_array *x = &op->x[i];
        bool is_like = x->ndim == op->y->ndim;
        for (int32_t d = 0; is_like && d < x->ndim; d++) is_like = x->shape[d] == op->y->shape[d];
        CHECK_IN(op->function, is_like, SHAPE,
                 "array %" PRId64 " of x has shape %s, expected %s (as the first)", i + 1,
                 tartan_i_shape_text(x, text), tartan_i_shape_text(op->y, wanted));
        CHECK_IN(op->function, tartan_i_sum_dtype(x->dtype) == tartan_i_sum_dtype(dtype), DTYPE,
                 "array %" PRId64 " of x is of %s, expected %s (the first is of %s)", i + 1,
                 tartan_dtype_name(x->dtype),
                 dtype == TARTAN_F64 ? "float64" : "float32, float16 or bfloat16", tartan_dtype_name(dtype));
    }
    return TARTAN_OK;
}

/* What is summed so far: in y, unless that has 16 bits. */
static tartan_array sum_like(const tartan_array *y, void *memory) {
    tartan_array sum = *y;
    if (memory == NULL) return sum;
    int64_t all = 1;
    sum.data = memory;
    sum.dtype = tartan_i_sum_dtype(y->dtype);
    for (int32_t d = y->ndim; d-- > 0; all *= y->shape[d]) sum.strides[d] = all;
    return sum;
}

tartan_status tartan_i_run_add_n(const tartan_op *any, tartan_context *context) {
    const tartan_op_add_n *op = &any->add_n;
    const int32_t sums = tartan_i_sum_dtype(op->y->dtype);
    const bool rounds = op->count > TARTAN_I_FUSED_INPUTS && op->y->dtype != sums;
    const int64_t bytes = rounds ? tartan_i_array_elements(op->y) * tartan_dtype_bytes(sums) : 0;
    tartan_i_steps steps;
    PASS(check(op));
    PASS(tartan_i_steps_begin(op->function, context, bytes, &steps));
    const tartan_array sum = sum_like(op->y, bytes > 0 ? steps.memory : NULL);
    tartan_status status = TARTAN_OK;
    int64_t next = 0;
    do {
        steps.count = 0;
        tartan_op_fused *step = &tartan_i_steps_add(&steps, TARTAN_OP_FUSED)->fused;
        int32_t inputs = 0;
        const bool first = next == 0;
        *step = tartan_i_fused_of(op->function, TARTAN_I_FUSED_add_n, op->y, TARTAN_I_FUSED_INPUTS);
        if (!first) step->in[inputs++] = tartan_i_fused_operand_of("y", &sum, 1);
        for (; inputs < TARTAN_I_FUSED_INPUTS; inputs++, next += next < op->count)
            step->in[inputs] = tartan_i_fused_operand_of("x", next < op->count ? &op->x[next] : NULL, 1);
        step->out[0] = tartan_i_fused_operand_of("y", next < op->count ? &sum : op->y, 1);
        if (first) status = tartan_i_steps_rehearse(&steps);
        if (status == TARTAN_OK) status = tartan_i_steps_run_each(&steps);
    } while (status == TARTAN_OK && next < op->count && !tartan_i_explaining());
    tartan_i_steps_end(&steps);
    return status;
}
