/* SPDX-License-Identifier: Apache-2.0
 * How the kernels conv_few and conv_filter_gradient_few divide convolutions of few positions. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_CONV_FEW_H
#define TARTAN_CUDA_CONV_FEW_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TARTAN_CUDA_FEW_POSITIONS = 64, /* of a CTA of conv_few */
    TARTAN_CUDA_FEW_SLOTS =
        32, /* of a block line that a CTA has, and of a block's other side that it takes at a time */
    TARTAN_CUDA_FEW_TAPS = 64,  /* lists of a line, at most */
    TARTAN_CUDA_FEW_SPLITS = 8, /* CTAs of a cluster */
    TARTAN_CUDA_FEW_TERMS = 256 /* positions for conv_filter_gradient_few */
};

/* CTAs of conv_few where each has all blocks of a line. */
double tartan_cuda_conv_few_ctas(const tartan_cuda_conv *p);

/* CTAs that share a line's blocks: a power of 2, so many that all SMs are busy, and each has two steps or more on average. */
int32_t tartan_cuda_conv_few_splits(const tartan_cuda_conv *p, int32_t processors);

#ifdef __cplusplus
}
#endif
#endif
