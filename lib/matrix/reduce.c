// SPDX-License-Identifier: Apache-2.0
// Reductions by row, column, block and head. Each row or column is one chain of operations that a single worker runs in
// ascending order of the elements, so bits depend neither on the number of workers nor on the order in blocks.
#include "tartan/arithmetic.h"

#include "matrix/work.h"

#include <math.h>

// Besides those of tartan_reduction.
enum { SQUARES = 100, SCALED_SQUARES = 101 };

typedef struct job {
    const tartan_matrix *matrix;
    int32_t kind; /* a tartan_reduction that is accumulated, or one of the above */
    bool by_column;
    double *out;
    const double *units; /* of SCALED_SQUARES: what the elements of each line are divided by */
    int32_t workers;
} job;

/* ---- Chains ---- */

static double first_of(int32_t kind) {
    return kind == TARTAN_REDUCE_MINIMUM ? INFINITY : kind == TARTAN_REDUCE_MAXIMUM ? -INFINITY : 0;
}

// Continues `lines` chains with `across` elements each: x is [across, lines].
static void accumulate(int32_t kind, const double *x, int64_t across, int64_t lines, const double *units,
                       double *chains) {
    for (int64_t i = 0; i < across; i++, x += lines) switch (kind) {
        case TARTAN_REDUCE_SUM:
            for (int64_t l = 0; l < lines; l++) chains[l] += x[l];
            break;
        case TARTAN_REDUCE_MINIMUM: /* once NaN, stays NaN */
            for (int64_t l = 0; l < lines; l++)
                chains[l] = x[l] < chains[l] || isnan(x[l]) ? x[l] : chains[l];
            break;
        case TARTAN_REDUCE_MAXIMUM:
            for (int64_t l = 0; l < lines; l++)
                chains[l] = x[l] > chains[l] || isnan(x[l]) ? x[l] : chains[l];
            break;
        case TARTAN_REDUCE_ABS_SUM:
            for (int64_t l = 0; l < lines; l++) chains[l] += fabs(x[l]);
            break;
        case TARTAN_REDUCE_ABS_MAXIMUM:
            for (int64_t l = 0; l < lines; l++)
                chains[l] = fabs(x[l]) > chains[l] || isnan(x[l]) ? fabs(x[l]) : chains[l];
            break;
        case SQUARES:
            for (int64_t l = 0; l < lines; l++) chains[l] += x[l] * x[l];
            break;
        case SCALED_SQUARES:
            for (int64_t l = 0; l < lines; l++) chains[l] += x[l] / units[l] * (x[l] / units[l]);
            break;
        default: /* TARTAN_REDUCE_NONZEROS */
            for (int64_t l = 0; l < lines; l++) chains[l] += x[l] != 0;
            break;
        }
}

// One number for n chains that have ended.
static double fold(int32_t kind, const double *chains, int64_t n) {
    const bool extreme =
        kind == TARTAN_REDUCE_MINIMUM || kind == TARTAN_REDUCE_MAXIMUM || kind == TARTAN_REDUCE_ABS_MAXIMUM;
    double result = first_of(kind);
    accumulate(extreme ? kind : TARTAN_REDUCE_SUM, chains, n, 1, NULL, &result);
    return result;
}

// Continues the chains of a block's rows (columns if by_column) with its elements.
static void accumulate_block(const job *j, bool by_column, int64_t id, const double *units, double *chains) {
    const tartan_matrix *m = j->matrix;
    const tartan_layout *l = m->layout;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    const int64_t lines = by_column ? cols : rows, all = by_column ? rows : cols;
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    const int64_t line_stride = by_column ? col : row, stride = by_column ? row : col;
    const tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, m->dtype);
    double x[TARTAN_I_PIECE];
    for (int64_t first = 0; first < all; first += TARTAN_I_PIECE / lines) {
        const int64_t left = all - first,
                      across = left < TARTAN_I_PIECE / lines ? left : TARTAN_I_PIECE / lines;
        copy(x, lines, 1, tartan_i_at(tartan_i_block_at(m, id), m->dtype, first * stride), stride,
             line_stride, across, lines);
        accumulate(j->kind, x, across, lines, units, chains);
    }
}

