// SPDX-License-Identifier: Apache-2.0
// Diagonals of matrices: read, written, added, summed.
#include "layout/positions.h"
#include "ops/arithmetic.h"

// A diagonal, walked from block to block: elements (row, row + offset) of one head, `count` of them in this block.
typedef struct walk {
    const tartan_layout *layout;
    int64_t offset, length;
    int64_t at, count; /* the first element in this block, counted along the diagonal */
    int64_t row, col;  /* where it is */
    int64_t i, j;      /* the block row and block column of this block */
} walk;

static void walk_block(walk *w) {
    const tartan_layout *l = w->layout;
    w->i = tartan_i_block_row_at(l, w->row);
    w->j = tartan_i_block_col_at(l, w->col);
    const int64_t down = tartan_i_row_begin(l, w->i) + tartan_i_rows_of(l, w->i) - w->row;
    const int64_t right = tartan_i_col_begin(l, w->j) + tartan_i_cols_of(l, w->j) - w->col;
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
    return tartan_i_layout_find(w->layout, head, w->i, w->j);
}

// The positions among the values of m, in either block order, of this block's part of the diagonal.
static void walk_positions(const walk *w, const tartan_matrix *m, int64_t id, int64_t *to) {
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    int64_t at = id * tartan_i_block_elements(m) + (w->row - tartan_i_row_begin(w->layout, w->i)) * row +
                 (w->col - tartan_i_col_begin(w->layout, w->j)) * col;
    for (int64_t i = 0; i < w->count; i++, at += row + col) to[i] = id < 0 ? -1 : at;
}

// The position of every element of the diagonal, [heads * length]; -1 where nothing is stored.
static void positions_of(const tartan_matrix *m, int64_t offset, int64_t *to) {
    walk w = walk_begin(m->layout, offset);
    if (w.length <= 0) return;
    do {
        for (int64_t head = 0; head < m->layout->shape.heads; head++)
            walk_positions(&w, m, walk_id(&w, head), to + head * w.length + w.at);
    } while (walk_next(&w));
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
    const tartan_shape frame = tartan_i_layout_frame(layout), *s = &frame;
    tartan_layout *made = NULL;
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
            if (walk_id(&w, head) < 0) *next++ = (head * layout->grid_rows + w.i) * layout->grid_cols + w.j;
        } while (walk_next(&w));
    }
    TRY(tartan_i_layout_from_positions(function, s, positions, layout->blocks + missing, false, NULL, &made));
    TRY(tartan_i_layout_take_bounds_of(function, made, layout));
    *out = made;
    made = NULL;
fail:
    tartan_layout_free(made);
    tartan_i_free(positions);
    return status;
}

tartan_status tartan_layout_add_diagonal(tartan_layout *layout, int64_t offset, tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    PASS(check_offset(__func__, layout, offset));
    return add_blocks(__func__, layout, offset, out);
}

/* ---- The numbers that a caller gives for a diagonal ---- */

// The step from one to the next, and from one head to the next.
typedef struct numbers {
    const double *data;
    int64_t step, head;
} numbers;

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

// What an operation on elements of a diagonal needs, for all heads, in host memory.
typedef struct lists {
    int64_t count;
    int64_t *sources, *targets;
    double *numbers;
} lists;

static void lists_free(lists *l) {
    tartan_i_free(l->sources);
    tartan_i_free(l->targets);
    tartan_i_free(l->numbers);
}

// Positions in `from` and in `to` (either may be NULL), and numbers (NULL: room for them).
static tartan_status lists_of(const tartan_matrix *from, const tartan_matrix *to, int64_t offset,
                              const numbers *n, lists *out) {
    const tartan_layout *layout = to != NULL ? to->layout : from->layout;
    const int64_t heads = layout->shape.heads, length = walk_begin(layout, offset).length;
    *out = (lists){.count = length > 0 ? heads * length : 0};
    if (from != NULL) {
        PASS(tartan_i_allocate(&out->sources, out->count, sizeof *out->sources));
        positions_of(from, offset, out->sources);
    }
    if (to != NULL) {
        PASS(tartan_i_allocate(&out->targets, out->count, sizeof *out->targets));
        positions_of(to, offset, out->targets);
    }
    if (n == NULL) return TARTAN_OK;
    PASS(tartan_i_allocate(&out->numbers, out->count, sizeof *out->numbers));
    for (int64_t i = 0; i < out->count; i++)
        out->numbers[i] = n->data[i / length * n->head + i % length * n->step];
    return TARTAN_OK;
}

