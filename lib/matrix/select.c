// SPDX-License-Identifier: Apache-2.0
// Rows and columns selected by lists, repeats and any order included.
#include "layout/places.h"
#include "layout/positions.h"
#include "matrix/assemble.h"
#include "matrix/element_rows.h"
#include "tartan/structure.h"

// Where the columns of the matrix go: column c to targets pointers[c] .. pointers[c + 1] - 1.
typedef struct target {
    int32_t block, offset; /* block column of the result, and column in the block */
} target;

typedef struct job {
    const tartan_matrix *from;
    tartan_layout *layout;
    tartan_matrix *to;
    const int64_t *rows; /* [rows of the result], or NULL: all */
    int64_t *pointers;   /* NULL: columns stay where they are */
    target *targets;
    int64_t *slots; /* [workers, grid_cols of the result] */
    int32_t workers;
} job;

static int64_t source_row(const job *j, int64_t row) {
    return j->rows != NULL ? j->rows[row] : row;
}

static tartan_status make_targets(job *j, const int64_t *cols, int64_t ncols, int64_t block_cols) {
    tartan_status status;
    const int64_t all = j->from->layout->shape.cols;
    NEW_ZEROED(j->pointers, all + 1);
    NEW(j->targets, ncols);
    for (int64_t n = 0; n < ncols; n++) j->pointers[(cols != NULL ? cols[n] : n) + 1]++;
    tartan_i_accumulate(j->pointers, all);
    for (int64_t n = 0; n < ncols; n++) {
        const int64_t at = j->pointers[cols != NULL ? cols[n] : n]++;
        j->targets[at] = (target){(int32_t)(n / block_cols), (int32_t)(n % block_cols)};
    }
    memmove(j->pointers + 1, j->pointers, (size_t)all * sizeof *j->pointers);
    j->pointers[0] = 0;
    return TARTAN_OK;
fail:
    return status;
}

/* ---- The layout ---- */

// Whether a block row of the result did not have block column `col` yet; then its position goes to `to`.
static bool note(const job *j, int64_t line, int64_t col, int64_t grid_cols, int64_t *to) {
    if (j->slots[col] == line) return false;
    j->slots[col] = line;
    if (to != NULL) *to = line * grid_cols + col;
    return true;
}

// The positions of the blocks that a block row of the result gets from one of the matrix, of those that `slots` does not
// have for it yet. Only counts them if `to` is NULL.
static int64_t list_blocks(const job *j, int64_t line, int64_t source_line, int64_t grid_cols, int64_t *to) {
    const tartan_layout *l = j->from->layout;
    int64_t count = 0;
    for (int64_t id = l->row_pointers[source_line]; id < l->row_pointers[source_line + 1]; id++) {
        if (j->pointers == NULL) {
            count += note(j, line, l->block_cols[id], grid_cols, to != NULL ? to + count : NULL);
            continue;
        }
        const int64_t col = tartan_i_col_begin(l, l->block_cols[id]);
        const int64_t end = j->pointers[col + tartan_i_cols_of(l, l->block_cols[id])];
        for (int64_t t = j->pointers[col]; t < end; t++)
            count += note(j, line, j->targets[t].block, grid_cols, to != NULL ? to + count : NULL);
    }
    return count;
}

// All positions, or their number if `to` is NULL. `lines` has room for the block rows of the matrix.
static int64_t list_all(const job *j, const tartan_shape *s, int64_t grid_rows, int64_t grid_cols,
                        int64_t *lines, int64_t *to) {
    const tartan_layout *l = j->from->layout;
    int64_t count = 0;
    memset(j->slots, 0xff, (size_t)grid_cols * sizeof *j->slots);
    memset(lines, 0xff, (size_t)l->grid_rows * sizeof *lines);
    for (int64_t head = 0; head < s->heads; head++)
        for (int64_t i = 0; i < grid_rows; i++) {
            const int64_t line = head * grid_rows + i;
            for (int64_t row = i * s->block_rows; row < (i + 1) * s->block_rows && row < s->rows; row++) {
                const int64_t source = tartan_i_block_row_at(l, source_row(j, row));
                if (lines[source] == line) continue;
                lines[source] = line;
                count += list_blocks(j, line, head * l->grid_rows + source, grid_cols,
                                     to != NULL ? to + count : NULL);
            }
        }
    return count;
}

static tartan_status make_layout(const char *function, job *j, const tartan_shape *s, int64_t grid_rows,
                                 int64_t grid_cols) {
    tartan_status status;
    int64_t *lines = NULL, *positions = NULL;
    NEW(lines, j->from->layout->grid_rows);
    const int64_t count = list_all(j, s, grid_rows, grid_cols, lines, NULL);
    NEW(positions, count);
    list_all(j, s, grid_rows, grid_cols, lines, positions);
    TRY(tartan_i_layout_from_positions(function, s, positions, count, false, NULL, &j->layout));
fail:
    tartan_i_free(lines);
    tartan_i_free(positions);
    return status;
}

/* ---- The values ---- */

