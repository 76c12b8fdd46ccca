// SPDX-License-Identifier: Apache-2.0
// Initial values. Numbers are computed in f64 and rounded once, so all dtypes and block orders agree.
#include "core/parallel.h"
#include "core/random.h"
#include "matrix/matrix.h"
#include "matrix/orthogonal.h"

#include <math.h>

/* ---- Zero, identity ---- */

tartan_status tartan_matrix_fill_zero(tartan_matrix *matrix) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    int64_t bytes = tartan_i_block_elements(matrix) * tartan_dtype_bytes(matrix->dtype);
    if (matrix->layout->blocks > 0) memset(matrix->values, 0, (size_t)(matrix->layout->blocks * bytes));
    return TARTAN_OK;
}

tartan_status tartan_matrix_fill_identity(tartan_matrix *matrix, double scale) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_cpu(__func__, matrix));
    CHECK(isfinite(scale), ARGUMENT, "scale is %g, expected a finite number", scale);
    PASS(tartan_matrix_fill_zero(matrix));
    const tartan_layout *l = matrix->layout;
    int64_t step = tartan_i_block_row_stride(matrix) + tartan_i_block_col_stride(matrix);
    for (int64_t id = 0; id < l->blocks; id++) {
        int64_t i = l->block_rows[id], j = l->block_cols[id];
        if (i % l->grid_cols != j % l->grid_rows) continue;
        int64_t rows = tartan_i_rows_of(l, i), cols = tartan_i_cols_of(l, j);
        for (int64_t d = 0; d < (rows < cols ? rows : cols); d++)
            tartan_i_store(tartan_i_block_at(matrix, id), matrix->dtype, d * step, scale);
    }
    return TARTAN_OK;
}

/* ---- Random ---- */

// Shared by the workers. Each uses `room` numbers of `scratch`.
typedef struct job {
    tartan_matrix *matrix;
    const tartan_i_columns *columns; /* of orthogonal columns */
    double scale;
    uint64_t seed;
    int32_t workers;
    double *scratch;
    int64_t room;
} job;

static tartan_status check_random(const char *function, const tartan_context *context,
                                  const tartan_matrix *matrix, double scale, int64_t seed) {
    if (!tartan_i_is(context, TARTAN_I_CONTEXT))
        return tartan_i_fail_handle(function, "context", context, "context");
    PASS(tartan_i_matrix_check_readable(function, "matrix", matrix));
    CHECK_IN(function, isfinite(scale), ARGUMENT, "scale is %g, expected a finite number", scale);
    CHECK_IN(function, seed >= -1, ARGUMENT, "seed is %" PRId64 ", expected -1 (the context's) or more",
             seed);
    return TARTAN_OK;
}

// The given seed, or for -1 the next of the context's: its own at first, then others that follow from it.
static uint64_t take_seed(tartan_context *context, int64_t given) {
    const uint64_t seed = tartan_i_seed(context, given);
    /* 2^64 over the golden ratio: no number comes again */
    if (given < 0) context->options.seed = (int64_t)((seed + UINT64_C(0x9e3779b97f4a7c15)) & INT64_MAX);
    return seed;
}

// Allocates scratch memory and runs `task` over `shares` independent shares.
static tartan_status run(const char *function, tartan_context *context, job *j, int64_t shares,
                         tartan_task task) {
    j->workers = context->threads < shares ? context->threads : (int32_t)shares;
    if (j->workers == 0) return TARTAN_OK;
    PASS(tartan_i_context_enter(function, context));
    const tartan_status status =
        tartan_i_allocate(&j->scratch, j->workers, j->room * (int64_t)sizeof *j->scratch);
    const double elements = (double)j->matrix->layout->blocks * (double)tartan_i_block_elements(j->matrix);
    if (status == TARTAN_OK) tartan_i_parallel(context, j->workers, 32 * elements, task, j);
    tartan_i_context_leave(context);
    tartan_i_free(j->scratch);
    return status;
}

// The normal numbers of block `id`, row-major with padding; there is room for an even count.
static void draw_block(const job *j, uint32_t stream, int64_t id, double *out) {
    int64_t elements = tartan_i_block_elements(j->matrix);
    for (int64_t e = 0; e < elements; e += 2)
        tartan_i_normal_pair(j->seed, stream, (uint64_t)id, (uint32_t)(e / 2), out + e);
}

// Stores rows x cols numbers into block `id` and zeroes the rest of it.
static void store_block(const job *j, int64_t id, const double *from, int64_t row_stride,
                        int64_t col_stride) {
    const tartan_matrix *m = j->matrix;
    const tartan_layout *l = m->layout;
    int64_t rows = tartan_i_rows_of(l, l->block_rows[id]), cols = tartan_i_cols_of(l, l->block_cols[id]);
    int64_t elements = tartan_i_block_elements(m);
    void *block = tartan_i_block_at(m, id);
    if (rows * cols < elements) memset(block, 0, (size_t)(elements * tartan_dtype_bytes(m->dtype)));
    tartan_i_tile_copier(m->dtype, TARTAN_F64)(block, tartan_i_block_row_stride(m),
                                               tartan_i_block_col_stride(m), from, row_stride, col_stride,
                                               rows, cols);
}

