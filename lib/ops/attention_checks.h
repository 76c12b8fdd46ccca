/* SPDX-License-Identifier: Apache-2.0
 * Checks that the operations of fused attention share. `in` is what they read, filled but for its options. */
#ifndef TARTAN_OPS_ATTENTION_CHECKS_H
#define TARTAN_OPS_ATTENTION_CHECKS_H

#include "backend/operation.h"

/* Reads the options into *in, and checks the layout, q, k, v, the block mask and the bias. */
tartan_status tartan_i_attention_take_inputs(const char *function, const tartan_context *context,
                                             const char *options, tartan_i_attention *in);

/* NULL, or [heads] of the dtype of lse. */
tartan_status tartan_i_attention_check_sinks(const char *function, const tartan_context *context,
                                             const tartan_i_attention *in, const tartan_array *sinks);

/* What gradients read beside the inputs: the results of the forward pass, and the gradient with respect to `out`. */
typedef struct tartan_i_attention_results {
    const tartan_array *out, *lse, *out_grad;
} tartan_i_attention_results;

tartan_status tartan_i_attention_check_results(const char *function, const tartan_context *context,
                                               const tartan_i_attention *in,
                                               const tartan_i_attention_results *results);

/* A gradient may not overlap anything that is read. */
tartan_status tartan_i_attention_check_gradient_apart(const char *function, const char *name,
                                                      const tartan_array *gradient,
                                                      const tartan_i_attention *in,
                                                      const tartan_i_attention_results *results);

#endif
