/* SPDX-License-Identifier: Apache-2.0
 * The last step of a convolution alone, and its gradients: checks. */
#include "core/options.h"
#include "ops/conv_checks.h"

#include <string.h>

/* What both calls have. */
typedef struct request {
    const char *function;
    const tartan_context *context;
    const tartan_conv *conv;
    const int64_t *in_size;
    int64_t nin_size;
    const tartan_array *x, *gain, *bias;
    bool relu, bias_first;
    bool by_class; /* some array has a row for each edge class */
    int64_t classes;
    tartan_i_edges edges;
    tartan_i_geometry geometry; /* that of `edges` */
} request;

static tartan_status read_options(request *r, const char *text) {
    const struct {
        const char *name;
        bool *flag;
    } known[] = {{"relu", &r->relu}, {"bias_first", &r->bias_first}};
    bool given[2] = {false}, more = text != NULL;
    tartan_i_option option;
    while (more) {
        size_t i = 0;
        PASS(tartan_i_option_next(r->function, "options", &text, &option, &more));
        if (!more) break;
        while (i < 2 && !tartan_i_option_is(&option, known[i].name)) i++;
        CHECK_IN(r->function, i < 2, ARGUMENT, "options has '%.*s', expected relu or bias_first",
                 option.shown, option.word);
        CHECK_IN(r->function, !given[i], ARGUMENT, "options has %s twice, expected it once", known[i].name);
        given[i] = true;
        *known[i].flag = tartan_i_option_value_is(&option, "1");
        CHECK_IN(r->function, *known[i].flag || tartan_i_option_value_is(&option, "0"), ARGUMENT,
                 "options has '%.*s', expected %s to be 0 or 1", option.shown, option.word, known[i].name);
    }
    return TARTAN_OK;
}

/* ---- Arrays ---- */

static tartan_status check_x(const request *r) {
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(r->function, r->context, "x", r->x, false));
    PASS(tartan_i_operand_wide(r->function, "x", r->x->dtype));
    CHECK_IN(r->function, r->x->ndim >= 2, SHAPE, "x has shape %s, expected [n, channels, ...]",
             tartan_i_shape_text(r->x, text));
    return TARTAN_OK;
}

/* An array of the shape of x; f32 where x is of 16 bits. */
static tartan_status check_like_x(const request *r, const char *name, const tartan_array *array,
                                  bool output) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(r->function, r->context, name, array, output));
    PASS(tartan_i_operand_out_dtype(r->function, name, array->dtype, r->x->dtype));
    bool same = array->ndim == r->x->ndim;
    for (int32_t d = 0; same && d < array->ndim; d++) same = array->shape[d] == r->x->shape[d];
    CHECK_IN(r->function, same, SHAPE, "%s has shape %s, expected %s (that of x)", name,
             tartan_i_shape_text(array, text), tartan_i_shape_text(r->x, wanted));
    return TARTAN_OK;
}

/* NULL, or [channels] or [classes, channels] of the type of the sums. */
static tartan_status check_factor(const request *r, const char *name, const tartan_array *array,
                                  bool output) {
    char text[TARTAN_I_SHAPE_TEXT];
    if (array == NULL) return TARTAN_OK;
    const int32_t dtype = tartan_i_sum_dtype(r->x->dtype);
    const int64_t channels = r->x->shape[1];
    PASS(tartan_i_operand_array(r->function, r->context, name, array, output));
    CHECK_IN(r->function, array->dtype == dtype, DTYPE, "%s is of %s, expected %s", name,
             tartan_dtype_name(array->dtype), tartan_dtype_name(dtype));
    const bool plain = array->ndim == 1 && array->shape[0] == channels;
    if (plain) return TARTAN_OK;
    CHECK_IN(r->function,
             !r->by_class ||
                 (array->ndim == 2 && array->shape[0] == r->classes && array->shape[1] == channels),
             SHAPE,
             "%s has shape %s, expected [%" PRId64 "], or [%" PRId64 ", %" PRId64
             "] with a row for each edge class",
             name, tartan_i_shape_text(array, text), channels, r->classes, channels);
    CHECK_IN(r->function, r->by_class, SHAPE, "%s has shape %s, expected [%" PRId64 "] (channels of x)", name,
             tartan_i_shape_text(array, text), channels);
    return TARTAN_OK;
}

