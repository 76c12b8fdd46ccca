// SPDX-License-Identifier: Apache-2.0
// Reductions by row, column, block and head: the backend reduces the stored elements of lines and blocks; what follows
// from these numbers is computed here, on the host.
#include "backend/reduce.h"
#include "layout/compact.h"
#include "ops/arithmetic.h"

// The numbers of lines that do not store all of their elements.
static tartan_status include_zeros(const tartan_layout *l, tartan_i_chain chain, int32_t each, double *out) {
    const tartan_shape *s = &l->shape;
    const bool by_column = each == TARTAN_EACH_COLUMN;
    const int64_t grid = by_column ? l->grid_cols : l->grid_rows,
                  across = by_column ? l->grid_rows : l->grid_cols;
    const int64_t size = by_column ? s->cols : s->rows;
    const int64_t *pointers = l->row_pointers;
    const bool least = chain == TARTAN_I_CHAIN_minimum;
    if (each >= TARTAN_EACH_BLOCK || (!least && chain != TARTAN_I_CHAIN_maximum)) return TARTAN_OK;
    if (by_column) {
        const tartan_i_columns *columns;
        PASS(tartan_i_layout_columns(l, &columns));
        pointers = columns->pointers;
    }
    for (int64_t i = 0; i < s->heads * grid; i++) {
        if (pointers[i + 1] - pointers[i] == across) continue;
        const int64_t at = i % grid,
                      first = by_column ? tartan_i_col_begin(l, at) : tartan_i_row_begin(l, at),
                      end = first + (by_column ? tartan_i_cols_of(l, at) : tartan_i_rows_of(l, at));
        double *line = out + i / grid * size;
        for (int64_t k = first; k < end; k++)
            if (least ? line[k] > 0 : line[k] < 0) line[k] = 0;
    }
    return TARTAN_OK;
}

static int64_t count_of(const tartan_layout *l, int32_t each) {
    const tartan_shape *s = &l->shape;
    return each == TARTAN_EACH_ROW      ? s->heads * s->rows
           : each == TARTAN_EACH_COLUMN ? s->heads * s->cols
           : each == TARTAN_EACH_BLOCK  ? l->blocks
                                        : s->heads;
}

// units: of squares that are scaled, or NULL.
static tartan_status run(tartan_i_call *call, const tartan_matrix *matrix, tartan_i_chain chain, int32_t each,
                         const double *units, double *out) {
    tartan_status status = TARTAN_OK;
    const char *function = call->function;
    const int64_t count = count_of(matrix->layout, each);
    tartan_array results, unit_array;
    tartan_i_uploads uploads = {0};
    tartan_op op = {
        .kind = TARTAN_OP_REDUCE,
        .reduce = {
            .function = function, .chain = chain, .each = each, .matrix = matrix, .results = &results}};
    if (count == 0) return TARTAN_OK;
    TRY(tartan_i_upload_numbers(&uploads, function, call->context, out, count, true, &results));
    if (units != NULL) {
        TRY(tartan_i_upload_numbers(&uploads, function, call->context, units, count, false, &unit_array));
        op.reduce.units = &unit_array;
    }
    TRY(tartan_i_call_run(call, &op));
    TRY(tartan_i_download_numbers(function, call->context, &results, out));
    status = include_zeros(matrix->layout, chain, each, out);
fail:
    tartan_i_uploads_free(&uploads, call->context);
    return status;
}

/* ---- Norms: the sums of squares may leave the range of f64. Then elements are divided by the largest first. ---- */

static bool is_safe(double squares) {
    return isnan(squares) || (squares > 1e-280 && squares < 1e300);
}

// room: count numbers, used if a sum of squares is out of range.
static tartan_status run_norms(tartan_i_call *call, const tartan_matrix *matrix, int32_t each, double *room,
                               int64_t count, double *out) {
    PASS(run(call, matrix, TARTAN_I_CHAIN_squares, each, NULL, out));
    int64_t unsafe = 0;
    for (int64_t i = 0; i < count; i++) unsafe += !is_safe(out[i]);
    if (unsafe > 0) {
        PASS(run(call, matrix, TARTAN_I_CHAIN_abs_maximum, each, NULL, room));
        /* the others are computed again, too, with a unit of 1 */
        for (int64_t i = 0; i < count; i++)
            if (is_safe(out[i]) || room[i] == 0 || isinf(room[i])) room[i] = 1;
        PASS(run(call, matrix, TARTAN_I_CHAIN_scaled_squares, each, room, out));
    }
    for (int64_t i = 0; i < count; i++) out[i] = (unsafe > 0 ? room[i] : 1) * sqrt(out[i]);
    return TARTAN_OK;
}

