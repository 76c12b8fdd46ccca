/* SPDX-License-Identifier: Apache-2.0
 * Single elements of matrices on the CPU, read, written and added to. */
#include "backend/cpu.h"

tartan_status tartan_i_cpu_elements(const tartan_context *context, const tartan_op *any) {
    const tartan_op_elements *op = &any->elements;
    double *numbers = op->numbers->data;
    (void)context;
    for (int64_t i = 0; i < op->count; i++) {
        const int64_t source = op->sources != NULL ? op->sources[i] : -1;
        const double x = source < 0 ? 0 : tartan_i_load(op->from->values, op->from->dtype, source);
        if (op->to == NULL)
            numbers[i] = x;
        else if (op->targets[i] >= 0)
            tartan_i_store(op->to->values, op->to->dtype, op->targets[i],
                           source < 0 ? numbers[i] : op->alpha * x + numbers[i]);
    }
    return TARTAN_OK;
}
