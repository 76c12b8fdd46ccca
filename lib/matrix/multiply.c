// SPDX-License-Identifier: Apache-2.0
// The product of two block-sparse matrices, row of blocks by row of blocks (Gustavson).
#include "tartan/arithmetic.h"

#include "core/interrupt.h"
#include "layout/positions.h"
#include "matrix/work.h"

#include <string.h>

/* ---- The layout: block (i, j) is there if A has (i, k) and B has (k, j) for some k ---- */

// Lists the columns of one line, in any order, at `to` (NULL: only counts). seen[column] is `line` for those found.
static int64_t find_columns(const tartan_layout *a, const tartan_layout *b, int64_t line, int64_t b_line,
                            int64_t *seen, int64_t *to) {
    int64_t count = 0;
    for (int64_t i = a->row_pointers[line]; i < a->row_pointers[line + 1]; i++) {
        const int64_t k = b_line + a->block_cols[i];
        for (int64_t n = b->row_pointers[k]; n < b->row_pointers[k + 1]; n++) {
            const int64_t column = b->block_cols[n];
            if (seen[column] == line) continue;
            seen[column] = line;
            if (to != NULL) to[count] = line * b->grid_cols + column;
            count++;
        }
    }
    return count;
}

static int64_t find_all(const tartan_layout *a, const tartan_layout *b, int64_t *seen, int64_t *positions) {
    int64_t count = 0;
    for (int64_t j = 0; j < b->grid_cols; j++) seen[j] = -1;
    for (int64_t line = 0; line < a->shape.heads * a->grid_rows; line++)
        count += find_columns(a, b, line, line / a->grid_rows * b->grid_rows, seen,
                              positions != NULL ? positions + count : NULL);
    return count;
}

static tartan_status make_layout(const char *function, const tartan_layout *a, const tartan_layout *b,
                                 tartan_layout **out) {
    tartan_status status;
    int64_t *seen = NULL, *positions = NULL, rows, cols;
    const tartan_shape shape = {a->shape.rows, b->shape.cols, a->shape.block_rows, b->shape.block_cols,
                                a->shape.heads};
    PASS(tartan_i_shape_check(function, &shape, &rows, &cols));
    NEW(seen, b->grid_cols);
    const int64_t count = find_all(a, b, seen, NULL);
    NEW(positions, count);
    find_all(a, b, seen, positions);
    TRY(tartan_i_layout_from_positions(function, &shape, positions, count, false, NULL, out));
fail:
    tartan_i_free(seen);
    tartan_i_free(positions);
    return status;
}

/* ---- The values. A line of blocks of C takes its pairs of blocks, sorted by block of C. ---- */

// Memory of one worker.
typedef struct scratch {
    int64_t *first;    /* [grid_cols]: where the pairs of a block begin, then where they end */
    int64_t *pairs;    /* [2 * most pairs]: block ids of A and B */
    double *a, *b, *c; /* a block each */
} scratch;

typedef struct job {
    const tartan_context *context;
    const tartan_matrix *a, *b;
    tartan_matrix *c;
    scratch *scratch;
    int32_t workers;
} job;

static int64_t pairs_of(const tartan_layout *a, const tartan_layout *b, int64_t line) {
    const int64_t b_line = line / a->grid_rows * b->grid_rows;
    int64_t count = 0;
    for (int64_t i = a->row_pointers[line]; i < a->row_pointers[line + 1]; i++) {
        const int64_t *k = b->row_pointers + b_line + a->block_cols[i];
        count += k[1] - k[0];
    }
    return count;
}

