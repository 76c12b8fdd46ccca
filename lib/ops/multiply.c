// SPDX-License-Identifier: Apache-2.0
// The product of two block-sparse matrices, row of blocks by row of blocks (Gustavson).
#include "tartan/arithmetic.h"

#include "backend/cpu.h"
#include "core/interrupt.h"
#include "layout/positions.h"
#include "ops/multiply.h"

#include <string.h>

/* ---- The layout: block (i, j) is there if A has (i, k) and B has (k, j) for some k ---- */

static int64_t pairs_of(const tartan_layout *a, const tartan_layout *b, int64_t line) {
    const int64_t b_line = line / a->grid_rows * b->grid_rows;
    int64_t count = 0;
    for (int64_t i = a->row_pointers[line]; i < a->row_pointers[line + 1]; i++) {
        const int64_t *k = b->row_pointers + b_line + a->block_cols[i];
        count += k[1] - k[0];
    }
    return count;
}

// Block columns as bits, and which words of bits are not 0, so that they are found in ascending order.
typedef struct columns {
    uint64_t *bits, *words;
} columns;

static void add_columns(const tartan_layout *a, const tartan_layout *b, int64_t line, const columns *c) {
    const int64_t b_line = line / a->grid_rows * b->grid_rows;
    for (int64_t i = a->row_pointers[line]; i < a->row_pointers[line + 1]; i++) {
        const int64_t k = b_line + a->block_cols[i];
        for (int64_t n = b->row_pointers[k]; n < b->row_pointers[k + 1]; n++) {
            const int64_t word = b->block_cols[n] / 64;
            c->bits[word] |= (uint64_t)1 << b->block_cols[n] % 64;
            c->words[word / 64] |= (uint64_t)1 << word % 64;
        }
    }
}

// Takes all columns out, as positions of a line that begins at `first`; returns how many.
static int64_t take_columns(const columns *c, int64_t grid_cols, int64_t first, int64_t *positions) {
    int64_t count = 0;
    for (int64_t at = 0; at * 64 * 64 < grid_cols; at++)
        for (; c->words[at] != 0; c->words[at] &= c->words[at] - 1) {
            const int64_t word = at * 64 + __builtin_ctzll(c->words[at]);
            for (; c->bits[word] != 0; c->bits[word] &= c->bits[word] - 1)
                positions[count++] = first + word * 64 + __builtin_ctzll(c->bits[word]);
        }
    return count;
}

// Room for `need` positions at least, of which `count` are kept.
static tartan_status make_room(int64_t need, int64_t count, int64_t *room, int64_t **positions) {
    tartan_status status;
    int64_t *more = NULL;
    if (need <= *room) return TARTAN_OK;
    const int64_t wanted = need < 2 * *room ? 2 * *room : need;
    NEW(more, wanted);
    if (count > 0) memcpy(more, *positions, (size_t)count * sizeof *more);
    tartan_i_free(*positions);
    *positions = more;
    *room = wanted;
    return TARTAN_OK;
fail:
    return status;
}

// Where a factor has blocks of different sizes, the result has the rows of A's blocks and the columns of B's.
static tartan_status take_bounds(const char *function, const tartan_layout *a, const tartan_layout *b,
                                 tartan_layout *c) {
    tartan_status status;
    int64_t *rows = NULL, *cols = NULL;
    if (!tartan_i_is_variable(a) && !tartan_i_is_variable(b)) return TARTAN_OK;
    NEW(rows, a->grid_rows + 1);
    NEW(cols, b->grid_cols + 1);
    for (int64_t i = 0; i < a->grid_rows; i++) rows[i] = tartan_i_row_begin(a, i);
    for (int64_t j = 0; j < b->grid_cols; j++) cols[j] = tartan_i_col_begin(b, j);
    rows[a->grid_rows] = a->shape.rows;
    cols[b->grid_cols] = b->shape.cols;
    status = tartan_i_layout_take_bounds(function, c, rows, cols);
fail:
    tartan_i_free(rows);
    tartan_i_free(cols);
    return status;
}

