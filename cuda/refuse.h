/* SPDX-License-Identifier: Apache-2.0
 * What kernels cannot do, and why. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_REFUSE_H
#define TARTAN_CUDA_REFUSE_H

#include "chip.h"
#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The reason in static text, or NULL if the kernel can do the problem. */
typedef const char *tartan_cuda_refusal(const tartan_cuda_chip *chip, const void *problem);

/* Why kernels do not take an operation, in static text, or NULL; and, in problem_norms.c, one of those that can also be composed of
 * others. */
const char *tartan_cuda_op_refuses(const tartan_cuda_chip *chip, const tartan_op *op);
const char *tartan_cuda_whole_refuses(const tartan_cuda_chip *chip, const tartan_op *op);

/* problem: tartan_cuda_spmm */
tartan_cuda_refusal tartan_cuda_spmm_gather_refuses, tartan_cuda_spmm_simt_refuses,
    tartan_cuda_spmm_mma_refuses, tartan_cuda_spmm_wgmma_refuses, tartan_cuda_spmm_swapped_refuses,
    tartan_cuda_spmm_narrow_refuses, tartan_cuda_spmm_few_refuses, tartan_cuda_spmm_dense_refuses;
/* problem: tartan_cuda_sddmm */
tartan_cuda_refusal tartan_cuda_sddmm_gather_refuses, tartan_cuda_sddmm_mma_refuses,
    tartan_cuda_sddmm_wgmma_refuses;
/* problem: tartan_cuda_attention_forward */
tartan_cuda_refusal tartan_cuda_attention_forward_wgmma_refuses;
/* problem: tartan_cuda_attention_backward */
tartan_cuda_refusal tartan_cuda_attention_backward_wgmma_refuses,
    tartan_cuda_attention_backward_fused_refuses;
/* problem: tartan_cuda_conv */
tartan_cuda_refusal tartan_cuda_conv_depthwise_refuses, tartan_cuda_conv_pieces_refuses,
    tartan_cuda_conv_wgmma_refuses, tartan_cuda_conv_few_refuses, tartan_cuda_conv_dense_refuses;
/* problem: tartan_cuda_conv_filter_gradient */
tartan_cuda_refusal tartan_cuda_conv_filter_gradient_depthwise_refuses,
    tartan_cuda_conv_filter_gradient_pieces_refuses, tartan_cuda_conv_filter_gradient_mma_refuses,
    tartan_cuda_conv_filter_gradient_few_refuses, tartan_cuda_conv_filter_gradient_dense_refuses,
    tartan_cuda_conv_filter_gradient_wgmma_refuses;

#ifdef __cplusplus
}
#endif
#endif
