// SPDX-License-Identifier: Apache-2.0
// The number of different elements of two matrices on the CPU.
#include "backend/cpu.h"
#include "matrix/work.h"

#include <math.h>

typedef struct job {
    const tartan_op_compare *op;
    int32_t workers;
    int64_t count; /* by the __atomic builtins */
} job;

static bool differ(const tartan_op_compare *op, double x, double y) {
    if (x == y) return false;
    if (isnan(x) || isnan(y)) return !(op->equal_nan && isnan(x) && isnan(y));
    if (isinf(x) || isinf(y)) return true;
    return !(fabs(x - y) <= op->absolute + op->relative * fabs(y));
}

// Differences in a block; an id of -1 is a block of zeros, but not both are -1.
static int64_t count_block(const tartan_op_compare *op, int64_t a, int64_t b) {
    double x[TARTAN_I_PIECE] = {0}, y[TARTAN_I_PIECE] = {0};
    const tartan_matrix *m = a >= 0 ? op->a : op->b;
    const int64_t id = a >= 0 ? a : b;
    int64_t count = 0;
    for (tartan_i_piece p = tartan_i_piece_begin(m, id); p.runs > 0; tartan_i_piece_next(m, id, &p)) {
        if (a >= 0) tartan_i_piece_load(op->a, a, &p, x);
        if (b >= 0) tartan_i_piece_load(op->b, b, &p, y);
        for (int64_t i = 0; i < p.runs * p.length; i++) count += differ(op, x[i], y[i]);
    }
    return count;
}

static void count_task(void *data, int32_t worker) {
    job *j = data;
    const tartan_op_compare *op = j->op;
    int64_t begin, end, count = 0;
    tartan_i_share(op->pairs, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        count += count_block(op, op->a_ids != NULL ? op->a_ids[i] : i, op->b_ids != NULL ? op->b_ids[i] : i);
    __atomic_fetch_add(&j->count, count, __ATOMIC_RELAXED);
}

tartan_status tartan_i_cpu_compare(const tartan_context *context, const tartan_op *any) {
    const tartan_op_compare *op = &any->compare;
    job j = {.op = op, .workers = context->threads};
    tartan_i_parallel(context, j.workers, 8 * (double)op->pairs * (double)tartan_i_block_elements(op->a),
                      count_task, &j);
    *(double *)op->count->data = (double)j.count;
    return TARTAN_OK;
}
