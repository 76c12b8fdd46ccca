// SPDX-License-Identifier: Apache-2.0
// Element-wise arithmetic: sums, combinations, functions of the stored elements, scaling.
#include "tartan/arithmetic.h"

#include "core/array.h"
#include "layout/positions.h"
#include "matrix/work.h"

#include <math.h>

// One or two operands, and what is computed of each element of the result.
typedef struct job {
    tartan_matrix *to;
    const tartan_matrix *a, *b; /* b: NULL if there is one operand */
    const int64_t *a_sources,
        *b_sources; /* for each block of `to`, that of the operand, or -1; NULL: the same */
    double alpha, beta;
    int32_t kind; /* tartan_combination or tartan_function */
    /* n elements; x or y is NULL where its operand stores nothing. `to` may be x. */
    void (*compute)(const struct job *j, int64_t n, const double *x, const double *y, double *to);
    const double *row_factors, *col_factors; /* of tartan_matrix_scale, NULL for none */
    int64_t row_head, col_head;              /* how far the factors of the next head are */
    int32_t workers;
} job;

/* ---- What is computed ---- */

static void compute_sum(const job *j, int64_t n, const double *x, const double *y, double *to) {
    const double alpha = j->alpha, beta = j->beta;
    if (y == NULL)
        for (int64_t i = 0; i < n; i++) to[i] = alpha * x[i];
    else if (x == NULL)
        for (int64_t i = 0; i < n; i++) to[i] = beta * y[i];
    else
        for (int64_t i = 0; i < n; i++) to[i] = alpha * x[i] + beta * y[i];
}