static tartan_status check_apart(const request *r, const char *name, const tartan_array *out) {
    PASS(tartan_i_array_check_apart(r->function, name, out, "x", r->x));
    PASS(tartan_i_array_check_apart(r->function, name, out, "gain", r->gain));
    return tartan_i_array_check_apart(r->function, name, out, "bias", r->bias);
}

/* ---- Edge classes ---- */

static bool has_rows(const tartan_array *array) {
    return array != NULL && array->ndim == 2;
}

/* The classes of positions of x, if some array has a row for each. */
static tartan_status make_edges(request *r) {
    const tartan_conv *conv = r->conv;
    char text[TARTAN_I_SHAPE_TEXT];
    if (conv != NULL && !tartan_i_is(conv, TARTAN_I_CONV))
        return tartan_i_fail_handle(r->function, "conv", conv, "convolution");
    if (conv == NULL || (r->in_size == NULL && r->nin_size == 0)) {
        CHECK_IN(r->function, conv != NULL || r->nin_size == 0, SHAPE, "in_size is given without conv");
        CHECK_IN(r->function, conv == NULL || !r->by_class, SHAPE,
                 "in_size is NULL, expected the lengths of the convolution's input, for its edge classes");
        r->by_class = false;
        return TARTAN_OK;
    }
    const int32_t dims = conv->options.dims;
    PASS(tartan_i_conv_geometry(r->function, conv, r->in_size, r->nin_size, &r->geometry));
    const int64_t *sizes = conv->options.transposed ? r->geometry.in : r->geometry.out;
    bool same = r->x->ndim == dims + 2;
    for (int32_t d = 0; same && d < dims; d++) same = r->x->shape[2 + d] == sizes[TARTAN_I_DIMS - dims + d];
    CHECK_IN(r->function, same && r->x->shape[1] == tartan_i_conv_output(conv)->count, SHAPE,
             "x has shape %s, expected that of the convolution's output for in_size",
             tartan_i_shape_text(r->x, text));
    if (!r->by_class) return TARTAN_OK;
    PASS(tartan_i_edges_make(&r->geometry, conv->options.transposed, &r->edges));
    r->classes = r->edges.classes;
    return TARTAN_OK;
}

/* ---- The calls ---- */

static tartan_status run_forward(tartan_context *context, request *r, const tartan_array *y) {
    PASS(check_factor(r, "gain", r->gain, false));
    PASS(check_factor(r, "bias", r->bias, false));
    PASS(check_like_x(r, "y", y, true));
    const bool in_place = y->data == r->x->data && y->dtype == r->x->dtype &&
                          memcmp(y->strides, r->x->strides, (size_t)y->ndim * sizeof *y->strides) == 0;
    if (!in_place) PASS(tartan_i_array_check_apart(r->function, "y", y, "x", r->x));
    PASS(tartan_i_array_check_apart(r->function, "y", y, "gain", r->gain));
    PASS(tartan_i_array_check_apart(r->function, "y", y, "bias", r->bias));
    const tartan_op op = {.kind = TARTAN_OP_CHANNEL_LINEAR,
                          .channel_linear = {.function = r->function,
                                             .x = r->x,
                                             .gain = r->gain,
                                             .bias = r->bias,
                                             .edges = r->by_class ? &r->edges : NULL,
                                             .conv = r->by_class ? r->conv : NULL,
                                             .geometry = r->geometry,
                                             .relu = r->relu,
                                             .bias_first = r->bias_first,
                                             .y = y}};
    return tartan_i_run(context, &op);
}

