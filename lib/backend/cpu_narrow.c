/* SPDX-License-Identifier: Apache-2.0
 * Sparse times few columns on the CPU: a matrix with fewer columns than half a vector has lanes. (One column: cpu_vector.c.)
 *
 * We solve the transposed problem, C' = B' op(A)', so that the lanes are rows of op(A) instead of columns of B. The
 * strip kernel is the same, with B' as its left factor and the blocks as its right one, so each element is the
 * same chain with the same bits. It serves blocks whose columns are contiguous in op(A): column-major ones, as R and
 * Julia have, and row-major ones transposed. They are used in place if a column fills whole vectors, else copied.
 * (Transposing the other blocks was slower than not transposing the problem, measured.) */
#include "backend/cpu.h"
#include "core/interrupt.h"
#include "core/workspace.h"

#include <string.h>

enum {
    TERMS = 64, /* most blocks copied at a time */
    ROWS = 64,  /* of blocks, between two checks whether to stop */
    LINE_BYTES = 64,
    PIECE_BYTES = 16 << 10, /* and most of their bytes: a share of L1 */
};

typedef struct narrow {
    const tartan_context *context;
    const tartan_op_spmm *op;
    const tartan_i_kernels *k;
    tartan_i_cpu_form form;
    int64_t most_pitch; /* form.out_block in whole vectors */
    bool in_place;
    int64_t piece; /* blocks at a time */
    char *scratch;
    int64_t scratch_bytes, sums_bytes; /* of a worker: sums, then blocks */
} narrow;

/* A block of rows x cols elements with `pitch` reals for each column. */
static void copy_block(const narrow *p, const char *from, int64_t rows, int64_t cols, int64_t pitch,
                       char *to) {
    for (int64_t j = 0; j < cols; j++)
        memcpy(to + j * pitch * p->k->bytes, from + j * p->form.a_col * p->k->bytes,
               (size_t)(rows * p->k->bytes));
}

/* Prefetches the values of the blocks at positions at .. at + count - 1. Values are read once, so fetching them
 * takes all of the time, and hardware prefetchers stop at page boundaries. */
static void fetch(const narrow *p, int64_t at, int64_t count) {
    for (int64_t i = at; i < at + count; i++) {
        const char *from = tartan_i_block_at(p->op->a, p->form.ids != NULL ? p->form.ids[i] : i);
        int64_t first;
        const int64_t bytes =
            tartan_i_cpu_form_in(&p->form, p->form.others[i], &first) * p->form.a_col * p->k->bytes;
        for (int64_t line = 0; line < bytes; line += LINE_BYTES) __builtin_prefetch(from + line);
    }
}

/* Terms of the blocks at positions at .. at + count - 1, of `rows` rows. */
static void make_terms(const narrow *p, int64_t at, int64_t count, int64_t rows, int64_t pitch,
                       tartan_i_term *terms, char *copied) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = p->form.ids != NULL ? p->form.ids[at + i] : at + i, block = p->form.others[at + i];
        int64_t first;
        terms[i].k = tartan_i_cpu_form_in(&p->form, block, &first);
        terms[i].a = p->form.b.data + first * p->form.b.row * p->k->bytes;
        terms[i].b = (p->in_place ? id : i) * p->form.in_block;
        if (!p->in_place)
            copy_block(p, tartan_i_block_at(p->op->a, id), rows, terms[i].k, pitch,
                       copied + i * p->form.in_block * pitch * p->k->bytes);
    }
    if (count > 0) terms[count] = terms[0]; /* what is fetched last; nothing past the values */
}