/* ---- Lines and blocks ---- */

static void include_zero(int32_t kind, double *chains, int64_t lines) {
    for (int64_t i = 0; i < lines; i++) {
        if (kind == TARTAN_REDUCE_MINIMUM && chains[i] > 0) chains[i] = 0;
        if (kind == TARTAN_REDUCE_MAXIMUM && chains[i] < 0) chains[i] = 0;
    }
}

static void lines_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->matrix->layout;
    const tartan_shape *s = &l->shape;
    const int64_t grid = j->by_column ? l->grid_cols : l->grid_rows, size = j->by_column ? s->cols : s->rows;
    const int64_t block = j->by_column ? s->block_cols : s->block_rows,
                  length = j->by_column ? s->rows : s->cols;
    const int64_t *pointers = j->by_column ? l->col_pointers : l->row_pointers;
    int64_t begin, end;
    tartan_i_share(s->heads * grid, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i / grid * size + i % grid * block, left = size - i % grid * block;
        const int64_t lines = left < block ? left : block;
        double *chains = j->out + at;
        int64_t stored = 0;
        for (int64_t k = 0; k < lines; k++) chains[k] = first_of(j->kind);
        for (int64_t n = pointers[i]; n < pointers[i + 1]; n++) {
            const int64_t id = j->by_column ? l->col_ids[n] : n;
            accumulate_block(j, j->by_column, id, j->units != NULL ? j->units + at : NULL, chains);
            stored += j->by_column ? tartan_i_rows_of(l, l->block_rows[id])
                                   : tartan_i_cols_of(l, l->block_cols[id]);
        }
        if (stored < length) include_zero(j->kind, chains, lines);
    }
}

static void blocks_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->matrix->layout;
    double chains[TARTAN_I_MAX_BLOCK], units[TARTAN_I_MAX_BLOCK];
    int64_t begin, end;
    tartan_i_share(l->blocks, j->workers, worker, &begin, &end);
    for (int64_t id = begin; id < end; id++) {
        const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]);
        for (int64_t i = 0; i < rows; i++) chains[i] = first_of(j->kind);
        for (int64_t i = 0; j->units != NULL && i < rows; i++) units[i] = j->units[id];
        accumulate_block(j, false, id, units, chains);
        j->out[id] = fold(j->kind, chains, rows);
    }
}

static void run(const tartan_context *context, const tartan_matrix *matrix, int32_t kind, int32_t each,
                const double *units, double *out) {
    const double elements = (double)matrix->layout->blocks * (double)tartan_i_block_elements(matrix);
    job j = {.matrix = matrix,
             .kind = kind,
             .by_column = each == TARTAN_EACH_COLUMN,
             .out = out,
             .units = units,
             .workers = context->threads};
    tartan_i_parallel(context, j.workers, 4 * elements, each == TARTAN_EACH_BLOCK ? blocks_task : lines_task,
                      &j);
}

/* ---- Norms: the sums of squares may leave the range of f64. Then elements are divided by the largest first. ---- */

static bool is_safe(double squares) {
    return isnan(squares) || (squares > 1e-280 && squares < 1e300);
}

// room: count numbers, used if a sum of squares is out of range.
static void run_norms(const tartan_context *context, const tartan_matrix *matrix, int32_t each, double *room,
                      int64_t count, double *out) {
    run(context, matrix, SQUARES, each, NULL, out);
    int64_t unsafe = 0;
    for (int64_t i = 0; i < count; i++) unsafe += !is_safe(out[i]);
    if (unsafe > 0) {
        run(context, matrix, TARTAN_REDUCE_ABS_MAXIMUM, each, NULL, room);
        /* the others are computed again, too, with a unit of 1 */
        for (int64_t i = 0; i < count; i++)
            if (is_safe(out[i]) || room[i] == 0 || isinf(room[i])) room[i] = 1;
        run(context, matrix, SCALED_SQUARES, each, room, out);
    }
    for (int64_t i = 0; i < count; i++) out[i] = (unsafe > 0 ? room[i] : 1) * sqrt(out[i]);
}

