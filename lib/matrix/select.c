// SPDX-License-Identifier: Apache-2.0
// Columns selected by a list, and rows with them, repeats and any order included.
#include "layout/column_set.h"
#include "layout/places.h"
#include "matrix/cut.h"
#include "matrix/element_rows.h"
#include "matrix/select_parts.h"
#include "matrix/select_rows.h"
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
    int64_t *pointers;
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

// The block rows of the matrix that a block row of the result has rows of, each once. `lines` has room for the block rows of the
// matrix.
static int64_t list_sources(const job *j, const tartan_shape *s, int64_t line, int64_t i, int64_t *lines,
                            int64_t *sources) {
    const tartan_layout *l = j->from->layout;
    int64_t count = 0;
    for (int64_t row = i * s->block_rows; row < (i + 1) * s->block_rows && row < s->rows; row++) {
        const int64_t source = tartan_i_block_row_at(l, source_row(j, row));
        if (lines[source] == line) continue;
        lines[source] = line;
        sources[count++] = source;
    }
    return count;
}

// The number of times that columns of a block row of the matrix go somewhere.
static int64_t count_targets(const job *j, int64_t source_line) {
    const tartan_layout *l = j->from->layout;
    const int64_t begin = l->row_pointers[source_line], end = l->row_pointers[source_line + 1];
    int64_t count = 0;
    for (int64_t id = begin; id < end; id++) {
        const int64_t col = tartan_i_col_begin(l, l->block_cols[id]);
        count += j->pointers[col + tartan_i_cols_of(l, l->block_cols[id])] - j->pointers[col];
    }
    return count;
}

static void add_targets(const job *j, int64_t source_line, tartan_i_column_set *set) {
    const tartan_layout *l = j->from->layout;
    for (int64_t id = l->row_pointers[source_line]; id < l->row_pointers[source_line + 1]; id++) {
        const int64_t col = tartan_i_col_begin(l, l->block_cols[id]);
        const int64_t end = j->pointers[col + tartan_i_cols_of(l, l->block_cols[id])];
        for (int64_t t = j->pointers[col]; t < end; t++) tartan_i_column_set_add(set, j->targets[t].block);
    }
}

// What the lists of the result are made with.
typedef struct listing {
    int64_t *lines, *sources, *pointers;
    int32_t *cols;
    tartan_i_column_set set;
} listing;

// A bound of the number of blocks.
static int64_t bound(const job *j, const tartan_shape *s, int64_t grid_rows, listing *made) {
    const tartan_layout *l = j->from->layout;
    int64_t count = 0;
    memset(made->lines, 0xff, (size_t)l->grid_rows * sizeof *made->lines);
    for (int64_t line = 0; line < s->heads * grid_rows; line++) {
        const int64_t n = list_sources(j, s, line, line % grid_rows, made->lines, made->sources);
        for (int64_t k = 0; k < n; k++)
            count += count_targets(j, line / grid_rows * l->grid_rows + made->sources[k]);
    }
    return count;
}

// Lists the blocks.
static void list_all(const job *j, const tartan_shape *s, int64_t grid_rows, listing *made) {
    const tartan_layout *l = j->from->layout;
    int64_t count = 0;
    memset(made->lines, 0xff, (size_t)l->grid_rows * sizeof *made->lines);
    for (int64_t line = 0; line < s->heads * grid_rows; line++) {
        const int64_t n = list_sources(j, s, line, line % grid_rows, made->lines, made->sources),
                      top = line / grid_rows * l->grid_rows;
        made->pointers[line] = count;
        for (int64_t k = 0; k < n; k++) add_targets(j, top + made->sources[k], &made->set);
        count += tartan_i_column_set_take(&made->set, made->cols + count);
    }
    made->pointers[s->heads * grid_rows] = count;
}

