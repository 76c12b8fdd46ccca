/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_few.h"

#include <math.h>

double tartan_cuda_conv_few_ctas(const tartan_cuda_conv *p) {
    const double positions =
        (double)p->entries * (double)p->to.size[0] * (double)p->to.size[1] * (double)p->to.size[2];
    return ceil(positions / TARTAN_CUDA_FEW_POSITIONS) * (double)p->to_slots.grid *
           ceil((double)p->to_slots.edge / TARTAN_CUDA_FEW_SLOTS);
}

int32_t tartan_cuda_conv_few_splits(const tartan_cuda_conv *p, int32_t processors) {
    const double ctas = tartan_cuda_conv_few_ctas(p),
                 steps = (double)p->layout->blocks *
                         ceil((double)p->from_slots.edge / TARTAN_CUDA_FEW_SLOTS) / (double)p->to_slots.grid;
    int32_t splits = 1;
    while (2 * splits <= TARTAN_CUDA_FEW_SPLITS && ctas * 2 * splits <= 2.0 * processors &&
           steps >= 2.0 * 2 * splits)
        splits *= 2;
    return splits;
}
