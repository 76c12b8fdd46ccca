/* SPDX-License-Identifier: Apache-2.0
 * The largest numbers of lines, and elements and rows by their indices: what the entries of schema/selection.def can't say. */
#include "core/array.h"
#include "ops/checks.h"

/* ---- The largest numbers ---- */

static tartan_status check_k(const char *function, int64_t k, const tartan_array *x) {
    char text[TARTAN_I_SHAPE_TEXT];
    const int64_t n = x->shape[x->ndim - 1];
    CHECK_IN(function, k <= n, ARGUMENT, "k is %" PRId64 ", expected at most %" PRId64 ", for x of shape %s",
             k, n, tartan_i_shape_text(x, text));
    return TARTAN_OK;
}

/* Bytes can hold the indices of short lines only. */
static tartan_status check_room(const char *function, const char *name, const tartan_array *indices,
                                const tartan_array *x, int64_t base) {
    const int64_t last = x->shape[x->ndim - 1] - 1 + base;
    CHECK_IN(function, indices == NULL || indices->dtype != TARTAN_U8 || last <= UINT8_MAX, DTYPE,
             "%s is of uint8, expected int32 or int64, for indices up to %" PRId64, name, last);
    return TARTAN_OK;
}

tartan_status tartan_i_shapes_top_k(const tartan_op *op, int32_t argument, tartan_array *shape) {
    const tartan_op_top_k *o = &op->top_k;
    PASS(check_k(o->function, o->k, o->x));
    if (argument == TARTAN_I_TOP_K_ARGUMENT_INDICES)
        PASS(check_room(o->function, "indices", o->indices, o->x, o->base));
    tartan_i_copy_shape(shape, o->x);
    shape->shape[shape->ndim - 1] = o->k;
    return TARTAN_OK;
}

tartan_status tartan_i_check_top_k_softmax(tartan_op *op, const tartan_context *context) {
    (void)context;
    return check_k(op->top_k_softmax.function, op->top_k_softmax.k, op->top_k_softmax.x);
}

tartan_status tartan_i_check_rectified_top_k(tartan_op *op, const tartan_context *context) {
    const tartan_op_rectified_top_k *o = &op->rectified_top_k;
    (void)context;
    PASS(check_k(o->function, o->k, o->x));
    return check_room(o->function, "last", o->last, o->x, o->base);
}

tartan_status tartan_i_check_rectified_top_k_gradient(tartan_op *op, const tartan_context *context) {
    const tartan_op_rectified_top_k_gradient *o = &op->rectified_top_k_gradient;
    (void)context;
    if (o->last == NULL) return TARTAN_OK;
    /* Where nothing was subtracted, it is base - 1. */
    return tartan_i_check_indices(o->function, "last", o->last, o->base, o->y->shape[o->y->ndim - 1],
                                  "nothing subtracted", o->base - 1);
}

tartan_status tartan_i_check_reduce_max(tartan_op *op, const tartan_context *context) {
    const tartan_op_reduce_max *o = &op->reduce_max;
    char text[TARTAN_I_SHAPE_TEXT];
    (void)context;
    CHECK_IN(o->function, o->x->shape[o->x->ndim - 1] > 0, SHAPE,
             "x has shape %s, expected at least one number in a line", tartan_i_shape_text(o->x, text));
    return check_room(o->function, "indices", o->indices, o->x, o->base);
}

/* ---- Elements by their indices ---- */

static tartan_status check_places(const char *function, const tartan_array *indices, const tartan_array *x,
                                  int64_t base) {
    return tartan_i_check_indices(function, "indices", indices, base, x->shape[x->ndim - 1], NULL, 0);
}

tartan_status tartan_i_check_take_along(tartan_op *op, const tartan_context *context) {
    const tartan_op_take_along *o = &op->take_along;
    (void)context;
    return check_places(o->function, o->indices, o->x, o->base);
}

static tartan_status put(tartan_op *any, tartan_op_put_along put) {
    PASS(check_places(put.function, put.indices, put.x_grad, put.base));
    any->put_along = put;
    return TARTAN_OK;
}

