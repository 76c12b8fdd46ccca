/* SPDX-License-Identifier: Apache-2.0
 * Sparse times one vector on the CPU. Each element is the same chain as anywhere
 * else, with the same bits. */
#include "backend/cpu.h"
#include "core/interrupt.h"
#include "core/workspace.h"

enum { ELEMENTS = 512 }; /* summed before they are written, about */

typedef struct vector {
    const tartan_context *context;
    const tartan_op_spmm *op;
    const tartan_i_kernels *k;
    tartan_i_cpu_form form;
    int64_t piece; /* block rows at a time */
    char *scratch;
    int64_t sums_bytes; /* of a worker */
} vector;

static void start(const tartan_context *context, const tartan_op_spmm *op, vector *p) {
    p->context = context;
    p->op = op;
    p->k = tartan_i_cpu_table_of(op->a->dtype);
    tartan_i_cpu_form_of(op, &p->form); /* heads differ only in their blocks and addresses */
    p->piece = tartan_i_ceil_div(ELEMENTS, p->form.out_block);
    p->sums_bytes = tartan_i_ceil_div(p->piece * p->form.out_block * p->k->bytes, 64) * 64;
}

static void compute_task(void *data, int32_t worker) {
    const vector *p = data;
    const tartan_i_cpu_form *f = &p->form;
    int64_t begin, end;
    tartan_i_cpu_share_rows(f->pointers, f->grid_out, p->context->threads, worker, &begin, &end);
    tartan_i_list_product list = tartan_i_cpu_lists_of(f, p->op->a->values);
    list.x = f->b.data;
    list.x_step = f->b.row;
    list.sums = p->scratch + worker * p->sums_bytes;
    for (int64_t line = begin; line < end && !tartan_i_stop(p->context); line = list.end) {
        list.begin = line;
        list.end = end - line < p->piece ? end : line + p->piece;
        int64_t row, last;
        tartan_i_cpu_form_out(f, line, &row);
        const int64_t rows = tartan_i_cpu_form_out(f, list.end - 1, &last) + last - row;
        p->k->list_products(&list);
        tartan_i_commit(p->k, list.sums, rows, 1, rows, p->op->alpha, p->op->beta, f->c.dtype,
                        f->c.data + row * f->c.row * f->c.bytes, f->c.col, f->c.row);
    }
}

const char *tartan_i_cpu_spmm_vector_refuses(const tartan_context *context, const tartan_op_spmm *op) {
    (void)context;
    if (op->a->dtype != TARTAN_F32 && op->a->dtype != TARTAN_F64) return "only for float32 and float64";
    tartan_i_cpu_form form;
    tartan_i_cpu_form_of(op, &form);
    if (tartan_i_dense_entries(&form.b) != 1) return "b has batch entries";
    if (form.n != 1) return "b has several columns";
    return tartan_i_cpu_gates_only_switch(op->gates) ? NULL : "gates scale blocks first";
}

tartan_status tartan_i_cpu_spmm_vector(const tartan_context *context, const tartan_op_spmm *op) {
    vector p;
    int64_t *open;
    start(context, op, &p);
    PASS(tartan_i_cpu_open_room(context, op, &p.form, &open));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p.scratch, p.sums_bytes, context->threads));
    for (int64_t head = 0; head < op->a->layout->shape.heads; head++) {
        tartan_i_cpu_form_take(&p.form, op, head);
        tartan_i_cpu_form_open(&p.form, op, open);
        const double blocks = (double)(p.form.pointers[p.form.grid_out] - p.form.pointers[0]);
        const double work =
            2 * (double)p.form.n * (blocks * (double)p.form.block_elements + (double)p.form.out_size);
        tartan_i_parallel(context, context->threads, work, compute_task, &p);
    }
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