// Runs an operation on the elements of checked lists and as many numbers, which it reads without `to`.
static tartan_status run_elements(tartan_i_call *call, double alpha, const tartan_matrix *from,
                                  tartan_matrix *to, const lists *l, double *data) {
    tartan_status status = TARTAN_OK;
    const char *function = call->function;
    const tartan_context *context = call->context;
    tartan_op op = {
        .kind = TARTAN_OP_ELEMENTS,
        .elements = {.function = function, .count = l->count, .alpha = alpha, .from = from, .to = to}};
    tartan_array there;
    tartan_i_uploads uploads = {0};
    if (l->count == 0) return TARTAN_OK;
    TRY(tartan_i_upload_list(&uploads, function, context, l->sources, l->count, &op.elements.sources));
    TRY(tartan_i_upload_list(&uploads, function, context, l->targets, l->count, &op.elements.targets));
    TRY(tartan_i_upload_numbers(&uploads, function, context, data, l->count, to == NULL, &there));
    op.elements.numbers = &there;
    TRY(tartan_i_call_run(call, &op));
    if (to == NULL) TRY(tartan_i_download_numbers(function, context, &there, data));
fail:
    tartan_i_uploads_free(&uploads, context);
    return status;
}

/* ---- Sums with a diagonal ---- */

// alpha A + D on `layout`, whose diagonal is then computed again from A's elements and the numbers.
static tartan_status add_numbers(const char *function, tartan_context *context, double alpha,
                                 const tartan_matrix *matrix, tartan_layout *layout, int32_t dtype,
                                 int64_t offset, const numbers *n, tartan_matrix **out) {
    tartan_status status;
    int64_t *sources = NULL, matched;
    lists l = {0};
    tartan_matrix *made = NULL;
    tartan_i_call call;
    PASS(tartan_i_call_enter(function, context, &call));
    TRY(tartan_i_arithmetic_match(layout, matrix, &sources, &matched));
    const tartan_op_elementwise op = {
        .step = TARTAN_I_STEP_scale, .p = alpha, .a = matrix, .a_sources = sources};
    TRY(tartan_i_elementwise_new(&call, &op, layout, dtype, &made));
    TRY(lists_of(matrix, made, offset, n, &l));
    TRY(run_elements(&call, alpha, matrix, made, &l, l.numbers));
    *out = made;
    made = NULL;
fail:
    tartan_matrix_free(made);
    tartan_i_free(sources);
    lists_free(&l);
    tartan_i_call_leave(&call);
    return status;
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
    PASS(tartan_i_arithmetic_check(__func__, context, "matrix", matrix));
    if (dtype == 0) dtype = matrix->dtype;
    PASS(tartan_i_matrix_check_new(__func__, matrix->layout, dtype, matrix->block_order));
    PASS(tartan_i_scalar_check(__func__, "alpha", alpha, dtype));
    PASS(check_numbers(__func__, matrix->layout, offset, diagonal, ndiagonal, &n));
    PASS(add_blocks(__func__, matrix->layout, offset, &layout));
    status = add_numbers(__func__, context, alpha, matrix, layout, dtype, offset, &n, out);
    tartan_layout_free(layout);
    return status;
}

/* ---- Reading and writing ---- */

static tartan_status read_diagonal(const char *function, tartan_context *context, const tartan_matrix *matrix,
                                   int64_t offset, double *to) {
    tartan_status status;
    lists l;
    tartan_i_call call;
    PASS(tartan_i_call_enter(function, context, &call));
    TRY(lists_of(matrix, NULL, offset, NULL, &l));
    TRY(run_elements(&call, 1, matrix, NULL, &l, to));
fail:
    lists_free(&l);
    tartan_i_call_leave(&call);
    return status;
}

tartan_status tartan_matrix_get_diagonal(tartan_context *context, const tartan_matrix *matrix, int64_t offset,
                                         double *out_diagonal, int64_t nout_diagonal) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_arithmetic_check(__func__, context, "matrix", matrix));
    PASS(check_offset(__func__, matrix->layout, offset));
    const int64_t count = matrix->layout->shape.heads * walk_begin(matrix->layout, offset).length;
    CHECK_LIST(out_diagonal, count, "heads times the length of the diagonal");
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "out_diagonal", out_diagonal,
                                     count * (int64_t)sizeof *out_diagonal));
    return read_diagonal(__func__, context, matrix, offset, out_diagonal);
}

