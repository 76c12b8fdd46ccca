/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

/* ---- The tables ---- */

/* A row without .refuses can do every problem; one without .rate has no known rate. */
#define TABLE(op, ...)                                                                                       \
    static const tartan_cuda_kernel op##_rows[] = {__VA_ARGS__};                                             \
    const tartan_cuda_kernels tartan_cuda_##op##_kernels = {.count = sizeof op##_rows / sizeof op##_rows[0], \
                                                            .rows = op##_rows}

TABLE(spmm, {.name = "spmm_plain", .rate = tartan_cuda_spmm_plain_rate, .launch = tartan_cuda_spmm_plain},
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
      {.name = "spmm_dense",
       .refuses = tartan_cuda_spmm_dense_refuses,
       .rate = tartan_cuda_spmm_dense_rate,
       .launch = tartan_cuda_spmm_dense,
       .remark = "cuBLAS, with a dense copy of a"});

TABLE(sddmm, {.name = "sddmm_plain", .rate = tartan_cuda_sddmm_plain_rate, .launch = tartan_cuda_sddmm_plain},
      {.name = "sddmm_mma",
       .refuses = tartan_cuda_sddmm_mma_refuses,
       .rate = tartan_cuda_sddmm_mma_rate,
       .launch = tartan_cuda_sddmm_mma},
      {.name = "sddmm_wgmma",
       .refuses = tartan_cuda_sddmm_wgmma_refuses,
       .rate = tartan_cuda_sddmm_wgmma_rate,
       .launch = tartan_cuda_sddmm_wgmma});

TABLE(gate_gradient, {.name = "gate_gradient_plain", .launch = tartan_cuda_gate_gradient_plain});
TABLE(growth_score, {.name = "growth_score_plain", .launch = tartan_cuda_growth_score_plain});
TABLE(block_copy, {.name = "block_copy_plain", .launch = tartan_cuda_block_copy_plain});
TABLE(block_norms, {.name = "block_norms_plain", .launch = tartan_cuda_block_norms_plain});
TABLE(elementwise, {.name = "elementwise_plain", .launch = tartan_cuda_elementwise_plain});
TABLE(elements, {.name = "elements_plain", .launch = tartan_cuda_elements_plain});
TABLE(reduce, {.name = "reduce_plain", .launch = tartan_cuda_reduce_plain});
TABLE(compare, {.name = "compare_plain", .launch = tartan_cuda_compare_plain});

TABLE(attention_forward,
      {.name = "attention_forward_plain",
       .rate = tartan_cuda_attention_forward_plain_rate,
       .launch = tartan_cuda_attention_forward_plain},
      {.name = "attention_forward_wgmma",
       .refuses = tartan_cuda_attention_forward_wgmma_refuses,
       .rate = tartan_cuda_attention_forward_wgmma_rate,
       .launch = tartan_cuda_attention_forward_wgmma});

TABLE(attention_backward,
      {.name = "attention_backward_plain",
       .rate = tartan_cuda_attention_backward_plain_rate,
       .launch = tartan_cuda_attention_backward_plain},
      {.name = "attention_backward_wgmma",
       .refuses = tartan_cuda_attention_backward_wgmma_refuses,
       .rate = tartan_cuda_attention_backward_wgmma_rate,
       .launch = tartan_cuda_attention_backward_wgmma},
      {.name = "attention_backward_fused",
       .refuses = tartan_cuda_attention_backward_fused_refuses,
       .rate = tartan_cuda_attention_backward_fused_rate,
       .launch = tartan_cuda_attention_backward_fused});

TABLE(attention_bias_gradient,
      {.name = "attention_bias_gradient_plain", .launch = tartan_cuda_attention_bias_gradient_plain});

TABLE(attention_merge, {.name = "attention_merge_plain", .launch = tartan_cuda_attention_merge_plain});
TABLE(block_softmax, {.name = "block_softmax_plain", .launch = tartan_cuda_block_softmax_plain});
TABLE(block_softmax_gradient,
      {.name = "block_softmax_gradient_plain", .launch = tartan_cuda_block_softmax_gradient_plain});

TABLE(window_pool, {.name = "window_pool_plain", .launch = tartan_cuda_window_pool_plain});
TABLE(window_gather, {.name = "window_gather_plain", .launch = tartan_cuda_window_gather_plain});
TABLE(window_scatter, {.name = "window_scatter_plain", .launch = tartan_cuda_window_scatter_plain});
TABLE(conv, {.name = "conv_plain", .rate = tartan_cuda_conv_plain_rate, .launch = tartan_cuda_conv_plain},
      {.name = "conv_wgmma",
       .refuses = tartan_cuda_conv_wgmma_refuses,
       .rate = tartan_cuda_conv_wgmma_rate,
       .launch = tartan_cuda_conv_wgmma});
TABLE(conv_filter_gradient,
      {.name = "conv_filter_gradient_plain",
       .rate = tartan_cuda_conv_filter_gradient_plain_rate,
       .launch = tartan_cuda_conv_filter_gradient_plain},
      {.name = "conv_filter_gradient_mma",
       .refuses = tartan_cuda_conv_filter_gradient_mma_refuses,
       .rate = tartan_cuda_conv_filter_gradient_mma_rate,
       .launch = tartan_cuda_conv_filter_gradient_mma});

TABLE(channel_linear, {.name = "channel_linear_plain", .launch = tartan_cuda_channel_linear_plain});
TABLE(channel_linear_gradient,
      {.name = "channel_linear_gradient_plain", .launch = tartan_cuda_channel_linear_gradient_plain});
TABLE(conv_normalize, {.name = "conv_normalize_plain", .launch = tartan_cuda_conv_normalize_plain});
TABLE(conv_normalize_gradient,
      {.name = "conv_normalize_gradient_plain", .launch = tartan_cuda_conv_normalize_gradient_plain});

const tartan_cuda_kernels *tartan_cuda_kernels_of(tartan_op_kind kind) {
    static const tartan_cuda_kernels *const all[TARTAN_OP_COUNT] = {
#define KERNELS(NAME, name) [TARTAN_OP_##NAME] = &tartan_cuda_##name##_kernels,
        TARTAN_CUDA_OPERATIONS(KERNELS)
#undef KERNELS
    };
    return all[kind];
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
