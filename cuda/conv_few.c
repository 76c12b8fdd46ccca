/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_few.h"

#include <math.h>

int32_t tartan_cuda_few_edge(int32_t edge) {
    return edge == 8 || edge == 16 ? edge : TARTAN_CUDA_FEW_SLOTS;
}

double tartan_cuda_conv_few_ctas(const tartan_cuda_conv *p) {
    const double positions =
        (double)p->entries * (double)p->to.size[0] * (double)p->to.size[1] * (double)p->to.size[2];
    return ceil(positions / TARTAN_CUDA_FEW_POSITIONS) * (double)p->to_slots.grid *
           ceil((double)p->to_slots.edge / TARTAN_CUDA_FEW_SLOTS);
}

int32_t tartan_cuda_conv_few_splits(const tartan_cuda_conv *p, int32_t processors) {
    const double ctas = tartan_cuda_conv_few_ctas(p),
                 steps = (double)p->layout->blocks *
                         ceil((double)p->from_slots.edge / TARTAN_CUDA_FEW_SLOTS) / (double)p->to_slots.grid /
                         TARTAN_CUDA_FEW_SLOTS * tartan_cuda_few_edge(p->from_slots.edge);
    int32_t splits = 1;
    while (2 * splits <= TARTAN_CUDA_FEW_SPLITS && ctas * 2 * splits <= 2.0 * processors &&
           steps >= 2.0 * 2 * splits)
        splits *= 2;
    return splits;
}

tartan_cuda_few_gradient tartan_cuda_few_gradient_of(const tartan_cuda_chip *chip,
                                                     const tartan_cuda_conv_filter_gradient *p) {
    enum { GROUPS_OF_SM = 8 };
    const int32_t rows = p->rows.edge, cols = p->cols.edge;
    tartan_cuda_few_gradient f = {.edge = tartan_cuda_few_edge(rows > cols ? rows : cols), .groups = 1};
    f.row_pieces = (rows + f.edge - 1) / f.edge, f.col_pieces = (cols + f.edge - 1) / f.edge;
    const double positions =
        (double)p->entries * (double)p->out.size[0] * (double)p->out.size[1] * (double)p->out.size[2];
    f.steps = ceil(positions / TARTAN_CUDA_FEW_POSITIONS);
    f.ctas = ceil((double)p->layout->blocks * f.row_pieces * f.col_pieces / (f.edge == 32 ? 1 : 4));
    const int64_t stage = TARTAN_CUDA_FEW_STAGE(f.edge), most = TARTAN_CUDA_FEW_STAGES(f.edge);
    while (2 * f.groups <= TARTAN_CUDA_FEW_GROUPS && f.groups < f.steps &&
           f.ctas * 2 * f.groups <= (double)GROUPS_OF_SM * chip->processors &&
           2 * f.groups * most * stage <= chip->shared_bytes)
        f.groups *= 2;
    f.stages = (int32_t)fmin((double)most, ceil(f.steps / f.groups));
    return f;
}
