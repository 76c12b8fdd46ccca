/* SPDX-License-Identifier: Apache-2.0
 * The gradient of gates on the CPU: one dot product per block, over its elements in the order of W's memory; the
 * padding of ragged blocks counts as zero. */
#include "backend/cpu.h"
#include "core/workspace.h"

typedef struct gate_gradient {
    const tartan_context *context;
    const tartan_op_gate_gradient *op;
    tartan_i_kernels k;
    int64_t elements; /* of a block */
    char *scratch;    /* two blocks of reals for each worker */
} gate_gradient;

/* A block's elements as reals in the block order of `like`: in place if they are stored so, else copied to `room`. */
static const char *fetch(const gate_gradient *p, const tartan_matrix *m, const tartan_matrix *like,
                         int64_t id, char *room) {
    const tartan_layout *l = m->layout;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    const bool whole = rows == l->shape.block_rows && cols == l->shape.block_cols;
    const char *block = tartan_i_block_at(m, id);
    if (whole && m->block_order == like->block_order) {
        if (m->dtype == p->k.dtype) return block;
        p->k.load[m->dtype](p->elements, block, room);
        return room;
    }
    if (!whole) memset(room, 0, (size_t)(p->elements * p->k.bytes));
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    if (like->block_order == TARTAN_ROW_MAJOR)
        tartan_i_pack(&p->k, m->dtype, block, row, col, rows, cols, room, l->shape.block_cols);
    else
        tartan_i_pack(&p->k, m->dtype, block, col, row, cols, rows, room, l->shape.block_rows);
    return room;
}

/* dW_w <- gate * dW_w, leaving the padding alone. */
static void scale_block(const gate_gradient *p, int64_t id, double gate, char *room) {
    tartan_matrix *dw = p->op->dw;
    const tartan_layout *l = dw->layout;
    const char *reals = fetch(p, dw, dw, id, room);
    const bool by_row = dw->block_order == TARTAN_ROW_MAJOR;
    const int64_t length = by_row ? l->shape.block_cols : l->shape.block_rows;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    tartan_i_commit(&p->k, reals, length, by_row ? rows : cols, by_row ? cols : rows, gate, 0, dw->dtype,
                    tartan_i_block_at(dw, id), length, 1);
}

static void gate_gradient_task(void *data, int32_t worker) {
    const gate_gradient *p = data;
    const tartan_op_gate_gradient *op = p->op;
    const int64_t bytes = p->elements * p->k.bytes;
    char *room = p->scratch + 2 * worker * bytes;
    int64_t begin, end;
    tartan_i_share(op->w->layout->blocks, p->context->threads, worker, &begin, &end);
    for (int64_t id = begin; id < end; id++) {
        const char *w = fetch(p, op->w, op->w, id, room), *dw = fetch(p, op->dw, op->w, id, room + bytes);
        tartan_i_store(op->gate_grad->data, op->gate_grad->dtype, id * op->gate_grad->strides[0],
                       p->k.dot(p->elements, w, dw));
        if (op->gates != NULL) scale_block(p, id, tartan_i_cpu_gate(&p->k, op->gates, id), room);
    }
}

tartan_status tartan_i_cpu_gate_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_gate_gradient *op = &any->gate_gradient;
    gate_gradient p = {.context = context, .op = op, .k = tartan_i_cpu_kernels(op->w->dtype)};
    p.elements = tartan_i_block_elements(op->w);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p.scratch, context->threads,
                                2 * p.elements * p.k.bytes));
    const double work = 3.0 * (double)op->w->layout->blocks * (double)p.elements;
    tartan_i_parallel(context, context->threads, work, gate_gradient_task, &p);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
