// SPDX-License-Identifier: Apache-2.0
// Checks, threads and pieces of blocks for arithmetic.
#include "matrix/work.h"

#include "core/interrupt.h"

tartan_status tartan_i_matrix_check_host(const char *function, const char *name,
                                         const tartan_matrix *matrix) {
    PASS(tartan_i_matrix_check_readable(function, name, matrix));
    return tartan_i_matrix_check_even(function, name, matrix->layout);
}

tartan_status tartan_i_matrix_check_frame(const char *function, const char *name, const tartan_matrix *matrix,
                                          const char *other_name, const tartan_matrix *other) {
    const tartan_shape *s = &matrix->layout->shape, *o = &other->layout->shape;
    CHECK_IN(function, s->rows == o->rows && s->cols == o->cols && s->heads == o->heads, SHAPE,
             "%s is %" PRId64 " x %" PRId64 " with %" PRId64 " heads, expected %" PRId64 " x %" PRId64
             " with %" PRId64 " (as %s)",
             name, s->rows, s->cols, s->heads, o->rows, o->cols, o->heads, other_name);
    CHECK_IN(function, s->block_rows == o->block_rows && s->block_cols == o->block_cols, SHAPE,
             "%s has blocks of %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64 " (as %s)", name,
             s->block_rows, s->block_cols, o->block_rows, o->block_cols, other_name);
    CHECK_IN(function, tartan_i_layout_same_frame(matrix->layout, other->layout), SHAPE,
             "%s has other block boundaries than %s, expected the same", name, other_name);
    return TARTAN_OK;
}

tartan_status tartan_i_work_check(const char *function, const tartan_context *context) {
    if (tartan_i_is(context, TARTAN_I_CONTEXT)) return TARTAN_OK;
    return tartan_i_fail_handle(function, "context", context, "context");
}

tartan_status tartan_i_work_run(const char *function, tartan_context *context, double work, tartan_task task,
                                void *data) {
    PASS(tartan_i_context_enter(function, context));
    tartan_i_parallel(context, context->threads, work, task, data);
    const tartan_status status = tartan_i_interrupt_status(function, context, TARTAN_OK);
    tartan_i_context_leave(context);
    return status;
}

int32_t tartan_i_common_dtype(int32_t a, int32_t b) {
    if (a == b) return a;
    if (a == TARTAN_F64 || b == TARTAN_F64) return TARTAN_F64;
    if (a == TARTAN_F32 || b == TARTAN_F32) return TARTAN_F32;
    const bool half = a == TARTAN_F16 || b == TARTAN_F16, bfloat = a == TARTAN_BF16 || b == TARTAN_BF16;
    if (half && bfloat) return TARTAN_F32;
    return bfloat ? TARTAN_BF16 : TARTAN_F16;
}

/* ---- Pieces ---- */

static int64_t runs_left(const tartan_matrix *m, int64_t id, const tartan_i_piece *p, int64_t first) {
    const tartan_layout *l = m->layout;
    const int64_t all =
        p->by_row ? tartan_i_rows_of(l, l->block_rows[id]) : tartan_i_cols_of(l, l->block_cols[id]);
    const int64_t most = TARTAN_I_PIECE / p->length, left = all - first;
    return left < most ? left : most;
}

tartan_i_piece tartan_i_piece_begin(const tartan_matrix *m, int64_t id) {
    const tartan_layout *l = m->layout;
    tartan_i_piece p = {.by_row = m->block_order == TARTAN_ROW_MAJOR};
    p.length = p.by_row ? tartan_i_cols_of(l, l->block_cols[id]) : tartan_i_rows_of(l, l->block_rows[id]);
    p.runs = runs_left(m, id, &p, 0);
    return p;
}

void tartan_i_piece_next(const tartan_matrix *m, int64_t id, tartan_i_piece *p) {
    p->first += p->runs;
    p->runs = runs_left(m, id, p, p->first);
}

void tartan_i_piece_load(const tartan_matrix *m, int64_t id, const tartan_i_piece *p, double *to) {
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    const int64_t run = p->by_row ? row : col, step = p->by_row ? col : row;
    const void *from = tartan_i_at(tartan_i_block_at(m, id), m->dtype, p->first * run);
    const tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, m->dtype);
    if (step == 1 && run == p->length) /* no gaps */
        copy(to, 0, 1, from, 0, 1, 1, p->runs * p->length);
    else
        copy(to, p->length, 1, from, run, step, p->runs, p->length);
}

void tartan_i_piece_store(const tartan_matrix *m, int64_t id, const tartan_i_piece *p, const double *from) {
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    const int64_t run = p->by_row ? row : col, step = p->by_row ? col : row;
    void *to = tartan_i_at(tartan_i_block_at(m, id), m->dtype, p->first * run);
    const tartan_i_tile_copy copy = tartan_i_tile_copier(m->dtype, TARTAN_F64);
    if (step == 1 && run == p->length)
        copy(to, 0, 1, from, 0, 1, 1, p->runs * p->length);
    else
        copy(to, run, step, from, p->length, 1, p->runs, p->length);
}