// Fills block rows of all heads.
static void fill_normal_rows(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->matrix->layout;
    double *numbers = j->scratch + worker * j->room;
    int64_t begin, end, elements = tartan_i_block_elements(j->matrix);
    tartan_i_share(l->shape.heads * l->grid_rows, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t fan_in = 0;
        for (int64_t id = l->row_pointers[i]; id < l->row_pointers[i + 1]; id++)
            fan_in += tartan_i_cols_of(l, l->block_cols[id]);
        double deviation = fan_in > 0 ? j->scale / sqrt((double)fan_in) : 0;
        for (int64_t id = l->row_pointers[i]; id < l->row_pointers[i + 1]; id++) {
            draw_block(j, TARTAN_I_STREAM_NORMAL, id, numbers);
            for (int64_t e = 0; e < elements; e++) numbers[e] *= deviation;
            store_block(j, id, numbers, l->shape.block_cols, 1);
        }
    }
}

tartan_status tartan_matrix_fill_normal(tartan_context *context, tartan_matrix *matrix, double scale,
                                        int64_t seed) {
    HOLD_MATRIX(matrix);
    PASS(check_random(__func__, context, matrix, scale, seed));
    const tartan_layout *l = matrix->layout;
    job j = {.matrix = matrix, .scale = scale, .seed = take_seed(context, seed)};
    j.room = tartan_i_block_elements(matrix) + 1;
    return run(__func__, context, &j, l->shape.heads * l->grid_rows, fill_normal_rows);
}

// Size of the stack of all stored blocks of block column `c`, counted over all heads.
static void stack_size(const tartan_layout *l, const tartan_i_columns *columns, int64_t c, int64_t *out_rows,
                       int64_t *out_cols) {
    *out_rows = 0;
    for (int64_t n = columns->pointers[c]; n < columns->pointers[c + 1]; n++)
        *out_rows += tartan_i_rows_of(l, columns->rows[n]);
    *out_cols = tartan_i_cols_of(l, c % l->grid_cols);
}

// One block column: draws the stack as an array of vectors along its longer side, orthogonalises and stores them.
// Element (r, c) of the stack is at r * row_stride + c * col_stride.
static void fill_stack(const job *j, int64_t c, double *scratch) {
    const tartan_layout *l = j->matrix->layout;
    const tartan_i_columns *columns = j->columns;
    int64_t elements = tartan_i_block_elements(j->matrix), rows, cols;
    stack_size(l, columns, c, &rows, &cols);
    if (rows == 0) return;
    bool tall = rows >= cols;
    int64_t length = tall ? rows : cols, count = tall ? cols : rows;
    int64_t row_stride = tall ? 1 : cols, col_stride = tall ? rows : 1;
    double *block = scratch, *stack = block + elements + 1, *work = stack + rows * cols;
    for (int64_t n = columns->pointers[c], top = 0; n < columns->pointers[c + 1]; n++) {
        int64_t here = tartan_i_rows_of(l, columns->rows[n]);
        draw_block(j, TARTAN_I_STREAM_ORTHOGONAL, columns->ids[n], block);
        tartan_i_tile_copier(TARTAN_F64, TARTAN_F64)(stack + top * row_stride, row_stride, col_stride, block,
                                                     l->shape.block_cols, 1, here, cols);
        top += here;
    }
    tartan_i_orthogonalise(stack, length, count, work);
    for (int64_t e = 0; e < rows * cols; e++) stack[e] *= j->scale;
    for (int64_t n = columns->pointers[c], top = 0; n < columns->pointers[c + 1]; n++) {
        store_block(j, columns->ids[n], stack + top * row_stride, row_stride, col_stride);
        top += tartan_i_rows_of(l, columns->rows[n]);
    }
}

static void fill_orthogonal_columns(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->matrix->layout;
    int64_t begin, end;
    tartan_i_share(l->shape.heads * l->grid_cols, j->workers, worker, &begin, &end);
    for (int64_t c = begin; c < end; c++) fill_stack(j, c, j->scratch + worker * j->room);
}

tartan_status tartan_matrix_fill_orthogonal(tartan_context *context, tartan_matrix *matrix, double scale,
                                            int64_t seed) {
    HOLD_MATRIX(matrix);
    PASS(check_random(__func__, context, matrix, scale, seed));
    const tartan_layout *l = matrix->layout;
    const tartan_i_columns *columns;
    PASS(tartan_i_layout_columns(l, &columns));
    const int64_t count = l->shape.heads * l->grid_cols;
    int64_t largest = 0, rows, cols;
    for (int64_t c = 0; c < count; c++) {
        stack_size(l, columns, c, &rows, &cols);
        if (rows * cols > largest) largest = rows * cols;
    }
    job j = {.matrix = matrix, .columns = columns, .scale = scale, .seed = take_seed(context, seed)};
    j.room = tartan_i_block_elements(matrix) + 1 + largest + 2 * l->shape.block_cols;
    return run(__func__, context, &j, count, fill_orthogonal_columns);
}
