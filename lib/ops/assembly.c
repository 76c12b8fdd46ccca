/* SPDX-License-Identifier: Apache-2.0
 * Matrices from lists of blocks. */
#include "layout/places.h"
#include "layout/positions.h"
#include "matrix/work.h"
#include "ops/steps.h"
#include "tartan/structure.h"

static tartan_status check_blocks(const char *function, const tartan_context *context,
                                  const tartan_shape *shape, const tartan_places *places,
                                  const tartan_array *values, int32_t dtype, int32_t block_order) {
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_work_check(function, context));
    CHECK_IN(function, shape->heads == 1 || places->heads != NULL || places->count == 0, HANDLE,
             "heads is NULL, expected the head of each block of a shape with %" PRId64 " heads",
             shape->heads);
    PASS(tartan_i_array_check(function, "values", values, false));
    CHECK_IN(function,
             values->ndim == 3 && values->shape[0] == places->count &&
                 values->shape[1] == shape->block_rows && values->shape[2] == shape->block_cols,
             SHAPE, "values has shape %s, expected [%" PRId64 ", %" PRId64 ", %" PRId64 "]",
             tartan_i_shape_text(values, text), places->count, shape->block_rows, shape->block_cols);
    CHECK_IN(function, dtype == 0 || tartan_i_is_number(dtype), DTYPE,
             "dtype is %d, expected %d .. %d (a tartan_dtype)", dtype, TARTAN_F64, TARTAN_I_LAST_DTYPE);
    CHECK_IN(function, block_order == TARTAN_ROW_MAJOR || block_order == TARTAN_COL_MAJOR, ARGUMENT,
             "block_order is %d, expected %d (row-major) or %d (column-major)", block_order, TARTAN_ROW_MAJOR,
             TARTAN_COL_MAJOR);
    return TARTAN_OK;
}

/* The layout of blocks at ascending positions; ends[b] of them belong to blocks 0 .. b. */
static tartan_status lay_out(const char *function, const tartan_shape *shape, int64_t *positions,
                             int64_t count, int64_t *ends, tartan_layout **out) {
    int64_t blocks = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || positions[i] != positions[i - 1]) blocks++;
        ends[blocks - 1] = i + 1;
    }
    return tartan_i_layout_from_positions(function, shape, positions, count, true, NULL, out);
}

static tartan_status add_up(const char *function, tartan_context *context, const tartan_array *values,
                            const tartan_array *order, const tartan_array *ends, tartan_matrix *matrix) {
    const tartan_array to = tartan_i_matrix_view(matrix);
    tartan_i_steps steps;
    PASS(tartan_i_steps_begin(function, context, 0, &steps));
    tartan_op *const op = tartan_i_steps_add(&steps, TARTAN_OP_SEGMENT_SUM);
    op->segment_sum.x = op->segment_sum.z = &to;
    op->segment_sum.values = values, op->segment_sum.order = order, op->segment_sum.ends = ends;
    PASS(tartan_i_steps_run(&steps));
    tartan_i_matrix_clear_padding(matrix);
    return TARTAN_OK;
}

tartan_status tartan_matrix_from_blocks(tartan_context *context, const tartan_shape *shape,
                                        const tartan_places *places, const tartan_array *values,
                                        int32_t dtype, int32_t block_order, tartan_matrix **out) {
    tartan_status status;
    int64_t grid_rows, grid_cols;
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    PASS(tartan_i_places_check(__func__, places, shape->heads, grid_rows, grid_cols));
    PASS(check_blocks(__func__, context, shape, places, values, dtype, block_order));
    const int64_t count = places->count;
    int64_t *positions = NULL, *order = NULL, *ends = NULL;
    tartan_layout *layout = NULL;
    tartan_matrix *matrix = NULL;
    NEW(positions, count);
    NEW(order, count);
    NEW(ends, count);
    for (int64_t i = 0; i < count; i++) {
        positions[i] =
            (tartan_i_head_at(places, i) * grid_rows + places->rows[i]) * grid_cols + places->cols[i];
        order[i] = i;
    }
    TRY(tartan_i_sort(positions, order, count));
    TRY(lay_out(__func__, shape, positions, count, ends, &layout));
    TRY(tartan_i_matrix_new(layout, dtype == 0 ? values->dtype : dtype, block_order, &matrix));
    tartan_array list = {.data = order, .dtype = TARTAN_I64, .ndim = 1, .shape = {count}, .strides = {1}},
                 last = {
                     .data = ends, .dtype = TARTAN_I64, .ndim = 1, .shape = {layout->blocks}, .strides = {1}};
    list.device_type = last.device_type = TARTAN_CPU;
    TRY(add_up(__func__, context, values, &list, &last, matrix));
    *out = matrix;
    matrix = NULL;
fail:
    tartan_matrix_free(matrix);
    tartan_layout_free(layout); /* the matrix has its own reference */
    tartan_i_free(positions);
    tartan_i_free(order);
    tartan_i_free(ends);
    return status;
}