static tartan_status make_layout(const char *function, const tartan_layout *a, const tartan_layout *b,
                                 tartan_layout **out) {
    tartan_status status;
    columns found = {0};
    int64_t *positions = NULL, room = 0, count = 0, rows, cols;
    const bool variable = tartan_i_is_variable(a) || tartan_i_is_variable(b);
    tartan_shape shape = {a->shape.rows, b->shape.cols, a->shape.block_rows, b->shape.block_cols,
                          a->shape.heads};
    if (variable) shape = (tartan_shape){a->grid_rows, b->grid_cols, 1, 1, a->shape.heads};
    tartan_layout *made = NULL;
    PASS(tartan_i_shape_check(function, &shape, &rows, &cols));
    NEW_ZEROED(found.bits, cols / 64 + 1);
    NEW_ZEROED(found.words, cols / 64 / 64 + 1);
    for (int64_t line = 0; line < shape.heads * rows; line++) {
        const int64_t pairs = pairs_of(a, b, line);
        TRY(make_room(count + (pairs < cols ? pairs : cols), count, &room, &positions));
        add_columns(a, b, line, &found);
        count += take_columns(&found, cols, line * cols, positions + count);
    }
    TRY(tartan_i_layout_from_positions(function, &shape, positions, count, false, NULL, &made));
    TRY(take_bounds(function, a, b, made));
    *out = made;
    made = NULL;
fail:
    tartan_layout_free(made);
    tartan_i_free(found.bits);
    tartan_i_free(found.words);
    tartan_i_free(positions);
    return status;
}

/* ---- The values. A line of blocks of C takes its pairs of blocks, sorted by block of C. The strips of the kernel table
 * compute C = A B, or C' = B' A' where the blocks of C are column-major. ---- */

enum { BATCH_TERMS = 128, BATCH_ELEMENTS = 1 << 14 };

// Memory of one worker.
typedef struct scratch {
    int64_t *first;       /* [grid_cols]: where the pairs of a block begin, then where they end */
    int64_t *pairs;       /* [2 * most pairs]: block ids of A and B */
    tartan_i_term *terms; /* [batch] */
    double *left, *right; /* [batch] blocks as f64, where they are copied when they are needed */
    double *sums;         /* [rows][width] */
} scratch;

typedef struct job {
    tartan_context *context;
    const tartan_matrix *a, *b;
    tartan_matrix *c;
    scratch *scratch;
    int32_t workers;

    tartan_i_kernels k;
    bool by_row, copy_left, copy_right;
    const tartan_matrix *left, *right;
    double *all_left, *all_right; /* all blocks, copied once; or NULL */
    int64_t rows, depth, cols;    /* of blocks: left has rows x depth, right depth x cols */
    int64_t width;                /* cols in whole vectors */
    int64_t batch;                /* pairs of blocks that one call of a strip takes */
} job;