static void compute_row(const narrow *p, int64_t block_row, char *sums, char *copied) {
    int64_t row;
    const int64_t rows = tartan_i_cpu_form_out(&p->form, block_row, &row),
                  end = p->form.pointers[block_row + 1];
    const tartan_i_product *product = &p->k->product;
    const int64_t vectors = tartan_i_ceil_div(rows, product->lanes),
                  strips = tartan_i_cpu_strips(product, vectors),
                  pitch = p->in_place ? p->most_pitch : vectors * product->lanes;
    const int64_t last = p->form.pointers[p->form.grid_out];
    tartan_i_term terms[TERMS + 1];
    tartan_i_strip s = {
        .a_row = p->form.b.col, .a_col = p->form.b.row, .b_row = pitch, .first = true, .ahead_b = 1};
    int64_t at = p->form.pointers[block_row], first, count;
    do {
        count = end - at < p->piece ? end - at : p->piece;
        const int64_t more = last - at - count;
        fetch(p, at + count, more < p->piece ? more : p->piece);
        make_terms(p, at, count, rows, pitch, terms, copied);
        for (int64_t i = 0; i < strips; i++) {
            tartan_i_cpu_strip(product, vectors, i, &first, &s.width);
            s.b = (p->in_place ? (const char *)p->op->a->values : copied) + first * p->k->bytes;
            s.sums = sums + p->form.n * first * p->k->bytes;
            s.sums_row = s.width;
            tartan_i_cpu_strip_rows(p->k, &s, p->form.n, terms, count);
        }
        s.first = false;
        at += count;
    } while (at < end);
    for (int64_t i = 0; i < strips; i++) {
        tartan_i_cpu_strip(product, vectors, i, &first, &s.width);
        const int64_t valid = rows - first < s.width ? rows - first : s.width;
        if (valid > 0)
            tartan_i_commit(p->k, sums + p->form.n * first * p->k->bytes, s.width, p->form.n, valid,
                            p->op->alpha, p->op->beta, p->form.c.dtype,
                            p->form.c.data + (row + first) * p->form.c.row * p->form.c.bytes, p->form.c.col,
                            p->form.c.row);
    }
}

static void compute_task(void *data, int32_t worker) {
    const narrow *p = data;
    char *sums = p->scratch + worker * p->scratch_bytes;
    int64_t begin, end;
    /* Lanes beyond a block are computed, too, and not stored. */
    if (!p->in_place) memset(sums + p->sums_bytes, 0, (size_t)(p->scratch_bytes - p->sums_bytes));
    tartan_i_cpu_share_rows(p->form.pointers, p->form.grid_out, p->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        compute_row(p, i, sums, sums + p->sums_bytes);
        if ((i - begin) % ROWS == ROWS - 1 && tartan_i_stop(p->context)) break;
    }
}

static void start(const tartan_context *context, const tartan_op_spmm *op, narrow *p) {
    p->context = context;
    p->op = op;
    p->k = tartan_i_cpu_table_of(op->a->dtype);
    tartan_i_cpu_form_of(op, &p->form); /* heads differ only in their blocks and addresses */
    p->most_pitch = tartan_i_ceil_div(p->form.out_block, p->k->product.lanes) * p->k->product.lanes;
    p->in_place = p->most_pitch == p->form.out_block;
    p->piece = PIECE_BYTES / (p->form.in_block * p->most_pitch * p->k->bytes);
    p->piece = p->piece < 1 ? 1 : p->piece < TERMS ? p->piece : TERMS;
}

bool tartan_i_cpu_few_columns(const tartan_i_product *product, int64_t out_block, int64_t n) {
    /* Vector operations with and without the transpose; transposed, a column costs twice as much, having few
     * chains. */
    const int64_t upright = out_block * tartan_i_ceil_div(n, product->lanes);
    return 2 * out_block > product->lanes && 2 * n * tartan_i_ceil_div(out_block, product->lanes) <= upright;
}

const char *tartan_i_cpu_spmm_narrow_refuses(const tartan_context *context, const tartan_op_spmm *op) {
    const tartan_matrix *a = op->a;
    const bool transposed = op->transpose != (op->side == TARTAN_I_SPMM_SIDE_RIGHT);
    const int64_t a_row = transposed ? tartan_i_block_col_stride(a) : tartan_i_block_row_stride(a);
    if (a->dtype != TARTAN_F32 && a->dtype != TARTAN_F64) return "only for float32 and float64";
    if (a_row != 1) return "the columns of blocks are not contiguous in op(a)";
    narrow p;
    start(context, op, &p);
    if (tartan_i_dense_entries(&p.form.b) != 1) return "b has batch entries";
    if (!tartan_i_cpu_few_columns(&p.k->product, tartan_i_cpu_form_out_mean(&p.form), p.form.n))
        return "b has too many columns";
    return tartan_i_cpu_gates_only_switch(op->gates) ? NULL : "gates scale blocks first";
}

tartan_status tartan_i_cpu_spmm_narrow(const tartan_context *context, const tartan_op_spmm *op) {
    narrow p;
    int64_t *open;
    start(context, op, &p);
    PASS(tartan_i_cpu_open_room(context, op, &p.form, &open));
    const int64_t copied = p.in_place ? 0 : p.piece * p.form.in_block * p.most_pitch * p.k->bytes;
    p.sums_bytes = tartan_i_ceil_div(p.form.n * p.most_pitch * p.k->bytes, 64) * 64;
    p.scratch_bytes = p.sums_bytes + tartan_i_ceil_div(copied, 64) * 64;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p.scratch, p.scratch_bytes, context->threads));
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
