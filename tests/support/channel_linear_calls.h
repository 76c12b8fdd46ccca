// SPDX-License-Identifier: Apache-2.0
// tartan_channel_linear and its gradient with their arguments in a row.
#ifndef TARTAN_TESTS_CHANNEL_LINEAR_CALLS_H
#define TARTAN_TESTS_CHANNEL_LINEAR_CALLS_H

#include "tartan.h"

namespace tartan_test {

inline tartan_status channel_linear(tartan_context *context, const tartan_conv *conv, const int64_t *in_size,
                                    int64_t nin_size, const tartan_array *x, const tartan_array *gain,
                                    const tartan_array *bias, const char *options, tartan_array *y) {
    const tartan_channel_linear_arguments all = {conv, in_size, nin_size, x, gain, bias, options, y};
    return tartan_channel_linear(context, &all);
}

inline tartan_status channel_linear_gradient(tartan_context *context, const tartan_conv *conv,
                                             const int64_t *in_size, int64_t nin_size, const tartan_array *x,
                                             const tartan_array *gain, const tartan_array *bias,
                                             const tartan_array *y_grad, const char *options,
                                             tartan_array *x_grad, tartan_array *gain_grad,
                                             tartan_array *bias_grad) {
    const tartan_channel_linear_gradient_arguments all = {
        conv, in_size, nin_size, x, gain, bias, y_grad, options, x_grad, gain_grad, bias_grad};
    return tartan_channel_linear_gradient(context, &all);
}

} // namespace tartan_test

#endif