static void compute_combination(const job *j, int64_t n, const double *x, const double *y, double *to) {
    const bool largest = j->kind == TARTAN_COMBINE_MAXIMUM;
    if (j->kind == TARTAN_COMBINE_MULTIPLY) {
        for (int64_t i = 0; i < n; i++) to[i] = x[i] * y[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const double u = x != NULL ? x[i] : 0, v = y != NULL ? y[i] : 0;
        to[i] = isnan(u) || (largest ? u > v : u < v) ? u : v;
    }
}

static void compute_power(double p, int64_t n, const double *x, double *to) {
    if (p == 2)
        for (int64_t i = 0; i < n; i++) to[i] = x[i] * x[i];
    else if (p == 0.5)
        for (int64_t i = 0; i < n; i++) to[i] = sqrt(x[i]);
    else
        for (int64_t i = 0; i < n; i++) to[i] = pow(x[i], p);
}

static void compute_function(const job *j, int64_t n, const double *x, const double *y, double *to) {
    const double p = j->alpha;
    (void)y;
    switch (j->kind) {
    case TARTAN_APPLY_MULTIPLY:
        for (int64_t i = 0; i < n; i++) to[i] = x[i] * p;
        break;
    case TARTAN_APPLY_DIVIDE:
        for (int64_t i = 0; i < n; i++) to[i] = x[i] / p;
        break;
    case TARTAN_APPLY_POWER:
        compute_power(p, n, x, to);
        break;
    case TARTAN_APPLY_ABS:
        for (int64_t i = 0; i < n; i++) to[i] = fabs(x[i]);
        break;
    case TARTAN_APPLY_SIGN:
        for (int64_t i = 0; i < n; i++) to[i] = isnan(x[i]) ? x[i] : (double)((x[i] > 0) - (x[i] < 0));
        break;
    default:
        for (int64_t i = 0; i < n; i++) to[i] = nearbyint(x[i]);
        break;
    }
}

/* ---- Running over blocks ---- */

static int64_t source_of(const tartan_matrix *m, const int64_t *sources, int64_t id) {
    return m == NULL ? -1 : sources == NULL ? id : sources[id];
}

// Whether a block that one operand alone stores is that operand's, unchanged.
static bool moves(const job *j, double factor) {
    return j->compute == compute_sum && factor == 1;
}

static void move(const job *j, int64_t id, const tartan_matrix *from, int64_t source) {
    if (tartan_i_block_at(j->to, id) == tartan_i_block_at(from, source)) return; /* C is this operand */
    tartan_i_block_copy(j->to, id, from, source, false);
}

static void compute_block(const job *j, int64_t id) {
    const int64_t a = source_of(j->a, j->a_sources, id), b = source_of(j->b, j->b_sources, id);
    double x[TARTAN_I_PIECE], y[TARTAN_I_PIECE];
    if (a < 0 && b < 0) {
        const int64_t bytes = tartan_i_block_elements(j->to) * tartan_dtype_bytes(j->to->dtype);
        memset(tartan_i_block_at(j->to, id), 0, (size_t)bytes);
    } else if (b < 0 && moves(j, j->alpha)) {
        move(j, id, j->a, a);
    } else if (a < 0 && moves(j, j->beta)) {
        move(j, id, j->b, b);
    } else {
        tartan_i_piece p = tartan_i_piece_begin(j->to, id);
        for (; p.runs > 0; tartan_i_piece_next(j->to, id, &p)) {
            if (a >= 0) tartan_i_piece_load(j->a, a, &p, x);
            if (b >= 0) tartan_i_piece_load(j->b, b, &p, y);
            j->compute(j, p.runs * p.length, a >= 0 ? x : NULL, b >= 0 ? y : NULL, x);
            tartan_i_piece_store(j->to, id, &p, x);
        }
    }
}

// Whether element i of the values of the result comes from elements i of the operands' values.
static bool is_flat(const job *j) {
    if (j->b == NULL && moves(j, j->alpha)) return false;
    return j->a_sources == NULL && j->b_sources == NULL && !tartan_i_is_ragged(j->to->layout) &&
           j->a->block_order == j->to->block_order &&
           (j->b == NULL || j->b->block_order == j->to->block_order);
}

static void compute_range(const job *j, int64_t begin, int64_t end) {
    const tartan_matrix *a = j->a, *b = j->b, *to = j->to;
    const tartan_i_tile_copy load_a = tartan_i_tile_copier(TARTAN_F64, a->dtype);
    const tartan_i_tile_copy load_b = tartan_i_tile_copier(TARTAN_F64, b != NULL ? b->dtype : a->dtype);
    const tartan_i_tile_copy store = tartan_i_tile_copier(to->dtype, TARTAN_F64);
    double x[TARTAN_I_PIECE], y[TARTAN_I_PIECE];
    for (int64_t at = begin; at < end; at += TARTAN_I_PIECE) {
        const int64_t n = end - at < TARTAN_I_PIECE ? end - at : TARTAN_I_PIECE;
        load_a(x, 0, 1, tartan_i_at(a->values, a->dtype, at), 0, 1, 1, n);
        if (b != NULL) load_b(y, 0, 1, tartan_i_at(b->values, b->dtype, at), 0, 1, 1, n);
        j->compute(j, n, x, b != NULL ? y : NULL, x);
        store(tartan_i_at(to->values, to->dtype, at), 0, 1, x, 0, 1, 1, n);
    }
}

static void compute_task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    tartan_i_share(j->to->layout->blocks, j->workers, worker, &begin, &end);
    if (is_flat(j)) {
        const int64_t elements = tartan_i_block_elements(j->to);
        compute_range(j, begin * elements, end * elements);
        return;
    }
    for (int64_t id = begin; id < end; id++) compute_block(j, id);
}

static tartan_status run(const char *function, tartan_context *context, job *j, tartan_task task) {
    const double elements = (double)j->to->layout->blocks * (double)tartan_i_block_elements(j->to);
    j->workers = context->threads;
    return tartan_i_work_run(function, context, 4 * elements, task, j);
}

/* ---- Two operands ---- */

static tartan_status check_two(const char *function, const tartan_context *context, const tartan_matrix *a,
                               const tartan_matrix *b) {
    PASS(tartan_i_work_check(function, context));
    PASS(tartan_i_matrix_check_host(function, "a", a));
    PASS(tartan_i_matrix_check_host(function, "b", b));
    return tartan_i_matrix_check_frame(function, "b", b, "a", a);
}

