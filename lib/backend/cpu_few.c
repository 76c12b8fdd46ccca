/* SPDX-License-Identifier: Apache-2.0
 * Sparse times a few columns on the CPU, where lists of terms would cost as much as the products: a kernel goes through the blocks
 * itself. Values are read once and in their order. B is read in place where its rows are whole vectors, or half of one, that do not
 * cross cache lines, else it is copied first. Each element is the same chain as anywhere else, with the same bits. */
#include "backend/cpu.h"
#include "core/interrupt.h"
#include "core/workspace.h"

#include <string.h>

enum { ELEMENTS = 2048 }; /* summed before they are written, about */

typedef struct few {
    const tartan_context *context;
    const tartan_op_spmm *op;
    const tartan_i_kernels *k;
    void (*kernel)(const tartan_i_list_product *p);
    tartan_i_cpu_form form;
    int64_t width;          /* columns in whole vectors, or half of one */
    bool in_place, results; /* B is read in place; sums are results */
    int64_t piece;          /* block rows at a time */
    char *packed, *scratch;
    int64_t sums_bytes; /* of a worker */
} few;

/* Whether B is copied though it could be read in place: a vector that crosses a cache line takes two accesses. */
static bool crosses_lines(const few *p) {
    enum { LINE = 64, READS = 8 }; /* reads of each row of B that outweigh its copy */
    const tartan_layout *l = p->op->a->layout;
    const int64_t bytes = p->k->bytes, vector = p->k->lanes * bytes, unit = vector < LINE ? vector : LINE;
    const double reads = (double)l->blocks / (double)l->shape.heads * (double)p->form.in_block;
    return ((uintptr_t)p->form.b.data % (uintptr_t)unit != 0 || p->form.b.row * bytes % unit != 0) &&
           reads >= READS * (double)p->form.in_size;
}

static void start(const tartan_context *context, const tartan_op_spmm *op, few *p) {
    p->context = context;
    p->op = op;
    p->k = tartan_i_cpu_table_of(op->a->dtype);
    tartan_i_cpu_form_of(op, &p->form); /* heads differ only in their blocks and addresses */
    p->kernel = p->k->list_columns;
    int64_t unit = p->k->lanes;
    if (2 * p->form.n <= unit && p->k->list_halves != NULL && p->form.a_col == 1 &&
        2 * p->form.in_block >= unit) {
        p->kernel = p->k->list_halves;
        unit /= 2;
    } else if (2 * p->form.n <= unit && (p->k->uses & TARTAN_I_CPU_AVX512) &&
               (tartan_i_cpu_in_use() & TARTAN_I_CPU_AVX2)) {
        p->k = tartan_i_cpu_short_table_of(op->a->dtype);
        p->kernel = p->k->list_columns;
        unit = p->k->lanes;
    }
    const bool whole = p->form.n % unit == 0;
    p->width = tartan_i_ceil_div(p->form.n, unit) * unit;
    p->in_place = whole && p->form.b.col == 1 && (p->kernel == p->k->list_halves || !crosses_lines(p));
    p->results = whole && p->form.c.col == 1 && op->alpha == 1 && op->beta == 0;
    p->piece = p->width > 0 ? tartan_i_ceil_div(ELEMENTS, p->form.out_block * p->width) : 1;
    p->sums_bytes = tartan_i_ceil_div(p->piece * p->form.out_block * p->width * p->k->bytes, 64) * 64;
}

static void pack_task(void *data, int32_t worker) {
    const few *p = data;
    const tartan_i_dense *b = &p->form.b;
    const int64_t bytes = p->k->bytes;
    int64_t begin, end;
    tartan_i_share(p->form.in_size, p->context->threads, worker, &begin, &end);
    char *to = p->packed + begin * p->width * bytes;
    tartan_i_pack(p->k, p->k->dtype, b->data + begin * b->row * bytes, b->row, b->col, end - begin, p->form.n,
                  to, p->width);
    for (int64_t i = begin; p->form.n < p->width && i < end; i++, to += p->width * bytes)
        memset(to + p->form.n * bytes, 0, (size_t)((p->width - p->form.n) * bytes));
}

