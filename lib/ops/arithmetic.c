// SPDX-License-Identifier: Apache-2.0
// Element-wise arithmetic: sums, combinations, functions of the stored elements, scaling.
#include "ops/arithmetic.h"

#include "layout/positions.h"

/* ---- Shared; see arithmetic.h ---- */

tartan_status tartan_i_arithmetic_check(const char *function, const tartan_context *context, const char *name,
                                        const tartan_matrix *matrix) {
    PASS(tartan_i_operand_matrix(function, context, name, matrix));
    return tartan_i_matrix_check_stays(function, name, matrix);
}

tartan_status tartan_i_arithmetic_match(const tartan_layout *layout, const tartan_matrix *operand,
                                        int64_t **out, int64_t *matched) {
    *out = NULL;
    *matched = layout->blocks;
    if (tartan_layout_equal(layout, operand->layout) == 1) return TARTAN_OK;
    PASS(tartan_i_allocate(out, layout->blocks, sizeof **out));
    *matched = tartan_i_layout_match(layout, operand->layout, *out);
    return TARTAN_OK;
}

// Runs an operation whose sources are still in host memory.
static tartan_status run_uploaded(tartan_i_call *call, const tartan_op_elementwise *elementwise) {
    tartan_status status;
    const int64_t blocks = elementwise->to->layout->blocks;
    tartan_op op = {.kind = TARTAN_OP_ELEMENTWISE, .elementwise = *elementwise};
    tartan_op_elementwise *there = &op.elementwise;
    tartan_i_uploads uploads = {0};
    there->function = call->function;
    TRY(tartan_i_upload_list(&uploads, call->function, call->context, elementwise->a_sources, blocks,
                             &there->a_sources));
    TRY(tartan_i_upload_list(&uploads, call->function, call->context, elementwise->b_sources, blocks,
                             &there->b_sources));
    TRY(tartan_i_call_run(call, &op));
fail:
    tartan_i_uploads_free(&uploads, call->context);
    return status;
}

tartan_status tartan_i_elementwise_new(tartan_i_call *call, const tartan_op_elementwise *op,
                                       tartan_layout *layout, int32_t dtype, tartan_matrix **out) {
    tartan_op_elementwise made = *op;
    PASS(tartan_i_matrix_new_on(call, layout, dtype, op->a->block_order, &made.to));
    const tartan_status status = run_uploaded(call, &made);
    if (status == TARTAN_OK)
        *out = made.to;
    else
        tartan_matrix_free(made.to);
    return status;
}

static tartan_status make(const char *function, tartan_context *context, const tartan_op_elementwise *op,
                          tartan_layout *layout, int32_t dtype, tartan_matrix **out) {
    tartan_i_call call;
    PASS(tartan_i_call_enter(function, context, &call));
    const tartan_status status = tartan_i_elementwise_new(&call, op, layout, dtype, out);
    tartan_i_call_leave(&call);
    return status;
}

/* ---- Two operands ---- */

static tartan_status check_two(const char *function, const tartan_context *context, const tartan_matrix *a,
                               const tartan_matrix *b) {
    PASS(tartan_i_work_check(function, context));
    PASS(tartan_i_arithmetic_check(function, context, "a", a));
    PASS(tartan_i_arithmetic_check(function, context, "b", b));
    return tartan_i_matrix_check_frame(function, "b", b, "a", a);
}

// The result of a checked operation on two matrices.
static tartan_status combine(const char *function, tartan_context *context, tartan_op_elementwise *op,
                             bool both, int32_t dtype, tartan_matrix **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    int64_t *a = NULL, *b = NULL;
    uint8_t *origins = NULL;
    if (!both && context->options.device_type == TARTAN_CPU)
        TRY(tartan_i_layout_unite(function, op->a->layout, op->b->layout, &origins, &layout));
    else
        TRY(tartan_i_layout_merge(function, op->a->layout, op->b->layout, both, &a, &b, &layout));
    op->a_sources = a, op->b_sources = b, op->origins = origins;
    TRY(make(function, context, op, layout, dtype, out));
fail:
    tartan_layout_free(layout);
    tartan_i_free(a);
    tartan_i_free(b);
    tartan_i_free(origins);
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
    tartan_op_elementwise op = {.step = TARTAN_I_STEP_sum, .p = alpha, .q = beta, .a = a, .b = b};
    return combine(__func__, context, &op, false, dtype, out);
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
    PASS(tartan_i_arithmetic_check(__func__, context, "c", c));
    PASS(tartan_i_matrix_check_frame(__func__, "c", c, "a", a));
    PASS(tartan_i_scalar_check(__func__, "alpha", alpha, c->dtype));
    PASS(tartan_i_scalar_check(__func__, "beta", beta, c->dtype));
    PASS(check_apart(__func__, "a", a, c));
    PASS(check_apart(__func__, "b", b, c));
    int64_t *a_sources = NULL, *b_sources = NULL, matched;
    TRY(tartan_i_arithmetic_match(c->layout, a, &a_sources, &matched));
    TRY(check_contains(__func__, "a", a, matched));
    TRY(tartan_i_arithmetic_match(c->layout, b, &b_sources, &matched));
    TRY(check_contains(__func__, "b", b, matched));
    const tartan_op_elementwise op = {.step = TARTAN_I_STEP_sum,
                                      .p = alpha,
                                      .q = beta,
                                      .a = a,
                                      .b = b,
                                      .a_sources = a_sources,
                                      .b_sources = b_sources,
                                      .to = c};
    tartan_i_call call;
    TRY(tartan_i_call_enter(__func__, context, &call));
    status = run_uploaded(&call, &op);
    tartan_i_call_leave(&call);
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
    static const tartan_i_step steps[] = {[TARTAN_COMBINE_MULTIPLY] = TARTAN_I_STEP_multiply,
                                          [TARTAN_COMBINE_MAXIMUM] = TARTAN_I_STEP_maximum,
                                          [TARTAN_COMBINE_MINIMUM] = TARTAN_I_STEP_minimum};
    tartan_op_elementwise op = {.step = steps[combination], .a = a, .b = b};
    return combine(__func__, context, &op, combination == TARTAN_COMBINE_MULTIPLY, dtype, out);
}