// For each block of `layout`, that of the operand; NULL in *out if the layouts are equal.
static tartan_status match(const tartan_layout *layout, const tartan_matrix *operand, int64_t **out,
                           int64_t *matched) {
    *out = NULL;
    *matched = layout->blocks;
    if (tartan_layout_equal(layout, operand->layout) == 1) return TARTAN_OK;
    PASS(tartan_i_allocate(out, layout->blocks, sizeof **out));
    *matched = tartan_i_layout_match(layout, operand->layout, *out);
    return TARTAN_OK;
}

static tartan_status meet(const tartan_matrix *a, const tartan_matrix *b, bool both, tartan_layout **out) {
    if (tartan_layout_equal(a->layout, b->layout) == 1) {
        *out = tartan_layout_retain(a->layout);
        return TARTAN_OK;
    }
    return both ? tartan_layout_intersection(a->layout, b->layout, out)
                : tartan_layout_union(a->layout, b->layout, out);
}

// The result of a checked job with two operands, whose matrix is still to be made.
static tartan_status combine(const char *function, tartan_context *context, job *j, bool both, int32_t dtype,
                             tartan_matrix **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    int64_t *a = NULL, *b = NULL, matched;
    TRY(meet(j->a, j->b, both, &layout));
    TRY(match(layout, j->a, &a, &matched));
    TRY(match(layout, j->b, &b, &matched));
    TRY(tartan_i_matrix_new(layout, dtype, j->a->block_order, &j->to));
    j->a_sources = a, j->b_sources = b;
    TRY(run(function, context, j, compute_task));
    *out = j->to;
    j->to = NULL;
fail:
    tartan_matrix_free(j->to);
    tartan_layout_free(layout);
    tartan_i_free(a);
    tartan_i_free(b);
    return status;
}

static int32_t result_dtype(int32_t dtype, const tartan_matrix *a, const tartan_matrix *b) {
    return dtype != 0 ? dtype : tartan_i_common_dtype(a->dtype, b->dtype);
}

tartan_status tartan_matrix_add(tartan_context *context, double alpha, const tartan_matrix *a, double beta,
                                const tartan_matrix *b, int32_t dtype, tartan_matrix **out) {
    HOLD_MATRIX(a);
    HOLD_MATRIX(b);
    CHECK_OUT(out);
    PASS(check_two(__func__, context, a, b));
    dtype = result_dtype(dtype, a, b);
    PASS(tartan_i_matrix_check_new(__func__, a->layout, dtype, a->block_order));
    PASS(tartan_i_scalar_check(__func__, "alpha", alpha, dtype));
    PASS(tartan_i_scalar_check(__func__, "beta", beta, dtype));
    job j = {.a = a, .b = b, .alpha = alpha, .beta = beta, .compute = compute_sum};
    return combine(__func__, context, &j, false, dtype, out);
}

// C may be an operand, in whole.
static tartan_status check_apart(const char *function, const char *name, const tartan_matrix *operand,
                                 const tartan_matrix *c) {
    const bool same = c->values == operand->values && c->dtype == operand->dtype &&
                      c->block_order == operand->block_order &&
                      tartan_layout_equal(c->layout, operand->layout) == 1;
    const tartan_array to = tartan_i_matrix_view(c), from = tartan_i_matrix_view(operand);
    return same ? TARTAN_OK : tartan_i_array_check_apart(function, "c", &to, name, &from);
}

static tartan_status check_contains(const char *function, const char *name, const tartan_matrix *operand,
                                    int64_t matched) {
    CHECK_IN(function, matched >= operand->layout->blocks, LAYOUT,
             "c stores %" PRId64 " of the %" PRId64 " blocks of %s, expected all of them", matched,
             operand->layout->blocks, name);
    return TARTAN_OK;
}

