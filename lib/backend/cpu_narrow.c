/* SPDX-License-Identifier: Apache-2.0
 * Sparse times few columns on the CPU: a vector, or a matrix with fewer columns than half a vector has lanes.
 *
 * The problem is copied: C' = B' op(A)', so that the lanes are rows of op(A) instead of columns of B. The
 * strip kernel is the same, with B' as its left factor and the blocks as its right one, so each element is the
 * same chain with the same bits. It serves blocks whose rows lie next to each other in memory: column-major
 * ones, as R and Julia have, and row-major ones transposed. They are used in place if their rows fill whole
 * vectors, else copied. (Turning the other ones took longer than the upright way, measured.) */
#include "backend/cpu.h"

#include <string.h>

enum {
    TERMS = 64, /* most blocks copied at a time */
    LINE_BYTES = 64,
    PIECE_BYTES = 16 << 10, /* and most of their bytes: a share of L1 */
};

typedef struct narrow {
    const tartan_context *context;
    const tartan_op *op;
    tartan_i_kernels k;
    int64_t out_block, in_block, out_size, in_size, grid_out;
    const int64_t *pointers, *ids;
    const int32_t *others;
    int64_t a_row, a_col, elements; /* of a block, as op(A) has it */
    int64_t pitch;                  /* out_block in whole vectors */
    bool in_place;
    int64_t piece; /* blocks at a time */
    tartan_i_dense b, c;
    int64_t n;
    char *scratch;
    int64_t scratch_bytes, sums_bytes; /* of a worker: sums, then blocks */
} narrow;

static void describe(narrow *p, bool transposed) {
    const tartan_matrix *a = p->op->a;
    const tartan_layout *l = a->layout;
    p->out_block = transposed ? l->shape.block_cols : l->shape.block_rows;
    p->in_block = transposed ? l->shape.block_rows : l->shape.block_cols;
    p->out_size = transposed ? l->shape.cols : l->shape.rows;
    p->in_size = transposed ? l->shape.rows : l->shape.cols;
    p->grid_out = transposed ? l->grid_cols : l->grid_rows;
    p->a_row = transposed ? tartan_i_block_col_stride(a) : tartan_i_block_row_stride(a);
    p->a_col = transposed ? tartan_i_block_row_stride(a) : tartan_i_block_col_stride(a);
    p->elements = tartan_i_block_elements(a);
    p->pitch = tartan_i_ceil_div(p->out_block, p->k.lanes) * p->k.lanes;
    p->in_place = p->pitch == p->out_block;
    p->piece = PIECE_BYTES / (p->in_block * p->pitch * p->k.bytes);
    p->piece = p->piece < 1 ? 1 : p->piece < TERMS ? p->piece : TERMS;
}

static void take_head(narrow *p, int64_t head, bool transposed) {
    const tartan_layout *l = p->op->a->layout;
    const bool right = p->op->side == TARTAN_RIGHT;
    p->pointers = (transposed ? l->col_pointers : l->row_pointers) + head * p->grid_out;
    p->others = transposed ? l->col_rows : l->block_cols;
    p->ids = transposed ? l->col_ids : NULL;
    p->b = tartan_i_dense_of(p->op->x, right, l->shape.heads > 1 ? head : -1);
    p->c = tartan_i_dense_of(p->op->out, right, l->shape.heads > 1 ? head : -1);
    p->n = p->op->x->shape[p->op->x->ndim - (right ? 2 : 1)];
    tartan_i_dense_fold(&p->b, &p->b.col, &p->c, &p->c.col, &p->n);
}

/* A block with `pitch` reals for each column. */
static void copy_block(const narrow *p, const char *from, char *to) {
    for (int64_t j = 0; j < p->in_block; j++)
        memcpy(to + j * p->pitch * p->k.bytes, from + j * p->a_col * p->k.bytes,
               (size_t)(p->out_block * p->k.bytes));
}

/* Asks for the values of the blocks at positions at .. at + count - 1. Values are read once, so all of the
 * time goes into fetching them, and a hardware prefetcher stops at every page. */
static void fetch(const narrow *p, int64_t at, int64_t count) {
    const int64_t bytes = p->elements * p->k.bytes;
    for (int64_t i = at; i < at + count; i++) {
        const char *from = tartan_i_block_at(p->op->a, p->ids != NULL ? p->ids[i] : i);
        for (int64_t line = 0; line < bytes; line += LINE_BYTES) __builtin_prefetch(from + line);
    }
}

