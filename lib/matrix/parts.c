// SPDX-License-Identifier: Apache-2.0
// Triangles of a matrix.
#include "layout/positions.h"
#include "matrix/work.h"
#include "tartan/structure.h"

typedef struct job {
    const tartan_matrix *from;
    tartan_matrix *to;
    const int64_t *sources; /* the block of `from` for each of `to` */
    int32_t triangle;
    int64_t offset;
    int32_t workers;
} job;

// Zeroes the elements of a block that are not in the triangle.
static void clear_outside(const job *j, int64_t id) {
    const tartan_matrix *m = j->to;
    const tartan_layout *l = m->layout;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    const int64_t row = tartan_i_row_begin(l, l->block_rows[id]),
                  col = tartan_i_col_begin(l, l->block_cols[id]);
    const int64_t row_stride = tartan_i_block_row_stride(m), col_stride = tartan_i_block_col_stride(m);
    for (int64_t r = 0; r < rows; r++) {
        int64_t edge =
            row + r + j->offset - col + (j->triangle == TARTAN_LOWER); /* first outside, or first inside */
        edge = edge < 0 ? 0 : edge > cols ? cols : edge;
        const int64_t begin = j->triangle == TARTAN_LOWER ? edge : 0,
                      end = j->triangle == TARTAN_LOWER ? cols : edge;
        for (int64_t c = begin; c < end; c++)
            tartan_i_store(tartan_i_block_at(m, id), m->dtype, r * row_stride + c * col_stride, 0);
    }
}

static void copy_task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    tartan_i_share(j->to->layout->blocks, j->workers, worker, &begin, &end);
    for (int64_t id = begin; id < end; id++) {
        tartan_i_block_copy(j->to, id, j->from, j->sources[id], false);
        clear_outside(j, id);
    }
}

// The matrix of the blocks `sources` [count], ascending.
static tartan_status keep(const char *function, tartan_context *context, job *j, int64_t count,
                          tartan_matrix **out) {
    tartan_status status;
    tartan_layout *old = j->from->layout, *layout = NULL;
    int64_t *positions = NULL;
    if (count == old->blocks) {
        layout = tartan_layout_retain(old);
    } else {
        NEW(positions, old->blocks);
        tartan_i_layout_positions(old, positions);
        for (int64_t n = 0; n < count; n++) positions[n] = positions[j->sources[n]];
        const tartan_shape frame = tartan_i_layout_frame(old);
        TRY(tartan_i_layout_from_positions(function, &frame, positions, count, false, NULL, &layout));
        TRY(tartan_i_layout_take_bounds_of(function, layout, old));
    }
    TRY(tartan_i_matrix_new(layout, j->from->dtype, j->from->block_order, &j->to));
    j->workers = context->threads;
    TRY(tartan_i_work_run(function, context, (double)count * (double)tartan_i_block_elements(j->from),
                          copy_task, j));
    *out = j->to;
    j->to = NULL;
fail:
    tartan_matrix_free(j->to);
    tartan_layout_free(layout);
    tartan_i_free(positions);
    return status;
}

tartan_status tartan_matrix_triangle(tartan_context *context, const tartan_matrix *matrix, int32_t triangle,
                                     int64_t offset, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    tartan_status status;
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    CHECK(triangle == TARTAN_LOWER || triangle == TARTAN_UPPER, ARGUMENT,
          "triangle is %d, expected %d (lower) or %d (upper)", triangle, TARTAN_LOWER, TARTAN_UPPER);
    const tartan_layout *l = matrix->layout;
    const tartan_shape *s = &l->shape;
    if (offset > s->cols) offset = s->cols; /* beyond the last diagonal: all, or nothing */
    if (offset < -s->rows) offset = -s->rows;
    int64_t *sources = NULL, count = 0;
    NEW(sources, l->blocks);
    for (int64_t id = 0; id < l->blocks; id++) {
        const int64_t row = tartan_i_row_begin(l, l->block_rows[id]),
                      col = tartan_i_col_begin(l, l->block_cols[id]);
        const int64_t last_row = row + tartan_i_rows_of(l, l->block_rows[id]) - 1;
        const int64_t last_col = col + tartan_i_cols_of(l, l->block_cols[id]) - 1;
        if (triangle == TARTAN_LOWER ? col - last_row <= offset : last_col - row >= offset)
            sources[count++] = id;
    }
    job j = {.from = matrix, .sources = sources, .triangle = triangle, .offset = offset};
    TRY(keep(__func__, context, &j, count, out));
fail:
    tartan_i_free(sources);
    return status;
}