#define PUT(operation, grad, name, is_distinct)                                                              \
    tartan_status tartan_i_check_##operation(tartan_op *op, const tartan_context *context) {                 \
        const tartan_op_##operation *o = &op->operation;                                                     \
        (void)context;                                                                                       \
        return put(op, (tartan_op_put_along){.function = o->function,                                        \
                                             .values_name = (name),                                          \
                                             .indices = o->indices,                                          \
                                             .values = o->grad,                                              \
                                             .x_grad = o->x_grad,                                            \
                                             .base = o->base,                                                \
                                             .distinct = (is_distinct)});                                    \
    }
PUT(top_k_gradient, values_grad, "values_grad", true)
PUT(reduce_max_gradient, y_grad, "y_grad", true)
PUT(take_along_gradient, y_grad, "y_grad", false)

/* ---- Rows by a map ---- */

/* Indices in host memory are rows. That none is there twice is found where the map is turned round. */
static tartan_status check_map(const char *function, const tartan_array *indices, int64_t base,
                               int64_t rows) {
    return tartan_i_check_indices(function, "indices", indices, base, rows, NULL, 0);
}

tartan_status tartan_i_check_scatter_rows(tartan_op *op, const tartan_context *context) {
    const tartan_op_scatter_rows *o = &op->scatter_rows;
    (void)context;
    return check_map(o->function, o->indices, o->base, o->z->shape[0]);
}

tartan_status tartan_i_check_scatter_rows_gradient(tartan_op *op, const tartan_context *context) {
    const tartan_op_scatter_rows_gradient *o = &op->scatter_rows_gradient;
    (void)context;
    const bool multiply = o->combine == TARTAN_I_SCATTER_ROWS_GRADIENT_COMBINE_MULTIPLY;
    CHECK_IN(o->function, o->x_grad == NULL || o->y != NULL || !multiply, ARGUMENT,
             "y is NULL, expected the y of the operation, which x_grad needs with combine=multiply");
    CHECK_IN(o->function, o->y_grad == NULL || o->x != NULL || !multiply, ARGUMENT,
             "x is NULL, expected the x of the operation, which y_grad needs with combine=multiply");
    return check_map(o->function, o->indices, o->base, o->z_grad->shape[0]);
}

/* ---- Sums of segments ---- */

/* In host memory, `ends` counts up to all of `order`, whose entries are items of `values`. */
static tartan_status check_segments(const char *function, const tartan_array *order, const tartan_array *ends,
                                    int64_t base, int64_t count) {
    const int64_t entries = order->shape[0], segments = ends->shape[0];
    PASS(tartan_i_check_indices(function, "order", order, base, count, NULL, 0));
    if (ends->device_type != TARTAN_CPU) return TARTAN_OK;
    int64_t before = 0;
    for (int64_t s = 0; s < segments; s++) {
        const int64_t end = tartan_i_index_at(ends->data, ends->dtype, s * ends->strides[0]);
        CHECK_IN(function, end >= before && end <= entries, ARGUMENT,
                 "ends[%" PRId64 "] is %" PRId64 ", expected %" PRId64 " .. %" PRId64
                 ": not less than the one before, and not more than the length of order",
                 s + base, end, before, entries);
        before = end;
    }
    CHECK_IN(function, before == entries, ARGUMENT,
             "ends goes up to %" PRId64 ", expected %" PRId64 ", the length of order", before, entries);
    return TARTAN_OK;
}

tartan_status tartan_i_check_segment_sum(tartan_op *op, const tartan_context *context) {
    const tartan_op_segment_sum *o = &op->segment_sum;
    (void)context;
    return check_segments(o->function, o->order, o->ends, o->base, o->values->shape[0]);
}

tartan_status tartan_i_check_segment_sum_gradient(tartan_op *op, const tartan_context *context) {
    const tartan_op_segment_sum_gradient *o = &op->segment_sum_gradient;
    (void)context;
    return check_segments(o->function, o->order, o->ends, o->base, o->values->shape[0]);
}
