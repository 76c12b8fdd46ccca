/* SPDX-License-Identifier: Apache-2.0
 * Weight normalisation of filters: what its rows of the schema can't say. */
#include "core/array.h"
#include "ops/checks.h"

static tartan_status check_channels(const char *function, const tartan_conv *conv, const char *name,
                                    const tartan_array *array) {
    char text[TARTAN_I_SHAPE_TEXT];
    const int64_t channels = tartan_i_conv_output(conv)->count;
    CHECK_IN(function, array == NULL || array->shape[0] == channels, SHAPE,
             "%s has shape %s, expected [%" PRId64 "] (output channels)", name,
             tartan_i_shape_text(array, text), channels);
    return TARTAN_OK;
}

static tartan_status check_taps(const char *function, const tartan_conv *conv) {
    CHECK_IN(function, !conv->options.per_tap, UNSUPPORTED,
             "conv has blocks of its own at each tap (per_tap=1), expected the same blocks at all taps");
    return TARTAN_OK;
}

tartan_status tartan_i_check_conv_normalize(tartan_op *any, const tartan_context *context) {
    const tartan_op_conv_normalize *op = &any->conv_normalize;
    (void)context;
    PASS(check_taps(op->function, op->conv));
    return check_channels(op->function, op->conv, "gain", op->gain);
}

tartan_status tartan_i_check_conv_normalize_gradient(tartan_op *any, const tartan_context *context) {
    const tartan_op_conv_normalize_gradient *op = &any->conv_normalize_gradient;
    (void)context;
    PASS(check_taps(op->function, op->conv));
    PASS(check_channels(op->function, op->conv, "gain", op->gain));
    return check_channels(op->function, op->conv, "gain_grad", op->gain_grad);
}