// The norm of n numbers that are norms themselves.
static double fold_norms(const double *norms, int64_t n) {
    const double unit = tartan_i_chain_fold(TARTAN_I_CHAIN_abs_maximum, norms, n);
    if (!(unit > 0) || isinf(unit)) return unit;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += norms[i] / unit * (norms[i] / unit);
    return unit * sqrt(sum);
}

/* ---- Heads: of the numbers of their rows, in `rows` ---- */

// The matrix without the block rows and columns that store nothing: heads have the same sums and norms, and the same extremes but
// for zeros.
static tartan_status compact(const tartan_matrix *matrix, tartan_matrix *out) {
    const tartan_layout *layout;
    PASS(tartan_i_layout_compact(matrix->layout, &layout));
    *out = *matrix;
    out->layout = (tartan_layout *)layout; /* only read */
    return TARTAN_OK;
}

static bool zero_is_more(tartan_i_chain chain, double x) {
    return chain == TARTAN_I_CHAIN_minimum ? x > 0 : chain == TARTAN_I_CHAIN_maximum && x < 0;
}

// Extremes are the same in any order, except for which NaN or zero of several is found: then *found is false.
static tartan_status run_extremes(tartan_i_call *call, const tartan_matrix *matrix, tartan_i_chain chain,
                                  const tartan_layout *l, double *out, bool *found) {
    *found = true;
    PASS(run(call, matrix, chain, TARTAN_EACH_HEAD, NULL, out));
    for (int64_t head = 0; head < l->shape.heads; head++) {
        if (isnan(out[head]) || (out[head] == 0 && chain != TARTAN_I_CHAIN_abs_maximum)) *found = false;
        const int64_t *first = l->row_pointers + head * l->grid_rows;
        if (first[l->grid_rows] - first[0] < l->grid_rows * l->grid_cols && zero_is_more(chain, out[head]))
            out[head] = 0;
    }
    return TARTAN_OK;
}

// The block rows of l before the first one that stores nothing in any head.
static int64_t rows_before_gap(const tartan_layout *l) {
    for (int64_t row = 0; row < l->grid_rows; row++) {
        bool stored = false;
        for (int64_t line = row; line < l->shape.heads * l->grid_rows && !stored; line += l->grid_rows)
            stored = l->row_pointers[line] < l->row_pointers[line + 1];
        if (!stored) return row;
    }
    return l->grid_rows;
}

// The extreme of a head of l from those of its rows that `stored` kept. Of several zeros the first one counts, so the zero of the rows
// left out stands where the first of them was.
static double fold_extremes(const tartan_layout *l, const tartan_layout *stored, tartan_i_chain chain,
                            double *rows) {
    const int64_t count = stored->shape.rows;
    if (stored->grid_cols < l->grid_cols)
        for (int64_t i = 0; i < count; i++)
            if (zero_is_more(chain, rows[i])) rows[i] = 0;
    if (stored->grid_rows == l->grid_rows) return tartan_i_chain_fold(chain, rows, count);
    const int64_t gap = rows_before_gap(l) * l->shape.block_rows, before = gap < count ? gap : count;
    const double parts[] = {tartan_i_chain_fold(chain, rows, before), 0,
                            tartan_i_chain_fold(chain, rows + before, count - before)};
    return tartan_i_chain_fold(chain, parts, 3);
}

