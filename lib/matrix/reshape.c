// SPDX-License-Identifier: Apache-2.0
// Another shape with the elements in the same order. Elements that follow each other row by row in the matrix do so in the result, so
// one walk along the rows of the matrix meets the rows of the result in order. By column, the same walk goes along the columns, and
// what it lists is the transpose of the result.
#include "matrix/reshape.h"

#include "core/interrupt.h"
#include "layout/search.h"
#include "matrix/element_rows.h"
#include "matrix/gather.h"
#include "tartan/structure.h"

typedef tartan_i_reshape_view view;
typedef tartan_i_reshape job;

/* ---- Blocks of one row that stay whole ---- */

// Whether rows of both are rows of such blocks.
static bool keeps_blocks(const job *j) {
    const int64_t width = j->shape.block_cols;
    return j->from.row_bounds == NULL && j->shape.block_rows == 1 && j->from.cols % width == 0 &&
           j->shape.cols % width == 0;
}

// Lists the blocks in a share of the rows of the result: pointers[row + 1], and columns.
static void list_whole_task(void *data, int32_t worker) {
    const job *j = data;
    const view *v = &j->from;
    const int64_t from_cols = v->cols / j->shape.block_cols, to_cols = j->shape.cols / j->shape.block_cols;
    int64_t to_row, last;
    tartan_i_share(j->shape.rows, j->workers, worker, &to_row, &last);
    if (to_row == last) return;
    const int64_t begin = to_row * to_cols;
    int64_t row = begin / from_cols, end = begin + to_cols; // where the row of the result ends
    int64_t k =
        tartan_i_find_col(v->block_cols_of, v->pointers[row], v->pointers[row + 1], begin - row * from_cols);
    for (; row < v->rows; row++) {
        const int64_t base = row * from_cols;
        for (const int64_t stop = v->pointers[row + 1]; k < stop; k++) {
            const int64_t place = base + v->block_cols_of[k];
            while (place >= end) {
                j->pointers[++to_row] = k;
                if (to_row == last) return;
                end += to_cols;
            }
            j->cols[k] = (int32_t)(place - (end - to_cols));
        }
    }
    while (to_row < last) j->pointers[++to_row] = k;
}

/* ---- Both ---- */

static view view_of(const tartan_matrix *matrix) {
    const tartan_layout *l = matrix->layout;
    return (view){.matrix = matrix,
                  .rows = l->shape.rows,
                  .cols = l->shape.cols,
                  .block_rows = l->shape.block_rows,
                  .block_cols = l->shape.block_cols,
                  .grid_rows = l->grid_rows,
                  .row_bounds = l->row_bounds,
                  .col_bounds = l->col_bounds,
                  .pointers = l->row_pointers,
                  .block_cols_of = l->block_cols,
                  .row_stride = tartan_i_block_row_stride(matrix),
                  .col_stride = tartan_i_block_col_stride(matrix)};
}

static tartan_status turned_view_of(const tartan_matrix *matrix, view *out) {
    const tartan_layout *l = matrix->layout;
    const tartan_i_columns *columns;
    PASS(tartan_i_layout_columns(l, &columns));
    *out = (view){.matrix = matrix,
                  .rows = l->shape.cols,
                  .cols = l->shape.rows,
                  .block_rows = l->shape.block_cols,
                  .block_cols = l->shape.block_rows,
                  .grid_rows = l->grid_cols,
                  .row_bounds = l->col_bounds,
                  .col_bounds = l->row_bounds,
                  .pointers = columns->pointers,
                  .block_cols_of = columns->rows,
                  .ids = columns->ids,
                  .row_stride = tartan_i_block_col_stride(matrix),
                  .col_stride = tartan_i_block_row_stride(matrix)};
    return TARTAN_OK;
}

tartan_status tartan_i_reshape_turn(job *j, const tartan_shape *shape, const int64_t *ids,
                                    int64_t **out_map) {
    tartan_status status;
    const int64_t count = j->pointers[j->grid_rows];
    tartan_layout *l = NULL;
    int64_t *map = NULL;
    TRY(tartan_i_layout_begin(shape, count, &l));
    NEW(map, count);
    int64_t *ends = l->row_pointers; /* ends[i] becomes the end of row i */
    memset(ends, 0, (size_t)(l->grid_rows + 1) * sizeof *ends);
    for (int64_t t = 0; t < count; t++) ends[j->cols[t] + 1]++;
    tartan_i_accumulate(ends, l->grid_rows);
    for (int64_t line = 0; line < j->grid_rows; line++)
        for (int64_t t = j->pointers[line]; t < j->pointers[line + 1]; t++) {
            const int64_t f = ends[j->cols[t]]++;
            l->block_cols[f] = (int32_t)line;
            if (ids != NULL)
                map[f] = ids[t];
            else
                map[t] = f;
        }
    memmove(ends + 1, ends, (size_t)l->grid_rows * sizeof *ends);
    ends[0] = 0;
    TRY(tartan_i_layout_finish(l));
    j->layout = l;
    *out_map = map;
    return TARTAN_OK;
fail:
    tartan_layout_free(l);
    tartan_i_free(map);
    return status;
}

