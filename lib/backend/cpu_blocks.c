/* SPDX-License-Identifier: Apache-2.0
 * Copies of blocks between matrices, and norms of blocks, on the CPU. Norms are computed in f64; NaN in a block
 * makes its norm NaN. One worker handles a whole block, so results do not depend on the number of workers. */
#include "backend/cpu.h"
#include "matrix/gather.h"

#include <math.h>

/* ---- Copying ---- */

typedef struct copy_work {
    const tartan_context *context;
    const tartan_op_block_copy *op;
    int64_t count; /* blocks */
} copy_work;

static void copy_task(void *data, int32_t worker) {
    const copy_work *p = data;
    const tartan_op_block_copy *op = p->op;
    int64_t begin, end;
    tartan_i_share(p->count, p->context->threads, worker, &begin, &end);
    if (op->targets == NULL && op->sources == NULL && !op->transpose) {
        tartan_i_blocks_copy(op->to, op->from, begin, end);
        return;
    }
    if (op->targets == NULL && op->sources != NULL) {
        tartan_i_blocks_take(op->to, op->from, op->sources, begin, end, op->transpose);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t to = op->targets != NULL ? op->targets[i] : i;
        const int64_t from = op->sources != NULL ? op->sources[i] : i;
        if (to >= 0) tartan_i_block_copy(op->to, to, op->from, from, op->transpose);
    }
}

tartan_status tartan_i_cpu_block_copy(const tartan_context *context, const tartan_op *any) {
    const tartan_op_block_copy *op = &any->block_copy;
    copy_work p = {.context = context, .op = op};
    p.count = op->targets != NULL ? op->from->layout->blocks : op->to->layout->blocks;
    tartan_i_parallel(context, context->threads, (double)p.count * (double)tartan_i_block_elements(op->to),
                      copy_task, &p);
    return TARTAN_OK;
}

/* ---- Norms ---- */

typedef struct norms_work {
    const tartan_context *context;
    const tartan_op_block_norms *op;
    int64_t count; /* blocks */
} norms_work;

/* The stored elements of a block as f64, one contiguous run after the other. */
typedef struct runs {
    const tartan_matrix *matrix;
    tartan_i_tile_copy copy;
    int64_t id, count, length; /* `count` runs of `length` elements */
    int64_t outer_stride;
    double numbers[TARTAN_I_MAX_BLOCK];
} runs;

static void runs_begin(runs *r, int64_t id) {
    const tartan_layout *l = r->matrix->layout;
    bool by_row = r->matrix->block_order == TARTAN_ROW_MAJOR;
    int64_t rows = tartan_i_rows_of(l, l->block_rows[id]), cols = tartan_i_cols_of(l, l->block_cols[id]);
    r->id = id;
    r->count = by_row ? rows : cols;
    r->length = by_row ? cols : rows;
    r->outer_stride = by_row ? l->shape.block_cols : l->shape.block_rows;
}

static void runs_load(runs *r, int64_t n) {
    const tartan_matrix *m = r->matrix;
    const void *run = tartan_i_at(tartan_i_block_at(m, r->id), m->dtype, n * r->outer_stride);
    r->copy(r->numbers, 0, 1, run, 0, 1, 1, r->length);
}

static double norm_max(runs *r) {
    double largest = 0;
    for (int64_t n = 0; n < r->count; n++) {
        runs_load(r, n);
        for (int64_t i = 0; i < r->length; i++) {
            double size = fabs(r->numbers[i]);
            largest = size > largest || isnan(size) ? size : largest; /* once NaN, stays NaN */
        }
    }
    return largest;
}

static double norm_l1(runs *r) {
    double sum = 0;
    for (int64_t n = 0; n < r->count; n++) {
        runs_load(r, n);
        for (int64_t i = 0; i < r->length; i++) sum += fabs(r->numbers[i]);
    }
    return sum;
}

/* sqrt of the sum of (x / unit)^2. */
static double scaled_l2(runs *r, double unit) {
    double sum = 0;
    for (int64_t n = 0; n < r->count; n++) {
        runs_load(r, n);
        for (int64_t i = 0; i < r->length; i++) sum += r->numbers[i] / unit * (r->numbers[i] / unit);
    }
    return sqrt(sum);
}

/* Scales the elements by the largest one only if their squares overflow, or underflow and lose digits. */
static double norm_l2(runs *r) {
    double plain = scaled_l2(r, 1);
    if (isnan(plain) || (plain > 1e-140 && plain < 1e150)) return plain;
    double largest = norm_max(r);
    return largest == 0 || isinf(largest) ? largest : largest * scaled_l2(r, largest);
}

static void norms_task(void *data, int32_t worker) {
    const norms_work *p = data;
    const tartan_op_block_norms *op = p->op;
    double *norms = op->norms->data;
    int64_t begin, end;
    tartan_i_share(p->count, p->context->threads, worker, &begin, &end);
    runs r = {.matrix = op->matrix, .copy = tartan_i_tile_copier(TARTAN_F64, op->matrix->dtype)};
    for (int64_t id = begin; id < end; id++) {
        runs_begin(&r, id);
        norms[id] = op->norm == TARTAN_NORM_MAX  ? norm_max(&r)
                    : op->norm == TARTAN_NORM_L1 ? norm_l1(&r)
                                                 : norm_l2(&r);
    }
}

tartan_status tartan_i_cpu_block_norms(const tartan_context *context, const tartan_op *any) {
    const tartan_op_block_norms *op = &any->block_norms;
    norms_work p = {.context = context, .op = op, .count = op->matrix->layout->blocks};
    tartan_i_parallel(context, context->threads,
                      2.0 * (double)p.count * (double)tartan_i_block_elements(op->matrix), norms_task, &p);
    return TARTAN_OK;
}