/* Terms of the blocks at positions at .. at + count - 1. */
static void make_terms(const narrow *p, int64_t at, int64_t count, tartan_i_term *terms, char *copied) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = p->ids != NULL ? p->ids[at + i] : at + i, block = p->others[at + i];
        const int64_t left = p->in_size - block * p->in_block;
        terms[i].a = block * p->in_block * p->b.row;
        terms[i].b = (p->in_place ? id : i) * p->in_block;
        terms[i].k = left < p->in_block ? left : p->in_block;
        terms[i].next_a = terms[i].a;
        terms[i].next_b = terms[i].b + p->in_block;
        if (!p->in_place)
            copy_block(p, tartan_i_block_at(p->op->a, id), copied + i * p->in_block * p->pitch * p->k.bytes);
    }
    if (count > 0) terms[count - 1].next_b = terms[0].b; /* not beyond the values */
}

static void compute_row(const narrow *p, int64_t block_row, char *sums, char *copied) {
    const int64_t row = block_row * p->out_block, left = p->out_size - row, end = p->pointers[block_row + 1];
    const int64_t rows = left < p->out_block ? left : p->out_block;
    const int64_t strips = tartan_i_cpu_strips(&p->k, p->pitch);
    const int64_t last = p->pointers[p->grid_out];
    tartan_i_term terms[TERMS];
    tartan_i_strip s = {
        .a = p->b.data, .a_row = p->b.col, .a_col = p->b.row, .b_row = p->pitch, .first = true};
    int64_t at = p->pointers[block_row], first, count;
    do {
        count = end - at < p->piece ? end - at : p->piece;
        const int64_t more = last - at - count;
        fetch(p, at + count, more < p->piece ? more : p->piece);
        make_terms(p, at, count, terms, copied);
        for (int64_t i = 0; i < strips; i++) {
            tartan_i_cpu_strip(&p->k, p->pitch, i, &first, &s.width);
            s.b = (p->in_place ? (const char *)p->op->a->values : copied) + first * p->k.bytes;
            s.sums = sums + p->n * first * p->k.bytes;
            s.sums_row = s.width;
            tartan_i_cpu_strip_rows(&p->k, &s, p->n, terms, count);
        }
        s.first = false;
        at += count;
    } while (at < end);
    for (int64_t i = 0; i < strips; i++) {
        tartan_i_cpu_strip(&p->k, p->pitch, i, &first, &s.width);
        const int64_t valid = rows - first < s.width ? rows - first : s.width;
        if (valid > 0)
            tartan_i_commit(&p->k, sums + p->n * first * p->k.bytes, s.width, p->n, valid, p->op->alpha,
                            p->op->beta, p->c.dtype, p->c.data + (row + first) * p->c.row * p->c.bytes,
                            p->c.col, p->c.row);
    }
}

static void compute_task(void *data, int32_t worker) {
    const narrow *p = data;
    char *sums = p->scratch + worker * p->scratch_bytes;
    int64_t begin, end;
    tartan_i_cpu_share_rows(p->pointers, p->grid_out, p->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) compute_row(p, i, sums, sums + p->sums_bytes);
}

static narrow start(const tartan_context *context, const tartan_op *op, bool *transposed) {
    narrow p = {.context = context, .op = op, .k = tartan_i_cpu_kernels(op->a->dtype)};
    *transposed = (op->transpose == TARTAN_TRANSPOSE) != (op->side == TARTAN_RIGHT);
    describe(&p, *transposed);
    take_head(&p, 0, *transposed); /* heads differ in their blocks and addresses only */
    return p;
}

bool tartan_i_cpu_spmm_is_narrow(const tartan_context *context, const tartan_op *op) {
    bool transposed;
    const narrow p = start(context, op, &transposed);
    if (op->gates != NULL || op->a->dtype != p.k.dtype || p.a_row != 1 || tartan_i_dense_entries(&p.b) != 1)
        return false;
    /* Vector operations of either way; a column costs the copied way twice, since its chains are few. */
    const int64_t upright = p.out_block * tartan_i_ceil_div(p.n, p.k.lanes);
    return 2 * p.n * (p.pitch / p.k.lanes) <= upright;
}

tartan_status tartan_i_cpu_spmm_narrow(const tartan_context *context, const tartan_op *op) {
    bool transposed;
    narrow p = start(context, op, &transposed);
    const int64_t copied = p.in_place ? 0 : p.piece * p.in_block * p.pitch * p.k.bytes;
    p.sums_bytes = tartan_i_ceil_div(p.n * p.pitch * p.k.bytes, 64) * 64;
    p.scratch_bytes = p.sums_bytes + tartan_i_ceil_div(copied, 64) * 64;
    PASS(tartan_i_allocate_zeroed(&p.scratch, p.scratch_bytes,
                                  context->threads)); /* lanes beyond a block stay 0 */
    for (int64_t head = 0; head < op->a->layout->shape.heads; head++) {
        take_head(&p, head, transposed);
        const double blocks = (double)(p.pointers[p.grid_out] - p.pointers[0]);
        const double work = 2 * (double)p.n * (blocks * (double)p.elements + (double)p.out_size);
        tartan_i_parallel(context, context->threads, work, compute_task, &p);
    }
    tartan_i_free(p.scratch);
    return TARTAN_OK;
}