static void compute_task(void *data, int32_t worker) {
    const few *p = data;
    const tartan_i_cpu_form *f = &p->form;
    int64_t begin, end;
    tartan_i_cpu_share_rows(f->pointers, f->grid_out, p->context->threads, worker, &begin, &end);
    tartan_i_list_product list = tartan_i_cpu_lists_of(f, p->op->a->values);
    list.x = p->in_place ? f->b.data : p->packed;
    list.x_step = p->in_place ? f->b.row : p->width;
    list.sums = p->scratch + worker * p->sums_bytes;
    list.vectors = p->width / p->k->lanes;
    list.sums_row = p->results ? f->c.row : p->width;
    for (int64_t line = begin; line < end && !tartan_i_stop(p->context); line = list.end) {
        list.begin = line;
        list.end = end - line < p->piece ? end : line + p->piece;
        int64_t row, last;
        tartan_i_cpu_form_out(f, line, &row);
        const int64_t rows = tartan_i_cpu_form_out(f, list.end - 1, &last) + last - row;
        char *c = f->c.data + row * f->c.row * f->c.bytes;
        if (p->results) list.sums = c;
        p->kernel(&list);
        if (!p->results)
            tartan_i_commit(p->k, list.sums, p->width, rows, f->n, p->op->alpha, p->op->beta, f->c.dtype, c,
                            f->c.row, f->c.col);
    }
}

const char *tartan_i_cpu_spmm_few_refuses(const tartan_context *context, const tartan_op_spmm *op) {
    enum { SMALL = 4, MEDIUM = 8 }; /* block rows */
    if (op->a->dtype != TARTAN_F32 && op->a->dtype != TARTAN_F64) return "only for float32 and float64";
    few p;
    start(context, op, &p);
    if (tartan_i_dense_entries(&p.form.b) != 1) return "b has batch entries";
    /* More are faster packed, since the kernel goes through the values once for every few vectors. */
    const int64_t rows = tartan_i_cpu_form_out_mean(&p.form), most = rows <= SMALL ? 512
                                                                     : rows <= MEDIUM
                                                                         ? 256
                                                                         : 64; /* bytes of a row of b */
    if (p.width * p.k->bytes > most) return "b has too many columns";
    return tartan_i_cpu_gates_only_switch(op->gates) ? NULL : "gates scale blocks first";
}

static tartan_status get_memory(few *p, int64_t **open) {
    PASS(tartan_i_cpu_open_room(p->context, p->op, &p->form, open));
    if (!p->in_place)
        PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_PANEL, &p->packed, p->form.in_size,
                                    p->width * p->k->bytes));
    return tartan_i_workspace_get(p->context, TARTAN_I_ROOM_OWN, &p->scratch, p->sums_bytes,
                                  p->context->threads);
}

tartan_status tartan_i_cpu_spmm_few(const tartan_context *context, const tartan_op_spmm *op) {
    few p;
    int64_t *open = NULL;
    start(context, op, &p);
    const tartan_status status = get_memory(&p, &open);
    const double packed = (double)p.form.in_size * (double)p.width;
    const int64_t heads = op->a->layout->shape.heads;
    for (int64_t head = 0; status == TARTAN_OK && head < heads; head++) {
        tartan_i_cpu_form_take(&p.form, op, head);
        tartan_i_cpu_form_open(&p.form, op, open);
        const double blocks = (double)(p.form.pointers[p.form.grid_out] - p.form.pointers[0]);
        const double work =
            2 * (double)p.width * (blocks * (double)p.form.block_elements + (double)p.form.out_size);
        if (!p.in_place)
            tartan_i_parallel(context, context->threads, packed * TARTAN_I_CPU_MOVE, pack_task, &p);
        tartan_i_parallel(context, context->threads, work, compute_task, &p);
    }
    tartan_i_workspace_end(context);
    return status;
}
