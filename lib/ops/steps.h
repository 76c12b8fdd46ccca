/* SPDX-License-Identifier: Apache-2.0
 * Operations that are made of others: their steps, which backends run. All of them run, or none. */
#ifndef TARTAN_OPS_STEPS_H
#define TARTAN_OPS_STEPS_H

#include "backend/operation.h"
#include "device/resource.h"

enum { TARTAN_I_MOST_STEPS = 11 };

typedef struct tartan_i_steps {
    tartan_i_call call;
    tartan_op ops[TARTAN_I_MOST_STEPS]; /* with checked operands, in the order in which they run */
    int32_t count;
    void *memory; /* scratch memory where the context is; not there while operations are explained */
    void *owner;  /* of that on a device */
} tartan_i_steps;

/* Enters the context and gets `bytes` of scratch memory, which are 0. After a success, tartan_i_steps_run must follow. Errors: HANDLE, MEMORY,
 * those of the backend. */
tartan_status tartan_i_steps_begin(const char *function, tartan_context *context, int64_t bytes,
                                   tartan_i_steps *out);

/* One more step, to be filled in. */
static inline tartan_op *tartan_i_steps_add(tartan_i_steps *steps, tartan_op_kind kind) {
    tartan_op *op = &steps->ops[steps->count++];
    *op = (tartan_op){.kind = kind};
    op->function = steps->call.function;
    return op;
}

/* One more step: c = alpha op(a) b, or on the right alpha b op(a). `gates` may be NULL. */
void tartan_i_steps_add_spmm(tartan_i_steps *steps, const tartan_matrix *a, const tartan_array *gates,
                             const tartan_array *b, double alpha, bool right, bool transpose,
                             const tartan_array *c);

/* One more step: s = gates alpha x y + beta s at its stored blocks. `gates` may be NULL. */
void tartan_i_steps_add_sddmm(tartan_i_steps *steps, const tartan_array *x, const tartan_array *y,
                              const tartan_array *gates, double alpha, double beta, tartan_matrix *s);

/* Runs the steps and ends the call. On the CPU the steps are rehearsed first, so that none can fail after another has written.
 * Errors: MEMORY, those of the backend. */
tartan_status tartan_i_steps_run(tartan_i_steps *steps);

/* The same in parts, for steps that are followed by others: whoever sets `count` to 0 after steps have run adds the next ones. Of several
 * lists of steps the one with the largest operands is rehearsed. The call ends, whatever failed. */
tartan_status tartan_i_steps_rehearse(tartan_i_steps *steps);
tartan_status tartan_i_steps_run_each(tartan_i_steps *steps);
void tartan_i_steps_end(tartan_i_steps *steps);

#endif
