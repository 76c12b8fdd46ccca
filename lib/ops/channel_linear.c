/* SPDX-License-Identifier: Apache-2.0
 * The last step of a convolution alone, and its gradients: what their rows of the schema can't say. */
#include "core/array.h"
#include "ops/checks.h"

/* What both operations share. */
typedef struct request {
    const char *function;
    const tartan_conv *conv;
    tartan_i_sizes in_size;
    const tartan_array *x;
    bool by_class; /* some operand has a row for each edge class */
} request;

static bool has_rows(const tartan_array *array) {
    return array != NULL && array->ndim == 2;
}

/* Whether x is a result of the convolution for images of in_size, whose geometry goes to *out. */
static tartan_status check_result(const request *r, tartan_i_geometry *out) {
    const tartan_conv *conv = r->conv;
    const int32_t dims = conv->options.dims;
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_conv_geometry(r->function, conv, r->in_size.data, r->in_size.count, out));
    const int64_t *sizes = conv->options.transposed ? out->in : out->out;
    bool same = r->x->ndim == dims + 2;
    for (int32_t d = 0; same && d < dims; d++) same = r->x->shape[2 + d] == sizes[TARTAN_I_DIMS - dims + d];
    CHECK_IN(r->function, same && r->x->shape[1] == tartan_i_conv_output(conv)->count, SHAPE,
             "x has shape %s, expected the shape of the convolution's output for in_size",
             tartan_i_shape_text(r->x, text));
    return TARTAN_OK;
}

static tartan_status check_rows(const request *r, const char *name, const tartan_array *array,
                                int64_t classes) {
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK_IN(r->function, !has_rows(array) || array->shape[0] == classes, SHAPE,
             "%s has shape %s, expected [%" PRId64 "], or [%" PRId64 ", %" PRId64
             "] with a row for each edge class",
             name, tartan_i_shape_text(array, text), r->x->shape[1], classes, r->x->shape[1]);
    return TARTAN_OK;
}

/* The classes of positions of x, if some operand has a row for each; else nothing is made. */
static tartan_status make_edges(const request *r, tartan_i_geometry *geometry, tartan_i_edges *out) {
    const bool sized = r->in_size.data != NULL || r->in_size.count > 0;
    CHECK_IN(r->function, r->conv != NULL || !sized, SHAPE, "in_size is given without conv");
    CHECK_IN(r->function, !r->by_class || r->conv != NULL, SHAPE,
             "gain or bias has a row for each edge class, expected conv and in_size beside it");
    CHECK_IN(r->function, !r->by_class || sized, SHAPE,
             "in_size is NULL, expected the lengths of the convolution's input, for its edge classes");
    if (!sized) return TARTAN_OK;
    PASS(check_result(r, geometry));
    return r->by_class ? tartan_i_edges_make(geometry, r->conv->options.transposed, out) : TARTAN_OK;
}

tartan_status tartan_i_check_channel_linear(tartan_op *any, const tartan_context *context) {
    tartan_op_channel_linear *op = &any->channel_linear;
    const request r = {op->function, op->conv, op->in_size, op->x, has_rows(op->gain) || has_rows(op->bias)};
    (void)context;
    PASS(make_edges(&r, &op->geometry, &op->own_edges));
    if (!r.by_class) {
        op->conv = NULL;
        return TARTAN_OK;
    }
    op->edges = &op->own_edges;
    tartan_status status = check_rows(&r, "gain", op->gain, op->edges->classes);
    if (status == TARTAN_OK) status = check_rows(&r, "bias", op->bias, op->edges->classes);
    if (status != TARTAN_OK) tartan_i_edges_free(&op->own_edges);
    return status;
}

void tartan_i_end_channel_linear(tartan_op *any) {
    tartan_i_edges_free(&any->channel_linear.own_edges);
}

tartan_status tartan_i_check_channel_linear_gradient(tartan_op *any, const tartan_context *context) {
    tartan_op_channel_linear_gradient *op = &any->channel_linear_gradient;
    const struct {
        const char *name;
        const tartan_array *array;
    } factors[] = {
        {"gain", op->gain}, {"bias", op->bias}, {"gain_grad", op->gain_grad}, {"bias_grad", op->bias_grad}};
    enum { FACTORS = sizeof factors / sizeof *factors };
    request r = {.function = op->function, .conv = op->conv, .in_size = op->in_size, .x = op->x};
    (void)context;
    for (int i = 0; i < FACTORS; i++) r.by_class = r.by_class || has_rows(factors[i].array);
    PASS(make_edges(&r, &op->geometry, &op->own_edges));
    if (!r.by_class) {
        op->conv = NULL;
        return TARTAN_OK;
    }
    op->edges = &op->own_edges;
    tartan_status status = TARTAN_OK;
    for (int i = 0; status == TARTAN_OK && i < FACTORS; i++)
        status = check_rows(&r, factors[i].name, factors[i].array, op->edges->classes);
    if (status != TARTAN_OK) tartan_i_edges_free(&op->own_edges);
    return status;
}

void tartan_i_end_channel_linear_gradient(tartan_op *any) {
    tartan_i_edges_free(&any->channel_linear_gradient.own_edges);
}
