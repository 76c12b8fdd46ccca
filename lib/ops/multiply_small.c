// SPDX-License-Identifier: Apache-2.0
// Products of block-sparse matrices of small blocks, where a call of a kernel for each block would take longer than its products:
// one call for each line of blocks, whose sums are in f64.
#include "ops/multiply.h"

#include "backend/cpu.h"
#include "core/interrupt.h"

#include <string.h>

enum { SMALL = 64, COPIED_AT_ONCE = 1 << 14 };

typedef struct scratch {
    int64_t *places; // [grid_cols]
    double *sums;    // the blocks of one line
} scratch;

typedef struct job {
    tartan_context *context;
    const tartan_matrix *a, *b;
    tartan_matrix *c;
    tartan_i_kernels k;
    double *copy_a, *copy_b; // all values as f64; NULL where they are
    scratch *scratch;
    int32_t workers;
} job;

bool tartan_i_multiply_is_small(const tartan_matrix *a, const tartan_matrix *b) {
    const int64_t of_a = tartan_i_block_elements(a), of_b = tartan_i_block_elements(b);
    return !tartan_i_is_variable(a->layout) && !tartan_i_is_variable(b->layout) &&
           of_a * b->layout->shape.block_cols <= SMALL && a->block_order == b->block_order &&
           a->layout->blocks <= TARTAN_I_COPIED_ELEMENTS / of_a &&
           b->layout->blocks <= TARTAN_I_COPIED_ELEMENTS / of_b;
}

static void copy_share(const job *j, int32_t worker, const tartan_matrix *m, double *to) {
    const tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, m->dtype);
    int64_t begin, end;
    if (to == NULL) return;
    tartan_i_share(m->layout->blocks * tartan_i_block_elements(m), j->workers, worker, &begin, &end);
    for (int64_t at = begin, n; at < end && !tartan_i_stop(j->context); at += n) {
        n = end - at < COPIED_AT_ONCE ? end - at : COPIED_AT_ONCE;
        copy(to + at, 0, 1, tartan_i_at(m->values, m->dtype, at), 0, 1, 1, n);
    }
}

static void copy_task(void *data, int32_t worker) {
    const job *j = data;
    copy_share(j, worker, j->a, j->copy_a);
    if (j->b != j->a) copy_share(j, worker, j->b, j->copy_b);
}

// Blocks from `begin` to `end` of a line of C; those past the edge of the matrix element by element, without their padding.
static void store_line(const job *j, int64_t begin, int64_t end, const double *sums) {
    const tartan_layout *l = j->c->layout;
    const tartan_i_tile_copy copy = tartan_i_tile_copier(j->c->dtype, TARTAN_F64);
    const int64_t elements = tartan_i_block_elements(j->c), row = tartan_i_block_row_stride(j->c),
                  col = tartan_i_block_col_stride(j->c);
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[begin]);
    const bool high = rows == l->shape.block_rows;
    int64_t whole = begin;
    if (high) whole = tartan_i_cols_of(l, l->block_cols[end - 1]) == l->shape.block_cols ? end : end - 1;
    copy(tartan_i_block_at(j->c, begin), 0, 1, sums, 0, 1, 1, (whole - begin) * elements);
    for (int64_t id = whole; id < end; id++)
        copy(tartan_i_block_at(j->c, id), row, col, sums + (id - begin) * elements, row, col, rows,
             tartan_i_cols_of(l, l->block_cols[id]));
}

static void compute_task(void *data, int32_t worker) {
    const job *j = data;
    const scratch *s = &j->scratch[worker];
    const tartan_layout *a = j->a->layout, *b = j->b->layout, *c = j->c->layout;
    tartan_i_line_product p = {.by_row = j->c->block_order == TARTAN_ROW_MAJOR,
                               .rows = a->shape.block_rows,
                               .depth = a->shape.block_cols,
                               .cols = b->shape.block_cols,
                               .a_cols = a->block_cols,
                               .b_cols = b->block_cols,
                               .last = a->grid_cols - 1,
                               .a = j->copy_a != NULL ? j->copy_a : j->a->values,
                               .b = j->copy_b != NULL ? j->copy_b : j->b->values,
                               .places = s->places,
                               .sums = s->sums};
    int64_t begin, end;
    p.last_depth = a->grid_cols == 0 ? 0 : tartan_i_cols_of(a, (int32_t)p.last);
    tartan_i_share(c->shape.heads * c->grid_rows, j->workers, worker, &begin, &end);
    for (int64_t line = begin; line < end && !tartan_i_stop(j->context); line++) {
        const int64_t first = c->row_pointers[line], after = c->row_pointers[line + 1];
        if (first == after) continue;
        for (int64_t id = first; id < after; id++) s->places[c->block_cols[id]] = id - first;
        memset(s->sums, 0, (size_t)((after - first) * p.rows * p.cols) * sizeof *s->sums);
        p.begin = a->row_pointers[line], p.end = a->row_pointers[line + 1];
        p.b_pointers = b->row_pointers + line / a->grid_rows * b->grid_rows;
        j->k.line_products(&p);
        store_line(j, first, after, s->sums);
    }
}

static int64_t longest_line(const tartan_layout *l) {
    int64_t longest = 0;
    for (int64_t line = 0; line < l->shape.heads * l->grid_rows; line++) {
        const int64_t blocks = l->row_pointers[line + 1] - l->row_pointers[line];
        longest = blocks > longest ? blocks : longest;
    }
    return longest;
}

tartan_status tartan_i_multiply_small(const char *function, tartan_context *context, const tartan_matrix *a,
                                      const tartan_matrix *b, tartan_matrix *c) {
    tartan_status status;
    const int64_t of_a = a->layout->blocks * tartan_i_block_elements(a),
                  of_b = b->layout->blocks * tartan_i_block_elements(b), of_c = tartan_i_block_elements(c);
    const int64_t sums = longest_line(c->layout) * of_c;
    job j = {.context = context, .a = a, .b = b, .c = c, .workers = context->threads};
    j.k = tartan_i_cpu_product_kernels(TARTAN_F64, NULL);
    if (a->dtype != TARTAN_F64) NEW(j.copy_a, of_a);
    if (b == a)
        j.copy_b = j.copy_a;
    else if (b->dtype != TARTAN_F64)
        NEW(j.copy_b, of_b);
    if (j.copy_a != NULL || j.copy_b != NULL)
        TRY(tartan_i_work_run(function, context, (double)(of_a + of_b), copy_task, &j));
    NEW_ZEROED(j.scratch, j.workers);
    for (int32_t w = 0; w < j.workers; w++) {
        NEW(j.scratch[w].places, b->layout->grid_cols);
        NEW(j.scratch[w].sums, sums);
    }
    const double lines = (double)(b->layout->shape.heads * b->layout->grid_rows) + 1,
                 pairs_a_block = (double)b->layout->blocks / lines;
    const double products = pairs_a_block * (double)of_a * (double)b->layout->shape.block_cols;
    TRY(tartan_i_work_run(function, context, 2 * products + (double)(c->layout->blocks * of_c), compute_task,
                          &j));
fail:
    for (int32_t w = 0; j.scratch != NULL && w < j.workers; w++) {
        tartan_i_free(j.scratch[w].places);
        tartan_i_free(j.scratch[w].sums);
    }
    tartan_i_free(j.scratch);
    tartan_i_free(j.copy_a);
    if (j.copy_b != j.copy_a) tartan_i_free(j.copy_b);
    return status;
}