// The norm of n numbers that are norms themselves.
static double fold_norms(const double *norms, int64_t n) {
    const double unit = fold(TARTAN_REDUCE_ABS_MAXIMUM, norms, n);
    if (!(unit > 0) || isinf(unit)) return unit;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += norms[i] / unit * (norms[i] / unit);
    return unit * sqrt(sum);
}

/* ---- Heads: of the numbers of their rows, in `rows` ---- */

static void run_heads(const tartan_context *context, const tartan_matrix *matrix, int32_t kind, double *rows,
                      double *room, double *out) {
    const tartan_shape *s = &matrix->layout->shape;
    const bool norm = kind == TARTAN_REDUCE_NORM;
    bool unsafe = false;
    run(context, matrix, norm ? SQUARES : kind, TARTAN_EACH_ROW, NULL, rows);
    for (int64_t head = 0; head < s->heads; head++) {
        out[head] = fold(norm ? TARTAN_REDUCE_SUM : kind, rows + head * s->rows, s->rows);
        unsafe = unsafe || (norm && !is_safe(out[head]));
    }
    if (!norm) return;
    if (!unsafe) {
        for (int64_t head = 0; head < s->heads; head++) out[head] = sqrt(out[head]);
        return;
    }
    run_norms(context, matrix, TARTAN_EACH_ROW, room, s->heads * s->rows, rows);
    for (int64_t head = 0; head < s->heads; head++)
        out[head] = is_safe(out[head]) ? sqrt(out[head]) : fold_norms(rows + head * s->rows, s->rows);
}

/* ---- Public ---- */

static int64_t count_of(const tartan_layout *l, int32_t each) {
    const tartan_shape *s = &l->shape;
    return each == TARTAN_EACH_ROW      ? s->heads * s->rows
           : each == TARTAN_EACH_COLUMN ? s->heads * s->cols
           : each == TARTAN_EACH_BLOCK  ? l->blocks
                                        : s->heads;
}

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

static tartan_status reduce(const char *function, tartan_context *context, const tartan_matrix *matrix,
                            int32_t reduction, int32_t each, double *out) {
    tartan_status status;
    const tartan_layout *l = matrix->layout;
    const bool norm = reduction == TARTAN_REDUCE_NORM, heads = each == TARTAN_EACH_HEAD;
    const int32_t kind = reduction == TARTAN_REDUCE_MEAN ? TARTAN_REDUCE_SUM : reduction;
    double *rows = NULL, *room = NULL;
    if (heads) NEW(rows, l->shape.heads * l->shape.rows);
    if (norm) NEW(room, heads ? l->shape.heads * l->shape.rows : count_of(l, each));
    TRY(tartan_i_context_enter(function, context));
    if (heads)
        run_heads(context, matrix, kind, rows, room, out);
    else if (norm)
        run_norms(context, matrix, each, room, count_of(l, each), out);
    else
        run(context, matrix, kind, each, NULL, out);
    tartan_i_context_leave(context);
    finish(l, reduction, each, out);
fail:
    tartan_i_free(rows);
    tartan_i_free(room);
    return status;
}

tartan_status tartan_matrix_reduce(tartan_context *context, const tartan_matrix *matrix, int32_t reduction,
                                   int32_t each, double *out_results, int64_t nout_results) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_matrix_check_host(__func__, "matrix", matrix));
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
    const tartan_layout *l = matrix->layout;
    const int64_t lines = each == TARTAN_EACH_ROW ? l->shape.rows : l->shape.cols;
    double *sums = NULL;
    NEW(sums, count_of(l, each));
    TRY(tartan_i_context_enter(function, context));
    run(context, matrix, TARTAN_REDUCE_ABS_SUM, each, NULL, sums);
    tartan_i_context_leave(context);
    for (int64_t head = 0; head < l->shape.heads; head++)
        out[head] = fold(TARTAN_REDUCE_ABS_MAXIMUM, sums + head * lines, lines);
fail:
    tartan_i_free(sums);
    return status;
}

tartan_status tartan_matrix_norm(tartan_context *context, const tartan_matrix *matrix, int32_t kind,
                                 double *out_results, int64_t nout_results) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_matrix_check_host(__func__, "matrix", matrix));
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