// matrix: without block rows and columns of l that store nothing.
static tartan_status run_heads(tartan_i_call *call, const tartan_layout *l, const tartan_matrix *matrix,
                               tartan_i_chain chain, double *rows, double *room, double *out) {
    const tartan_shape *s = &matrix->layout->shape;
    const bool norm = chain == TARTAN_I_CHAIN_squares, extreme = chain == TARTAN_I_CHAIN_minimum ||
                                                                 chain == TARTAN_I_CHAIN_maximum ||
                                                                 chain == TARTAN_I_CHAIN_abs_maximum;
    bool unsafe = false, found = false;
    if (call->context->options.device_type == TARTAN_CPU && extreme)
        PASS(run_extremes(call, matrix, chain, l, out, &found));
    if (found) return TARTAN_OK;
    PASS(run(call, matrix, chain, TARTAN_EACH_ROW, NULL, rows));
    for (int64_t head = 0; head < s->heads; head++) {
        double *of_head = rows + head * s->rows;
        out[head] = extreme ? fold_extremes(l, matrix->layout, chain, of_head)
                            : tartan_i_chain_fold(chain, of_head, s->rows);
        unsafe = unsafe || (norm && !is_safe(out[head]));
    }
    if (!norm) return TARTAN_OK;
    if (!unsafe) {
        for (int64_t head = 0; head < s->heads; head++) out[head] = sqrt(out[head]);
        return TARTAN_OK;
    }
    PASS(run_norms(call, matrix, TARTAN_EACH_ROW, room, s->heads * s->rows, rows));
    for (int64_t head = 0; head < s->heads; head++)
        out[head] = is_safe(out[head]) ? sqrt(out[head]) : fold_norms(rows + head * s->rows, s->rows);
    return TARTAN_OK;
}

/* ---- Public ---- */

// The number of elements that result i is of.
static double elements_of(const tartan_layout *l, int32_t each, int64_t i) {
    const tartan_shape *s = &l->shape;
    if (each == TARTAN_EACH_BLOCK)
        return (double)(tartan_i_rows_of(l, l->block_rows[i]) * tartan_i_cols_of(l, l->block_cols[i]));
    return each == TARTAN_EACH_ROW      ? (double)s->cols
           : each == TARTAN_EACH_COLUMN ? (double)s->rows
                                        : (double)s->rows * (double)s->cols;
}

static void finish(const tartan_layout *l, int32_t reduction, int32_t each, double *out) {
    const int64_t count = count_of(l, each);
    const bool extreme = reduction == TARTAN_REDUCE_MINIMUM || reduction == TARTAN_REDUCE_MAXIMUM;
    if (reduction != TARTAN_REDUCE_MEAN && !extreme) return;
    for (int64_t i = 0; i < count; i++) {
        const double elements = elements_of(l, each, i);
        if (elements == 0)
            out[i] = NAN;
        else if (!extreme)
            out[i] /= elements;
    }
}

static const tartan_i_chain chains[] = {
    [TARTAN_REDUCE_SUM] = TARTAN_I_CHAIN_sum,
    [TARTAN_REDUCE_MEAN] = TARTAN_I_CHAIN_sum,
    [TARTAN_REDUCE_MINIMUM] = TARTAN_I_CHAIN_minimum,
    [TARTAN_REDUCE_MAXIMUM] = TARTAN_I_CHAIN_maximum,
    [TARTAN_REDUCE_ABS_SUM] = TARTAN_I_CHAIN_abs_sum,
    [TARTAN_REDUCE_ABS_MAXIMUM] = TARTAN_I_CHAIN_abs_maximum,
    [TARTAN_REDUCE_NORM] = TARTAN_I_CHAIN_squares,
    [TARTAN_REDUCE_NONZEROS] = TARTAN_I_CHAIN_nonzeros,
};

static tartan_status reduce(const char *function, tartan_context *context, const tartan_matrix *matrix,
                            int32_t reduction, int32_t each, double *out) {
    tartan_status status;
    const tartan_layout *l = matrix->layout;
    const bool norm = reduction == TARTAN_REDUCE_NORM, heads = each == TARTAN_EACH_HEAD;
    const tartan_i_chain chain = chains[reduction];
    const int64_t count = count_of(l, each);
    double *rows = NULL, *room = NULL, *results = NULL;
    tartan_matrix stored;
    if (heads) PASS(compact(matrix, &stored));
    const int64_t lines = heads ? count_of(stored.layout, TARTAN_EACH_ROW) : count;
    NEW(results, count);
    if (heads) NEW(rows, lines);
    if (norm) NEW(room, lines);
    tartan_i_call call;
    TRY(tartan_i_call_enter(function, context, &call));
    status = heads  ? run_heads(&call, l, &stored, chain, rows, room, results)
             : norm ? run_norms(&call, matrix, each, room, count, results)
                    : run(&call, matrix, chain, each, NULL, results);
    tartan_i_call_leave(&call);
    if (status != TARTAN_OK) goto fail;
    finish(l, reduction, each, results);
    if (count > 0) memcpy(out, results, (size_t)count * sizeof *out);
fail:
    tartan_i_free(rows);
    tartan_i_free(room);
    tartan_i_free(results);
    return status;
}

