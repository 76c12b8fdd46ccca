/* SPDX-License-Identifier: Apache-2.0
 * What a product would do, without doing it. */
#include "ops/operand.h"
#include "tartan/device.h"

#include <stdio.h>

/* What the caller says of a product. */
typedef struct product {
    tartan_op_kind kind;
    int32_t dtype, block_order, side, transpose;
    int64_t n;
    int32_t dense_order;
} product;

/* The operands of the product that is asked about. Their memory is NULL: nobody looks at it. */
typedef struct question {
    tartan_matrix matrix;
    tartan_array first, second;
    tartan_op op;
} question;

/* [rows, cols], or [heads, rows, cols] with matrices in `order`. False if that is more than can be addressed. */
static bool set_array(tartan_array *a, const tartan_context *context, int32_t dtype, int32_t order,
                      int64_t heads, int64_t rows, int64_t cols) {
    int64_t matrix, all;
    if (!tartan_i_multiply(rows > 0 ? rows : 1, cols > 0 ? cols : 1, &matrix) ||
        !tartan_i_multiply(matrix, heads, &all) || all > INT64_MAX / tartan_dtype_bytes(dtype))
        return false;
    const int32_t first = heads > 1 ? 0 : 1;
    const bool by_rows = order == TARTAN_ROW_MAJOR;
    const int64_t shape[] = {heads, rows, cols};
    const int64_t strides[] = {matrix, by_rows && cols > 0 ? cols : 1, !by_rows && rows > 0 ? rows : 1};
    *a = (tartan_array){.dtype = dtype,
                        .device_type = context->options.device_type,
                        .device_id = context->options.device_id,
                        .ndim = 3 - first};
    memcpy(a->shape, shape + first, (size_t)a->ndim * sizeof *shape);
    memcpy(a->strides, strides + first, (size_t)a->ndim * sizeof *strides);
    return true;
}

static bool ask(question *q, const tartan_context *context, const tartan_layout *layout, const product *p) {
    const tartan_shape *s = &layout->shape;
    const int32_t dtype = p->dtype, order = p->dense_order;
    const int64_t n = p->n;
    *q = (question){.op = {.kind = p->kind}};
    q->matrix.magic = TARTAN_I_MATRIX;
    q->matrix.dtype = dtype;
    q->matrix.block_order = p->block_order;
    tartan_i_matrix_set_device(&q->matrix, context->options.device_type, context->options.device_id);
    q->matrix.layout = (tartan_layout *)layout; /* nothing of it is changed */
    if (p->kind == TARTAN_OP_SDDMM) {
        q->op.sddmm = (tartan_op_sddmm){.function = "tartan_explain",
                                        .alpha = 1,
                                        .pairs = 1,
                                        .x = &q->first,
                                        .y = &q->second,
                                        .s = &q->matrix};
        return set_array(&q->first, context, dtype, order, s->heads, s->rows, n) &&
               set_array(&q->second, context, dtype, order, s->heads, n, s->cols);
    }
    q->op.spmm = (tartan_op_spmm){.function = "tartan_explain",
                                  .side = p->side,
                                  .transpose = p->transpose,
                                  .alpha = 1,
                                  .a = &q->matrix,
                                  .b = &q->first,
                                  .c = &q->second};
    const bool left = p->side == TARTAN_LEFT, transposed = (p->transpose == TARTAN_TRANSPOSE) == left;
    const int64_t in = transposed ? s->rows : s->cols, out = transposed ? s->cols : s->rows;
    const int32_t out_dtype = tartan_i_is_f8(dtype) ? TARTAN_BF16 : dtype;
    return set_array(&q->first, context, dtype, order, s->heads, left ? in : n, left ? n : in) &&
           set_array(&q->second, context, out_dtype, order, s->heads, left ? out : n, left ? n : out);
}

static double bytes_of(const tartan_array *a) {
    return (double)tartan_i_array_elements(a) * (double)tartan_dtype_bytes(a->dtype);
}

/* The figures that hold whatever runs: each stored element and each element of the dense operands moves once. */
static void add_figures(tartan_i_text *text, const question *q, int64_t n) {
    const tartan_layout *l = q->matrix.layout;
    const double room = (double)l->blocks * (double)tartan_i_block_elements(&q->matrix);
    const double elements = tartan_i_is_dynamic(l) ? room : (double)tartan_layout_elements(l);
    const double sparse = elements * (double)tartan_dtype_bytes(q->matrix.dtype);
    tartan_i_text_add(text, "\"flops\": %.0f, \"bytes\": %.0f", 2 * elements * (double)n,
                      sparse + bytes_of(&q->first) + bytes_of(&q->second));
}

static const char *order_name(int32_t order) {
    return order == TARTAN_COL_MAJOR ? "column-major" : "row-major";
}

