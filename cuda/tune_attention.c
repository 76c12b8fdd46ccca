/* SPDX-License-Identifier: Apache-2.0
 * Tuning of attention. */
#include "tune.h"

double tartan_cuda_attention_forward_plain_rate(const void *problem) {
    const tartan_cuda_attention *p = &((const tartan_cuda_attention_forward *)problem)->in;
    return p->dtype == TARTAN_F64 ? 2 : 4;
}

/* A CTA takes 64 or 128 rows, all with the merged list of the block rows in them. */
double tartan_cuda_attention_forward_wgmma_rate(const void *problem) {
    const tartan_cuda_attention *p = &((const tartan_cuda_attention_forward *)problem)->in;
    int32_t lines = 0;
    while (p->block_q << lines < 64) lines++;
    const double rate = p->block_q == 128 ? 550 : 450;
    return rate * p->figures.share[0][lines] / (1 << lines);
}

double tartan_cuda_attention_backward_plain_rate(const void *problem) {
    const tartan_cuda_attention *p = &((const tartan_cuda_attention_backward *)problem)->in;
    return p->dtype == TARTAN_F64 ? 1.5 : 3;
}

double tartan_cuda_attention_backward_wgmma_rate(const void *problem) {
    const tartan_cuda_attention *p = &((const tartan_cuda_attention_backward *)problem)->in;
    int32_t lines = 0;
    while (p->block_q << lines < 64) lines++;
    return 300 * p->figures.share[0][lines] / (1 << lines);
}