tartan_status tartan_matrix_reduce(tartan_context *context, const tartan_matrix *matrix, int32_t reduction,
                                   int32_t each, double *out_results, int64_t nout_results) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_arithmetic_check(__func__, context, "matrix", matrix));
    CHECK(reduction >= TARTAN_REDUCE_SUM && reduction <= TARTAN_REDUCE_NONZEROS, ARGUMENT,
          "reduction is %d, expected %d .. %d (a tartan_reduction)", reduction, TARTAN_REDUCE_SUM,
          TARTAN_REDUCE_NONZEROS);
    CHECK(each >= TARTAN_EACH_ROW && each <= TARTAN_EACH_HEAD, ARGUMENT,
          "each is %d, expected %d (row), %d (column), %d (block) or %d (head)", each, TARTAN_EACH_ROW,
          TARTAN_EACH_COLUMN, TARTAN_EACH_BLOCK, TARTAN_EACH_HEAD);
    const int64_t count = count_of(matrix->layout, each);
    CHECK_LIST(out_results, count, "one for each row, column, block or head");
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "out_results", out_results,
                                     count * (int64_t)sizeof *out_results));
    return reduce(__func__, context, matrix, reduction, each, out_results);
}

// The largest sum of absolute values of a line, for each head.
static tartan_status largest_sums(const char *function, tartan_context *context, const tartan_matrix *matrix,
                                  int32_t each, double *out) {
    tartan_status status;
    tartan_matrix stored;
    PASS(compact(matrix, &stored));
    const tartan_layout *l = stored.layout;
    const int64_t lines = each == TARTAN_EACH_ROW ? l->shape.rows : l->shape.cols;
    double *sums = NULL;
    NEW(sums, count_of(l, each));
    tartan_i_call call;
    TRY(tartan_i_call_enter(function, context, &call));
    status = run(&call, &stored, TARTAN_I_CHAIN_abs_sum, each, NULL, sums);
    tartan_i_call_leave(&call);
    for (int64_t head = 0; status == TARTAN_OK && head < l->shape.heads; head++)
        out[head] = tartan_i_chain_fold(TARTAN_I_CHAIN_abs_maximum, sums + head * lines, lines);
fail:
    tartan_i_free(sums);
    return status;
}

tartan_status tartan_matrix_norm(tartan_context *context, const tartan_matrix *matrix, int32_t kind,
                                 double *out_results, int64_t nout_results) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_arithmetic_check(__func__, context, "matrix", matrix));
    CHECK(kind >= TARTAN_MATRIX_NORM_ONE && kind <= TARTAN_MATRIX_NORM_MAX, ARGUMENT,
          "kind is %d, expected %d .. %d (a tartan_norm_kind)", kind, TARTAN_MATRIX_NORM_ONE,
          TARTAN_MATRIX_NORM_MAX);
    const int64_t heads = matrix->layout->shape.heads;
    CHECK_LIST(out_results, heads, "heads");
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "out_results", out_results,
                                     heads * (int64_t)sizeof *out_results));
    if (kind == TARTAN_MATRIX_NORM_ONE || kind == TARTAN_MATRIX_NORM_INFINITY)
        return largest_sums(__func__, context, matrix,
                            kind == TARTAN_MATRIX_NORM_INFINITY ? TARTAN_EACH_ROW : TARTAN_EACH_COLUMN,
                            out_results);
    return reduce(__func__, context, matrix,
                  kind == TARTAN_MATRIX_NORM_FROBENIUS ? TARTAN_REDUCE_NORM : TARTAN_REDUCE_ABS_MAXIMUM,
                  TARTAN_EACH_HEAD, out_results);
}
