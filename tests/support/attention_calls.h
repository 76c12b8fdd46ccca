// SPDX-License-Identifier: Apache-2.0
// Attention with its arguments in a row, as tests vary them.
#ifndef TARTAN_TESTS_ATTENTION_CALLS_H
#define TARTAN_TESTS_ATTENTION_CALLS_H

#include <tartan.h>

namespace tartan_test {

inline tartan_status attention_forward(tartan_context *context, const tartan_layout *layout,
                                       const tartan_array *q, const tartan_array *k, const tartan_array *v,
                                       const char *options, const tartan_block_mask *block_mask,
                                       const tartan_array *bias, const tartan_array *sinks, tartan_array *out,
                                       tartan_array *lse) {
    const tartan_attention_forward_arguments all = {layout,     q,    k,     v,   options,
                                                    block_mask, bias, sinks, out, lse};
    return tartan_attention_forward(context, &all);
}

inline tartan_status attention_backward(tartan_context *context, const tartan_layout *layout,
                                        const tartan_array *q, const tartan_array *k, const tartan_array *v,
                                        const char *options, const tartan_block_mask *block_mask,
                                        const tartan_array *bias, const tartan_array *out,
                                        const tartan_array *lse, const tartan_array *out_grad,
                                        tartan_array *q_grad, tartan_array *k_grad, tartan_array *v_grad) {
    const tartan_attention_backward_arguments all = {layout, q,   k,        v,      options, block_mask, bias,
                                                     out,    lse, out_grad, q_grad, k_grad,  v_grad};
    return tartan_attention_backward(context, &all);
}

inline tartan_status attention_bias_gradient(tartan_context *context, const tartan_layout *layout,
                                             const tartan_array *q, const tartan_array *k,
                                             const tartan_array *v, const char *options,
                                             const tartan_block_mask *block_mask, const tartan_array *bias,
                                             const tartan_array *sinks, const tartan_array *out,
                                             const tartan_array *lse, const tartan_array *out_grad,
                                             tartan_array *bias_grad, tartan_array *sinks_grad) {
    const tartan_attention_bias_gradient_arguments all = {
        layout, q, k, v, options, block_mask, bias, sinks, out, lse, out_grad, bias_grad, sinks_grad};
    return tartan_attention_bias_gradient(context, &all);
}

} // namespace tartan_test

#endif