tartan_status tartan_axpby(tartan_context *context, double alpha, const tartan_matrix *a, double beta,
                           const tartan_matrix *b, tartan_matrix *c) {
    HOLD_MATRIX(a);
    HOLD_MATRIX(b);
    HOLD_MATRIX(c);
    tartan_status status;
    PASS(check_two(__func__, context, a, b));
    PASS(tartan_i_matrix_check_host(__func__, "c", c));
    PASS(tartan_i_matrix_check_frame(__func__, "c", c, "a", a));
    PASS(tartan_i_scalar_check(__func__, "alpha", alpha, c->dtype));
    PASS(tartan_i_scalar_check(__func__, "beta", beta, c->dtype));
    PASS(check_apart(__func__, "a", a, c));
    PASS(check_apart(__func__, "b", b, c));
    int64_t *a_sources = NULL, *b_sources = NULL, matched;
    TRY(match(c->layout, a, &a_sources, &matched));
    TRY(check_contains(__func__, "a", a, matched));
    TRY(match(c->layout, b, &b_sources, &matched));
    TRY(check_contains(__func__, "b", b, matched));
    job j = {.to = c,
             .a = a,
             .b = b,
             .a_sources = a_sources,
             .b_sources = b_sources,
             .alpha = alpha,
             .beta = beta,
             .compute = compute_sum};
    TRY(run(__func__, context, &j, compute_task));
fail:
    tartan_i_free(a_sources);
    tartan_i_free(b_sources);
    return status;
}

tartan_status tartan_matrix_combine(tartan_context *context, int32_t combination, const tartan_matrix *a,
                                    const tartan_matrix *b, int32_t dtype, tartan_matrix **out) {
    HOLD_MATRIX(a);
    HOLD_MATRIX(b);
    CHECK_OUT(out);
    PASS(check_two(__func__, context, a, b));
    CHECK(combination >= TARTAN_COMBINE_MULTIPLY && combination <= TARTAN_COMBINE_MINIMUM, ARGUMENT,
          "combination is %d, expected %d (multiply), %d (maximum) or %d (minimum)", combination,
          TARTAN_COMBINE_MULTIPLY, TARTAN_COMBINE_MAXIMUM, TARTAN_COMBINE_MINIMUM);
    dtype = result_dtype(dtype, a, b);
    PASS(tartan_i_matrix_check_new(__func__, a->layout, dtype, a->block_order));
    job j = {.a = a, .b = b, .kind = combination, .compute = compute_combination};
    return combine(__func__, context, &j, combination == TARTAN_COMBINE_MULTIPLY, dtype, out);
}

/* ---- One operand ---- */

static tartan_status check_one(const char *function, const tartan_context *context,
                               const tartan_matrix *matrix, int32_t *dtype) {
    PASS(tartan_i_work_check(function, context));
    PASS(tartan_i_matrix_check_host(function, "matrix", matrix));
    if (*dtype == 0) *dtype = matrix->dtype;
    return tartan_i_matrix_check_new(function, matrix->layout, *dtype, matrix->block_order);
}

// The result of a checked job with one operand, on `layout`.
static tartan_status make(const char *function, tartan_context *context, job *j, tartan_layout *layout,
                          int32_t dtype, tartan_task task, tartan_matrix **out) {
    PASS(tartan_i_matrix_new(layout, dtype, j->a->block_order, &j->to));
    const tartan_status status = run(function, context, j, task);
    if (status == TARTAN_OK)
        *out = j->to;
    else
        tartan_matrix_free(j->to);
    return status;
}

tartan_status tartan_i_matrix_multiple(const char *function, tartan_context *context, double alpha,
                                       const tartan_matrix *matrix, tartan_layout *layout, int32_t dtype,
                                       tartan_matrix **out) {
    int64_t *sources, matched;
    PASS(match(layout, matrix, &sources, &matched));
    job j = {.a = matrix, .a_sources = sources, .alpha = alpha, .compute = compute_sum};
    const tartan_status status = make(function, context, &j, layout, dtype, compute_task, out);
    tartan_i_free(sources);
    return status;
}