// Copies one row of the matrix into row `row` of its block row of the result; a slot has the block id of each block column.
#define COPY_ROW(name, type)                                                                                 \
    static void name(const job *j, int64_t source_line, int64_t source, int64_t row, const int64_t *slots) { \
        const tartan_matrix *from = j->from, *to = j->to;                                                    \
        const tartan_layout *l = from->layout;                                                               \
        const int64_t elements = tartan_i_block_elements(to), stride = tartan_i_block_col_stride(to);        \
        type *values = (type *)to->values + row * tartan_i_block_row_stride(to);                             \
        for (int64_t id = l->row_pointers[source_line]; id < l->row_pointers[source_line + 1]; id++) {       \
            const type *x =                                                                                  \
                (const type *)tartan_i_block_at(from, id) + source * tartan_i_block_row_stride(from);        \
            const int64_t col = tartan_i_col_begin(l, l->block_cols[id]),                                    \
                          step = tartan_i_block_col_stride(from);                                            \
            const int64_t cols = tartan_i_cols_of(l, l->block_cols[id]);                                     \
            if (j->pointers == NULL) {                                                                       \
                type *to_block = values + slots[l->block_cols[id]] * elements;                               \
                for (int64_t c = 0; c < cols; c++) to_block[c * stride] = x[c * step];                       \
                continue;                                                                                    \
            }                                                                                                \
            for (int64_t c = 0; c < cols; c++)                                                               \
                for (int64_t t = j->pointers[col + c]; t < j->pointers[col + c + 1]; t++)                    \
                    values[slots[j->targets[t].block] * elements + j->targets[t].offset * stride] =          \
                        x[c * step];                                                                         \
        }                                                                                                    \
    }
COPY_ROW(copy_row_64, uint64_t)
COPY_ROW(copy_row_32, uint32_t)
COPY_ROW(copy_row_16, uint16_t)
COPY_ROW(copy_row_8, uint8_t)

static void fill_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->layout, *from = j->from->layout;
    const tartan_shape *s = &l->shape;
    const int64_t bytes = tartan_dtype_bytes(j->to->dtype);
    int64_t *slots = j->slots + worker * l->grid_cols, begin, end;
    tartan_i_share(s->heads * l->grid_rows, j->workers, worker, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        const int64_t first = l->row_pointers[line], last = l->row_pointers[line + 1];
        const int64_t top = line % l->grid_rows * s->block_rows;
        for (int64_t id = first; id < last; id++) slots[l->block_cols[id]] = id;
        memset(tartan_i_block_at(j->to, first), 0,
               (size_t)((last - first) * tartan_i_block_elements(j->to) * bytes));
        for (int64_t row = top; row < top + s->block_rows && row < s->rows; row++) {
            const int64_t source = source_row(j, row), block = tartan_i_block_row_at(from, source);
            const int64_t source_line = line / l->grid_rows * from->grid_rows + block;
            (bytes == 8   ? copy_row_64
             : bytes == 4 ? copy_row_32
             : bytes == 2
                 ? copy_row_16
                 : copy_row_8)(j, source_line, source - tartan_i_row_begin(from, block), row - top, slots);
        }
    }
}

/* ---- Public ---- */

// Whether a list is begin, begin + 1, ...
static bool is_range(const int64_t *list, int64_t count) {
    for (int64_t i = 1; i < count; i++)
        if (list[i] != list[0] + i) return false;
    return true;
}

static tartan_status check_list(const char *function, const char *name, const int64_t *list, int64_t *count,
                                int64_t size) {
    if (list == NULL && *count == 0) {
        *count = size;
        return TARTAN_OK;
    }
    CHECK_IN(function, *count >= 0, SHAPE, "n%s is %" PRId64 ", expected 0 or more", name, *count);
    PASS(tartan_i_list_check(function, name, list, *count, *count, "rows or columns"));
    return tartan_i_indices_check(function, name, list, *count, size);
}

static tartan_status select_lists(const char *function, tartan_context *context, const tartan_matrix *matrix,
                                  const int64_t *rows, const int64_t *cols, const tartan_shape *shape,
                                  int64_t grid_rows, int64_t grid_cols, tartan_matrix **out) {
    tartan_status status;
    job j = {.from = matrix, .rows = rows, .workers = context->threads};
    if (cols != NULL || tartan_i_is_variable(matrix->layout))
        TRY(make_targets(&j, cols, shape->cols, shape->block_cols));
    NEW(j.slots, j.workers * grid_cols);
    TRY(make_layout(function, &j, shape, grid_rows, grid_cols));
    TRY(tartan_i_matrix_new(j.layout, matrix->dtype, matrix->block_order, &j.to));
    TRY(tartan_i_work_run(function, context,
                          4 * (double)j.layout->blocks * (double)tartan_i_block_elements(j.to), fill_task,
                          &j));
    *out = j.to;
    j.to = NULL;
fail:
    tartan_matrix_free(j.to);
    tartan_layout_free(j.layout);
    tartan_i_free(j.pointers);
    tartan_i_free(j.targets);
    tartan_i_free(j.slots);
    return status;
}

tartan_status tartan_matrix_select(tartan_context *context, const tartan_matrix *matrix, const int64_t *rows,
                                   int64_t nrows, const int64_t *cols, int64_t ncols, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    tartan_shape shape = matrix->layout->shape;
    PASS(check_list(__func__, "rows", rows, &nrows, shape.rows));
    PASS(check_list(__func__, "cols", cols, &ncols, shape.cols));
    int64_t grid_rows, grid_cols;
    shape.rows = nrows;
    shape.cols = ncols;
    PASS(tartan_i_shape_check(__func__, &shape, &grid_rows, &grid_cols));
    if ((rows == NULL || is_range(rows, nrows)) && (cols == NULL || is_range(cols, ncols))) {
        const int64_t row = rows != NULL && nrows > 0 ? rows[0] : 0,
                      col = cols != NULL && ncols > 0 ? cols[0] : 0;
        const tartan_i_part part = {.from = matrix,
                                    .row_begin = row,
                                    .row_end = row + nrows,
                                    .col_begin = col,
                                    .col_end = col + ncols,
                                    .p = 1,
                                    .q = 1};
        return tartan_i_assemble(__func__, context, &shape, &part, 1, matrix->dtype, matrix->block_order,
                                 out);
    }
    return select_lists(__func__, context, matrix, rows, cols, &shape, grid_rows, grid_cols, out);
}
