// SPDX-License-Identifier: Apache-2.0
// Element-wise arithmetic on the CPU: sums, combinations, functions of the stored elements, scaling.
#include "backend/cpu.h"
#include "layout/positions.h"
#include "matrix/work.h"

#include <math.h>

typedef struct job {
    const tartan_op_elementwise *op;
    tartan_matrix *to;
    /* n elements; x or y is NULL where its operand stores nothing. `to` may be x. NULL for scaling. */
    void (*compute)(const tartan_op_elementwise *op, int64_t n, const double *x, const double *y, double *to);
    int32_t workers;
} job;

/* ---- What is computed ---- */

static void compute_sum(const tartan_op_elementwise *op, int64_t n, const double *x, const double *y,
                        double *to) {
    const double alpha = op->alpha, beta = op->beta;
    if (y == NULL)
        for (int64_t i = 0; i < n; i++) to[i] = alpha * x[i];
    else if (x == NULL)
        for (int64_t i = 0; i < n; i++) to[i] = beta * y[i];
    else
        for (int64_t i = 0; i < n; i++) to[i] = alpha * x[i] + beta * y[i];
}

static void compute_combination(const tartan_op_elementwise *op, int64_t n, const double *x, const double *y,
                                double *to) {
    const bool largest = op->kind == TARTAN_COMBINE_MAXIMUM;
    if (op->kind == TARTAN_COMBINE_MULTIPLY) {
        for (int64_t i = 0; i < n; i++) to[i] = x[i] * y[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const double u = x != NULL ? x[i] : 0, v = y != NULL ? y[i] : 0;
        to[i] = isnan(u) || (largest ? u > v : u < v) ? u : v;
    }
}

static void compute_power(double p, int64_t n, const double *x, double *to) {
    if (p == 2)
        for (int64_t i = 0; i < n; i++) to[i] = x[i] * x[i];
    else if (p == 0.5)
        for (int64_t i = 0; i < n; i++) to[i] = sqrt(x[i]);
    else
        for (int64_t i = 0; i < n; i++) to[i] = pow(x[i], p);
}

static void compute_function(const tartan_op_elementwise *op, int64_t n, const double *x, const double *y,
                             double *to) {
    const double p = op->alpha;
    (void)y;
    switch (op->kind) {
    case TARTAN_APPLY_MULTIPLY:
        for (int64_t i = 0; i < n; i++) to[i] = x[i] * p;
        break;
    case TARTAN_APPLY_DIVIDE:
        for (int64_t i = 0; i < n; i++) to[i] = x[i] / p;
        break;
    case TARTAN_APPLY_POWER:
        compute_power(p, n, x, to);
        break;
    case TARTAN_APPLY_ABS:
        for (int64_t i = 0; i < n; i++) to[i] = fabs(x[i]);
        break;
    case TARTAN_APPLY_SIGN:
        for (int64_t i = 0; i < n; i++) to[i] = isnan(x[i]) ? x[i] : (double)((x[i] > 0) - (x[i] < 0));
        break;
    default:
        for (int64_t i = 0; i < n; i++) to[i] = nearbyint(x[i]);
        break;
    }
}

/* ---- Running over blocks ---- */

static int64_t source_of(const tartan_matrix *m, const int64_t *sources, int64_t id) {
    return m == NULL ? -1 : sources == NULL ? id : sources[id];
}

// Whether a block that one operand alone stores is that operand's, unchanged.
static bool moves(const tartan_op_elementwise *op, double factor) {
    return op->form == TARTAN_I_FORM_SUM && factor == 1;
}

static void move(const job *j, int64_t id, const tartan_matrix *from, int64_t source) {
    if (tartan_i_block_at(j->to, id) == tartan_i_block_at(from, source)) return; /* it is this operand */
    tartan_i_block_copy(j->to, id, from, source, false);
}

static void compute_block(const job *j, int64_t id) {
    const tartan_op_elementwise *op = j->op;
    const int64_t a = source_of(op->a, op->a_sources, id), b = source_of(op->b, op->b_sources, id);
    double x[TARTAN_I_PIECE], y[TARTAN_I_PIECE];
    if (a < 0 && b < 0) {
        const int64_t bytes = tartan_i_block_elements(j->to) * tartan_dtype_bytes(j->to->dtype);
        memset(tartan_i_block_at(j->to, id), 0, (size_t)bytes);
        return;
    }
    if (b < 0 && moves(op, op->alpha)) {
        move(j, id, op->a, a);
    } else if (a < 0 && moves(op, op->beta)) {
        move(j, id, op->b, b);
    } else {
        tartan_i_piece p = tartan_i_piece_begin(j->to, id);
        for (; p.runs > 0; tartan_i_piece_next(j->to, id, &p)) {
            if (a >= 0) tartan_i_piece_load(op->a, a, &p, x);
            if (b >= 0) tartan_i_piece_load(op->b, b, &p, y);
            j->compute(op, p.runs * p.length, a >= 0 ? x : NULL, b >= 0 ? y : NULL, x);
            tartan_i_piece_store(j->to, id, &p, x);
        }
    }
    tartan_i_block_clear_padding(j->to, id);
}

/* Elements [begin, end) of the values of the result, each from the same elements of the operands' values. */
static void compute_range(const job *j, int64_t begin, int64_t end) {
    const tartan_matrix *a = j->op->a, *b = j->op->b, *to = j->to;
    const tartan_i_tile_copy load_a = tartan_i_tile_copier(TARTAN_F64, a->dtype);
    const tartan_i_tile_copy load_b = tartan_i_tile_copier(TARTAN_F64, b != NULL ? b->dtype : a->dtype);
    const tartan_i_tile_copy store = tartan_i_tile_copier(to->dtype, TARTAN_F64);
    double x[TARTAN_I_PIECE], y[TARTAN_I_PIECE];
    for (int64_t at = begin; at < end; at += TARTAN_I_PIECE) {
        const int64_t n = end - at < TARTAN_I_PIECE ? end - at : TARTAN_I_PIECE;
        load_a(x, 0, 1, tartan_i_at(a->values, a->dtype, at), 0, 1, 1, n);
        if (b != NULL) load_b(y, 0, 1, tartan_i_at(b->values, b->dtype, at), 0, 1, 1, n);
        j->compute(j->op, n, x, b != NULL ? y : NULL, x);
        store(tartan_i_at(to->values, to->dtype, at), 0, 1, x, 0, 1, 1, n);
    }
}

static void flat_task(void *data, int32_t worker) {
    const job *j = data;
    const int64_t elements = tartan_i_block_elements(j->to);
    int64_t begin, end;
    tartan_i_share(j->to->layout->blocks, j->workers, worker, &begin, &end);
    compute_range(j, begin * elements, end * elements);
}

static void blocks_task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    tartan_i_share(j->to->layout->blocks, j->workers, worker, &begin, &end);
    for (int64_t id = begin; id < end; id++) compute_block(j, id);
}

