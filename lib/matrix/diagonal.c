// SPDX-License-Identifier: Apache-2.0
// Diagonals of matrices: read, written, added, summed.
#include "tartan/arithmetic.h"

#include "core/array.h"
#include "layout/positions.h"
#include "matrix/work.h"

// A diagonal, walked from block to block: elements (row, row + offset) of one head, `count` of them in this block.
typedef struct walk {
    const tartan_layout *layout;
    int64_t offset, length;
    int64_t at, count; /* the first element in this block, counted along the diagonal */
    int64_t row, col;  /* where it is */
} walk;

static void walk_block(walk *w) {
    const tartan_shape *s = &w->layout->shape;
    const int64_t down = s->block_rows - w->row % s->block_rows,
                  right = s->block_cols - w->col % s->block_cols;
    const int64_t left = w->length - w->at;
    w->count = down < right ? down : right;
    if (left < w->count) w->count = left;
}

static walk walk_begin(const tartan_layout *layout, int64_t offset) {
    const tartan_shape *s = &layout->shape;
    walk w = {.layout = layout, .offset = offset};
    w.row = offset < 0 ? -offset : 0;
    w.col = offset > 0 ? offset : 0;
    const int64_t rows = s->rows - w.row, cols = s->cols - w.col;
    w.length = rows < cols ? rows : cols;
    if (w.length > 0) walk_block(&w);
    return w;
}

static bool walk_next(walk *w) {
    w->at += w->count, w->row += w->count, w->col += w->count;
    if (w->at >= w->length) return false;
    walk_block(w);
    return true;
}

static int64_t walk_id(const walk *w, int64_t head) {
    const tartan_shape *s = &w->layout->shape;
    return tartan_i_layout_find(w->layout, head, w->row / s->block_rows, w->col / s->block_cols);
}

// Element i of this block's part, counted in elements from the begin of the block.
static int64_t walk_element(const walk *w, const tartan_matrix *m, int64_t i) {
    const tartan_shape *s = &w->layout->shape;
    return (w->row % s->block_rows + i) * tartan_i_block_row_stride(m) +
           (w->col % s->block_cols + i) * tartan_i_block_col_stride(m);
}

static tartan_status check_offset(const char *function, const tartan_layout *layout, int64_t offset) {
    const tartan_shape *s = &layout->shape;
    CHECK_IN(function, offset >= -s->rows && offset <= s->cols, ARGUMENT,
             "offset is %" PRId64 ", expected %" PRId64 " .. %" PRId64 " (-rows .. cols)", offset, -s->rows,
             s->cols);
    return TARTAN_OK;
}

/* ---- Layouts ---- */

static tartan_status add_blocks(const char *function, tartan_layout *layout, int64_t offset,
                                tartan_layout **out) {
    tartan_status status;
    const tartan_shape *s = &layout->shape;
    int64_t *positions = NULL, missing = 0, crossed = 0;
    walk w = walk_begin(layout, offset);
    if (w.length > 0) do {
            crossed++;
            for (int64_t head = 0; head < s->heads; head++) missing += walk_id(&w, head) < 0;
        } while (walk_next(&w));
    if (missing == 0) {
        *out = tartan_layout_retain(layout);
        return TARTAN_OK;
    }
    int64_t count;
    CHECK_IN(function, tartan_i_multiply(crossed, s->heads, &count) && count <= INT64_MAX - layout->blocks,
             OVERFLOW, "the diagonal crosses more blocks than can be addressed");
    NEW(positions, layout->blocks + missing);
    tartan_i_layout_positions(layout, positions);
    int64_t *next = positions + layout->blocks;
    for (int64_t head = 0; head < s->heads; head++) {
        w = walk_begin(layout, offset);
        do {
            if (walk_id(&w, head) < 0)
                *next++ = (head * layout->grid_rows + w.row / s->block_rows) * layout->grid_cols +
                          w.col / s->block_cols;
        } while (walk_next(&w));
    }
    TRY(tartan_i_layout_from_positions(function, s, positions, layout->blocks + missing, false, NULL, out));
fail:
    tartan_i_free(positions);
    return status;
}

tartan_status tartan_layout_add_diagonal(tartan_layout *layout, int64_t offset, tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    PASS(check_offset(__func__, layout, offset));
    return add_blocks(__func__, layout, offset, out);
}

/* ---- Values ---- */

// The numbers that a caller gives for a diagonal: the step from one to the next, and from one head to the next.
typedef struct numbers {
    const double *data;
    int64_t step, head;
} numbers;

static double number_at(const numbers *n, int64_t head, int64_t i) {
    return n->data[head * n->head + i * n->step];
}

static tartan_status check_numbers(const char *function, const tartan_layout *layout, int64_t offset,
                                   const double *diagonal, int64_t ndiagonal, numbers *out) {
    PASS(check_offset(function, layout, offset));
    const int64_t length = walk_begin(layout, offset).length, heads = layout->shape.heads;
    *out = (numbers){.data = diagonal, .step = 1};
    if (ndiagonal == 1 && length != 1)
        out->step = 0;
    else if (heads > 1 && ndiagonal == heads * length)
        out->head = length;
    const int64_t expected = out->step == 0 ? 1 : out->head != 0 ? heads * length : length;
    return tartan_i_list_check(function, "diagonal", diagonal, ndiagonal, expected,
                               heads > 1 ? "the length of the diagonal, 1, or heads times the length"
                                         : "the length of the diagonal, or 1");
}

