/* SPDX-License-Identifier: Apache-2.0
 * Checks that rows of the schema cannot express: the functions that entries name as SHAPES, CHECK, END and RUNS. */
#ifndef TARTAN_OPS_CHECKS_H
#define TARTAN_OPS_CHECKS_H

#include "backend/operation.h"

/* Factors fit the layout and each other, and results fit the factors. The check of a growth score also fills `shape` and converts
 * the word to a tartan_norm. */
tartan_status tartan_i_shapes_spmm(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_shapes_sddmm(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_shapes_spmm_gradient(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_shapes_sddmm_gradient(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_shapes_growth_score(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_growth_score(tartan_op *op, const tartan_context *context);

/* Heads, bias and options fit together. Fills `in`. */
tartan_status tartan_i_check_attention_forward(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_attention_backward(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_attention_bias_gradient(tartan_op *op, const tartan_context *context);

/* Options that hide later keys need causal=1, and a mask needs an ordinary layout. Fills `in`. */
tartan_status tartan_i_check_block_softmax(tartan_op *op, const tartan_context *context);

/* conv and in_size go together and fit x. Fills `edges` if an operand has a row for each edge class. */
tartan_status tartan_i_check_channel_linear(tartan_op *op, const tartan_context *context);
void tartan_i_end_channel_linear(tartan_op *op);
tartan_status tartan_i_check_channel_linear_gradient(tartan_op *op, const tartan_context *context);
void tartan_i_end_channel_linear_gradient(tartan_op *op);

/* Images belong to the convolution and to each other, windows to their image; gain and bias have a number for each output
 * channel, or such a row for each edge class. Makes tartan_op_conv, or fills what the filter's gradient keeps. */
tartan_status tartan_i_shape_conv_forward(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_conv_forward(tartan_op *op, const tartan_context *context);
void tartan_i_end_conv_forward(tartan_op *op);
tartan_status tartan_i_shape_conv_input_gradient(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_conv_input_gradient(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_shape_conv_filter_gradient(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_conv_filter_gradient(tartan_op *op, const tartan_context *context);

/* Results have the named dtype. Makes tartan_op_cast. */
tartan_status tartan_i_check_float_cast(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_float_cast_gradient(tartan_op *op, const tartan_context *context);

/* Random numbers have limits in order, and a mask_shape that is broadcast to x. Makes tartan_op_fused. */
tartan_status tartan_i_check_dropout(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_dropout_gradient(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_concrete_gate(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_concrete_gate_gradient(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_random_uniform(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_random_normal(tartan_op *op, const tartan_context *context);

/* Formats are ones that the arrays can hold. Make tartan_op_fused, or fill `largest` and `smallest`. */
tartan_status tartan_i_check_quantize(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_quantize_gradient(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_quantize_stats(tartan_op *op, const tartan_context *context);

/* Run sums for each channel and tartan_op_fused. */
tartan_status tartan_i_run_batch_norm(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_run_batch_norm_gradient(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_check_batch_norm_inference(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_run_batch_norm_inference_gradient(const tartan_op *op, tartan_context *context);

/* Lines have equal segments. Run sums, norms and activations (add_norm.c). */
tartan_status tartan_i_shapes_add_layer_norm(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_shapes_add_layer_norm_gradient(const tartan_op *op, int32_t argument,
                                                      tartan_array *shape);
tartan_status tartan_i_run_add_layer_norm(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_run_add_layer_norm_gradient(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_shapes_add_rms_norm(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_shapes_add_rms_norm_gradient(const tartan_op *op, int32_t argument,
                                                    tartan_array *shape);
tartan_status tartan_i_run_add_rms_norm(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_run_add_rms_norm_gradient(const tartan_op *op, tartan_context *context);

/* Makes tartan_op_fused, or runs it and a sum. */
tartan_status tartan_i_check_lstm_gates(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_run_lstm_gates_gradient(const tartan_op *op, tartan_context *context);

/* Windows agree with the layout, for images of 1 to 3 dimensions. They may overlap only where they are added. */
tartan_status tartan_i_shape_window_gather(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_window_gather(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_shape_window_scatter(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_window_scatter(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_shape_window_gather_gradient(const tartan_op *op, int32_t argument,
                                                    tartan_array *shape);
tartan_status tartan_i_shape_window_scatter_gradient(const tartan_op *op, int32_t argument,
                                                     tartan_array *shape);
tartan_status tartan_i_windows_of_scatter(const char *function, const tartan_layout *active, const char *name,
                                          const tartan_array *image, bool add, tartan_i_windows *windows);

/* The convolution has the same blocks at all taps, and gain a number for each output channel. */
tartan_status tartan_i_check_conv_normalize(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_conv_normalize_gradient(tartan_op *op, const tartan_context *context);

/* Gradients that are made of other operations (gradients.c). */
tartan_status tartan_i_run_spmm_gradient(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_run_sddmm_gradient(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_run_window_gather_gradient(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_run_window_scatter_gradient(const tartan_op *op, tartan_context *context);

/* Gains have a number for each row or column. Run sums and scaling of matrices (weight_normalize.c). */
tartan_status tartan_i_shapes_weight_normalize(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_run_weight_normalize(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_shapes_weight_normalize_gradient(const tartan_op *op, int32_t argument,
                                                        tartan_array *shape);
tartan_status tartan_i_run_weight_normalize_gradient(const tartan_op *op, tartan_context *context);

/* Gates and rates have a number for each slice of their parameter, or none; optimisers become tartan_op_update. */
tartan_status tartan_i_shapes_adam(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_adam(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_shapes_sgd(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_sgd(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_shapes_lion(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_lion(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_shapes_exponential_average(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_exponential_average(tartan_op *op, const tartan_context *context);
/* Fills `d`. */
tartan_status tartan_i_check_adafactor(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_shapes_adafactor(const tartan_op *op, int32_t argument, tartan_array *shape);
/* Parameters have two dimensions at least. */
tartan_status tartan_i_check_muon(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_shapes_group_lasso(const tartan_op *op, int32_t argument, tartan_array *shape);
/* Whole numbers in host memory are base .. base + limit - 1, or `other`, which the option `other_name` says; NULL: there is none. The
 * first that is not is named with its place. */
tartan_status tartan_i_check_indices(const char *function, const char *name, const tartan_array *array,
                                     int64_t base, int64_t limit, const char *other_name, int64_t other);

/* Labels are classes, where they are in host memory. */
tartan_status tartan_i_check_cross_entropy(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_cross_entropy_gradient(tartan_op *op, const tartan_context *context);

/* Indices are rows of the table, where they are in host memory. */
tartan_status tartan_i_check_embedding(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_embedding_gradient(tartan_op *op, const tartan_context *context);

/* k is not more than the numbers of a line, indices in host memory are places in it; gradients that put become tartan_op_put_along. */
tartan_status tartan_i_shapes_top_k(const tartan_op *op, int32_t argument, tartan_array *shape);
tartan_status tartan_i_check_top_k_gradient(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_top_k_softmax(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_rectified_top_k(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_rectified_top_k_gradient(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_reduce_max(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_reduce_max_gradient(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_take_along(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_take_along_gradient(tartan_op *op, const tartan_context *context);

/* Indices are rows, none twice, where they are in host memory. */
tartan_status tartan_i_check_scatter_rows(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_scatter_rows_gradient(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_segment_sum(tartan_op *op, const tartan_context *context);
tartan_status tartan_i_check_segment_sum_gradient(tartan_op *op, const tartan_context *context);

/* Arrays have one shape, and are summed in one type. */
tartan_status tartan_i_run_add_n(const tartan_op *op, tartan_context *context);

/* A linear layer with the loss of its classes (heads.c). */
tartan_status tartan_i_run_linear_cross_entropy(const tartan_op *op, tartan_context *context);
tartan_status tartan_i_run_linear_cross_entropy_gradient(const tartan_op *op, tartan_context *context);

/* The bottleneck unit of residual networks, checked and run step by step (residual.c). */
tartan_status tartan_i_run_residual_forward(const tartan_op *op, tartan_context *context);

#endif