// Sorts the pairs of a line by block of C, stably: A's columns ascend within a block.
static void sort_pairs(const job *j, const scratch *s, int64_t line) {
    const tartan_layout *a = j->a->layout, *b = j->b->layout, *c = j->c->layout;
    const int64_t b_line = line / a->grid_rows * b->grid_rows;
    for (int64_t id = c->row_pointers[line]; id < c->row_pointers[line + 1]; id++)
        s->first[c->block_cols[id]] = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = a->row_pointers[line]; i < a->row_pointers[line + 1]; i++) {
            const int64_t k = b_line + a->block_cols[i];
            for (int64_t n = b->row_pointers[k]; n < b->row_pointers[k + 1]; n++) {
                const int64_t at = s->first[b->block_cols[n]]++;
                if (pass == 1) s->pairs[2 * at] = i, s->pairs[2 * at + 1] = n;
            }
        }
        int64_t sum = 0;
        for (int64_t id = c->row_pointers[line]; pass == 0 && id < c->row_pointers[line + 1]; id++) {
            int64_t *first = &s->first[c->block_cols[id]], count = *first;
            *first = sum;
            sum += count;
        }
    }
}

// A block as f64 without gaps, row-major if `by_row`: its own memory if it is such a block, else a copy at `to`.
static const double *load(const tartan_matrix *m, int64_t id, bool by_row, int64_t rows, int64_t cols,
                          double *to) {
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    const void *from = tartan_i_block_at(m, id);
    if (m->dtype == TARTAN_F64 && (by_row ? col == 1 && row == cols : row == 1 && col == rows)) return from;
    tartan_i_tile_copier(TARTAN_F64, m->dtype)(to, by_row ? cols : 1, by_row ? 1 : rows, from, row, col, rows,
                                               cols);
    return to;
}

// c[i] += x(i, k) * y[k] for k = 0, 1, ...: rows of length n, x(i, k) = x[i * x_row + k * x_col]. Each element is one
// chain in the order of k.
static void add_product(int64_t rows, int64_t n, int64_t depth, const double *x, int64_t x_row, int64_t x_col,
                        const double *y, double *restrict c) {
    for (int64_t i = 0; i < rows; i++, x += x_row, c += n) {
        int64_t k = 0;
        for (; k + 4 <= depth; k += 4) {
            const double x0 = x[k * x_col], x1 = x[(k + 1) * x_col], x2 = x[(k + 2) * x_col],
                         x3 = x[(k + 3) * x_col];
            const double *y0 = y + k * n, *y1 = y0 + n, *y2 = y1 + n, *y3 = y2 + n;
            for (int64_t e = 0; e < n; e++)
                c[e] = (((c[e] + x0 * y0[e]) + x1 * y1[e]) + x2 * y2[e]) + x3 * y3[e];
        }
        for (; k < depth; k++)
            for (int64_t e = 0; e < n; e++) c[e] += x[k * x_col] * y[k * n + e];
    }
}

static void compute_block(const job *j, const scratch *s, int64_t id, int64_t begin, int64_t end) {
    const tartan_layout *a = j->a->layout, *c = j->c->layout;
    const bool by_row = j->c->block_order == TARTAN_ROW_MAJOR;
    const int64_t rows = tartan_i_rows_of(c, c->block_rows[id]),
                  cols = tartan_i_cols_of(c, c->block_cols[id]);
    memset(s->c, 0, (size_t)(rows * cols) * sizeof *s->c);
    for (int64_t p = begin; p < end; p++) {
        const int64_t depth = tartan_i_cols_of(a, a->block_cols[s->pairs[2 * p]]);
        const double *x = load(j->a, s->pairs[2 * p], by_row, rows, depth, s->a);
        const double *y = load(j->b, s->pairs[2 * p + 1], by_row, depth, cols, s->b);
        if (by_row)
            add_product(rows, cols, depth, x, depth, 1, y, s->c);
        else /* the transpose: C' = B' A' */
            add_product(cols, rows, depth, y, depth, 1, x, s->c);
    }
    tartan_i_tile_copier(j->c->dtype, TARTAN_F64)(
        tartan_i_block_at(j->c, id), tartan_i_block_row_stride(j->c), tartan_i_block_col_stride(j->c), s->c,
        by_row ? cols : 1, by_row ? 1 : rows, rows, cols);
}

