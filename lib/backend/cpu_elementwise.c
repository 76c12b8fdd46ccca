// SPDX-License-Identifier: Apache-2.0
// Element-wise arithmetic on the CPU: the steps of kernels/steps.def, over blocks or over all values, and scaling of rows and columns.
#include "backend/cpu.h"
#include "layout/positions.h"
#include "matrix/gather.h"
#include "matrix/work.h"

#include <math.h>

typedef struct job {
    const tartan_op_elementwise *op;
    const tartan_i_step_kernels *kernels;
    int32_t workers;
} job;

/* ---- Steps over blocks ---- */

// The sources of some blocks in both operands; NULL: the blocks of the result.
typedef struct sources {
    const int64_t *a, *b;
    int64_t next_a, next_b; /* of a union: the blocks of a and of b that come next */
    int64_t room_a[TARTAN_I_PIECE], room_b[TARTAN_I_PIECE];
} sources;

// For blocks from `begin` on.
static void begin_sources(const tartan_op_elementwise *op, int64_t begin, sources *s) {
    const tartan_layout *l = op->to->layout;
    if (op->origins == NULL || begin == l->blocks) return;
    const int64_t line = tartan_i_layout_head(l, begin) * l->grid_rows + l->block_rows[begin];
    s->next_a = op->a->layout->row_pointers[line], s->next_b = op->b->layout->row_pointers[line];
    for (int64_t id = l->row_pointers[line]; id < begin; id++)
        s->next_a += op->origins[id] & 1, s->next_b += op->origins[id] >> 1;
}

// Of the blocks [begin, end), which follow those of the call before and are not more than a piece.
static void next_sources(const tartan_op_elementwise *op, int64_t begin, int64_t end, sources *s) {
    s->a = op->a_sources != NULL ? op->a_sources + begin : NULL;
    s->b = op->b_sources != NULL ? op->b_sources + begin : NULL;
    if (op->origins == NULL) return;
    int64_t a = s->next_a, b = s->next_b;
    for (int64_t i = 0; i < end - begin; i++) {
        const int64_t from_a = op->origins[begin + i] & 1, from_b = op->origins[begin + i] >> 1;
        s->room_a[i] = a | (from_a - 1), s->room_b[i] = b | (from_b - 1);
        a += from_a, b += from_b;
    }
    s->next_a = a, s->next_b = b;
    s->a = s->room_a, s->b = s->room_b;
}

static void move(tartan_matrix *to, int64_t id, const tartan_matrix *from, int64_t source) {
    if (tartan_i_block_at(to, id) == tartan_i_block_at(from, source)) return; /* it is this operand */
    tartan_i_block_copy(to, id, from, source, false);
}

static const double *load(const tartan_matrix *m, int64_t id, const tartan_i_piece *p, double *room) {
    static const double zeros[TARTAN_I_PIECE];
    if (id < 0) return zeros;
    tartan_i_piece_load(m, id, p, room);
    return room;
}

/* Block `id` of the result from blocks a and b; -1: none. */
static void step_block(const job *j, int64_t id, int64_t a, int64_t b) {
    const tartan_op_elementwise *op = j->op;
    const bool product =
        op->step == TARTAN_I_STEP_scale || (op->step == TARTAN_I_STEP_sum && (a < 0) != (b < 0));
    const double factor = a < 0 ? op->q : op->p;
    double x[TARTAN_I_PIECE], y[TARTAN_I_PIECE];
    if (a < 0 && b < 0) {
        const int64_t bytes = tartan_i_block_elements(op->to) * tartan_dtype_bytes(op->to->dtype);
        memset(tartan_i_block_at(op->to, id), 0, (size_t)bytes);
        return;
    }
    if (product && factor == 1) {
        move(op->to, id, a < 0 ? op->b : op->a, a < 0 ? b : a);
    } else {
        tartan_i_piece p = tartan_i_piece_begin(op->to, id);
        for (; p.runs > 0; tartan_i_piece_next(op->to, id, &p)) {
            const int64_t n = p.runs * p.length;
            const double *u = load(op->a, a, &p, x), *v = load(op->b, b, &p, y);
            if (product)
                j->kernels->step[TARTAN_I_STEP_scale](n, factor, 0, a < 0 ? v : u, v, x);
            else
                j->kernels->step[op->step](n, op->p, op->q, u, v, x);
            tartan_i_piece_store(op->to, id, &p, x);
        }
    }
    tartan_i_block_clear_padding(op->to, id);
}

