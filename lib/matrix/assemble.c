// SPDX-License-Identifier: Apache-2.0
// Matrices assembled from rectangles of others: cuts, other block sizes, concatenation, Kronecker products.
#include "matrix/assemble.h"

#include "core/array.h"
#include "layout/positions.h"
#include "matrix/join.h"
#include "tartan/structure.h"

#include <stdio.h>

typedef struct job {
    const tartan_i_part *part;
    tartan_matrix *to;
    int32_t workers;
} job;

// A rectangle of elements.
typedef struct area {
    int64_t row, row_end, col, col_end;
} area;

// What block `id` of a part becomes in the result; empty if the part has nothing of the block.
static area area_of(const tartan_i_part *p, int64_t id) {
    const tartan_layout *l = p->from->layout;
    const int64_t i = tartan_i_row_begin(l, l->block_rows[id]), j = tartan_i_col_begin(l, l->block_cols[id]);
    area a = {i, i + tartan_i_rows_of(l, l->block_rows[id]), j, j + tartan_i_cols_of(l, l->block_cols[id])};
    if (a.row < p->row_begin) a.row = p->row_begin;
    if (a.row_end > p->row_end) a.row_end = p->row_end;
    if (a.col < p->col_begin) a.col = p->col_begin;
    if (a.col_end > p->col_end) a.col_end = p->col_end;
    if (a.row >= a.row_end || a.col >= a.col_end) return (area){0, 0, 0, 0};
    a.row = p->row + (a.row - p->row_begin) * p->p;
    a.row_end = p->row + (a.row_end - p->row_begin) * p->p;
    a.col = p->col + (a.col - p->col_begin) * p->q;
    a.col_end = p->col + (a.col_end - p->col_begin) * p->q;
    return a;
}

/* ---- The layout ---- */

// Where the blocks of the result begin: at multiples of the shape's block, or at boundaries on a grid of 1 x 1 blocks.
typedef struct frame {
    tartan_shape shape;
    int64_t grid_rows, grid_cols;
    const int64_t *row_bounds, *col_bounds; /* both or none */
} frame;

static frame even_frame(const tartan_shape *s) {
    return (frame){.shape = *s,
                   .grid_rows = tartan_i_ceil_div(s->rows, s->block_rows),
                   .grid_cols = tartan_i_ceil_div(s->cols, s->block_cols)};
}

// The block row (column) of a row (column).
static int64_t block_at(const int64_t *bounds, int64_t grid, int64_t block, int64_t line) {
    return bounds != NULL ? tartan_i_bounds_find(bounds, grid, line) : line / block;
}
static int64_t row_at(const frame *f, int64_t row) {
    return block_at(f->row_bounds, f->grid_rows, f->shape.block_rows, row);
}
static int64_t col_at(const frame *f, int64_t col) {
    return block_at(f->col_bounds, f->grid_cols, f->shape.block_cols, col);
}

// Writes the positions of the blocks that a part reaches, or only counts them if `to` is NULL. Repeats are allowed.
static int64_t list_positions(const tartan_i_part *p, const frame *f, int64_t *to) {
    const tartan_layout *l = p->from->layout;
    int64_t count = 0, last = -1;
    for (int64_t head = 0; head < f->shape.heads; head++)
        for (int64_t id = l->row_pointers[head * l->grid_rows];
             id < l->row_pointers[(head + 1) * l->grid_rows]; id++) {
            const area a = area_of(p, id);
            if (a.row == a.row_end) continue;
            const int64_t row_end = row_at(f, a.row_end - 1) + 1, col_end = col_at(f, a.col_end - 1) + 1;
            for (int64_t i = row_at(f, a.row); i < row_end; i++)
                for (int64_t j = col_at(f, a.col); j < col_end; j++) {
                    const int64_t position = (head * f->grid_rows + i) * f->grid_cols + j;
                    if (position == last) continue;
                    if (to != NULL) to[count] = position;
                    last = position;
                    count++;
                }
        }
    return count;
}

