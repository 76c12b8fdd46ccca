/* SPDX-License-Identifier: Apache-2.0
 * Weight normalisation of filters: checks. */
#include "ops/conv_checks.h"

#include <math.h>

static tartan_status check_common(const char *function, const tartan_context *context,
                                  const tartan_conv *conv, const tartan_matrix *filter,
                                  const tartan_array *gain, double epsilon) {
    char text[TARTAN_I_SHAPE_TEXT];
    if (!tartan_i_is(conv, TARTAN_I_CONV)) return tartan_i_fail_handle(function, "conv", conv, "convolution");
    PASS(tartan_i_conv_check_filter(function, context, "filter", conv, filter));
    CHECK_IN(function, !conv->options.per_tap, UNSUPPORTED,
             "conv has blocks of its own at each tap (per_tap=1), expected the same blocks at all taps");
    CHECK_IN(function, epsilon > 0 && isfinite(epsilon), ARGUMENT, "epsilon is %g, expected a number above 0",
             epsilon);
    if (gain == NULL) return TARTAN_OK;
    const int64_t channels = tartan_i_conv_output(conv)->count;
    const int32_t dtype = tartan_i_sum_dtype(filter->dtype);
    PASS(tartan_i_operand_array(function, context, "gain", gain, false));
    CHECK_IN(function, gain->dtype == dtype, DTYPE, "gain is of %s, expected %s",
             tartan_dtype_name(gain->dtype), tartan_dtype_name(dtype));
    CHECK_IN(function, gain->ndim == 1 && gain->shape[0] == channels, SHAPE,
             "gain has shape %s, expected [%" PRId64 "] (output channels)", tartan_i_shape_text(gain, text),
             channels);
    return TARTAN_OK;
}

/* Values of `out` may be those of `in` itself. */
static tartan_status check_apart(const char *function, const char *name, const tartan_matrix *out,
                                 const char *in_name, const tartan_matrix *in, bool may_be_same) {
    const tartan_array values = tartan_i_matrix_view(out), others = tartan_i_matrix_view(in);
    if (may_be_same && out->values == in->values && out->dtype == in->dtype &&
        out->block_order == in->block_order)
        return TARTAN_OK;
    return tartan_i_array_check_apart(function, name, &values, in_name, &others);
}

static tartan_status check_gain_apart(const char *function, const char *name, const tartan_matrix *out,
                                      const char *gain_name, const tartan_array *gain) {
    const tartan_array values = tartan_i_matrix_view(out);
    return tartan_i_array_check_apart(function, name, &values, gain_name, gain);
}

tartan_status tartan_conv_normalize(tartan_context *context, const tartan_conv *conv,
                                    const tartan_matrix *filter, const tartan_array *gain, double epsilon,
                                    tartan_matrix *out) {
    HOLD_MATRIX(filter);
    HOLD_MATRIX(out);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check_common(__func__, context, conv, filter, gain, epsilon));
    PASS(tartan_i_conv_check_filter(__func__, context, "out", conv, out));
    PASS(tartan_i_operand_out_dtype(__func__, "out", out->dtype, filter->dtype));
    PASS(check_apart(__func__, "out", out, "filter", filter, true));
    PASS(check_gain_apart(__func__, "out", out, "gain", gain));
    const tartan_op op = {.kind = TARTAN_OP_CONV_NORMALIZE,
                          .conv_normalize = {.function = __func__,
                                             .conv = conv,
                                             .filter = filter,
                                             .gain = gain,
                                             .epsilon = epsilon,
                                             .out = out}};
    return tartan_i_run(context, &op);
}

static tartan_status check_gain_grad(const char *function, const tartan_context *context,
                                     const tartan_conv *conv, const tartan_matrix *filter,
                                     const tartan_matrix *out_grad, const tartan_array *gain,
                                     const tartan_array *gain_grad) {
    char text[TARTAN_I_SHAPE_TEXT];
    if (gain_grad == NULL) return TARTAN_OK;
    const tartan_array values = tartan_i_matrix_view(filter), grads = tartan_i_matrix_view(out_grad);
    const int64_t channels = tartan_i_conv_output(conv)->count;
    const int32_t dtype = tartan_i_sum_dtype(filter->dtype);
    PASS(tartan_i_operand_array(function, context, "gain_grad", gain_grad, true));
    CHECK_IN(function, gain_grad->dtype == dtype, DTYPE, "gain_grad is of %s, expected %s",
             tartan_dtype_name(gain_grad->dtype), tartan_dtype_name(dtype));
    CHECK_IN(function, gain_grad->ndim == 1 && gain_grad->shape[0] == channels, SHAPE,
             "gain_grad has shape %s, expected [%" PRId64 "] (output channels)",
             tartan_i_shape_text(gain_grad, text), channels);
    PASS(tartan_i_array_check_apart(function, "gain_grad", gain_grad, "filter", &values));
    PASS(tartan_i_array_check_apart(function, "gain_grad", gain_grad, "out_grad", &grads));
    return tartan_i_array_check_apart(function, "gain_grad", gain_grad, "gain", gain);
}

tartan_status tartan_conv_normalize_gradient(tartan_context *context, const tartan_conv *conv,
                                             const tartan_matrix *filter, const tartan_array *gain,
                                             double epsilon, const tartan_matrix *out_grad,
                                             tartan_matrix *filter_grad, tartan_array *gain_grad) {
    HOLD_MATRIX(filter);
    HOLD_MATRIX(out_grad);
    HOLD_MATRIX(filter_grad);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check_common(__func__, context, conv, filter, gain, epsilon));
    PASS(tartan_i_conv_check_filter(__func__, context, "out_grad", conv, out_grad));
    CHECK(out_grad->dtype == filter->dtype, DTYPE, "out_grad is of %s, expected %s (that of filter)",
          tartan_dtype_name(out_grad->dtype), tartan_dtype_name(filter->dtype));
    PASS(tartan_i_conv_check_filter(__func__, context, "filter_grad", conv, filter_grad));
    PASS(tartan_i_operand_out_dtype(__func__, "filter_grad", filter_grad->dtype, filter->dtype));
    PASS(check_apart(__func__, "filter_grad", filter_grad, "filter", filter, false));
    PASS(check_apart(__func__, "filter_grad", filter_grad, "out_grad", out_grad, false));
    PASS(check_gain_apart(__func__, "filter_grad", filter_grad, "gain", gain));
    PASS(check_gain_grad(__func__, context, conv, filter, out_grad, gain, gain_grad));
    if (gain_grad != NULL)
        PASS(check_gain_apart(__func__, "filter_grad", filter_grad, "gain_grad", gain_grad));
    const tartan_op op = {.kind = TARTAN_OP_CONV_NORMALIZE_GRADIENT,
                          .conv_normalize_gradient = {.function = __func__,
                                                      .conv = conv,
                                                      .filter = filter,
                                                      .gain = gain,
                                                      .epsilon = epsilon,
                                                      .out_grad = out_grad,
                                                      .filter_grad = filter_grad,
                                                      .gain_grad = gain_grad}};
    return tartan_i_run(context, &op);
}