static void compute_task(void *data, int32_t worker) {
    const job *j = data;
    const scratch *s = &j->scratch[worker];
    const tartan_layout *c = j->c->layout;
    int64_t begin, end;
    tartan_i_share(c->shape.heads * c->grid_rows, j->workers, worker, &begin, &end);
    for (int64_t line = begin; line < end && !tartan_i_stop(j->context); line++) {
        sort_pairs(j, s, line);
        int64_t from = 0;
        for (int64_t id = c->row_pointers[line]; id < c->row_pointers[line + 1]; id++) {
            const int64_t to = s->first[c->block_cols[id]];
            compute_block(j, s, id, from, to);
            from = to;
        }
    }
}

static tartan_status compute(const char *function, tartan_context *context, job *j) {
    tartan_status status;
    const tartan_layout *a = j->a->layout, *b = j->b->layout;
    int64_t most = 0, all = 0;
    for (int64_t line = 0; line < a->shape.heads * a->grid_rows; line++) {
        const int64_t count = pairs_of(a, b, line);
        most = count > most ? count : most;
        all += count;
    }
    j->context = context;
    j->workers = context->threads;
    NEW_ZEROED(j->scratch, j->workers);
    for (int32_t w = 0; w < j->workers; w++) {
        NEW(j->scratch[w].first, b->grid_cols);
        NEW(j->scratch[w].pairs, 2 * most);
        NEW(j->scratch[w].a, tartan_i_block_elements(j->a));
        NEW(j->scratch[w].b, tartan_i_block_elements(j->b));
        NEW(j->scratch[w].c, tartan_i_block_elements(j->c));
    }
    const double work = (double)all * (double)tartan_i_block_elements(j->a) * (double)b->shape.block_cols;
    TRY(tartan_i_work_run(function, context, 2 * work, compute_task, j));
fail:
    for (int32_t w = 0; j->scratch != NULL && w < j->workers; w++) {
        tartan_i_free(j->scratch[w].first);
        tartan_i_free(j->scratch[w].pairs);
        tartan_i_free(j->scratch[w].a);
        tartan_i_free(j->scratch[w].b);
        tartan_i_free(j->scratch[w].c);
    }
    tartan_i_free(j->scratch);
    return status;
}

tartan_status tartan_matrix_multiply(tartan_context *context, const tartan_matrix *a, const tartan_matrix *b,
                                     int32_t dtype, tartan_matrix **out) {
    HOLD_MATRIX(a);
    HOLD_MATRIX(b);
    CHECK_OUT(out);
    tartan_status status;
    tartan_layout *layout = NULL;
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_matrix_check_host(__func__, "a", a));
    PASS(tartan_i_matrix_check_host(__func__, "b", b));
    const tartan_shape *s = &a->layout->shape, *t = &b->layout->shape;
    CHECK(t->rows == s->cols && t->heads == s->heads, SHAPE,
          "b has %" PRId64 " rows and %" PRId64 " heads, expected %" PRId64
          " rows (columns of a) and %" PRId64 " heads",
          t->rows, t->heads, s->cols, s->heads);
    CHECK(t->block_rows == s->block_cols, SHAPE,
          "b has blocks of %" PRId64 " rows, expected %" PRId64 " (columns of the blocks of a)",
          t->block_rows, s->block_cols);
    if (dtype == 0) dtype = tartan_i_common_dtype(a->dtype, b->dtype);
    PASS(tartan_i_matrix_check_new(__func__, a->layout, dtype, a->block_order));
    job j = {.a = a, .b = b};
    TRY(make_layout(__func__, a->layout, b->layout, &layout));
    TRY(tartan_i_matrix_new(layout, dtype, a->block_order, &j.c));
    TRY(compute(__func__, context, &j));
    *out = j.c;
    j.c = NULL;
fail:
    tartan_matrix_free(j.c);
    tartan_layout_free(layout);
    return status;
}