static tartan_status make_layout(const char *function, const frame *f, const tartan_i_part *parts,
                                 int64_t nparts, tartan_layout **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    int64_t count = 0, *positions = NULL;
    for (int64_t n = 0; n < nparts; n++) count += list_positions(&parts[n], f, NULL);
    NEW(positions, count);
    count = 0;
    for (int64_t n = 0; n < nparts; n++) count += list_positions(&parts[n], f, positions + count);
    TRY(tartan_i_layout_from_positions(function, &f->shape, positions, count, true, NULL, &layout));
    if (f->row_bounds != NULL)
        TRY(tartan_i_layout_take_bounds(function, layout, f->row_bounds, f->col_bounds));
    *out = layout;
    layout = NULL;
fail:
    tartan_layout_free(layout);
    tartan_i_free(positions);
    return status;
}

/* ---- The values ---- */

static void *element(const tartan_matrix *m, int64_t id, int64_t row, int64_t col) {
    return tartan_i_at(tartan_i_block_at(m, id), m->dtype,
                       row * tartan_i_block_row_stride(m) + col * tartan_i_block_col_stride(m));
}

// Fills the elements `a` of block `to_id` at (top, left) of the result from block `id` at (from_top, from_left).
static void move(const job *j, const area *a, int64_t to_id, int64_t top, int64_t left, int64_t id,
                 int64_t from_top, int64_t from_left) {
    const tartan_i_part *p = j->part;
    const tartan_matrix *from = p->from, *to = j->to;
    const int64_t row = a->row - p->row + p->row_begin, col = a->col - p->col + p->col_begin;
    tartan_i_tile_copier(to->dtype, from->dtype)(
        element(to, to_id, a->row - top, a->col - left), tartan_i_block_row_stride(to),
        tartan_i_block_col_stride(to), element(from, id, row - from_top, col - from_left),
        tartan_i_block_row_stride(from), tartan_i_block_col_stride(from), a->row_end - a->row,
        a->col_end - a->col);
}

static void multiply(const job *j, const area *a, int64_t to_id, int64_t top, int64_t left, int64_t id,
                     int64_t from_top, int64_t from_left) {
    const tartan_i_part *p = j->part;
    const tartan_matrix *from = p->from, *to = j->to;
    const tartan_i_tile_copy load = tartan_i_tile_copier(TARTAN_F64, from->dtype);
    const tartan_i_tile_copy store = tartan_i_tile_copier(to->dtype, TARTAN_F64);
    const int64_t first = (a->col - p->col) / p->q, last = (a->col_end - 1 - p->col) / p->q,
                  n = a->col_end - a->col;
    double x[TARTAN_I_MAX_BLOCK], y[TARTAN_I_MAX_BLOCK];
    for (int64_t r = a->row; r < a->row_end; r++) {
        const int64_t row = (r - p->row) / p->p, k = (r - p->row) % p->p;
        load(x, 0, 1, element(from, id, row + p->row_begin - from_top, first + p->col_begin - from_left), 0,
             tartan_i_block_col_stride(from), 1, last - first + 1);
        for (int64_t c = 0; c < n; c++) {
            const int64_t col = a->col + c - p->col;
            y[c] = x[col / p->q - first] * p->factors[k * p->q + col % p->q];
        }
        store(element(to, to_id, r - top, a->col - left), 0, tartan_i_block_col_stride(to), y, 0, 1, 1, n);
    }
}