static tartan_status write(const tartan_context *context, const question *q, const product *p,
                           tartan_i_text *text) {
    const tartan_backend *backend = context->backend;
    const tartan_layout *l = q->matrix.layout;
    const bool spmm = p->kind == TARTAN_OP_SPMM;
    tartan_i_text_add(text, "{\"backend\": \"%s\", \"device\": \"%s\", ", backend->name, q->matrix.device);
    tartan_i_text_add(text,
                      "\"operation\": \"%s\", \"dtype\": \"%s\", \"side\": \"%s\", \"transposed\": %s, "
                      "\"n\": %" PRId64 ", ",
                      spmm ? "spmm" : "sddmm", tartan_dtype_name(p->dtype),
                      p->side == TARTAN_RIGHT ? "right" : "left", p->transpose ? "true" : "false", p->n);
    tartan_i_text_add(text, "\"block_order\": \"%s\", \"dense_order\": \"%s\", ", order_name(p->block_order),
                      order_name(p->dense_order));
    tartan_i_text_add(text,
                      "\"shape\": [%" PRId64 ", %" PRId64 "], \"block\": [%" PRId64 ", %" PRId64
                      "], \"heads\": %" PRId64 ", \"blocks\": %" PRId64 ", ",
                      l->shape.rows, l->shape.cols, l->shape.block_rows, l->shape.block_cols, l->shape.heads,
                      l->blocks);
    add_figures(text, q, p->n);
    PASS(text->status);
    const char *reason;
    const bool there = tartan_i_backend_supports(context, &q->op, &reason);
    tartan_i_text_add(text, ", \"supported\": %s, ", there ? "true" : "false");
    if (there) {
        PASS(backend->explain(context, &q->op, text));
    } else {
        tartan_i_text_add(text, "\"kernel\": null, \"why\": ");
        tartan_i_text_add_json(text, reason);
        tartan_i_text_add(text, ", \"refused\": [], \"expected_tflops\": null");
    }
    tartan_i_text_add(text, "}");
    return text->status;
}

static bool is_order(int32_t order) {
    return order == TARTAN_ROW_MAJOR || order == TARTAN_COL_MAJOR;
}

static tartan_status check_product(const char *function, const product *p) {
    const bool spmm = p->kind == TARTAN_OP_SPMM;
    CHECK_IN(function, tartan_i_is_number(p->dtype), DTYPE, "dtype is %d, expected %d .. %d (a tartan_dtype)",
             p->dtype, TARTAN_F64, TARTAN_I_LAST_DTYPE);
    CHECK_IN(function, is_order(p->block_order), ARGUMENT,
             "block_order is %d, expected %d (row-major) or %d (column-major)", p->block_order,
             TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR);
    CHECK_IN(function, p->side == TARTAN_LEFT || (spmm && p->side == TARTAN_RIGHT), ARGUMENT,
             "side is %d, expected %s", p->side, spmm ? "0 (left) or 1 (right)" : "0 for sddmm");
    CHECK_IN(function, p->transpose == TARTAN_NO_TRANSPOSE || (spmm && p->transpose == TARTAN_TRANSPOSE),
             ARGUMENT, "op is %d, expected %s", p->transpose,
             spmm ? "0 (as it is) or 1 (transposed)" : "0 for sddmm");
    CHECK_IN(function, is_order(p->dense_order), ARGUMENT,
             "dense_order is %d, expected %d (row-major) or %d (column-major)", p->dense_order,
             TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR);
    return spmm ? TARTAN_OK : tartan_i_operand_wide(function, "s", p->dtype);
}

tartan_status tartan_explain(tartan_context *context, const char *operation, const tartan_layout *layout,
                             int32_t dtype, int32_t block_order, int32_t side, int32_t op, int64_t n,
                             int32_t dense_order, char **out_text) {
    CHECK_OUT(out_text);
    CHECK_HANDLE(context, CONTEXT, "context");
    CHECK(operation != NULL, HANDLE, "operation is NULL, expected \"spmm\" or \"sddmm\"");
    const bool spmm = strcmp(operation, "spmm") == 0;
    CHECK(spmm || strcmp(operation, "sddmm") == 0, ARGUMENT,
          "operation is \"%.64s\", expected \"spmm\" or \"sddmm\"", operation);
    PASS(tartan_i_operand_layout(__func__, context, layout));
    const product p = {.kind = spmm ? TARTAN_OP_SPMM : TARTAN_OP_SDDMM,
                       .dtype = dtype,
                       .block_order = block_order,
                       .side = side,
                       .transpose = op,
                       .n = n,
                       .dense_order = dense_order};
    PASS(check_product(__func__, &p));
    question q;
    CHECK(n >= 0 && ask(&q, context, layout, &p), ARGUMENT,
          "n is %" PRId64 ", expected 0 or more, and operands that can be addressed", n);
    tartan_i_text text = {0};
    PASS(tartan_i_context_enter(__func__, context));
    const tartan_status status = write(context, &q, &p, &text);
    tartan_i_context_leave(context);
    if (status != TARTAN_OK) {
        tartan_i_free(text.data);
        return status;
    }
    *out_text = text.data;
    return TARTAN_OK;
}