static void choose(job *j) {
    j->k = tartan_i_cpu_product_kernels(TARTAN_F64, NULL);
    j->by_row = j->c->block_order == TARTAN_ROW_MAJOR;
    const tartan_shape *a = &j->a->layout->shape, *b = &j->b->layout->shape;
    j->left = j->by_row ? j->a : j->b;
    j->right = j->by_row ? j->b : j->a;
    j->rows = j->by_row ? a->block_rows : b->block_cols;
    j->cols = j->by_row ? b->block_cols : a->block_rows;
    j->depth = a->block_cols;
    const int64_t lanes = j->k.product.lanes;
    j->width = (j->cols + lanes - 1) / lanes * lanes;
    j->copy_left = j->left->dtype != TARTAN_F64;
    j->copy_right =
        j->right->dtype != TARTAN_F64 || j->right->block_order != j->c->block_order || j->width != j->cols;
    const int64_t fit = BATCH_ELEMENTS / (j->depth * j->width);
    j->batch = fit < 1 ? 1 : fit < BATCH_TERMS ? fit : BATCH_TERMS;
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

// Copies a block (its transpose if not by_row) as f64 to rows that are `to_row` apart.
static void copy_block(const job *j, const tartan_matrix *m, int64_t id, int64_t rows, int64_t cols,
                       double *to, int64_t to_row) {
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    tartan_i_tile_copier(TARTAN_F64, m->dtype)(to, to_row, 1, tartan_i_block_at(m, id), j->by_row ? row : col,
                                               j->by_row ? col : row, rows, cols);
}

// Copies blocks of a factor, which have `rows` x `cols` elements, to rows of `width`.
static void copy_share(const job *j, int32_t worker, const tartan_matrix *m, int64_t rows, int64_t width,
                       double *to) {
    const tartan_layout *l = m->layout;
    int64_t begin, end;
    if (to == NULL) return;
    tartan_i_share(l->blocks, j->workers, worker, &begin, &end);
    for (int64_t id = begin; id < end && !tartan_i_stop(j->context); id++) {
        const int64_t r = tartan_i_rows_of(l, l->block_rows[id]), c = tartan_i_cols_of(l, l->block_cols[id]);
        copy_block(j, m, id, j->by_row ? r : c, j->by_row ? c : r, to + id * rows * width, width);
    }
}

static void copy_task(void *data, int32_t worker) {
    const job *j = data;
    copy_share(j, worker, j->left, j->rows, j->depth, j->all_left);
    copy_share(j, worker, j->right, j->depth, j->width, j->all_right);
}

// The terms of `count` pairs from pair `p` on.
static void make_terms(const job *j, const scratch *s, int64_t p, int64_t count, int64_t rows, int64_t cols) {
    const tartan_layout *a = j->a->layout;
    for (int64_t t = 0; t < count; t++) {
        const int64_t *pair = &s->pairs[2 * (p + t)], depth = tartan_i_cols_of(a, a->block_cols[pair[0]]);
        const int64_t left = pair[j->by_row ? 0 : 1], right = pair[j->by_row ? 1 : 0];
        tartan_i_term *term = &s->terms[t];
        *term = (tartan_i_term){.k = depth};
        if (j->all_left != NULL) {
            term->a = j->all_left + left * j->rows * j->depth;
        } else if (j->copy_left) {
            double *to = s->left + t * j->rows * j->depth;
            copy_block(j, j->left, left, rows, depth, to, j->depth);
            term->a = to;
        } else {
            term->a = tartan_i_block_at(j->left, left);
        }
        const bool copies = j->copy_right && j->all_right == NULL;
        term->b = (copies ? t : right) * j->depth;
        if (copies) copy_block(j, j->right, right, depth, cols, s->right + term->b * j->width, j->width);
    }
}

// Continues the chains of a block of C, or begins them.
static void add_terms(const job *j, const scratch *s, int64_t count, int64_t rows, bool first) {
    const tartan_i_product *product = &j->k.product;
    const int64_t row = tartan_i_block_row_stride(j->left), col = tartan_i_block_col_stride(j->left);
    const double *b = j->all_right != NULL ? j->all_right : j->copy_right ? s->right : j->right->values;
    tartan_i_strip strip = {.b_row = j->width, .sums_row = j->width, .first = first};
    strip.a_row = j->copy_left ? j->depth : j->by_row ? row : col;
    strip.a_col = j->copy_left ? 1 : j->by_row ? col : row;
    for (int64_t at = 0; at < j->width; at += strip.width) {
        const int64_t left = (j->width - at) / product->lanes,
                      vectors = left < product->vectors ? left : product->vectors;
        strip.width = vectors * product->lanes;
        strip.b = b + at;
        for (strip.row = 0; strip.row < rows; strip.row += strip.rows) {
            const int64_t most = product->rows[vectors - 1], rest = rows - strip.row;
            strip.rows = rest < most ? rest : most;
            strip.sums = s->sums + strip.row * j->width + at;
            product->strip(&strip, s->terms, count);
        }
    }
}

static void compute_block(const job *j, const scratch *s, int64_t id, int64_t begin, int64_t end) {
    const tartan_layout *c = j->c->layout;
    const int64_t c_rows = tartan_i_rows_of(c, c->block_rows[id]),
                  c_cols = tartan_i_cols_of(c, c->block_cols[id]);
    const int64_t rows = j->by_row ? c_rows : c_cols, cols = j->by_row ? c_cols : c_rows;
    for (int64_t p = begin, count; p < end; p += count) {
        count = end - p < j->batch ? end - p : j->batch;
        make_terms(j, s, p, count, rows, cols);
        add_terms(j, s, count, rows, p == begin);
    }
    tartan_i_tile_copier(j->c->dtype, TARTAN_F64)(
        tartan_i_block_at(j->c, id), tartan_i_block_row_stride(j->c), tartan_i_block_col_stride(j->c),
        s->sums, j->by_row ? j->width : 1, j->by_row ? 1 : j->width, c_rows, c_cols);
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

// Blocks that the kernel cannot read in place are copied when they are needed, or all of them once, if there is room and each is
// needed more than once.
static bool is_copied_once(int64_t blocks, int64_t elements, int64_t pairs) {
    return pairs > blocks && blocks <= TARTAN_I_COPIED_ELEMENTS / elements;
}

static tartan_status copy_once(const char *function, job *j, int64_t pairs) {
    tartan_status status;
    const int64_t left = j->left->layout->blocks, right = j->right->layout->blocks;
    if (j->copy_left && is_copied_once(left, j->rows * j->depth, pairs))
        NEW(j->all_left, left * j->rows * j->depth);
    if (j->copy_right && is_copied_once(right, j->depth * j->width, pairs))
        NEW_ZEROED(j->all_right, right * j->depth * j->width);
    if (j->all_left == NULL && j->all_right == NULL) return TARTAN_OK;
    const double work = (double)(left + right) * (double)(j->rows * j->depth);
    TRY(tartan_i_work_run(function, j->context, work, copy_task, j));
fail:
    return status;
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
    choose(j);
    TRY(copy_once(function, j, all));
    NEW_ZEROED(j->scratch, j->workers);
    for (int32_t w = 0; w < j->workers; w++) {
        NEW(j->scratch[w].first, b->grid_cols);
        NEW(j->scratch[w].pairs, 2 * most);
        NEW(j->scratch[w].terms, j->batch);
        if (j->copy_left && j->all_left == NULL) NEW(j->scratch[w].left, j->batch * j->rows * j->depth);
        if (j->copy_right && j->all_right == NULL)
            NEW_ZEROED(j->scratch[w].right, j->batch * j->depth * j->width);
        NEW(j->scratch[w].sums, j->rows * j->width);
    }
    const double work = (double)all * (double)tartan_i_block_elements(j->a) * (double)b->shape.block_cols;
    TRY(tartan_i_work_run(function, context, 2 * work, compute_task, j));
fail:
    for (int32_t w = 0; j->scratch != NULL && w < j->workers; w++) {
        tartan_i_free(j->scratch[w].first);
        tartan_i_free(j->scratch[w].pairs);
        tartan_i_free(j->scratch[w].terms);
        tartan_i_free(j->scratch[w].left);
        tartan_i_free(j->scratch[w].right);
        tartan_i_free(j->scratch[w].sums);
    }
    tartan_i_free(j->scratch);
    tartan_i_free(j->all_left);
    tartan_i_free(j->all_right);
    return status;
}

// Whether the block columns of A are the block rows of B.
static bool meet(const tartan_layout *a, const tartan_layout *b) {
    bool same = a->grid_cols == b->grid_rows;
    if (!tartan_i_is_variable(a) && !tartan_i_is_variable(b)) return true; /* their sizes are checked */
    for (int64_t k = 0; same && k < a->grid_cols; k++)
        same = tartan_i_col_begin(a, k) == tartan_i_row_begin(b, k);
    return same;
}

tartan_status tartan_matrix_multiply(tartan_context *context, const tartan_matrix *a, const tartan_matrix *b,
                                     int32_t dtype, tartan_matrix **out) {
    HOLD_MATRIX(a);
    HOLD_MATRIX(b);
    CHECK_OUT(out);
    tartan_status status;
    tartan_layout *layout = NULL;
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_matrix_check_readable(__func__, "a", a));
    PASS(tartan_i_matrix_check_readable(__func__, "b", b));
    const tartan_shape *s = &a->layout->shape, *t = &b->layout->shape;
    CHECK(t->rows == s->cols && t->heads == s->heads, SHAPE,
          "b has %" PRId64 " rows and %" PRId64 " heads, expected %" PRId64
          " rows (columns of a) and %" PRId64 " heads",
          t->rows, t->heads, s->cols, s->heads);
    CHECK(t->block_rows == s->block_cols, SHAPE,
          "b has blocks of %" PRId64 " rows, expected %" PRId64 " (columns of the blocks of a)",
          t->block_rows, s->block_cols);
    CHECK(meet(a->layout, b->layout), SHAPE,
          "b has other boundaries of block rows than the block columns of a, expected the same");
    if (dtype == 0) dtype = tartan_i_common_dtype(a->dtype, b->dtype);
    PASS(tartan_i_matrix_check_new(__func__, a->layout, dtype, a->block_order));
    job j = {.a = a, .b = b};
    TRY(make_layout(__func__, a->layout, b->layout, &layout));
    TRY(tartan_i_matrix_new(layout, dtype, a->block_order, &j.c));
    if (tartan_i_multiply_is_small(a, b))
        TRY(tartan_i_multiply_small(__func__, context, a, b, j.c));
    else
        TRY(compute(__func__, context, &j));
    *out = j.c;
    j.c = NULL;
fail:
    tartan_matrix_free(j.c);
    tartan_layout_free(layout);
    return status;
}
