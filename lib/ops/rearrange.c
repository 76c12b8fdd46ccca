/* SPDX-License-Identifier: Apache-2.0
 * New matrices made of the blocks of another, and copies of blocks into an existing matrix. */
#include "layout/positions.h"
#include "ops/blocks.h"
#include "tartan/arithmetic.h"
#include "tartan/structure.h"

/* The matrix on `layout` whose block i is block sources[i] of `matrix`. Takes ownership of `layout` and `sources`. */
static tartan_status finish(const char *function, tartan_context *context, const tartan_matrix *matrix,
                            tartan_layout *layout, int64_t *sources, bool transposed, tartan_matrix **out) {
    const tartan_i_blocks_form form = {.from = matrix,
                                       .layout = layout,
                                       .dtype = matrix->dtype,
                                       .block_order = matrix->block_order,
                                       .sources = sources,
                                       .transposed = transposed};
    const tartan_status status = tartan_i_blocks_new(function, context, &form, out);
    tartan_layout_free(layout);
    tartan_i_free(sources);
    return status;
}

tartan_status tartan_matrix_transpose(tartan_context *context, const tartan_matrix *matrix,
                                      tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    tartan_layout *layout;
    int64_t *sources;
    PASS(tartan_i_layout_transpose(matrix->layout, &sources, &layout));
    return finish(__func__, context, matrix, layout, sources, true, out);
}

tartan_status tartan_matrix_permute(tartan_context *context, const tartan_matrix *matrix,
                                    const int64_t *row_order, int64_t nrow_order, const int64_t *col_order,
                                    int64_t ncol_order, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    tartan_layout *layout;
    int64_t *sources;
    PASS(tartan_i_layout_permute(matrix->layout, row_order, nrow_order, col_order, ncol_order, &sources,
                                 &layout));
    return finish(__func__, context, matrix, layout, sources, false, out);
}

tartan_status tartan_matrix_slice(tartan_context *context, const tartan_matrix *matrix, int64_t row_begin,
                                  int64_t row_end, int64_t col_begin, int64_t col_end, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    tartan_layout *layout;
    int64_t *sources;
    PASS(tartan_i_layout_slice(matrix->layout, row_begin, row_end, col_begin, col_end, &sources, &layout));
    return finish(__func__, context, matrix, layout, sources, false, out);
}

static tartan_status check_blocks(const char *function, const char *name, const tartan_shape *a,
                                  const tartan_shape *b) {
    CHECK_IN(function, a->block_rows == b->block_rows && a->block_cols == b->block_cols, SHAPE,
             "%s has blocks of %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64 " (as the matrix)",
             name, a->block_rows, a->block_cols, b->block_rows, b->block_cols);
    return TARTAN_OK;
}

tartan_status tartan_matrix_project(tartan_context *context, const tartan_matrix *matrix,
                                    tartan_layout *layout, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    CHECK_HOST_LAYOUT(layout);
    const tartan_shape *a = &layout->shape, *b = &matrix->layout->shape;
    CHECK(a->rows == b->rows && a->cols == b->cols && a->heads == b->heads, SHAPE,
          "layout is %" PRId64 " x %" PRId64 " with %" PRId64 " heads, expected %" PRId64 " x %" PRId64
          " with %" PRId64 " (as the matrix)",
          a->rows, a->cols, a->heads, b->rows, b->cols, b->heads);
    PASS(check_blocks(__func__, "layout", a, b));
    CHECK(tartan_i_layout_same_frame(layout, matrix->layout), SHAPE,
          "layout has other block boundaries than the matrix, expected the same");
    int64_t *sources;
    PASS(tartan_i_allocate(&sources, layout->blocks, sizeof *sources));
    tartan_i_layout_match(layout, matrix->layout, sources);
    return finish(__func__, context, matrix, tartan_layout_retain(layout), sources, false, out);
}

static tartan_status check_ids(const char *function, const char *name, const int64_t *ids, int64_t count,
                               int64_t blocks) {
    for (int64_t i = 0; i < count; i++)
        CHECK_IN(function, ids[i] >= -1 && ids[i] < blocks, LAYOUT,
                 "%s[%" PRId64 "] is %" PRId64 ", expected -1 .. %" PRId64, name, i, ids[i], blocks - 1);
    return TARTAN_OK;
}

