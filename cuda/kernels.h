/* SPDX-License-Identifier: Apache-2.0
 * The tables of kernels, one for each operation, and the choice among them. Plain C: a test that supplies the launch
 * functions needs no GPU. */
#ifndef TARTAN_CUDA_KERNELS_H
#define TARTAN_CUDA_KERNELS_H

#include "refuse.h"
#include "tune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tartan_cuda_queue tartan_cuda_queue; /* queue.h */

/* Starts the kernel, which does not refuse the problem, in the order of the queue, whose device is the thread's. */
typedef tartan_status tartan_cuda_launching(const char *function, tartan_cuda_queue *queue,
                                            const void *problem);

typedef struct tartan_cuda_kernel {
    const char *name;
    tartan_cuda_refusal *refuses; /* NULL: can do every problem */
    tartan_cuda_rating *rate;     /* NULL: not known */
    tartan_cuda_launching *launch;
    const char *remark; /* for explain, or NULL */
} tartan_cuda_kernel;

/* What the plug-in has for a kind of operations. */
typedef struct tartan_cuda_kernels {
    int32_t count;
    const tartan_cuda_kernel *rows; /* by rising arithmetic throughput */
    tartan_cuda_maker *make;        /* of their problems; NULL: these are the operations' own structs */
} tartan_cuda_kernels;

/* Of a tartan_op_kind; NULL if there are no kernels. */
const tartan_cuda_kernels *tartan_cuda_kernels_of(int32_t kind);

/* The problem of an operation that has kernels: its own struct, or what is made in `room`, of which `nothing` is set then. */
tartan_status tartan_cuda_problem_of(const tartan_host *host, const tartan_context *context,
                                     const tartan_op *op, tartan_cuda_problem *room, const void **out);

tartan_cuda_launching tartan_cuda_spmm_plain, tartan_cuda_spmm_gather, tartan_cuda_spmm_simt,
    tartan_cuda_spmm_mma, tartan_cuda_spmm_wgmma, tartan_cuda_spmm_swapped, tartan_cuda_spmm_narrow,
    tartan_cuda_spmm_few, tartan_cuda_spmm_dense;
tartan_cuda_launching tartan_cuda_sddmm_plain, tartan_cuda_sddmm_gather, tartan_cuda_sddmm_mma,
    tartan_cuda_sddmm_wgmma;
tartan_cuda_launching tartan_cuda_gate_gradient_plain, tartan_cuda_growth_score_plain,
    tartan_cuda_block_copy_plain, tartan_cuda_block_norms_plain;
tartan_cuda_launching tartan_cuda_elementwise_plain, tartan_cuda_elements_plain, tartan_cuda_reduce_plain,
    tartan_cuda_compare_plain;
tartan_cuda_launching tartan_cuda_attention_forward_plain, tartan_cuda_attention_forward_wgmma,
    tartan_cuda_attention_forward_extras, tartan_cuda_attention_backward_extras,
    tartan_cuda_attention_backward_plain, tartan_cuda_attention_backward_wgmma,
    tartan_cuda_attention_backward_fused, tartan_cuda_attention_bias_gradient_plain;
tartan_cuda_launching tartan_cuda_cast_plain, tartan_cuda_update_plain, tartan_cuda_global_norm_plain,
    tartan_cuda_group_lasso_plain, tartan_cuda_adafactor_plain, tartan_cuda_muon_plain,
    tartan_cuda_quantize_stats_plain;
tartan_cuda_launching tartan_cuda_attention_merge_plain, tartan_cuda_block_softmax_plain,
    tartan_cuda_block_softmax_gradient_plain;
tartan_cuda_launching tartan_cuda_window_pool_plain, tartan_cuda_window_gather_plain,
    tartan_cuda_window_scatter_plain;
tartan_cuda_launching tartan_cuda_conv_plain, tartan_cuda_conv_depthwise, tartan_cuda_conv_pieces,
    tartan_cuda_conv_pieces_f32, tartan_cuda_conv_wgmma, tartan_cuda_conv_filter_gradient_plain,
    tartan_cuda_conv_filter_gradient_depthwise, tartan_cuda_conv_filter_gradient_pieces,
    tartan_cuda_conv_filter_gradient_pieces_f32, tartan_cuda_conv_filter_gradient_mma;
tartan_cuda_launching tartan_cuda_channel_linear_plain, tartan_cuda_channel_linear_gradient_plain,
    tartan_cuda_conv_normalize_plain, tartan_cuda_conv_normalize_gradient_plain;
tartan_cuda_launching tartan_cuda_add_layer_norm_plain, tartan_cuda_add_layer_norm_gradient_plain,
    tartan_cuda_add_rms_norm_plain, tartan_cuda_add_rms_norm_gradient_plain, tartan_cuda_batch_norm_plain,
    tartan_cuda_batch_norm_gradient_plain;
#define NORM(name, ...) tartan_cuda_launching tartan_cuda_##name##_plain, tartan_cuda_##name##_gradient_plain;
#include "kernels/norms.def"
#undef NORM
tartan_cuda_launching tartan_cuda_fused_plain, tartan_cuda_point1_plain, tartan_cuda_point1_gradient_plain,
    tartan_cuda_point2_plain, tartan_cuda_point2_gradient_plain;
tartan_cuda_launching tartan_cuda_softmax_plain, tartan_cuda_softmax_gradient_plain,
    tartan_cuda_log_softmax_plain, tartan_cuda_log_softmax_gradient_plain, tartan_cuda_cross_entropy_plain,
    tartan_cuda_cross_entropy_gradient_plain;
tartan_cuda_launching tartan_cuda_top_k_plain, tartan_cuda_top_k_softmax_plain,
    tartan_cuda_rectified_top_k_plain, tartan_cuda_rectified_top_k_gradient_plain,
    tartan_cuda_sparse_relu_plain, tartan_cuda_sparse_relu_gradient_plain, tartan_cuda_reduce_max_plain,
    tartan_cuda_take_along_plain, tartan_cuda_put_along_plain, tartan_cuda_scatter_rows_plain,
    tartan_cuda_scatter_rows_gradient_plain, tartan_cuda_segment_sum_plain,
    tartan_cuda_segment_sum_gradient_plain;
tartan_cuda_launching tartan_cuda_embedding_plain, tartan_cuda_embedding_gradient_plain;

/* Why the kernel cannot do the problem, or NULL; and its expected rate, 0 if it is not known. */
const char *tartan_cuda_kernel_refuses(const tartan_cuda_kernel *kernel, const tartan_cuda_chip *chip,
                                       const void *problem);
double tartan_cuda_kernel_rate(const tartan_cuda_kernel *kernel, const void *problem);

/* The row to run: the fastest of those that can do the problem; the last of equals. -1 if all refuse. */
int32_t tartan_cuda_choose(const tartan_cuda_kernels *kernels, const tartan_cuda_chip *chip,
                           const void *problem);

#ifdef __cplusplus
}
#endif
#endif
