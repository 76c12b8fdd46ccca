// SPDX-License-Identifier: Apache-2.0
// Rectangles of a matrix. Where every block of the result is a part of one block, no line merges blocks and no zeros are stored beside
// them; else they are assembled.
#include "matrix/cut.h"

#include "layout/search.h"
#include "matrix/assemble.h"

#include <string.h>

int64_t tartan_i_common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

// How high (or wide) blocks are after a cut at `begin`, if they have `size` rows before.
static int64_t size_of_cut(int64_t size, int64_t begin) {
    return size > TARTAN_I_SMALL_BLOCK ? size : tartan_i_common_divisor(size, begin);
}

// Whether every block of the result is a part of one block.
static bool is_within_blocks(const tartan_layout *layout, int64_t row_begin, int64_t col_begin,
                             const tartan_shape *shape) {
    return !tartan_i_is_variable(layout) && layout->shape.block_rows % shape->block_rows == 0 &&
           layout->shape.block_cols % shape->block_cols == 0 && row_begin % shape->block_rows == 0 &&
           col_begin % shape->block_cols == 0;
}

typedef struct job {
    const tartan_matrix *from;
    int64_t row_begin, col_begin;
    tartan_layout *layout;
    tartan_matrix *to;
    int32_t workers;
} job;

/* ---- The layout ---- */

// The blocks of the matrix that a line of the result has parts of, and the row of these blocks that it begins with.
typedef struct source {
    int64_t begin, end, row;
} source;

static source source_of(const job *j, const tartan_shape *s, int64_t head, int64_t i) {
    const tartan_layout *l = j->from->layout;
    const int64_t row = j->row_begin + i * s->block_rows, block = row / l->shape.block_rows;
    const int64_t *pointers = l->row_pointers + head * l->grid_rows + block;
    source x = {.begin = pointers[0], .end = pointers[1], .row = row - block * l->shape.block_rows};
    const int64_t width = l->shape.block_cols, end = tartan_i_ceil_div(j->col_begin + s->cols, width);
    if (j->col_begin >= width)
        x.begin = tartan_i_find_col(l->block_cols, x.begin, x.end, j->col_begin / width);
    if (end < l->grid_cols) x.end = tartan_i_find_col(l->block_cols, x.begin, x.end, end);
    return x;
}

// Of block `id`: its first column, counted in the result, and the columns that are in the result.
static void columns_of(const job *j, const tartan_shape *s, int64_t id, int64_t *left, int64_t *begin,
                       int64_t *end) {
    const int64_t width = j->from->layout->shape.block_cols;
    *left = j->from->layout->block_cols[id] * width - j->col_begin;
    *begin = *left > 0 ? *left : 0;
    *end = *left + width < s->cols ? *left + width : s->cols;
}

static int64_t count_parts(const job *j, const tartan_shape *s, const source *x) {
    const int64_t width = s->block_cols, each = j->from->layout->shape.block_cols / width;
    if (x->begin >= x->end) return 0;
    int64_t left, begin, end, count = 0;
    columns_of(j, s, x->begin, &left, &begin, &end); /* the outer blocks can be cut */
    count += tartan_i_ceil_div(end - begin, width);
    if (x->end - x->begin == 1) return count;
    columns_of(j, s, x->end - 1, &left, &begin, &end);
    return count + tartan_i_ceil_div(end - begin, width) + (x->end - x->begin - 2) * each;
}

static tartan_status make_layout(job *j, const tartan_shape *s, int64_t grid_rows) {
    tartan_status status;
    int64_t *pointers, count = 0;
    NEW(pointers, s->heads * grid_rows + 1);
    for (int64_t line = 0; line < s->heads * grid_rows; line++) {
        const source x = source_of(j, s, line / grid_rows, line % grid_rows);
        pointers[line] = count;
        count += count_parts(j, s, &x);
    }
    pointers[s->heads * grid_rows] = count;
    TRY(tartan_i_layout_begin(s, count, &j->layout));
    memcpy(j->layout->row_pointers, pointers, (size_t)(s->heads * grid_rows + 1) * sizeof *pointers);
    int32_t *to = j->layout->block_cols;
    for (int64_t line = 0; line < s->heads * grid_rows; line++) {
        if (pointers[line] == pointers[line + 1]) continue;
        const source x = source_of(j, s, line / grid_rows, line % grid_rows);
        for (int64_t id = x.begin; id < x.end; id++) {
            int64_t left, col, end;
            columns_of(j, s, id, &left, &col, &end);
            for (int32_t k = (int32_t)(col / s->block_cols); col < end; col += s->block_cols) *to++ = k++;
        }
    }
    TRY(tartan_i_layout_finish(j->layout));
fail:
    tartan_i_free(pointers);
    return status;
}

/* ---- The values ---- */

// Strides between rows and columns, in elements, and the blocks of the result.
typedef struct strides {
    int64_t from_row, from_col, to_row, to_col, rows, cols;
} strides;