static void fill_block(const job *j, int64_t head, int64_t id) {
    const tartan_layout *from = j->part->from->layout, *l = j->to->layout;
    const int64_t from_top = tartan_i_row_begin(from, from->block_rows[id]);
    const int64_t from_left = tartan_i_col_begin(from, from->block_cols[id]);
    const area all = area_of(j->part, id);
    if (all.row == all.row_end) return;
    const int64_t row_end = tartan_i_block_row_at(l, all.row_end - 1) + 1;
    const int64_t first = tartan_i_block_col_at(l, all.col),
                  col_end = tartan_i_block_col_at(l, all.col_end - 1) + 1;
    for (int64_t i = tartan_i_block_row_at(l, all.row); i < row_end; i++)
        for (int64_t k = first; k < col_end; k++) {
            const int64_t top = tartan_i_row_begin(l, i), left = tartan_i_col_begin(l, k);
            const int64_t bottom = top + tartan_i_rows_of(l, i), right = left + tartan_i_cols_of(l, k);
            area a = all;
            if (a.row < top) a.row = top;
            if (a.row_end > bottom) a.row_end = bottom;
            if (a.col < left) a.col = left;
            if (a.col_end > right) a.col_end = right;
            const int64_t to_id = tartan_i_layout_find(l, head, i, k);
            if (j->part->factors == NULL)
                move(j, &a, to_id, top, left, id, from_top, from_left);
            else
                multiply(j, &a, to_id, top, left, id, from_top, from_left);
        }
}

static void fill_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *from = j->part->from->layout;
    int64_t begin, end;
    tartan_i_share(from->blocks, j->workers, worker, &begin, &end);
    int64_t head = begin < end ? tartan_i_layout_head(from, begin) : 0;
    for (int64_t id = begin; id < end; id++) {
        while (id >= from->row_pointers[(head + 1) * from->grid_rows]) head++;
        fill_block(j, head, id);
    }
}

static void zero_task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    tartan_i_share(j->to->layout->blocks, j->workers, worker, &begin, &end);
    const int64_t bytes = tartan_i_block_elements(j->to) * tartan_dtype_bytes(j->to->dtype);
    memset(tartan_i_block_at(j->to, begin), 0, (size_t)((end - begin) * bytes));
}

static tartan_status assemble(const char *function, tartan_context *context, const frame *f,
                              const tartan_i_part *parts, int64_t nparts, int32_t dtype, int32_t block_order,
                              tartan_matrix **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    job j = {.workers = context->threads};
    TRY(make_layout(function, f, parts, nparts, &layout));
    TRY(tartan_i_matrix_new(layout, dtype, block_order, &j.to));
    TRY(tartan_i_context_enter(function, context));
    const double elements = (double)layout->blocks * (double)tartan_i_block_elements(j.to);
    tartan_i_parallel(context, j.workers, elements, zero_task, &j);
    for (int64_t n = 0; n < nparts; n++) {
        j.part = &parts[n];
        const double moved =
            (double)parts[n].from->layout->blocks * (double)tartan_i_block_elements(parts[n].from);
        tartan_i_parallel(context, j.workers, moved * (double)(parts[n].p * parts[n].q), fill_task, &j);
    }
    tartan_i_context_leave(context);
    *out = j.to;
    j.to = NULL;
fail:
    tartan_matrix_free(j.to);
    tartan_layout_free(layout);
    return status;
}

tartan_status tartan_i_assemble(const char *function, tartan_context *context, const tartan_shape *shape,
                                const tartan_i_part *parts, int64_t nparts, int32_t dtype,
                                int32_t block_order, tartan_matrix **out) {
    const frame f = even_frame(shape);
    return assemble(function, context, &f, parts, nparts, dtype, block_order, out);
}

/* ---- Public ---- */

static tartan_status check_one(const char *function, const tartan_context *context,
                               const tartan_matrix *matrix) {
    PASS(tartan_i_work_check(function, context));
    return tartan_i_matrix_check_readable(function, "matrix", matrix);
}

static tartan_i_part whole(const tartan_matrix *matrix) {
    const tartan_shape *s = &matrix->layout->shape;
    return (tartan_i_part){.from = matrix, .row_end = s->rows, .col_end = s->cols, .p = 1, .q = 1};
}

