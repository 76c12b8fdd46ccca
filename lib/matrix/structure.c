// SPDX-License-Identifier: Apache-2.0
// Cuts, other block sizes and boundaries, concatenation, Kronecker products.
#include "tartan/structure.h"

#include "core/array.h"
#include "matrix/cut.h"
#include "matrix/join.h"

#include <stdio.h>

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
    return tartan_i_cut(__func__, context, matrix, row_begin, col_begin, &shape, out);
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
    return tartan_i_cut_in(__func__, context, matrix, 0, 0, &shape, out);
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
    const tartan_i_frame f = {.row_bounds = rows_given ? row_bounds : own_rows,
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
    status = tartan_i_assemble_in(__func__, context, &f, &part, 1, matrix->dtype, matrix->block_order, out);
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