tartan_status tartan_matrix_apply(tartan_context *context, int32_t kind, double parameter,
                                  const tartan_matrix *matrix, int32_t dtype, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(check_one(__func__, context, matrix, &dtype));
    CHECK(kind >= TARTAN_APPLY_MULTIPLY && kind <= TARTAN_APPLY_ROUND, ARGUMENT,
          "kind is %d, expected %d .. %d (a tartan_function)", kind, TARTAN_APPLY_MULTIPLY,
          TARTAN_APPLY_ROUND);
    if (kind <= TARTAN_APPLY_POWER) PASS(tartan_i_scalar_check(__func__, "parameter", parameter, dtype));
    CHECK(kind != TARTAN_APPLY_DIVIDE || parameter != 0, ARGUMENT,
          "parameter is %g, expected a number other than 0 to divide by", parameter);
    CHECK(kind != TARTAN_APPLY_POWER || parameter > 0, ARGUMENT,
          "parameter is %g, expected an exponent above 0, which keeps zeros", parameter);
    job j = {.a = matrix, .kind = kind, .alpha = parameter, .compute = compute_function};
    return make(__func__, context, &j, matrix->layout, dtype, compute_task, out);
}

/* ---- Scaling of rows and columns ---- */

static void scale_piece(const tartan_i_piece *p, const double *run_factors, const double *element_factors,
                        double *x) {
    for (int64_t i = 0; i < p->runs; i++, x += p->length) {
        const double factor = run_factors != NULL ? run_factors[p->first + i] : 1;
        if (p->by_row && run_factors != NULL) /* the row's factor first, in either order of the block */
            for (int64_t k = 0; k < p->length; k++) x[k] *= factor;
        if (element_factors != NULL)
            for (int64_t k = 0; k < p->length; k++) x[k] *= element_factors[k];
        if (!p->by_row && run_factors != NULL)
            for (int64_t k = 0; k < p->length; k++) x[k] *= factor;
    }
}

static void scale_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->to->layout;
    int64_t begin, end;
    double x[TARTAN_I_PIECE];
    tartan_i_share(l->blocks, j->workers, worker, &begin, &end);
    int64_t head = begin < end ? tartan_i_layout_head(l, begin) : 0;
    for (int64_t id = begin; id < end; id++) {
        while (id >= l->row_pointers[(head + 1) * l->grid_rows]) head++;
        const double *rows = j->row_factors, *cols = j->col_factors;
        if (rows != NULL) rows += head * j->row_head + l->block_rows[id] * l->shape.block_rows;
        if (cols != NULL) cols += head * j->col_head + l->block_cols[id] * l->shape.block_cols;
        tartan_i_piece p = tartan_i_piece_begin(j->to, id);
        for (; p.runs > 0; tartan_i_piece_next(j->to, id, &p)) {
            tartan_i_piece_load(j->a, id, &p, x);
            scale_piece(&p, p.by_row ? rows : cols, p.by_row ? cols : rows, x);
            tartan_i_piece_store(j->to, id, &p, x);
        }
    }
}

// Factors for one side: [size] or [heads * size], or none. Returns NULL for none.
static tartan_status check_factors(const char *function, const char *name, const double *factors,
                                   int64_t nfactors, int64_t size, int64_t heads, int64_t *head_stride) {
    *head_stride = heads > 1 && nfactors == heads * size ? size : 0;
    if (factors == NULL && nfactors == 0) return TARTAN_OK;
    return tartan_i_list_check(function, name, factors, nfactors, *head_stride != 0 ? heads * size : size,
                               heads > 1 ? "one for each line, or heads times as many" : "one for each line");
}

tartan_status tartan_matrix_scale(tartan_context *context, const double *row_factors, int64_t nrow_factors,
                                  const double *col_factors, int64_t ncol_factors,
                                  const tartan_matrix *matrix, int32_t dtype, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(check_one(__func__, context, matrix, &dtype));
    const tartan_shape *s = &matrix->layout->shape;
    job j = {.a = matrix, .row_factors = row_factors, .col_factors = col_factors};
    PASS(check_factors(__func__, "row_factors", row_factors, nrow_factors, s->rows, s->heads, &j.row_head));
    PASS(check_factors(__func__, "col_factors", col_factors, ncol_factors, s->cols, s->heads, &j.col_head));
    return make(__func__, context, &j, matrix->layout, dtype, scale_task, out);
}