tartan_status tartan_channel_linear(tartan_context *context, const tartan_conv *conv, const int64_t *in_size,
                                    int64_t nin_size, const tartan_array *x, const tartan_array *gain,
                                    const tartan_array *bias, const char *options, tartan_array *y) {
    request r = {.function = __func__,
                 .context = context,
                 .conv = conv,
                 .in_size = in_size,
                 .nin_size = nin_size,
                 .x = x,
                 .gain = gain,
                 .bias = bias,
                 .by_class = has_rows(gain) || has_rows(bias)};
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check_x(&r));
    PASS(read_options(&r, options));
    PASS(make_edges(&r));
    const tartan_status status = run_forward(context, &r, y);
    tartan_i_edges_free(&r.edges);
    return status;
}

static tartan_status run_gradient(tartan_context *context, request *r, const tartan_array *y_grad,
                                  const tartan_array *x_grad, const tartan_array *gain_grad,
                                  const tartan_array *bias_grad) {
    const struct {
        const char *name;
        const tartan_array *array;
    } out[] = {{"x_grad", x_grad}, {"gain_grad", gain_grad}, {"bias_grad", bias_grad}};
    PASS(check_factor(r, "gain", r->gain, false));
    PASS(check_factor(r, "bias", r->bias, false));
    PASS(check_like_x(r, "y_grad", y_grad, false));
    if (x_grad != NULL) PASS(check_like_x(r, "x_grad", x_grad, true));
    PASS(check_factor(r, "gain_grad", gain_grad, true));
    PASS(check_factor(r, "bias_grad", bias_grad, true));
    for (int i = 0; i < 3; i++) {
        if (out[i].array == NULL) continue;
        PASS(check_apart(r, out[i].name, out[i].array));
        PASS(tartan_i_array_check_apart(r->function, out[i].name, out[i].array, "y_grad", y_grad));
        for (int j = 0; j < i; j++)
            PASS(tartan_i_array_check_apart(r->function, out[i].name, out[i].array, out[j].name,
                                            out[j].array));
    }
    const tartan_op op = {.kind = TARTAN_OP_CHANNEL_LINEAR_GRADIENT,
                          .channel_linear_gradient = {.function = r->function,
                                                      .x = r->x,
                                                      .gain = r->gain,
                                                      .bias = r->bias,
                                                      .y_grad = y_grad,
                                                      .edges = r->by_class ? &r->edges : NULL,
                                                      .conv = r->by_class ? r->conv : NULL,
                                                      .geometry = r->geometry,
                                                      .relu = r->relu,
                                                      .bias_first = r->bias_first,
                                                      .x_grad = x_grad,
                                                      .gain_grad = gain_grad,
                                                      .bias_grad = bias_grad}};
    return tartan_i_run(context, &op);
}

tartan_status tartan_channel_linear_gradient(tartan_context *context, const tartan_conv *conv,
                                             const int64_t *in_size, int64_t nin_size, const tartan_array *x,
                                             const tartan_array *gain, const tartan_array *bias,
                                             const tartan_array *y_grad, const char *options,
                                             tartan_array *x_grad, tartan_array *gain_grad,
                                             tartan_array *bias_grad) {
    request r = {.function = __func__,
                 .context = context,
                 .conv = conv,
                 .in_size = in_size,
                 .nin_size = nin_size,
                 .x = x,
                 .gain = gain,
                 .bias = bias,
                 .by_class = has_rows(gain) || has_rows(bias) || has_rows(gain_grad) || has_rows(bias_grad)};
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check_x(&r));
    PASS(read_options(&r, options));
    PASS(make_edges(&r));
    const tartan_status status = run_gradient(context, &r, y_grad, x_grad, gain_grad, bias_grad);
    tartan_i_edges_free(&r.edges);
    return status;
}