/* Elements [begin, end) of the values of the result, each from the same elements of the operands' values. */
static void step_range(const job *j, int64_t begin, int64_t end) {
    const tartan_op_elementwise *op = j->op;
    const tartan_matrix *a = op->a, *b = op->b, *to = op->to;
    const tartan_i_tile_copy load_a = tartan_i_tile_copier(TARTAN_F64, a->dtype);
    const tartan_i_tile_copy load_b = tartan_i_tile_copier(TARTAN_F64, b != NULL ? b->dtype : a->dtype);
    const tartan_i_tile_copy store = tartan_i_tile_copier(to->dtype, TARTAN_F64);
    double x[TARTAN_I_PIECE], y[TARTAN_I_PIECE];
    for (int64_t at = begin; at < end; at += TARTAN_I_PIECE) {
        const int64_t n = end - at < TARTAN_I_PIECE ? end - at : TARTAN_I_PIECE;
        load_a(x, 0, 1, tartan_i_at(a->values, a->dtype, at), 0, 1, 1, n);
        if (b != NULL) load_b(y, 0, 1, tartan_i_at(b->values, b->dtype, at), 0, 1, 1, n);
        j->kernels->step[op->step](n, op->p, op->q, x, b != NULL ? y : x, x);
        store(tartan_i_at(to->values, to->dtype, at), 0, 1, x, 0, 1, 1, n);
    }
}

static void flat_task(void *data, int32_t worker) {
    const job *j = data;
    const int64_t elements = tartan_i_block_elements(j->op->to);
    int64_t begin, end;
    tartan_i_share(j->op->to->layout->blocks, j->workers, worker, &begin, &end);
    step_range(j, begin * elements, end * elements);
}

static void blocks_task(void *data, int32_t worker) {
    const job *j = data;
    sources s;
    int64_t begin, end;
    tartan_i_share(j->op->to->layout->blocks, j->workers, worker, &begin, &end);
    begin_sources(j->op, begin, &s);
    for (int64_t next; begin < end; begin = next) {
        next = end - begin < TARTAN_I_PIECE ? end : begin + TARTAN_I_PIECE;
        next_sources(j->op, begin, next, &s);
        for (int64_t id = begin; id < next; id++)
            step_block(j, id, s.a != NULL ? s.a[id - begin] : id,
                       j->op->b == NULL ? -1
                       : s.b != NULL    ? s.b[id - begin]
                                        : id);
    }
}

/* ---- Steps over small blocks: as many as fit are brought together first ---- */

enum { SMALL = 64 }; /* elements */

/* What stands for the blocks that an operand does not have. A sum of what p or q makes of it and of another number is
 * that number, bit for bit: it is a zero that p or q makes -0. Other steps see a zero. */
static double stand_in(const tartan_op_elementwise *op, double factor) {
    return op->step == TARTAN_I_STEP_sum && !signbit(factor) ? -0.0 : 0.0;
}

/* The elements of the blocks [begin, end) of the result in an operand, as f64; `from` has their sources. */
static void bring_together(const tartan_matrix *m, const int64_t *from, int64_t begin, int64_t end,
                           const double *missing, double *to) {
    const int64_t elements = tartan_i_block_elements(m), n = (end - begin) * elements;
    double raw[TARTAN_I_PIECE], absent[SMALL];
    const tartan_i_tile_copy convert = tartan_i_tile_copier(TARTAN_F64, m->dtype);
    if (from == NULL) {
        convert(to, 0, 1, tartan_i_block_at(m, begin), 0, 1, 1, n);
    } else if (m->dtype == TARTAN_F64) {
        tartan_i_blocks_gather(to, m, from, end - begin, missing);
    } else {
        tartan_i_tile_copier(m->dtype, TARTAN_F64)(absent, 0, 1, missing, 0, 1, 1, elements);
        tartan_i_blocks_gather(raw, m, from, end - begin, absent);
        convert(to, 0, 1, raw, 0, 1, 1, n);
    }
}

/* Blocks that one operand has, or none, one at a time: those that stay as they are keep the bits of a NaN, which neither sums nor
 * conversions do. */
static void settle(const job *j, const sources *s, int64_t begin, int64_t end) {
    for (int64_t id = begin; id < end; id++) {
        const int64_t a = s->a != NULL ? s->a[id - begin] : id, b = s->b != NULL ? s->b[id - begin] : id;
        if (a < 0 || b < 0) step_block(j, id, a, b);
    }
}