tartan_status tartan_matrix_cut(tartan_context *context, const tartan_matrix *matrix, int64_t row_begin,
                                int64_t row_end, int64_t col_begin, int64_t col_end, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(check_one(__func__, context, matrix));
    tartan_shape shape = matrix->layout->shape;
    CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= shape.rows, ARGUMENT,
          "row_begin .. row_end is %" PRId64 " .. %" PRId64 ", expected a range within 0 .. %" PRId64,
          row_begin, row_end, shape.rows);
    CHECK(col_begin >= 0 && col_begin <= col_end && col_end <= shape.cols, ARGUMENT,
          "col_begin .. col_end is %" PRId64 " .. %" PRId64 ", expected a range within 0 .. %" PRId64,
          col_begin, col_end, shape.cols);
    shape.rows = row_end - row_begin;
    shape.cols = col_end - col_begin;
    tartan_i_part part = whole(matrix);
    part.row_begin = row_begin, part.row_end = row_end, part.col_begin = col_begin, part.col_end = col_end;
    return tartan_i_assemble(__func__, context, &shape, &part, 1, matrix->dtype, matrix->block_order, out);
}

tartan_status tartan_matrix_reblock(tartan_context *context, const tartan_matrix *matrix, int64_t block_rows,
                                    int64_t block_cols, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(check_one(__func__, context, matrix));
    tartan_shape shape = matrix->layout->shape;
    int64_t grid_rows, grid_cols;
    shape.block_rows = block_rows;
    shape.block_cols = block_cols;
    PASS(tartan_i_shape_check(__func__, &shape, &grid_rows, &grid_cols));
    const tartan_i_part part = whole(matrix);
    return tartan_i_assemble(__func__, context, &shape, &part, 1, matrix->dtype, matrix->block_order, out);
}

// Boundaries of one side, which has `size` lines.
static tartan_status check_side(const char *function, const char *name, const int64_t *bounds,
                                int64_t nbounds, int64_t size, const char *lines) {
    CHECK_IN(function, nbounds > 0, SHAPE, "n%s is %" PRId64 ", expected 1 or more", name, nbounds);
    PASS(tartan_i_bounds_check(function, name, bounds, nbounds, nbounds - 1));
    CHECK_IN(function, bounds[nbounds - 1] == size, SHAPE,
             "%s ends with %" PRId64 ", expected %" PRId64 " (%s of the matrix)", name, bounds[nbounds - 1],
             size, lines);
    return TARTAN_OK;
}

tartan_status tartan_matrix_reblock_at(tartan_context *context, const tartan_matrix *matrix,
                                       const int64_t *row_bounds, int64_t nrow_bounds,
                                       const int64_t *col_bounds, int64_t ncol_bounds, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    tartan_status status;
    int64_t *own_rows = NULL, *own_cols = NULL;
    PASS(check_one(__func__, context, matrix));
    const tartan_layout *l = matrix->layout;
    const bool rows_given = row_bounds != NULL || nrow_bounds != 0,
               cols_given = col_bounds != NULL || ncol_bounds != 0;
    if (rows_given) PASS(check_side(__func__, "row_bounds", row_bounds, nrow_bounds, l->shape.rows, "rows"));
    if (cols_given)
        PASS(check_side(__func__, "col_bounds", col_bounds, ncol_bounds, l->shape.cols, "columns"));
    NEW(own_rows, l->grid_rows + 1);
    NEW(own_cols, l->grid_cols + 1);
    TRY(tartan_layout_get_boundaries(l, own_rows, l->grid_rows + 1, own_cols, l->grid_cols + 1));
    const frame f = {.row_bounds = rows_given ? row_bounds : own_rows,
                     .col_bounds = cols_given ? col_bounds : own_cols,
                     .grid_rows = rows_given ? nrow_bounds - 1 : l->grid_rows,
                     .grid_cols = cols_given ? ncol_bounds - 1 : l->grid_cols,
                     .shape = {.rows = rows_given ? nrow_bounds - 1 : l->grid_rows,
                               .cols = cols_given ? ncol_bounds - 1 : l->grid_cols,
                               .block_rows = 1,
                               .block_cols = 1,
                               .heads = l->shape.heads}};
    int64_t grid_rows, grid_cols;
    TRY(tartan_i_shape_check(__func__, &f.shape, &grid_rows, &grid_cols));
    const tartan_i_part part = whole(matrix);
    status = assemble(__func__, context, &f, &part, 1, matrix->dtype, matrix->block_order, out);
fail:
    tartan_i_free(own_rows);
    tartan_i_free(own_cols);
    return status;
}