static tartan_status make_layout(job *j, const tartan_shape *s, int64_t grid_rows, int64_t grid_cols) {
    tartan_status status;
    listing made = {0};
    const int64_t lines = s->heads * grid_rows;
    NEW(made.lines, j->from->layout->grid_rows);
    NEW(made.sources, s->block_rows);
    NEW(made.pointers, lines + 1);
    NEW(made.cols, bound(j, s, grid_rows, &made));
    TRY(tartan_i_column_set_begin(&made.set, grid_cols));
    list_all(j, s, grid_rows, &made);
    TRY(tartan_i_layout_begin(s, made.pointers[lines], &j->layout));
    memcpy(j->layout->row_pointers, made.pointers, (size_t)(lines + 1) * sizeof *made.pointers);
    memcpy(j->layout->block_cols, made.cols, (size_t)made.pointers[lines] * sizeof *made.cols);
    TRY(tartan_i_layout_finish(j->layout));
fail:
    tartan_i_free(made.lines);
    tartan_i_free(made.sources);
    tartan_i_free(made.pointers);
    tartan_i_free(made.cols);
    tartan_i_column_set_end(&made.set);
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
        if (first == last) continue;
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

/* ---- The size of blocks ---- */

// The block rows (or columns) of a list of rows (or columns).
static tartan_status list_blocks(const tartan_layout *l, const int64_t *list, int64_t count, bool columns,
                                 int32_t **out) {
    tartan_status status;
    const int64_t size = columns ? l->shape.block_cols : l->shape.block_rows;
    int32_t *blocks;
    NEW(blocks, count);
    if (tartan_i_is_variable(l)) {
        for (int64_t i = 0; i < count; i++)
            blocks[i] =
                (int32_t)(columns ? tartan_i_block_col_at(l, list[i]) : tartan_i_block_row_at(l, list[i]));
    } else if ((size & (size - 1)) == 0) { /* divisions take longer than all else here */
        const int shift = __builtin_ctzll((uint64_t)size);
        for (int64_t i = 0; i < count; i++) blocks[i] = (int32_t)(list[i] >> shift);
    } else {
        for (int64_t i = 0; i < count; i++) blocks[i] = (int32_t)(list[i] / size);
    }
    *out = blocks;
fail:
    return status;
}

// How high (or wide) blocks of the result are, where those of the matrix have up to `size` rows and the rows of the result are of
// blocks `blocks`. Rows that follow each other and are of one block are a piece. The blocks are as high as they can be without rows of
// two pieces, so no zeros are stored beside them. But large blocks, which products are fast with, stay as they are where pieces have three
// quarters of their rows or more on average: that stores little more than twice what there is.
static int64_t size_for_pieces(const int32_t *blocks, int64_t count, int64_t size) {
    int64_t pieces = 1, common = 0, i = 1;
    for (; i < count && common != 1; i++) {
        if (blocks[i] == blocks[i - 1]) continue;
        common = tartan_i_common_divisor(i, common);
        pieces++;
    }
    for (; i < count; i++) pieces += blocks[i] != blocks[i - 1];
    if (size > TARTAN_I_SMALL_BLOCK && 4 * count >= 3 * size * pieces) return size;
    if (common == 0) return count < size ? count : size; /* one piece */
    int64_t cut = common < size ? common : size;
    while (common % cut != 0) cut--;
    return cut;
}

// Whether a block of the result has rows of several blocks.
static bool mixes(const int32_t *blocks, int64_t count, int64_t size) {
    if (blocks == NULL) return false;
    for (int64_t i = 1; i < count; i++)
        if (blocks[i] != blocks[i - 1] && i % size != 0) return true;
    return false;
}

/* ---- Public ---- */

// Whether a list is begin, begin + 1, ...
static bool is_range(const int64_t *list, int64_t count) {
    for (int64_t i = 1; i < count; i++)
        if (list[i] != list[0] + i) return false;
    return true;
}

// Whether a list is 0, 1, ... size - 1.
static bool is_all(const int64_t *list, int64_t count, int64_t size) {
    return list != NULL && count == size && count > 0 && list[0] == 0 && is_range(list, count);
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
    TRY(make_targets(&j, cols, shape->cols, shape->block_cols));
    NEW(j.slots, j.workers * grid_cols);
    TRY(make_layout(&j, shape, grid_rows, grid_cols));
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

// Lists that are no ranges; `shape` has the rows and columns of the result, and the blocks of the matrix.
static tartan_status select_pieces(const char *function, tartan_context *context, const tartan_matrix *matrix,
                                   const int64_t *rows, const int64_t *cols, tartan_shape *shape,
                                   tartan_matrix **out) {
    tartan_status status;
    const tartan_layout *l = matrix->layout;
    int32_t *row_blocks = NULL, *col_blocks = NULL;
    int64_t grid_rows, grid_cols;
    if (rows != NULL && shape->rows > 0 && shape->block_rows > 1) {
        TRY(list_blocks(l, rows, shape->rows, false, &row_blocks));
        shape->block_rows = size_for_pieces(row_blocks, shape->rows, shape->block_rows);
    }
    if (cols != NULL && shape->cols > 0 && shape->block_cols > 1) {
        TRY(list_blocks(l, cols, shape->cols, true, &col_blocks));
        shape->block_cols = size_for_pieces(col_blocks, shape->cols, shape->block_cols);
    }
    TRY(tartan_i_shape_check(function, shape, &grid_rows, &grid_cols));
    const tartan_i_selection of = {matrix, rows, cols, row_blocks, col_blocks, *shape};
    if (tartan_i_is_variable(l))
        status = select_lists(function, context, matrix, rows, cols, shape, grid_rows, grid_cols, out);
    else if (cols == NULL)
        status = tartan_i_select_rows(function, context, matrix, rows, row_blocks, shape, grid_rows, out);
    else if (mixes(row_blocks, shape->rows, shape->block_rows) ||
             mixes(col_blocks, shape->cols, shape->block_cols))
        status = select_lists(function, context, matrix, rows, cols, shape, grid_rows, grid_cols, out);
    else
        status = tartan_i_select_parts(function, context, &of, grid_rows, grid_cols, out);
fail:
    tartan_i_free(row_blocks);
    tartan_i_free(col_blocks);
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
    shape.rows = nrows;
    shape.cols = ncols;
    if (is_all(rows, nrows, matrix->layout->shape.rows)) rows = NULL;
    if (is_all(cols, ncols, matrix->layout->shape.cols)) cols = NULL;
    if ((rows == NULL || is_range(rows, nrows)) && (cols == NULL || is_range(cols, ncols))) {
        const int64_t row = rows != NULL && nrows > 0 ? rows[0] : 0,
                      col = cols != NULL && ncols > 0 ? cols[0] : 0;
        return tartan_i_cut(__func__, context, matrix, row, col, &shape, out);
    }
    return select_pieces(__func__, context, matrix, rows, cols, &shape, out);
}