/* Whether there is anything to settle among `blocks` blocks, with n elements z. */
static bool is_unsettled(const tartan_op_elementwise *op, const sources *s, int64_t blocks, const double *z,
                         int64_t n) {
    int64_t absent = 0, nans = 0;
    for (int64_t i = 0; i < n; i++) nans += isnan(z[i]) != 0;
    for (int64_t i = 0; op->a_sources != NULL && op->b_sources != NULL && i < blocks; i++)
        absent |= s->a[i] & s->b[i];
    return absent < 0 || nans > 0;
}

static void gather_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_op_elementwise *op = j->op;
    tartan_matrix *to = op->to;
    const tartan_i_tile_copy store = tartan_i_tile_copier(to->dtype, TARTAN_F64);
    const int64_t elements = tartan_i_block_elements(to), most = TARTAN_I_PIECE / elements;
    double x[TARTAN_I_PIECE], y[TARTAN_I_PIECE], z[TARTAN_I_PIECE], no_a[SMALL], no_b[SMALL];
    sources s;
    int64_t begin, end;
    for (int64_t i = 0; i < elements; i++) no_a[i] = stand_in(op, op->p), no_b[i] = stand_in(op, op->q);
    tartan_i_share(to->layout->blocks, j->workers, worker, &begin, &end);
    begin_sources(op, begin, &s);
    for (int64_t next; begin < end; begin = next) {
        next = end - begin < most ? end : begin + most;
        const int64_t n = (next - begin) * elements;
        next_sources(op, begin, next, &s);
        bring_together(op->a, s.a, begin, next, no_a, x);
        bring_together(op->b, s.b, begin, next, no_b, y);
        j->kernels->step[op->step](n, op->p, op->q, x, y, z);
        store(tartan_i_block_at(to, begin), 0, 1, z, 0, 1, 1, n);
        for (int64_t id = begin; tartan_i_is_ragged(to->layout) && id < next; id++)
            tartan_i_block_clear_padding(to, id);
        if (is_unsettled(op, &s, next - begin, z, n)) settle(j, &s, begin, next);
    }
}

/* ---- Scaling of rows and columns ---- */