// Puts each matrix where the one before it ends; `shape` is that of the first and becomes that of the result.
static tartan_status place_parts(const char *function, int32_t direction,
                                 const tartan_matrix *const *matrices, int64_t nmatrices, tartan_shape *shape,
                                 tartan_i_part *parts) {
    int64_t row = 0, col = 0;
    for (int64_t n = 0; n < nmatrices; n++) {
        const tartan_shape *s = &matrices[n]->layout->shape;
        CHECK_IN(function, s->heads == shape->heads, SHAPE,
                 "matrices[%" PRId64 "] has %" PRId64 " heads, expected %" PRId64 " (as the first)", n,
                 s->heads, shape->heads);
        CHECK_IN(function, direction != TARTAN_DOWN || s->cols == shape->cols, SHAPE,
                 "matrices[%" PRId64 "] has %" PRId64 " columns, expected %" PRId64 " (as the first)", n,
                 s->cols, shape->cols);
        CHECK_IN(function, direction != TARTAN_RIGHTWARD || s->rows == shape->rows, SHAPE,
                 "matrices[%" PRId64 "] has %" PRId64 " rows, expected %" PRId64 " (as the first)", n,
                 s->rows, shape->rows);
        parts[n] = whole(matrices[n]);
        parts[n].row = row;
        parts[n].col = col;
        CHECK_IN(function,
                 (direction == TARTAN_RIGHTWARD || !__builtin_add_overflow(row, s->rows, &row)) &&
                     (direction == TARTAN_DOWN || !__builtin_add_overflow(col, s->cols, &col)),
                 OVERFLOW, "the matrices have more than 2^63 rows or columns together");
    }
    if (direction != TARTAN_RIGHTWARD) shape->rows = row;
    if (direction != TARTAN_DOWN) shape->cols = col;
    return TARTAN_OK;
}

static tartan_status hold_all(const char *function, const tartan_matrix *const *matrices, int64_t nmatrices,
                              tartan_matrix **held, int64_t *count) {
    while (*count < nmatrices) {
        char name[32];
        snprintf(name, sizeof name, "matrices[%" PRId64 "]", *count);
        held[*count] = tartan_i_matrix_held(matrices[*count]);
        if (held[*count] == NULL) return tartan_i_fail_handle(function, name, matrices[*count], "matrix");
        const tartan_status status = tartan_i_matrix_check_readable(function, name, held[*count]);
        ++*count;
        if (status != TARTAN_OK) return status;
    }
    return TARTAN_OK;
}

tartan_status tartan_matrix_concatenate(tartan_context *context, int32_t direction,
                                        const tartan_matrix *const *matrices, int64_t nmatrices,
                                        tartan_matrix **out) {
    tartan_status status;
    tartan_i_part *parts = NULL;
    tartan_matrix **held = NULL;
    int64_t count = 0, grid_rows, grid_cols;
    CHECK_OUT(out);
    PASS(tartan_i_work_check(__func__, context));
    CHECK(direction >= TARTAN_DOWN && direction <= TARTAN_DIAGONAL, ARGUMENT,
          "direction is %d, expected %d (down), %d (rightward) or %d (diagonal)", direction, TARTAN_DOWN,
          TARTAN_RIGHTWARD, TARTAN_DIAGONAL);
    CHECK(nmatrices > 0, SHAPE, "nmatrices is %" PRId64 ", expected one or more", nmatrices);
    CHECK(matrices != NULL, HANDLE, "matrices is NULL, expected %" PRId64 " entries", nmatrices);
    NEW(held, nmatrices);
    TRY(hold_all(__func__, matrices, nmatrices, held, &count));
    tartan_shape shape = matrices[0]->layout->shape;
    int32_t dtype = matrices[0]->dtype;
    NEW(parts, nmatrices);
    TRY(place_parts(__func__, direction, matrices, nmatrices, &shape, parts));
    TRY(tartan_i_shape_check(__func__, &shape, &grid_rows, &grid_cols));
    for (int64_t n = 1; n < nmatrices; n++) dtype = tartan_i_common_dtype(dtype, matrices[n]->dtype);
    if (tartan_i_joins_whole(parts, nmatrices))
        TRY(tartan_i_join(__func__, context, &shape, direction, parts, nmatrices, out));
    else
        TRY(tartan_i_assemble(__func__, context, &shape, parts, nmatrices, dtype, matrices[0]->block_order,
                              out));
fail:
    for (int64_t n = 0; n < count; n++) tartan_i_matrix_let_go(held[n]);
    tartan_i_free(held);
    tartan_i_free(parts);
    return status;
}

