// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

extern "C" {
#include "kernels.h"
}

static const char *last = "";

std::string tartan_test::last_launch() {
    return last;
}

#define LAUNCH(name)                                                                                         \
    tartan_status tartan_cuda_##name(const char *, tartan_cuda_queue *, const void *) {                      \
        last = #name;                                                                                        \
        return TARTAN_OK;                                                                                    \
    }
LAUNCH(spmm_plain)
LAUNCH(spmm_gather)
LAUNCH(spmm_few)
LAUNCH(spmm_simt)
LAUNCH(spmm_mma)
LAUNCH(spmm_wgmma)
LAUNCH(spmm_swapped)
LAUNCH(spmm_narrow)
LAUNCH(spmm_dense)
LAUNCH(sddmm_plain)
LAUNCH(sddmm_gather)
LAUNCH(sddmm_mma)
LAUNCH(sddmm_wgmma)
LAUNCH(gate_gradient_plain)
LAUNCH(growth_score_plain)
LAUNCH(block_copy_plain)
LAUNCH(block_norms_plain)
LAUNCH(elementwise_plain)
LAUNCH(elements_plain)
LAUNCH(reduce_plain)
LAUNCH(compare_plain)
LAUNCH(cast_plain)
LAUNCH(update_plain)
LAUNCH(global_norm_plain)
LAUNCH(group_lasso_plain)
LAUNCH(adafactor_plain)
LAUNCH(muon_plain)
LAUNCH(quantize_stats_plain)
LAUNCH(attention_forward_plain)
LAUNCH(attention_forward_wgmma)
LAUNCH(attention_backward_plain)
LAUNCH(attention_backward_wgmma)
LAUNCH(attention_backward_fused)
LAUNCH(attention_bias_gradient_plain)
LAUNCH(attention_merge_plain)
LAUNCH(block_softmax_plain)
LAUNCH(block_softmax_gradient_plain)
LAUNCH(window_pool_plain)
LAUNCH(window_gather_plain)
LAUNCH(window_scatter_plain)
LAUNCH(conv_plain)
LAUNCH(conv_depthwise)
LAUNCH(conv_pieces)
LAUNCH(conv_wgmma)
LAUNCH(conv_filter_gradient_plain)
LAUNCH(conv_filter_gradient_depthwise)
LAUNCH(conv_filter_gradient_pieces)
LAUNCH(conv_filter_gradient_mma)
LAUNCH(channel_linear_plain)
LAUNCH(embedding_plain)
LAUNCH(embedding_gradient_plain)
LAUNCH(top_k_plain)
LAUNCH(top_k_softmax_plain)
LAUNCH(rectified_top_k_plain)
LAUNCH(rectified_top_k_gradient_plain)
LAUNCH(sparse_relu_plain)
LAUNCH(sparse_relu_gradient_plain)
LAUNCH(reduce_max_plain)
LAUNCH(take_along_plain)
LAUNCH(put_along_plain)
LAUNCH(scatter_rows_plain)
LAUNCH(scatter_rows_gradient_plain)
LAUNCH(segment_sum_plain)
LAUNCH(segment_sum_gradient_plain)
LAUNCH(softmax_plain)
LAUNCH(softmax_gradient_plain)
LAUNCH(log_softmax_plain)
LAUNCH(log_softmax_gradient_plain)
LAUNCH(cross_entropy_plain)
LAUNCH(cross_entropy_gradient_plain)
LAUNCH(channel_linear_gradient_plain)
LAUNCH(conv_normalize_plain)
LAUNCH(conv_normalize_gradient_plain)
#define NORM(name, ...) LAUNCH(name##_plain) LAUNCH(name##_gradient_plain)
#include "kernels/norms.def"
#undef NORM
LAUNCH(point1_plain)
LAUNCH(point1_gradient_plain)
LAUNCH(fused_plain)
LAUNCH(point2_plain)
LAUNCH(point2_gradient_plain)