/* ---- One operand ---- */

static tartan_status check_one(const char *function, const tartan_context *context,
                               const tartan_matrix *matrix, int32_t *dtype) {
    PASS(tartan_i_work_check(function, context));
    PASS(tartan_i_arithmetic_check(function, context, "matrix", matrix));
    if (*dtype == 0) *dtype = matrix->dtype;
    return tartan_i_matrix_check_new(function, matrix->layout, *dtype, matrix->block_order);
}

static tartan_i_step step_of(int32_t kind, double parameter) {
    static const tartan_i_step steps[] = {
        [TARTAN_APPLY_MULTIPLY] = TARTAN_I_STEP_scale, [TARTAN_APPLY_DIVIDE] = TARTAN_I_STEP_divide,
        [TARTAN_APPLY_POWER] = TARTAN_I_STEP_power,    [TARTAN_APPLY_ABS] = TARTAN_I_STEP_abs,
        [TARTAN_APPLY_SIGN] = TARTAN_I_STEP_sign,      [TARTAN_APPLY_ROUND] = TARTAN_I_STEP_round};
    if (kind == TARTAN_APPLY_POWER && parameter == 2) return TARTAN_I_STEP_square;
    if (kind == TARTAN_APPLY_POWER && parameter == 0.5) return TARTAN_I_STEP_sqrt;
    return steps[kind];
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
    const tartan_op_elementwise op = {.step = step_of(kind, parameter), .p = parameter, .a = matrix};
    return make(__func__, context, &op, matrix->layout, dtype, out);
}

/* ---- Scaling of rows and columns ---- */

// Factors of one side, in host memory or on the context's device, as [heads, size]; *out is NULL for none.
static tartan_status check_factors(const char *function, const tartan_context *context, const char *name,
                                   const tartan_array *factors, int64_t heads, int64_t size,
                                   tartan_array *view, const tartan_array **out) {
    char text[TARTAN_I_SHAPE_TEXT];
    *out = NULL;
    if (factors == NULL) return TARTAN_OK;
    PASS(tartan_i_array_check_any(function, name, factors, false));
    if (factors->device_type != TARTAN_CPU)
        PASS(tartan_i_operand_array(function, context, name, factors, false));
    CHECK_IN(function, factors->dtype == TARTAN_F32 || factors->dtype == TARTAN_F64, DTYPE,
             "%s is of %s, expected float32 or float64", name, tartan_dtype_name(factors->dtype));
    const int32_t n = factors->ndim;
    CHECK_IN(function, (n == 1 || (n == 2 && factors->shape[0] == heads)) && factors->shape[n - 1] == size,
             SHAPE,
             "%s has shape %s, expected [%" PRId64 "] or [%" PRId64 ", %" PRId64
             "] (one for each line, or for each head and line)",
             name, tartan_i_shape_text(factors, text), size, heads, size);
    *view = *factors;
    view->ndim = 2;
    view->shape[0] = heads;
    view->shape[1] = size;
    view->strides[0] = n == 2 ? factors->strides[0] : 0;
    view->strides[1] = factors->strides[n - 1];
    *out = view;
    return TARTAN_OK;
}

// Moves checked factors to the context's device, if they are not there.
static tartan_status place_factors(tartan_i_call *call, tartan_i_uploads *uploads, tartan_array *view) {
    tartan_status status;
    const tartan_context *context = call->context;
    if (view->device_type == context->options.device_type) return TARTAN_OK;
    const int64_t heads = view->strides[0] == 0 ? 1 : view->shape[0], size = view->shape[1];
    tartan_array there;
    double *list = NULL;
    NEW(list, heads * size);
    tartan_i_tile_copier(TARTAN_F64, view->dtype)(list, size, 1, view->data, view->strides[0],
                                                  view->strides[1], heads, size);
    TRY(tartan_i_upload_numbers(uploads, call->function, context, list, heads * size, false, &there));
    there.ndim = 2;
    there.shape[0] = view->shape[0], there.shape[1] = size;
    there.strides[0] = heads == 1 ? 0 : size, there.strides[1] = 1;
    *view = there;
fail:
    tartan_i_free(list);
    return status;
}

tartan_status tartan_matrix_scale(tartan_context *context, const tartan_array *row_factors,
                                  const tartan_array *col_factors, const tartan_matrix *matrix, int32_t dtype,
                                  tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    tartan_status status;
    PASS(check_one(__func__, context, matrix, &dtype));
    const tartan_shape *s = &matrix->layout->shape;
    tartan_op_elementwise op = {.step = TARTAN_I_STEP_scale, .p = 1, .a = matrix};
    tartan_array rows, cols;
    PASS(check_factors(__func__, context, "row_factors", row_factors, s->heads, s->rows, &rows,
                       &op.row_factors));
    PASS(check_factors(__func__, context, "col_factors", col_factors, s->heads, s->cols, &cols,
                       &op.col_factors));
    tartan_i_uploads uploads = {0};
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    if (row_factors != NULL) TRY(place_factors(&call, &uploads, &rows));
    if (col_factors != NULL) TRY(place_factors(&call, &uploads, &cols));
    TRY(tartan_i_elementwise_new(&call, &op, matrix->layout, dtype, out));
fail:
    tartan_i_uploads_free(&uploads, context);
    tartan_i_call_leave(&call);
    return status;
}
