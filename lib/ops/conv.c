/* SPDX-License-Identifier: Apache-2.0
 * The passes of a convolution: checks. */
#include "ops/conv_checks.h"

#include "core/options.h"

#include <string.h>

/* ---- Options ---- */

static tartan_status take_options(const char *function, const char *text, tartan_op_conv *op) {
    const struct {
        const char *name;
        bool *flag;
    } known[] = {{"relu", &op->relu}, {"bias_first", &op->bias_first}, {"add", &op->add}};
    tartan_i_option option;
    bool more = text != NULL;
    while (more) {
        PASS(tartan_i_option_next(function, "options", &text, &option, &more));
        if (!more) break;
        size_t i = 0;
        while (i < 3 && !tartan_i_option_is(&option, known[i].name)) i++;
        CHECK_IN(function, i < 3, ARGUMENT, "options has '%.*s', expected relu, bias_first or add",
                 option.shown, option.word);
        const bool one = tartan_i_option_value_is(&option, "1");
        CHECK_IN(function, one || tartan_i_option_value_is(&option, "0"), ARGUMENT,
                 "options has '%.*s', expected %s to be 0 or 1", option.shown, option.word, known[i].name);
        *known[i].flag = one;
    }
    return TARTAN_OK;
}

/* ---- Operands ---- */

static tartan_status check_conv(const char *function, const tartan_conv *conv) {
    if (!tartan_i_is(conv, TARTAN_I_CONV)) return tartan_i_fail_handle(function, "conv", conv, "convolution");
    return TARTAN_OK;
}

tartan_status tartan_i_conv_check_filter(const char *function, const tartan_context *context,
                                         const char *name, const tartan_conv *conv,
                                         const tartan_matrix *filter) {
    const tartan_layout *l = conv->layout;
    PASS(tartan_i_operand_matrix(function, context, name, filter));
    PASS(tartan_i_operand_wide(function, name, filter->dtype));
    PASS(tartan_i_matrix_check_stays(function, name, filter));
    CHECK_IN(function, filter->layout == l || strcmp(filter->layout->identity, l->identity) == 0, LAYOUT,
             "%s has another layout than the convolution (%s), expected that of tartan_conv_get_layout (%s)",
             name, filter->layout->identity, l->identity);
    return TARTAN_OK;
}

/* An image [n, channels, spatial...]. */
static tartan_status check_image(const char *function, const tartan_context *context, const char *name,
                                 const tartan_array *image, const tartan_conv *conv,
                                 const tartan_i_channels *side, bool output) {
    const int32_t dims = conv->options.dims;
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(function, context, name, image, output));
    PASS(tartan_i_operand_wide(function, name, image->dtype));
    CHECK_IN(function, image->ndim == dims + 2 && image->shape[1] == side->count, SHAPE,
             "%s has shape %s, expected [n, %" PRId64 ", %s] (channels of the convolution)", name,
             tartan_i_shape_text(image, text), side->count,
             dims == 1   ? "w"
             : dims == 2 ? "h, w"
                         : "d, h, w");
    return TARTAN_OK;
}

/* The geometry of an input and output, which must belong together. Input and output are `x_name` and `y_name`. */
static tartan_status take_geometry(const char *function, const tartan_conv *conv, const char *x_name,
                                   const tartan_array *x, const char *y_name, const tartan_array *y,
                                   tartan_i_geometry *out) {
    const tartan_i_conv_options *o = &conv->options;
    const tartan_array *in = o->transposed ? y : x, *result = o->transposed ? x : y;
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT], from[TARTAN_I_SHAPE_TEXT];
    tartan_array like = *result;
    PASS(tartan_i_geometry_of(function, o, o->transposed ? y_name : x_name, in->shape + 2, out));
    bool same = in->shape[0] == result->shape[0];
    like.shape[0] = in->shape[0];
    for (int32_t d = 0; d < o->dims; d++) {
        like.shape[2 + d] = out->out[TARTAN_I_DIMS - o->dims + d];
        same = same && like.shape[2 + d] == result->shape[2 + d];
    }
    CHECK_IN(function, same, SHAPE, "%s has shape %s, expected %s (that belongs to %s of shape %s)",
             o->transposed ? x_name : y_name, tartan_i_shape_text(result, text),
             tartan_i_shape_text(&like, wanted), o->transposed ? y_name : x_name,
             tartan_i_shape_text(in, from));
    return TARTAN_OK;
}