tartan_status tartan_matrix_add_diagonal(tartan_context *context, double alpha, const tartan_matrix *matrix,
                                         int64_t offset, const double *diagonal, int64_t ndiagonal,
                                         int32_t dtype, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    tartan_status status;
    numbers n;
    tartan_layout *layout = NULL;
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_matrix_check_host(__func__, "matrix", matrix));
    if (dtype == 0) dtype = matrix->dtype;
    PASS(tartan_i_matrix_check_new(__func__, matrix->layout, dtype, matrix->block_order));
    PASS(tartan_i_scalar_check(__func__, "alpha", alpha, dtype));
    PASS(check_numbers(__func__, matrix->layout, offset, diagonal, ndiagonal, &n));
    TRY(add_blocks(__func__, matrix->layout, offset, &layout));
    TRY(tartan_i_matrix_multiple(__func__, context, alpha, matrix, layout, dtype, out));
    walk w = walk_begin(layout, offset), from = walk_begin(matrix->layout, offset);
    if (w.length > 0) do {
            for (int64_t head = 0; head < layout->shape.heads; head++) {
                const int64_t to_id = walk_id(&w, head), id = walk_id(&from, head);
                for (int64_t i = 0; i < w.count; i++) {
                    const int64_t element = walk_element(&w, matrix, i);
                    const double d = number_at(&n, head, w.at + i);
                    const double x = id < 0 ? d
                                            : alpha * tartan_i_load(tartan_i_block_at(matrix, id),
                                                                    matrix->dtype, element) +
                                                  d;
                    tartan_i_store(tartan_i_block_at(*out, to_id), dtype, element, x);
                }
            }
        } while (walk_next(&w) && walk_next(&from));
fail:
    tartan_layout_free(layout);
    return status;
}

static void read_diagonal(const tartan_matrix *matrix, int64_t offset, double *to) {
    walk w = walk_begin(matrix->layout, offset);
    if (w.length <= 0) return;
    do {
        for (int64_t head = 0; head < matrix->layout->shape.heads; head++) {
            const int64_t id = walk_id(&w, head);
            for (int64_t i = 0; i < w.count; i++)
                to[head * w.length + w.at + i] =
                    id < 0 ? 0
                           : tartan_i_load(tartan_i_block_at(matrix, id), matrix->dtype,
                                           walk_element(&w, matrix, i));
        }
    } while (walk_next(&w));
}

tartan_status tartan_matrix_get_diagonal(const tartan_matrix *matrix, int64_t offset, double *out_diagonal,
                                         int64_t nout_diagonal) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_host(__func__, "matrix", matrix));
    PASS(check_offset(__func__, matrix->layout, offset));
    const int64_t count = matrix->layout->shape.heads * walk_begin(matrix->layout, offset).length;
    CHECK_LIST(out_diagonal, count, "heads times the length of the diagonal");
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "out_diagonal", out_diagonal,
                                     count * (int64_t)sizeof *out_diagonal));
    read_diagonal(matrix, offset, out_diagonal);
    return TARTAN_OK;
}

// Writes the numbers, or only checks that each other than 0 has a place.
static tartan_status write_diagonal(const char *function, tartan_matrix *matrix, int64_t offset,
                                    const numbers *n, bool check) {
    walk w = walk_begin(matrix->layout, offset);
    if (w.length <= 0) return TARTAN_OK;
    do {
        for (int64_t head = 0; head < matrix->layout->shape.heads; head++) {
            const int64_t id = walk_id(&w, head);
            for (int64_t i = 0; i < w.count; i++) {
                const double d = number_at(n, head, w.at + i);
                if (check)
                    CHECK_IN(function, id >= 0 || d == 0, LAYOUT,
                             "diagonal has %g for (%" PRId64 ", %" PRId64 ") of head %" PRId64
                             ", where nothing is stored, expected 0 (tartan_layout_add_diagonal adds blocks)",
                             d, w.row + i, w.col + i, head);
                else if (id >= 0)
                    tartan_i_store(tartan_i_block_at(matrix, id), matrix->dtype, walk_element(&w, matrix, i),
                                   d);
            }
        }
    } while (walk_next(&w));
    return TARTAN_OK;
}

tartan_status tartan_matrix_set_diagonal(tartan_matrix *matrix, int64_t offset, const double *diagonal,
                                         int64_t ndiagonal) {
    HOLD_MATRIX(matrix);
    numbers n;
    PASS(tartan_i_matrix_check_host(__func__, "matrix", matrix));
    PASS(check_numbers(__func__, matrix->layout, offset, diagonal, ndiagonal, &n));
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "diagonal", diagonal,
                                     ndiagonal * (int64_t)sizeof *diagonal));
    PASS(write_diagonal(__func__, matrix, offset, &n, true));
    return write_diagonal(__func__, matrix, offset, &n, false);
}

tartan_status tartan_matrix_trace(const tartan_matrix *matrix, double *out_results, int64_t nout_results) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_host(__func__, "matrix", matrix));
    const int64_t heads = matrix->layout->shape.heads;
    CHECK_LIST(out_results, heads, "heads");
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "out_results", out_results,
                                     heads * (int64_t)sizeof *out_results));
    for (int64_t head = 0; head < heads; head++) out_results[head] = 0;
    walk w = walk_begin(matrix->layout, 0);
    if (w.length <= 0) return TARTAN_OK;
    do {
        for (int64_t head = 0; head < heads; head++) {
            const int64_t id = walk_id(&w, head);
            for (int64_t i = 0; id >= 0 && i < w.count; i++)
                out_results[head] +=
                    tartan_i_load(tartan_i_block_at(matrix, id), matrix->dtype, walk_element(&w, matrix, i));
        }
    } while (walk_next(&w));
    return TARTAN_OK;
}
