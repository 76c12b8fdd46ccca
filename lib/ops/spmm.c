/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense. */
#include "ops/operand.h"

static tartan_status check_dtypes(const char *function, const tartan_op_spmm *op) {
    const int32_t dtype = op->a->dtype;
    CHECK_IN(function, op->b->dtype == dtype, DTYPE, "b is of %s, expected %s (that of a)",
             tartan_dtype_name(op->b->dtype), tartan_dtype_name(dtype));
    PASS(tartan_i_operand_out_dtype(function, "c", op->c->dtype, dtype));
    PASS(tartan_i_scalar_check(function, "alpha", op->alpha, dtype));
    return tartan_i_scalar_check(function, "beta", op->beta, dtype);
}

static tartan_status check_shapes(const char *function, const tartan_op_spmm *op) {
    const tartan_shape *s = &op->a->layout->shape;
    const bool transposed = op->transpose == TARTAN_TRANSPOSE, left = op->side == TARTAN_LEFT;
    const int64_t rows = transposed ? s->cols : s->rows, cols = transposed ? s->rows : s->cols;
    const tartan_array *b = op->b, *c = op->c;
    PASS(tartan_i_array_check_dims(function, "b", b, left ? cols : -1, left ? -1 : rows,
                                   left ? "rows as op(a) has columns" : "columns as op(a) has rows",
                                   s->heads));
    PASS(tartan_i_array_check_dims(function, "c", c, left ? rows : -1, left ? -1 : cols,
                                   left ? "rows as op(a)" : "columns as op(a)", s->heads));
    PASS(tartan_i_array_check_batch(function, "c", c, "b", b));
    const int64_t n_b = b->shape[b->ndim - (left ? 1 : 2)], n_c = c->shape[c->ndim - (left ? 1 : 2)];
    CHECK_IN(function, n_b == n_c, SHAPE, "c has %" PRId64 " %s, expected %" PRId64 " (those of b)", n_c,
             left ? "columns" : "rows", n_b);
    return TARTAN_OK;
}

tartan_status tartan_spmm(tartan_context *context, int32_t side, int32_t op, double alpha,
                          const tartan_matrix *a, const tartan_array *gates, const tartan_array *b,
                          double beta, tartan_array *c) {
    HOLD_MATRIX(a);
    CHECK_HANDLE(context, CONTEXT, "context");
    CHECK(side == TARTAN_LEFT || side == TARTAN_RIGHT, ARGUMENT,
          "side is %d, expected %d (left) or %d (right)", side, TARTAN_LEFT, TARTAN_RIGHT);
    CHECK(op == TARTAN_NO_TRANSPOSE || op == TARTAN_TRANSPOSE, ARGUMENT,
          "op is %d, expected %d (as it is) or %d (transposed)", op, TARTAN_NO_TRANSPOSE, TARTAN_TRANSPOSE);
    PASS(tartan_i_operand_matrix(__func__, context, "a", a));
    PASS(tartan_i_operand_gates(__func__, context, gates, a->layout->blocks));
    PASS(tartan_i_operand_array(__func__, context, "b", b, false));
    PASS(tartan_i_operand_array(__func__, context, "c", c, true));
    const tartan_op call = {.kind = TARTAN_OP_SPMM,
                            .spmm = {.function = __func__,
                                     .side = side,
                                     .transpose = op,
                                     .alpha = alpha,
                                     .beta = beta,
                                     .a = a,
                                     .gates = gates,
                                     .b = b,
                                     .c = c}};
    PASS(check_dtypes(__func__, &call.spmm));
    PASS(check_shapes(__func__, &call.spmm));
    const tartan_array values = tartan_i_matrix_view(a);
    PASS(tartan_i_array_check_apart(__func__, "c", c, "b", b));
    PASS(tartan_i_array_check_apart(__func__, "c", c, "the values of a", &values));
    PASS(tartan_i_array_check_apart(__func__, "c", c, "gates", gates));
    return tartan_i_run(context, &call);
}
