/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

#include "backend/operation.h"

/* ---- The tables ---- */

/* A row without .refuses can do every problem, and one without .rate has no known rate. The first row can do every problem.
 * Without .make, the problem is the operation itself. */
#define ROWS(...)                                                                                            \
    .rows = (const tartan_cuda_kernel[]){__VA_ARGS__},                                                       \
    .count = sizeof((const tartan_cuda_kernel[]){__VA_ARGS__}) / sizeof(tartan_cuda_kernel)

static const tartan_cuda_kernels all[TARTAN_OP_COUNT] = {
    [TARTAN_OP_SPMM] =
        {.make = tartan_cuda_spmm_of,
         ROWS({.name = "spmm_plain", .rate = tartan_cuda_spmm_plain_rate, .launch = tartan_cuda_spmm_plain},
              {.name = "spmm_gather",
               .refuses = tartan_cuda_spmm_gather_refuses,
               .rate = tartan_cuda_spmm_gather_rate,
               .launch = tartan_cuda_spmm_gather},
              {.name = "spmm_simt",
               .refuses = tartan_cuda_spmm_simt_refuses,
               .rate = tartan_cuda_spmm_simt_rate,
               .launch = tartan_cuda_spmm_simt},
              {.name = "spmm_mma",
               .refuses = tartan_cuda_spmm_mma_refuses,
               .rate = tartan_cuda_spmm_mma_rate,
               .launch = tartan_cuda_spmm_mma},
              {.name = "spmm_wgmma",
               .refuses = tartan_cuda_spmm_wgmma_refuses,
               .rate = tartan_cuda_spmm_wgmma_rate,
               .launch = tartan_cuda_spmm_wgmma},
              {.name = "spmm_swapped",
               .refuses = tartan_cuda_spmm_swapped_refuses,
               .rate = tartan_cuda_spmm_swapped_rate,
               .launch = tartan_cuda_spmm_swapped},
              {.name = "spmm_narrow",
               .refuses = tartan_cuda_spmm_narrow_refuses,
               .rate = tartan_cuda_spmm_narrow_rate,
               .launch = tartan_cuda_spmm_narrow},
              {.name = "spmm_few",
               .refuses = tartan_cuda_spmm_few_refuses,
               .rate = tartan_cuda_spmm_few_rate,
               .launch = tartan_cuda_spmm_few},
              {.name = "spmm_dense",
               .refuses = tartan_cuda_spmm_dense_refuses,
               .rate = tartan_cuda_spmm_dense_rate,
               .launch = tartan_cuda_spmm_dense,
               .remark = "cuBLAS, with a dense copy of a"})},
    [TARTAN_OP_SDDMM] = {.make = tartan_cuda_sddmm_of,
                         ROWS({.name = "sddmm_plain",
                               .rate = tartan_cuda_sddmm_plain_rate,
                               .launch = tartan_cuda_sddmm_plain},
                              {.name = "sddmm_gather",
                               .refuses = tartan_cuda_sddmm_gather_refuses,
                               .rate = tartan_cuda_sddmm_gather_rate,
                               .launch = tartan_cuda_sddmm_gather},
                              {.name = "sddmm_mma",
                               .refuses = tartan_cuda_sddmm_mma_refuses,
                               .rate = tartan_cuda_sddmm_mma_rate,
                               .launch = tartan_cuda_sddmm_mma},
                              {.name = "sddmm_wgmma",
                               .refuses = tartan_cuda_sddmm_wgmma_refuses,
                               .rate = tartan_cuda_sddmm_wgmma_rate,
                               .launch = tartan_cuda_sddmm_wgmma})},
    [TARTAN_OP_GATE_GRADIENT] = {.make = tartan_cuda_gate_gradient_of,
                                 ROWS({.name = "gate_gradient_plain",
                                       .launch = tartan_cuda_gate_gradient_plain})},
    [TARTAN_OP_GROWTH_SCORE] = {.make = tartan_cuda_growth_score_of,
                                ROWS({.name = "growth_score_plain",
                                      .launch = tartan_cuda_growth_score_plain})},
    [TARTAN_OP_BLOCK_COPY] = {ROWS({.name = "block_copy_plain", .launch = tartan_cuda_block_copy_plain})},
    [TARTAN_OP_BLOCK_NORMS] = {ROWS({.name = "block_norms_plain", .launch = tartan_cuda_block_norms_plain})},
    [TARTAN_OP_ELEMENTWISE] = {ROWS({.name = "elementwise_plain", .launch = tartan_cuda_elementwise_plain})},
    [TARTAN_OP_ELEMENTS] = {ROWS({.name = "elements_plain", .launch = tartan_cuda_elements_plain})},
    [TARTAN_OP_REDUCE] = {ROWS({.name = "reduce_plain", .launch = tartan_cuda_reduce_plain})},
    [TARTAN_OP_COMPARE] = {ROWS({.name = "compare_plain", .launch = tartan_cuda_compare_plain})},
    [TARTAN_OP_ATTENTION_FORWARD] = {.make = tartan_cuda_attention_forward_of,
                                     ROWS({.name = "attention_forward_plain",
                                           .rate = tartan_cuda_attention_forward_plain_rate,
                                           .launch = tartan_cuda_attention_forward_plain},
                                          {.name = "attention_forward_wgmma",
                                           .refuses = tartan_cuda_attention_forward_wgmma_refuses,
                                           .rate = tartan_cuda_attention_forward_wgmma_rate,
                                           .launch = tartan_cuda_attention_forward_wgmma})},
    [TARTAN_OP_ATTENTION_BACKWARD] = {.make = tartan_cuda_attention_backward_of,
                                      ROWS({.name = "attention_backward_plain",
                                            .rate = tartan_cuda_attention_backward_plain_rate,
                                            .launch = tartan_cuda_attention_backward_plain},
                                           {.name = "attention_backward_wgmma",
                                            .refuses = tartan_cuda_attention_backward_wgmma_refuses,
                                            .rate = tartan_cuda_attention_backward_wgmma_rate,
                                            .launch = tartan_cuda_attention_backward_wgmma},
                                           {.name = "attention_backward_fused",
                                            .refuses = tartan_cuda_attention_backward_fused_refuses,
                                            .rate = tartan_cuda_attention_backward_fused_rate,
                                            .launch = tartan_cuda_attention_backward_fused})},
    [TARTAN_OP_ATTENTION_BIAS_GRADIENT] = {.make = tartan_cuda_attention_bias_gradient_of,
                                           ROWS({.name = "attention_bias_gradient_plain",
                                                 .launch = tartan_cuda_attention_bias_gradient_plain})},
    [TARTAN_OP_ATTENTION_MERGE] = {.make = tartan_cuda_attention_merge_of,
                                   ROWS({.name = "attention_merge_plain",
                                         .launch = tartan_cuda_attention_merge_plain})},
    [TARTAN_OP_BLOCK_SOFTMAX] = {ROWS(
        {.name = "block_softmax_plain", .launch = tartan_cuda_block_softmax_plain})},
    [TARTAN_OP_BLOCK_SOFTMAX_GRADIENT] = {ROWS(
        {.name = "block_softmax_gradient_plain", .launch = tartan_cuda_block_softmax_gradient_plain})},
    [TARTAN_OP_WINDOW_POOL] = {.make = tartan_cuda_window_pool_of,
                               ROWS({.name = "window_pool_plain", .launch = tartan_cuda_window_pool_plain})},
    [TARTAN_OP_WINDOW_GATHER] = {.make = tartan_cuda_window_gather_of,
                                 ROWS({.name = "window_gather_plain",
                                       .launch = tartan_cuda_window_gather_plain})},
    [TARTAN_OP_WINDOW_SCATTER] = {.make = tartan_cuda_window_scatter_of,
                                  ROWS({.name = "window_scatter_plain",
                                        .launch = tartan_cuda_window_scatter_plain})},
    [TARTAN_OP_CONV] =
        {.make = tartan_cuda_conv_of,
         ROWS({.name = "conv_plain", .rate = tartan_cuda_conv_plain_rate, .launch = tartan_cuda_conv_plain},
              {.name = "conv_depthwise",
               .refuses = tartan_cuda_conv_depthwise_refuses,
               .rate = tartan_cuda_conv_depthwise_rate,
               .launch = tartan_cuda_conv_depthwise},
              {.name = "conv_pieces",
               .refuses = tartan_cuda_conv_pieces_refuses,
               .rate = tartan_cuda_conv_pieces_rate,
               .launch = tartan_cuda_conv_pieces},
              {.name = "conv_wgmma",
               .refuses = tartan_cuda_conv_wgmma_refuses,
               .rate = tartan_cuda_conv_wgmma_rate,
               .launch = tartan_cuda_conv_wgmma})},
    [TARTAN_OP_CONV_FILTER_GRADIENT] = {.make = tartan_cuda_conv_filter_gradient_of,
                                        ROWS({.name = "conv_filter_gradient_plain",
                                              .rate = tartan_cuda_conv_filter_gradient_plain_rate,
                                              .launch = tartan_cuda_conv_filter_gradient_plain},
                                             {.name = "conv_filter_gradient_depthwise",
                                              .refuses = tartan_cuda_conv_filter_gradient_depthwise_refuses,
                                              .rate = tartan_cuda_conv_depthwise_rate,
                                              .launch = tartan_cuda_conv_filter_gradient_depthwise},
                                             {.name = "conv_filter_gradient_pieces",
                                              .refuses = tartan_cuda_conv_filter_gradient_pieces_refuses,
                                              .rate = tartan_cuda_conv_filter_gradient_pieces_rate,
                                              .launch = tartan_cuda_conv_filter_gradient_pieces},
                                             {.name = "conv_filter_gradient_mma",
                                              .refuses = tartan_cuda_conv_filter_gradient_mma_refuses,
                                              .rate = tartan_cuda_conv_filter_gradient_mma_rate,
                                              .launch = tartan_cuda_conv_filter_gradient_mma})},
    [TARTAN_OP_CHANNEL_LINEAR] = {.make = tartan_cuda_channel_linear_of,
                                  ROWS({.name = "channel_linear_plain",
                                        .launch = tartan_cuda_channel_linear_plain})},
    [TARTAN_OP_CHANNEL_LINEAR_GRADIENT] = {.make = tartan_cuda_channel_linear_gradient_of,
                                           ROWS({.name = "channel_linear_gradient_plain",
                                                 .launch = tartan_cuda_channel_linear_gradient_plain})},
    [TARTAN_OP_CONV_NORMALIZE] = {.make = tartan_cuda_conv_normalize_of,
                                  ROWS({.name = "conv_normalize_plain",
                                        .launch = tartan_cuda_conv_normalize_plain})},
    [TARTAN_OP_CONV_NORMALIZE_GRADIENT] = {.make = tartan_cuda_conv_normalize_gradient_of,
                                           ROWS({.name = "conv_normalize_gradient_plain",
                                                 .launch = tartan_cuda_conv_normalize_gradient_plain})},
#define NORM(op, ...)                                                                                        \
    [TARTAN_I_OP_##op] = {.make = tartan_cuda_##op##_of,                                                     \
                          ROWS({.name = #op "_plain", .launch = tartan_cuda_##op##_plain})},                 \
    [TARTAN_I_OP_##op##                                                                                      \
        _gradient] = {.make = tartan_cuda_##op##_gradient_of,                                                \
                      ROWS({.name = #op "_gradient_plain", .launch = tartan_cuda_##op##_gradient_plain})},
#include "kernels/norms.def"
#undef NORM
    [TARTAN_OP_ADD_LAYER_NORM] = {.make = tartan_cuda_add_layer_norm_of,
                                  ROWS({.name = "add_layer_norm_plain",
                                        .launch = tartan_cuda_add_layer_norm_plain})},
    [TARTAN_OP_ADD_LAYER_NORM_GRADIENT] = {.make = tartan_cuda_add_layer_norm_gradient_of,
                                           ROWS({.name = "add_layer_norm_gradient_plain",
                                                 .launch = tartan_cuda_add_layer_norm_gradient_plain})},
    [TARTAN_OP_ADD_RMS_NORM] = {.make = tartan_cuda_add_rms_norm_of,
                                ROWS({.name = "add_rms_norm_plain",
                                      .launch = tartan_cuda_add_rms_norm_plain})},
    [TARTAN_OP_ADD_RMS_NORM_GRADIENT] = {.make = tartan_cuda_add_rms_norm_gradient_of,
                                         ROWS({.name = "add_rms_norm_gradient_plain",
                                               .launch = tartan_cuda_add_rms_norm_gradient_plain})},
    [TARTAN_OP_BATCH_NORM] = {.make = tartan_cuda_batch_norm_of,
                              ROWS({.name = "batch_norm_plain", .launch = tartan_cuda_batch_norm_plain})},
    [TARTAN_OP_BATCH_NORM_GRADIENT] = {.make = tartan_cuda_batch_norm_gradient_of,
                                       ROWS({.name = "batch_norm_gradient_plain",
                                             .launch = tartan_cuda_batch_norm_gradient_plain})},
    [TARTAN_OP_FUSED] = {.make = tartan_cuda_fused_of,
                         ROWS({.name = "fused_plain", .launch = tartan_cuda_fused_plain})},
    [TARTAN_OP_CAST] = {ROWS({.name = "cast_plain", .launch = tartan_cuda_cast_plain})},
    [TARTAN_OP_UPDATE] = {ROWS({.name = "update_plain", .launch = tartan_cuda_update_plain})},
    [TARTAN_OP_GLOBAL_NORM] = {ROWS({.name = "global_norm_plain", .launch = tartan_cuda_global_norm_plain})},
    [TARTAN_OP_GROUP_LASSO] = {ROWS({.name = "group_lasso_plain", .launch = tartan_cuda_group_lasso_plain})},
    [TARTAN_OP_ADAFACTOR] = {ROWS({.name = "adafactor_plain", .launch = tartan_cuda_adafactor_plain})},
    [TARTAN_OP_MUON] = {ROWS({.name = "muon_plain", .launch = tartan_cuda_muon_plain})},
    [TARTAN_OP_QUANTIZE_STATS] = {ROWS(
        {.name = "quantize_stats_plain", .launch = tartan_cuda_quantize_stats_plain})},
    [TARTAN_OP_SOFTMAX] = {.make = tartan_cuda_softmax_of,
                           ROWS({.name = "softmax_plain", .launch = tartan_cuda_softmax_plain})},
    [TARTAN_OP_SOFTMAX_GRADIENT] = {.make = tartan_cuda_softmax_gradient_of,
                                    ROWS({.name = "softmax_gradient_plain",
                                          .launch = tartan_cuda_softmax_gradient_plain})},
    [TARTAN_OP_LOG_SOFTMAX] = {.make = tartan_cuda_log_softmax_of,
                               ROWS({.name = "log_softmax_plain", .launch = tartan_cuda_log_softmax_plain})},
    [TARTAN_OP_LOG_SOFTMAX_GRADIENT] = {.make = tartan_cuda_log_softmax_gradient_of,
                                        ROWS({.name = "log_softmax_gradient_plain",
                                              .launch = tartan_cuda_log_softmax_gradient_plain})},
    [TARTAN_OP_CROSS_ENTROPY] = {.make = tartan_cuda_cross_entropy_of,
                                 ROWS({.name = "cross_entropy_plain",
                                       .launch = tartan_cuda_cross_entropy_plain})},
    [TARTAN_OP_CROSS_ENTROPY_GRADIENT] = {.make = tartan_cuda_cross_entropy_gradient_of,
                                          ROWS({.name = "cross_entropy_gradient_plain",
                                                .launch = tartan_cuda_cross_entropy_gradient_plain})},
    [TARTAN_OP_TOP_K] = {ROWS({.name = "top_k_plain", .launch = tartan_cuda_top_k_plain})},
    [TARTAN_OP_TOP_K_SOFTMAX] = {ROWS(
        {.name = "top_k_softmax_plain", .launch = tartan_cuda_top_k_softmax_plain})},
    [TARTAN_OP_RECTIFIED_TOP_K] = {ROWS(
        {.name = "rectified_top_k_plain", .launch = tartan_cuda_rectified_top_k_plain})},
    [TARTAN_OP_RECTIFIED_TOP_K_GRADIENT] = {ROWS(
        {.name = "rectified_top_k_gradient_plain", .launch = tartan_cuda_rectified_top_k_gradient_plain})},
    [TARTAN_OP_SPARSE_RELU] = {ROWS({.name = "sparse_relu_plain", .launch = tartan_cuda_sparse_relu_plain})},
    [TARTAN_OP_SPARSE_RELU_GRADIENT] = {ROWS(
        {.name = "sparse_relu_gradient_plain", .launch = tartan_cuda_sparse_relu_gradient_plain})},
    [TARTAN_OP_REDUCE_MAX] = {ROWS({.name = "reduce_max_plain", .launch = tartan_cuda_reduce_max_plain})},
    [TARTAN_OP_TAKE_ALONG] = {ROWS({.name = "take_along_plain", .launch = tartan_cuda_take_along_plain})},
    [TARTAN_OP_PUT_ALONG] = {ROWS({.name = "put_along_plain", .launch = tartan_cuda_put_along_plain})},
    [TARTAN_OP_SCATTER_ROWS] = {ROWS(
        {.name = "scatter_rows_plain", .launch = tartan_cuda_scatter_rows_plain})},
    [TARTAN_OP_SCATTER_ROWS_GRADIENT] = {ROWS(
        {.name = "scatter_rows_gradient_plain", .launch = tartan_cuda_scatter_rows_gradient_plain})},
    [TARTAN_OP_SEGMENT_SUM] = {ROWS({.name = "segment_sum_plain", .launch = tartan_cuda_segment_sum_plain})},
    [TARTAN_OP_SEGMENT_SUM_GRADIENT] = {ROWS(
        {.name = "segment_sum_gradient_plain", .launch = tartan_cuda_segment_sum_gradient_plain})},
    [TARTAN_OP_EMBEDDING] = {ROWS({.name = "embedding_plain", .launch = tartan_cuda_embedding_plain})},
    [TARTAN_OP_EMBEDDING_GRADIENT] = {ROWS(
        {.name = "embedding_gradient_plain", .launch = tartan_cuda_embedding_gradient_plain})},
    [TARTAN_OP_POINT2] = {.make = tartan_cuda_point2_of,
                          ROWS({.name = "point2_plain", .launch = tartan_cuda_point2_plain})},
    [TARTAN_OP_POINT2_GRADIENT] = {.make = tartan_cuda_point2_gradient_of,
                                   ROWS({.name = "point2_gradient_plain",
                                         .launch = tartan_cuda_point2_gradient_plain})},
    [TARTAN_OP_POINT1] = {.make = tartan_cuda_point1_of,
                          ROWS({.name = "point1_plain", .launch = tartan_cuda_point1_plain})},
    [TARTAN_OP_POINT1_GRADIENT] = {.make = tartan_cuda_point1_gradient_of,
                                   ROWS({.name = "point1_gradient_plain",
                                         .launch = tartan_cuda_point1_gradient_plain})},
};

const tartan_cuda_kernels *tartan_cuda_kernels_of(int32_t kind) {
    return all[kind].count > 0 ? &all[kind] : NULL;
}

tartan_status tartan_cuda_problem_of(const tartan_host *host, const tartan_context *context,
                                     const tartan_op *op, tartan_cuda_problem *room, const void **out) {
    room->nothing = false;
    *out = &op->function; /* the first member of every struct */
    if (all[op->kind].make == NULL) return TARTAN_OK;
    *out = room;
    return all[op->kind].make(host, context, &op->function, room);
}

/* ---- The choice ---- */

const char *tartan_cuda_kernel_refuses(const tartan_cuda_kernel *kernel, const tartan_cuda_chip *chip,
                                       const void *problem) {
    return kernel->refuses != NULL ? kernel->refuses(chip, problem) : NULL;
}

double tartan_cuda_kernel_rate(const tartan_cuda_kernel *kernel, const void *problem) {
    return kernel->rate != NULL ? kernel->rate(problem) : 0;
}

int32_t tartan_cuda_choose(const tartan_cuda_kernels *kernels, const tartan_cuda_chip *chip,
                           const void *problem) {
    int32_t best = -1;
    double best_rate = 0;
    for (int32_t i = 0; i < kernels->count; i++) {
        if (tartan_cuda_kernel_refuses(&kernels->rows[i], chip, problem) != NULL) continue;
        const double rate = tartan_cuda_kernel_rate(&kernels->rows[i], problem);
        if (best >= 0 && rate < best_rate) continue;
        best = i;
        best_rate = rate;
    }
    return best;
}