static tartan_status same_dtype(const char *function, const char *name, int32_t dtype, const char *other,
                                int32_t expected) {
    CHECK_IN(function, dtype == expected, DTYPE, "%s is of %s, expected %s (that of %s)", name,
             tartan_dtype_name(dtype), tartan_dtype_name(expected), other);
    return TARTAN_OK;
}

/* Windows of `image`, the argument `name`. */
static tartan_status take_windows(const char *function, const tartan_context *context, const char *name,
                                  const tartan_array *image, const tartan_layout *active, const char *text,
                                  tartan_i_windows *out) {
    if (active == NULL) {
        CHECK_IN(function, text == NULL, ARGUMENT, "windows is '%.64s' without active, expected both or none",
                 text);
        return TARTAN_OK;
    }
    PASS(tartan_i_operand_layout(function, context, active));
    PASS(tartan_i_windows_of(function, active, text, image->ndim - 2, image->shape[0], out));
    CHECK_IN(function, !tartan_i_windows_overlap(out), ARGUMENT,
             "windows of %s may overlap, expected strides that are at least the size", name);
    return TARTAN_OK;
}

tartan_status tartan_i_conv_check_factor(const char *function, const tartan_context *context,
                                         const char *name, const tartan_array *array, int64_t channels,
                                         int64_t classes, int32_t dtype, const char *y_name,
                                         const tartan_array *y) {
    char text[TARTAN_I_SHAPE_TEXT];
    if (array == NULL) return TARTAN_OK;
    const int32_t expected = tartan_i_sum_dtype(dtype);
    PASS(tartan_i_operand_array(function, context, name, array, false));
    PASS(same_dtype(function, name, array->dtype, "sums", expected));
    const bool plain = array->ndim == 1 && array->shape[0] == channels;
    const bool by_class = array->ndim == 2 && array->shape[0] == classes && array->shape[1] == channels;
    CHECK_IN(function, plain || by_class, SHAPE,
             "%s has shape %s, expected [%" PRId64 "], or [%" PRId64 ", %" PRId64
             "] with a row for each edge class",
             name, tartan_i_shape_text(array, text), channels, classes, channels);
    return tartan_i_array_check_apart(function, y_name, y, name, array);
}

/* ---- The passes ---- */

/* Checks gain and bias and runs the operation. The classes of positions live only meanwhile: backends copy them. */
static tartan_status run_forward(tartan_context *context, tartan_op *any) {
    tartan_op_conv *op = &any->conv;
    const char *function = op->function;
    const tartan_array *gain = op->gain, *bias = op->bias;
    const tartan_i_channels *side = tartan_i_conv_output(op->conv);
    const bool edges = (gain != NULL && gain->ndim == 2) || (bias != NULL && bias->ndim == 2);
    tartan_i_edges e = {.classes = 1};
    if (edges) PASS(tartan_i_edges_make(&op->geometry, op->adjoint, &e));
    tartan_status status;
    TRY(tartan_i_conv_check_factor(function, context, "gain", gain, side->count, e.classes, op->filter->dtype,
                                   "y", op->to));
    TRY(tartan_i_conv_check_factor(function, context, "bias", bias, side->count, e.classes, op->filter->dtype,
                                   "y", op->to));
    if (edges) op->edges = &e;
    status = tartan_i_run(context, any);
fail:
    tartan_i_edges_free(&e);
    return status;
}

tartan_status tartan_conv_forward(tartan_context *context, const tartan_conv *conv,
                                  const tartan_matrix *filter, const tartan_array *x, const char *options,
                                  const tartan_array *gain, const tartan_array *bias,
                                  const tartan_layout *active, const char *windows, tartan_array *y) {
    HOLD_MATRIX(filter);
    tartan_op any = {.kind = TARTAN_OP_CONV,
                     .conv = {.function = __func__,
                              .conv = conv,
                              .filter = filter,
                              .from = x,
                              .to = y,
                              .from_name = "x",
                              .to_name = "y",
                              .gain = gain,
                              .bias = bias,
                              .active = active}};
    tartan_op_conv *op = &any.conv;
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check_conv(__func__, conv));
    op->adjoint = conv->options.transposed;
    PASS(tartan_i_conv_check_filter(__func__, context, "filter", conv, filter));
    PASS(check_image(__func__, context, "x", x, conv, tartan_i_conv_input(conv), false));
    PASS(check_image(__func__, context, "y", y, conv, tartan_i_conv_output(conv), true));
    PASS(same_dtype(__func__, "x", x->dtype, "filter", filter->dtype));
    PASS(tartan_i_operand_out_dtype(__func__, "y", y->dtype, filter->dtype));
    PASS(take_geometry(__func__, conv, "x", x, "y", y, &op->geometry));
    PASS(take_options(__func__, options, op));
    PASS(take_windows(__func__, context, "y", y, active, windows, &op->windows));
    const tartan_array values = tartan_i_matrix_view(filter);
    PASS(tartan_i_array_check_apart(__func__, "y", y, "x", x));
    PASS(tartan_i_array_check_apart(__func__, "y", y, "filter", &values));
    return run_forward(context, &any);
}