// Each number other than 0 needs a place.
static tartan_status check_places(const char *function, const tartan_layout *layout, int64_t offset,
                                  const lists *l) {
    const walk w = walk_begin(layout, offset);
    for (int64_t i = 0; i < l->count; i++)
        CHECK_IN(function, l->targets[i] >= 0 || l->numbers[i] == 0, LAYOUT,
                 "diagonal has %g for (%" PRId64 ", %" PRId64 ") of head %" PRId64
                 ", where nothing is stored, expected 0 (tartan_layout_add_diagonal adds blocks)",
                 l->numbers[i], w.row + i % w.length, w.col + i % w.length, i / w.length);
    return TARTAN_OK;
}

static tartan_status write_diagonal(const char *function, tartan_context *context, tartan_matrix *matrix,
                                    int64_t offset, const numbers *n) {
    tartan_status status;
    lists l;
    tartan_i_call call;
    PASS(tartan_i_call_enter(function, context, &call));
    TRY(lists_of(NULL, matrix, offset, n, &l));
    TRY(check_places(function, matrix->layout, offset, &l));
    TRY(run_elements(&call, 1, NULL, matrix, &l, l.numbers));
fail:
    lists_free(&l);
    tartan_i_call_leave(&call);
    return status;
}

tartan_status tartan_matrix_set_diagonal(tartan_context *context, tartan_matrix *matrix, int64_t offset,
                                         const double *diagonal, int64_t ndiagonal) {
    HOLD_MATRIX(matrix);
    numbers n;
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_arithmetic_check(__func__, context, "matrix", matrix));
    PASS(check_numbers(__func__, matrix->layout, offset, diagonal, ndiagonal, &n));
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "diagonal", diagonal,
                                     ndiagonal * (int64_t)sizeof *diagonal));
    return write_diagonal(__func__, context, matrix, offset, &n);
}

/* ---- Traces: of the stored elements of a diagonal, whatever its length ---- */

// The first element (row, row + offset) in a block, and how many of the diagonal follow in it.
static int64_t first_in_block(const tartan_layout *l, int64_t id, int64_t offset, int64_t *out_count) {
    const int64_t i = l->block_rows[id], j = l->block_cols[id];
    const int64_t top = tartan_i_row_begin(l, i), left = tartan_i_col_begin(l, j) - offset;
    const int64_t bottom = top + tartan_i_rows_of(l, i), right = left + tartan_i_cols_of(l, j);
    const int64_t first = top > left ? top : left, end = bottom < right ? bottom : right;
    *out_count = end > first ? end - first : 0;
    return first;
}

// Where the stored elements of the diagonal are; those of head h end at ends[h].
static tartan_status stored_of(const tartan_matrix *m, int64_t offset, lists *out, int64_t *ends) {
    const tartan_layout *l = m->layout;
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    int64_t count;
    *out = (lists){0};
    for (int64_t id = 0; id < l->blocks; id++) {
        first_in_block(l, id, offset, &count);
        out->count += count;
    }
    PASS(tartan_i_allocate(&out->sources, out->count, sizeof *out->sources));
    PASS(tartan_i_allocate(&out->numbers, out->count, sizeof *out->numbers));
    int64_t *next = out->sources;
    for (int64_t head = 0, id = 0; head < l->shape.heads; head++) {
        for (; id < l->row_pointers[(head + 1) * l->grid_rows]; id++) {
            const int64_t first = first_in_block(l, id, offset, &count);
            int64_t at = id * tartan_i_block_elements(m) +
                         (first - tartan_i_row_begin(l, l->block_rows[id])) * row +
                         (first + offset - tartan_i_col_begin(l, l->block_cols[id])) * col;
            for (int64_t n = 0; n < count; n++, at += row + col) *next++ = at;
        }
        ends[head] = next - out->sources;
    }
    return TARTAN_OK;
}

tartan_status tartan_matrix_trace(tartan_context *context, const tartan_matrix *matrix, int64_t offset,
                                  double *out_results, int64_t nout_results) {
    HOLD_MATRIX(matrix);
    tartan_status status;
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_arithmetic_check(__func__, context, "matrix", matrix));
    PASS(check_offset(__func__, matrix->layout, offset));
    const int64_t heads = matrix->layout->shape.heads;
    CHECK_LIST(out_results, heads, "heads");
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "out_results", out_results,
                                     heads * (int64_t)sizeof *out_results));
    lists l = {0};
    int64_t *ends = NULL;
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    NEW(ends, heads);
    TRY(stored_of(matrix, offset, &l, ends));
    TRY(run_elements(&call, 1, matrix, NULL, &l, l.numbers));
    for (int64_t head = 0, i = 0; head < heads; head++) {
        out_results[head] = 0;
        for (; i < ends[head]; i++) out_results[head] += l.numbers[i];
    }
fail:
    lists_free(&l);
    tartan_i_free(ends);
    tartan_i_call_leave(&call);
    return status;
}