#define FILL_LINE(name, type)                                                                                \
    static inline __attribute__((always_inline)) type *name##_blocks(                                        \
        const job *j, const strides *t, const source *x, int64_t rows, int64_t cols, type *to) {             \
        const int64_t elements = tartan_i_block_elements(j->from);                                           \
        const tartan_shape *s = &j->layout->shape;                                                           \
        for (int64_t id = x->begin; id < x->end; id++) {                                                     \
            int64_t left, col, end;                                                                          \
            columns_of(j, s, id, &left, &col, &end);                                                         \
            const type *from = (const type *)j->from->values + id * elements + x->row * t->from_row;         \
            for (; col < end; col += cols, to += rows * cols)                                                \
                for (int64_t r = 0; r < rows; r++)                                                           \
                    for (int64_t c = 0; c < cols; c++)                                                       \
                        to[r * t->to_row + c * t->to_col] =                                                  \
                            from[r * t->from_row + (col - left + c) * t->from_col];                          \
        }                                                                                                    \
        return to;                                                                                           \
    }                                                                                                        \
    static void name(const job *j, const strides *t, const source *x, void *to) {                            \
        if (t->rows == 1 && t->cols == 1)                                                                    \
            name##_blocks(j, t, x, 1, 1, to);                                                                \
        else                                                                                                 \
            name##_blocks(j, t, x, t->rows, t->cols, to);                                                    \
    }
FILL_LINE(fill_64, uint64_t)
FILL_LINE(fill_32, uint32_t)
FILL_LINE(fill_16, uint16_t)
FILL_LINE(fill_8, uint8_t)

static void fill_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->layout;
    const int64_t bytes = tartan_dtype_bytes(j->to->dtype);
    const strides t = {.from_row = tartan_i_block_row_stride(j->from),
                       .from_col = tartan_i_block_col_stride(j->from),
                       .to_row = tartan_i_block_row_stride(j->to),
                       .to_col = tartan_i_block_col_stride(j->to),
                       .rows = l->shape.block_rows,
                       .cols = l->shape.block_cols};
    int64_t line, end;
    tartan_i_share(l->shape.heads * l->grid_rows, j->workers, worker, &line, &end);
    for (; line < end; line++) {
        if (l->row_pointers[line] == l->row_pointers[line + 1]) continue;
        const source x = source_of(j, &l->shape, line / l->grid_rows, line % l->grid_rows);
        (bytes == 8   ? fill_64
         : bytes == 4 ? fill_32
         : bytes == 2 ? fill_16
                      : fill_8)(j, &t, &x, tartan_i_block_at(j->to, l->row_pointers[line]));
    }
}

static tartan_status cut_within_blocks(const char *function, tartan_context *context,
                                       const tartan_matrix *matrix, int64_t row_begin, int64_t col_begin,
                                       const tartan_shape *shape, tartan_matrix **out) {
    tartan_status status;
    job j = {.from = matrix, .row_begin = row_begin, .col_begin = col_begin, .workers = context->threads};
    TRY(make_layout(&j, shape, tartan_i_ceil_div(shape->rows, shape->block_rows)));
    TRY(tartan_i_matrix_new(j.layout, matrix->dtype, matrix->block_order, &j.to));
    TRY(tartan_i_work_run(function, context,
                          4 * (double)j.layout->blocks * (double)tartan_i_block_elements(j.to), fill_task,
                          &j));
    tartan_i_matrix_clear_padding(j.to);
    *out = j.to;
    j.to = NULL;
fail:
    tartan_matrix_free(j.to);
    tartan_layout_free(j.layout);
    return status;
}

tartan_status tartan_i_cut_in(const char *function, tartan_context *context, const tartan_matrix *matrix,
                              int64_t row_begin, int64_t col_begin, const tartan_shape *shape,
                              tartan_matrix **out) {
    if (is_within_blocks(matrix->layout, row_begin, col_begin, shape))
        return cut_within_blocks(function, context, matrix, row_begin, col_begin, shape, out);
    const tartan_i_part part = {.from = matrix,
                                .row_begin = row_begin,
                                .row_end = row_begin + shape->rows,
                                .col_begin = col_begin,
                                .col_end = col_begin + shape->cols,
                                .p = 1,
                                .q = 1};
    return tartan_i_assemble(function, context, shape, &part, 1, matrix->dtype, matrix->block_order, out);
}

tartan_status tartan_i_cut(const char *function, tartan_context *context, const tartan_matrix *matrix,
                           int64_t row_begin, int64_t col_begin, tartan_shape *shape, tartan_matrix **out) {
    int64_t grid_rows, grid_cols;
    if (!tartan_i_is_variable(matrix->layout)) {
        shape->block_rows = size_of_cut(shape->block_rows, row_begin);
        shape->block_cols = size_of_cut(shape->block_cols, col_begin);
    }
    PASS(tartan_i_shape_check(function, shape, &grid_rows, &grid_cols));
    return tartan_i_cut_in(function, context, matrix, row_begin, col_begin, shape, out);
}