// The parts of D (x) A: A times each element of D that is not 0.
static tartan_status kronecker_parts(const tartan_matrix *matrix, const double *factors, int64_t p, int64_t q,
                                     tartan_i_part **out, int64_t *count) {
    const tartan_shape *s = &matrix->layout->shape;
    PASS(tartan_i_allocate(out, p * q, sizeof **out));
    *count = 0;
    for (int64_t k = 0; k < p; k++)
        for (int64_t l = 0; l < q; l++) {
            if (factors[k * q + l] == 0) continue;
            tartan_i_part *part = &(*out)[(*count)++];
            *part = whole(matrix);
            part->row = k * s->rows;
            part->col = l * s->cols;
            part->factors = &factors[k * q + l];
        }
    return TARTAN_OK;
}

tartan_status tartan_matrix_kronecker(tartan_context *context, const tartan_matrix *matrix,
                                      const tartan_array *dense, int32_t dense_first, int32_t dtype,
                                      tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    tartan_status status;
    char text[TARTAN_I_SHAPE_TEXT];
    int64_t grid_rows, grid_cols, count = 1;
    PASS(check_one(__func__, context, matrix));
    PASS(tartan_i_array_check(__func__, "dense", dense, false));
    CHECK(dense->ndim == 2, SHAPE, "dense has shape %s, expected [p, q]", tartan_i_shape_text(dense, text));
    if (dtype == 0) dtype = tartan_i_common_dtype(matrix->dtype, dense->dtype);
    PASS(tartan_i_matrix_check_new(__func__, matrix->layout, dtype, matrix->block_order));
    const int64_t p = dense->shape[0], q = dense->shape[1];
    tartan_shape shape = matrix->layout->shape;
    CHECK(tartan_i_multiply(shape.rows, p, &shape.rows) && tartan_i_multiply(shape.cols, q, &shape.cols),
          OVERFLOW, "the result has more than 2^63 rows or columns");
    if (dense_first == 0 && p > 0 && p <= TARTAN_I_MAX_BLOCK / shape.block_rows) shape.block_rows *= p;
    if (dense_first == 0 && q > 0 && q <= TARTAN_I_MAX_BLOCK / shape.block_cols) shape.block_cols *= q;
    PASS(tartan_i_shape_check(__func__, &shape, &grid_rows, &grid_cols));
    double *factors = NULL;
    tartan_i_part *parts = NULL, one = whole(matrix);
    NEW(factors, p * q);
    tartan_i_tile_copier(TARTAN_F64, dense->dtype)(factors, q, 1, dense->data, dense->strides[0],
                                                   dense->strides[1], p, q);
    if (dense_first != 0) TRY(kronecker_parts(matrix, factors, p, q, &parts, &count));
    one.factors = factors, one.p = p, one.q = q;
    TRY(tartan_i_assemble(__func__, context, &shape, dense_first != 0 ? parts : &one, p * q == 0 ? 0 : count,
                          dtype, matrix->block_order, out));
fail:
    tartan_i_free(factors);
    tartan_i_free(parts);
    return status;
}