static void copy_task(void *data, int32_t worker) {
    static const char none[8 * TARTAN_I_MAX_BLOCK]; /* no block is missing */
    const job *j = data;
    const tartan_matrix *from = j->from.matrix;
    int64_t begin, end;
    tartan_i_share(j->layout->blocks, j->workers, worker, &begin, &end);
    if (begin == end) return;
    if (j->sources != NULL)
        tartan_i_blocks_gather(tartan_i_block_at(j->to, begin), from, j->sources + begin, end - begin, none);
    else
        memcpy(tartan_i_block_at(j->to, begin), tartan_i_block_at(from, begin),
               (size_t)((end - begin) * tartan_i_block_elements(from) * tartan_dtype_bytes(from->dtype)));
}

// `shape` is that of the result.
static tartan_status reshape_whole(const char *function, const tartan_context *context, job *j,
                                   const tartan_shape *shape) {
    tartan_status status;
    const view *v = &j->from;
    const tartan_matrix *from = v->matrix;
    const int64_t blocks = from->layout->blocks;
    if (v->ids == NULL) {
        TRY(tartan_i_layout_begin(shape, blocks, &j->layout));
        j->pointers = j->layout->row_pointers;
        j->cols = j->layout->block_cols;
    } else {
        NEW(j->own_pointers, j->grid_rows + 1);
        NEW(j->own_cols, blocks);
        j->pointers = j->own_pointers;
        j->cols = j->own_cols;
    }
    memset(j->pointers, 0, (size_t)(blocks == 0 ? j->grid_rows + 1 : 1) * sizeof *j->pointers);
    if (blocks > 0) tartan_i_parallel(context, j->workers, 4 * (double)blocks, list_whole_task, j);
    TRY(tartan_i_interrupt_status(function, context, TARTAN_OK));
    if (v->ids == NULL)
        TRY(tartan_i_layout_finish(j->layout));
    else
        TRY(tartan_i_reshape_turn(j, shape, v->ids, &j->sources));
    TRY(tartan_i_matrix_new(j->layout, from->dtype, from->block_order, &j->to));
    tartan_i_parallel(context, j->workers, (double)blocks * (double)tartan_i_block_elements(from), copy_task,
                      j);
fail:
    return status;
}

static tartan_status reshape(const char *function, tartan_context *context, job *j, const tartan_shape *shape,
                             tartan_matrix **out) {
    tartan_status status;
    PASS(tartan_i_context_enter(function, context));
    if (keeps_blocks(j))
        TRY(reshape_whole(function, context, j, shape));
    else
        TRY(tartan_i_reshape_parts(function, context, j, shape));
    TRY(tartan_i_interrupt_status(function, context, TARTAN_OK));
    *out = j->to;
    j->to = NULL;
fail:
    tartan_i_context_leave(context);
    tartan_matrix_free(j->to);
    tartan_layout_free(j->layout);
    for (int32_t w = 0; j->sets != NULL && w < j->workers; w++) tartan_i_column_set_end(&j->sets[w]);
    tartan_i_free(j->sets);
    tartan_i_free(j->slots);
    tartan_i_free(j->room);
    tartan_i_free(j->own_pointers);
    tartan_i_free(j->own_cols);
    tartan_i_free(j->places);
    tartan_i_free(j->sources);
    return status;
}

tartan_status tartan_matrix_reshape(tartan_context *context, const tartan_matrix *matrix, int64_t rows,
                                    int64_t cols, int32_t by_column, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    tartan_shape shape = matrix->layout->shape;
    int64_t elements, wanted;
    CHECK(shape.heads == 1, SHAPE, "matrix has %" PRId64 " heads, expected 1", shape.heads);
    CHECK(tartan_i_multiply(shape.rows, shape.cols, &elements), OVERFLOW,
          "matrix is %" PRId64 " x %" PRId64 ", expected less than 2^63 elements", shape.rows, shape.cols);
    CHECK(rows >= 0 && cols >= 0 && tartan_i_multiply(rows, cols, &wanted) && wanted == elements, SHAPE,
          "the result is %" PRId64 " x %" PRId64 ", expected %" PRId64 " elements, as matrix has", rows, cols,
          elements);
    shape.rows = rows;
    shape.cols = cols;
    job j = {.from = view_of(matrix), .shape = shape, .workers = context->threads};
    PASS(tartan_i_shape_check(__func__, &shape, &j.grid_rows, &j.grid_cols));
    if (by_column != 0) {
        PASS(turned_view_of(matrix, &j.from));
        j.shape = (tartan_shape){.rows = cols,
                                 .cols = rows,
                                 .block_rows = shape.block_cols,
                                 .block_cols = shape.block_rows,
                                 .heads = 1};
        const int64_t grid_rows = j.grid_rows;
        j.grid_rows = j.grid_cols;
        j.grid_cols = grid_rows;
    }
    return reshape(__func__, context, &j, &shape, out);
}