tartan_status tartan_matrix_rearrange(tartan_context *context, const tartan_matrix *matrix,
                                      tartan_layout *layout, const int64_t *sources, int64_t nsources,
                                      tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    PASS(tartan_i_matrix_check_even(__func__, "matrix", matrix->layout));
    CHECK_HANDLE(layout, LAYOUT, "layout");
    PASS(check_blocks(__func__, "layout", &layout->shape, &matrix->layout->shape));
    CHECK_LIST(sources, layout->blocks, "blocks of the layout");
    PASS(check_ids(__func__, "sources", sources, nsources, matrix->layout->blocks));
    const tartan_i_blocks_form form = {.from = matrix,
                                       .layout = layout,
                                       .dtype = matrix->dtype,
                                       .block_order = matrix->block_order,
                                       .sources = sources};
    return tartan_i_blocks_new(__func__, context, &form, out);
}

/* No target may occur twice. */
static tartan_status check_once(const char *function, const int64_t *targets, int64_t ntargets,
                                int64_t blocks) {
    tartan_status status = TARTAN_OK;
    bool *taken = NULL;
    NEW_ZEROED(taken, blocks);
    for (int64_t i = 0; i < ntargets && status == TARTAN_OK; i++) {
        if (targets[i] < 0) continue;
        if (taken[targets[i]])
            status = tartan_i_fail(TARTAN_ERR_LAYOUT, function,
                                   "targets[%" PRId64 "] is %" PRId64 " again, expected each block once", i,
                                   targets[i]);
        taken[targets[i]] = true;
    }
fail:
    tartan_i_free(taken);
    return status;
}

tartan_status tartan_matrix_scatter(tartan_context *context, const tartan_matrix *from,
                                    const int64_t *targets, int64_t ntargets, tartan_matrix *matrix) {
    HOLD_MATRIX(from);
    HOLD_MATRIX(matrix);
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    PASS(tartan_i_operand_matrix(__func__, context, "from", from));
    PASS(tartan_i_matrix_check_stays(__func__, "from", from));
    PASS(tartan_i_matrix_check_even(__func__, "matrix", matrix->layout));
    PASS(tartan_i_matrix_check_even(__func__, "from", from->layout));
    const int64_t blocks = matrix->layout->blocks;
    PASS(check_blocks(__func__, "from", &from->layout->shape, &matrix->layout->shape));
    CHECK_LIST(targets, from->layout->blocks, "blocks of from");
    PASS(check_ids(__func__, "targets", targets, ntargets, blocks));
    const tartan_array to = tartan_i_matrix_view(matrix), values = tartan_i_matrix_view(from);
    PASS(tartan_i_array_check_apart(__func__, "matrix", &to, "the values of from", &values));
    PASS(check_once(__func__, targets, ntargets, blocks));
    if (ntargets == 0) return TARTAN_OK;
    return tartan_i_blocks_scatter(__func__, context, matrix, from, targets);
}

/* The blocks whose largest absolute value is not at most `tolerance`. */
static tartan_status keep_large(const char *function, tartan_context *context, const tartan_matrix *matrix,
                                const double *largest, double tolerance, tartan_matrix **out) {
    tartan_status status;
    tartan_layout *old = matrix->layout, *layout = NULL;
    const tartan_shape frame = tartan_i_layout_frame(old);
    int64_t *positions = NULL, *sources = NULL, count = 0;
    NEW(positions, old->blocks);
    NEW(sources, old->blocks);
    tartan_i_layout_positions(old, positions);
    for (int64_t id = 0; id < old->blocks; id++) {
        if (largest[id] <= tolerance) continue; /* NaN is not */
        positions[count] = positions[id];
        sources[count++] = id;
    }
    if (count == old->blocks) {
        layout = tartan_layout_retain(old);
    } else {
        TRY(tartan_i_layout_from_positions(function, &frame, positions, count, false, NULL, &layout));
        TRY(tartan_i_layout_take_bounds_of(function, layout, old));
    }
    const tartan_i_blocks_form form = {.from = matrix,
                                       .layout = layout,
                                       .dtype = matrix->dtype,
                                       .block_order = matrix->block_order,
                                       .sources = sources};
    TRY(tartan_i_blocks_new(function, context, &form, out));
fail:
    tartan_layout_free(layout);
    tartan_i_free(positions);
    tartan_i_free(sources);
    return status;
}

tartan_status tartan_matrix_drop_zeros(tartan_context *context, const tartan_matrix *matrix, double tolerance,
                                       tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    tartan_status status;
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    CHECK(tolerance >= 0, ARGUMENT, "tolerance is %g, expected 0 or more", tolerance);
    const int64_t blocks = matrix->layout->blocks;
    double *largest = NULL;
    NEW(largest, blocks);
    TRY(tartan_matrix_reduce(context, matrix, TARTAN_REDUCE_ABS_MAXIMUM, TARTAN_EACH_BLOCK, largest, blocks));
    TRY(keep_large(__func__, context, matrix, largest, tolerance, out));
fail:
    tartan_i_free(largest);
    return status;
}