tartan_status tartan_conv_input_gradient(tartan_context *context, const tartan_conv *conv,
                                         const tartan_matrix *filter, const tartan_array *y_grad,
                                         const tartan_layout *active, const char *windows,
                                         tartan_array *x_grad) {
    HOLD_MATRIX(filter);
    tartan_op any = {.kind = TARTAN_OP_CONV,
                     .conv = {.function = __func__,
                              .conv = conv,
                              .filter = filter,
                              .from = y_grad,
                              .to = x_grad,
                              .from_name = "y_grad",
                              .to_name = "x_grad",
                              .active = active,
                              .active_from = true}};
    tartan_op_conv *op = &any.conv;
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check_conv(__func__, conv));
    op->adjoint = !conv->options.transposed;
    PASS(tartan_i_conv_check_filter(__func__, context, "filter", conv, filter));
    PASS(check_image(__func__, context, "y_grad", y_grad, conv, tartan_i_conv_output(conv), false));
    PASS(check_image(__func__, context, "x_grad", x_grad, conv, tartan_i_conv_input(conv), true));
    PASS(tartan_i_operand_out_dtype(__func__, "y_grad", y_grad->dtype, filter->dtype));
    PASS(tartan_i_operand_out_dtype(__func__, "x_grad", x_grad->dtype, filter->dtype));
    PASS(take_geometry(__func__, conv, "x_grad", x_grad, "y_grad", y_grad, &op->geometry));
    PASS(take_windows(__func__, context, "y_grad", y_grad, active, windows, &op->windows));
    const tartan_array values = tartan_i_matrix_view(filter);
    PASS(tartan_i_array_check_apart(__func__, "x_grad", x_grad, "y_grad", y_grad));
    PASS(tartan_i_array_check_apart(__func__, "x_grad", x_grad, "filter", &values));
    return tartan_i_run(context, &any);
}

tartan_status tartan_conv_filter_gradient(tartan_context *context, const tartan_conv *conv,
                                          const tartan_array *x, const tartan_array *y_grad,
                                          const tartan_layout *active, const char *windows, double beta,
                                          tartan_matrix *filter_grad) {
    HOLD_MATRIX(filter_grad);
    tartan_op any = {
        .kind = TARTAN_OP_CONV_FILTER_GRADIENT,
        .conv_filter_gradient = {
            .function = __func__, .conv = conv, .beta = beta, .active = active, .filter_grad = filter_grad}};
    tartan_op_conv_filter_gradient *op = &any.conv_filter_gradient;
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check_conv(__func__, conv));
    const bool transposed = conv->options.transposed;
    PASS(tartan_i_conv_check_filter(__func__, context, "filter_grad", conv, filter_grad));
    PASS(check_image(__func__, context, "x", x, conv, tartan_i_conv_input(conv), false));
    PASS(check_image(__func__, context, "y_grad", y_grad, conv, tartan_i_conv_output(conv), false));
    PASS(tartan_i_operand_out_dtype(__func__, "y_grad", y_grad->dtype, x->dtype));
    PASS(tartan_i_operand_out_dtype(__func__, "filter_grad", filter_grad->dtype, x->dtype));
    PASS(tartan_i_scalar_check(__func__, "beta", beta, x->dtype));
    PASS(take_geometry(__func__, conv, "x", x, "y_grad", y_grad, &op->geometry));
    PASS(take_windows(__func__, context, "y_grad", y_grad, active, windows, &op->windows));
    const tartan_array values = tartan_i_matrix_view(filter_grad);
    PASS(tartan_i_array_check_apart(__func__, "filter_grad", &values, "x", x));
    PASS(tartan_i_array_check_apart(__func__, "filter_grad", &values, "y_grad", y_grad));
    op->in = transposed ? y_grad : x;
    op->out = transposed ? x : y_grad;
    op->in_name = transposed ? "y_grad" : "x";
    op->out_name = transposed ? "x" : "y_grad";
    op->active_in = transposed;
    return tartan_i_run(context, &any);
}