/* ---- Scaling of rows and columns ---- */

static void scale_piece(const tartan_i_piece *p, const double *run_factors, const double *element_factors,
                        double *x) {
    for (int64_t i = 0; i < p->runs; i++, x += p->length) {
        const double factor = run_factors != NULL ? run_factors[p->first + i] : 1;
        if (p->by_row && run_factors != NULL) /* the row's factor first, in either order of the block */
            for (int64_t k = 0; k < p->length; k++) x[k] *= factor;
        if (element_factors != NULL)
            for (int64_t k = 0; k < p->length; k++) x[k] *= element_factors[k];
        if (!p->by_row && run_factors != NULL)
            for (int64_t k = 0; k < p->length; k++) x[k] *= factor;
    }
}

// The factors of `count` lines from `first` on, as f64 in `room`; NULL if there are none.
static const double *load_factors(const tartan_array *factors, int64_t head, int64_t first, int64_t count,
                                  double *room) {
    if (factors == NULL) return NULL;
    const int64_t head_stride = factors->strides[0], stride = factors->strides[1];
    const void *from = tartan_i_at(factors->data, factors->dtype, head * head_stride + first * stride);
    tartan_i_tile_copier(TARTAN_F64, factors->dtype)(room, 0, 1, from, 0, stride, 1, count);
    return room;
}

static void scale_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->to->layout;
    int64_t begin, end;
    double x[TARTAN_I_PIECE], row_room[TARTAN_I_MAX_BLOCK], col_room[TARTAN_I_MAX_BLOCK];
    tartan_i_share(l->blocks, j->workers, worker, &begin, &end);
    int64_t head = begin < end ? tartan_i_layout_head(l, begin) : 0;
    for (int64_t id = begin; id < end; id++) {
        while (id >= l->row_pointers[(head + 1) * l->grid_rows]) head++;
        const double *rows = load_factors(j->op->row_factors, head, l->block_rows[id] * l->shape.block_rows,
                                          tartan_i_rows_of(l, l->block_rows[id]), row_room);
        const double *cols = load_factors(j->op->col_factors, head, l->block_cols[id] * l->shape.block_cols,
                                          tartan_i_cols_of(l, l->block_cols[id]), col_room);
        tartan_i_piece p = tartan_i_piece_begin(j->to, id);
        for (; p.runs > 0; tartan_i_piece_next(j->to, id, &p)) {
            tartan_i_piece_load(j->op->a, id, &p, x);
            scale_piece(&p, p.by_row ? rows : cols, p.by_row ? cols : rows, x);
            tartan_i_piece_store(j->to, id, &p, x);
        }
        tartan_i_block_clear_padding(j->to, id);
    }
}

/* ---- The rows ---- */

static tartan_status run(const tartan_context *context, const tartan_op_elementwise *op, tartan_task task) {
    const double elements = (double)op->to->layout->blocks * (double)tartan_i_block_elements(op->to);
    job j = {.op = op, .to = op->to, .workers = context->threads};
    j.compute = op->form == TARTAN_I_FORM_SUM       ? compute_sum
                : op->form == TARTAN_I_FORM_COMBINE ? compute_combination
                                                    : compute_function;
    tartan_i_parallel(context, j.workers, 4 * elements, task, &j);
    return TARTAN_OK;
}

const char *tartan_i_cpu_elementwise_scale_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    return any->elementwise.form == TARTAN_I_FORM_SCALE ? NULL : "it does not scale rows and columns";
}

tartan_status tartan_i_cpu_elementwise_scale(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->elementwise, scale_task);
}

const char *tartan_i_cpu_elementwise_flat_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    const tartan_op_elementwise *op = &any->elementwise;
    if (op->form == TARTAN_I_FORM_SCALE) return "it scales rows and columns";
    if (op->b == NULL && moves(op, op->alpha)) return "blocks are moved as they are";
    if (op->a_sources != NULL || op->b_sources != NULL)
        return "operands have other block ids than the result";
    if (tartan_i_is_ragged(op->to->layout)) return "blocks at the edge have padding";
    return op->a->block_order != op->to->block_order ||
                   (op->b != NULL && op->b->block_order != op->to->block_order)
               ? "operands have another block order than the result"
               : NULL;
}

tartan_status tartan_i_cpu_elementwise_flat(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->elementwise, flat_task);
}

tartan_status tartan_i_cpu_elementwise(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->elementwise, blocks_task);
}