// The row's factor first, in either order of the block.
static void scale_piece(const tartan_i_step_kernels *k, const tartan_i_piece *p, const double *run_factors,
                        const double *element_factors, double *x) {
    const int64_t n = p->length;
    for (int64_t i = 0; i < p->runs; i++, x += n) {
        const double factor = run_factors != NULL ? run_factors[p->first + i] : 1;
        if (p->by_row && run_factors != NULL) k->step[TARTAN_I_STEP_scale](n, factor, 0, x, x, x);
        if (element_factors != NULL) k->step[TARTAN_I_STEP_multiply](n, 0, 0, x, element_factors, x);
        if (!p->by_row && run_factors != NULL) k->step[TARTAN_I_STEP_scale](n, factor, 0, x, x, x);
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

static double factor_at(const tartan_array *factors, int64_t head, int64_t line) {
    const int64_t at = head * factors->strides[0] + line * factors->strides[1];
    return factors->dtype == TARTAN_F64 ? ((const double *)factors->data)[at]
                                        : (double)((const float *)factors->data)[at];
}

/* A factor for each element of a small block, in the order of its memory; padding has none. */
static void spread_factors(const tartan_array *factors, const tartan_matrix *m, int64_t head, int64_t id,
                           bool of_rows, double *to) {
    const tartan_layout *l = m->layout;
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    const int64_t top = tartan_i_row_begin(l, l->block_rows[id]),
                  left = tartan_i_col_begin(l, l->block_cols[id]);
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[r * row + c * col] = factor_at(factors, head, of_rows ? top + r : left + c);
}

/* Small blocks, as many as fit at a time: factors of rows first. */
static void scale_small(const job *j, int64_t begin, int64_t end) {
    const tartan_op_elementwise *op = j->op;
    tartan_matrix *to = op->to;
    const tartan_layout *l = to->layout;
    const tartan_array *factors[] = {op->row_factors, op->col_factors};
    const int64_t elements = tartan_i_block_elements(to), most = TARTAN_I_PIECE / elements;
    double x[TARTAN_I_PIECE], f[TARTAN_I_PIECE] = {0};
    for (int64_t next; begin < end; begin = next) {
        const int64_t head = tartan_i_layout_head(l, begin);
        const int64_t head_end = l->row_pointers[(head + 1) * l->grid_rows];
        next = end - begin < most ? end : begin + most;
        next = next < head_end ? next : head_end;
        const int64_t n = (next - begin) * elements;
        tartan_i_tile_copier(TARTAN_F64, op->a->dtype)(x, 0, 1, tartan_i_block_at(op->a, begin), 0, 1, 1, n);
        for (int side = 0; side < 2; side++) {
            if (factors[side] == NULL) continue;
            for (int64_t id = begin; id < next; id++)
                spread_factors(factors[side], to, head, id, side == 0, f + (id - begin) * elements);
            j->kernels->step[TARTAN_I_STEP_multiply](n, 0, 0, x, f, x);
        }
        tartan_i_tile_copier(to->dtype, TARTAN_F64)(tartan_i_block_at(to, begin), 0, 1, x, 0, 1, 1, n);
        for (int64_t id = begin; tartan_i_is_ragged(l) && id < next; id++)
            tartan_i_block_clear_padding(to, id);
    }
}

static void scale_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->op->to->layout;
    const int64_t elements = tartan_i_block_elements(j->op->to);
    int64_t begin, end;
    double x[TARTAN_I_PIECE], row_room[TARTAN_I_MAX_BLOCK], col_room[TARTAN_I_MAX_BLOCK];
    tartan_i_share(l->blocks, j->workers, worker, &begin, &end);
    if (elements <= SMALL && (elements == 1 || j->op->a->block_order == j->op->to->block_order)) {
        scale_small(j, begin, end);
        return;
    }
    int64_t head = begin < end ? tartan_i_layout_head(l, begin) : 0;
    for (int64_t id = begin; id < end; id++) {
        while (id >= l->row_pointers[(head + 1) * l->grid_rows]) head++;
        const double *rows = load_factors(j->op->row_factors, head, tartan_i_row_begin(l, l->block_rows[id]),
                                          tartan_i_rows_of(l, l->block_rows[id]), row_room);
        const double *cols = load_factors(j->op->col_factors, head, tartan_i_col_begin(l, l->block_cols[id]),
                                          tartan_i_cols_of(l, l->block_cols[id]), col_room);
        tartan_i_piece p = tartan_i_piece_begin(j->op->to, id);
        for (; p.runs > 0; tartan_i_piece_next(j->op->to, id, &p)) {
            tartan_i_piece_load(j->op->a, id, &p, x);
            scale_piece(j->kernels, &p, p.by_row ? rows : cols, p.by_row ? cols : rows, x);
            tartan_i_piece_store(j->op->to, id, &p, x);
        }
        tartan_i_block_clear_padding(j->op->to, id);
    }
}

/* ---- The rows ---- */

static tartan_status run(const tartan_context *context, const tartan_op_elementwise *op, tartan_task task) {
    const double elements = (double)op->to->layout->blocks * (double)tartan_i_block_elements(op->to);
    const tartan_i_kernels kernels = tartan_i_cpu_kernels(TARTAN_F64);
    job j = {.op = op, .kernels = kernels.steps, .workers = context->threads};
    tartan_i_parallel(context, j.workers, 4 * elements, task, &j);
    return TARTAN_OK;
}

static bool scales(const tartan_op_elementwise *op) {
    return op->row_factors != NULL || op->col_factors != NULL;
}

const char *tartan_i_cpu_elementwise_scale_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    return scales(&any->elementwise) ? NULL : "it does not scale rows and columns";
}

tartan_status tartan_i_cpu_elementwise_scale(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->elementwise, scale_task);
}

const char *tartan_i_cpu_elementwise_gather_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    const tartan_op_elementwise *op = &any->elementwise;
    if (scales(op)) return "it scales rows and columns";
    if (op->b == NULL || (op->a_sources == NULL && op->b_sources == NULL && op->origins == NULL))
        return "operands have the block ids of the result";
    const int64_t elements = tartan_i_block_elements(op->to);
    if (elements > SMALL) return "blocks are large";
    return elements > 1 &&
                   (op->a->block_order != op->to->block_order || op->b->block_order != op->to->block_order)
               ? "operands have another block order than the result"
               : NULL;
}

tartan_status tartan_i_cpu_elementwise_gather(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->elementwise, gather_task);
}

const char *tartan_i_cpu_elementwise_flat_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    const tartan_op_elementwise *op = &any->elementwise;
    if (scales(op)) return "it scales rows and columns";
    if (op->step == TARTAN_I_STEP_scale && op->p == 1) return "blocks are moved as they are";
    if (op->a_sources != NULL || op->b_sources != NULL || op->origins != NULL)
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
