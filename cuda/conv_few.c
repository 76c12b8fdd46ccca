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
           steps >= 2.0 * splits)
        splits *= 2;
    return splits;
}

/* Rounds of the processors, each of so many steps, in the time of a step; a CTA takes five for all else (H200). */
static double cost_of(const tartan_cuda_chip *chip, const tartan_cuda_few_gradient *f, int64_t bytes) {
    enum { ALL_ELSE = 5, OWN = 1024 /* that the system adds to each CTA */, GROUPS_OF_SM = 8 };
    const int64_t room = (chip->shared_bytes + OWN) / (bytes + OWN), most = GROUPS_OF_SM / f->groups;
    const double ctas = (double)chip->processors * (double)(room < most ? room : most);
    return ceil(f->ctas / ctas) * (ALL_ELSE + ceil(f->steps / f->groups));
}

tartan_cuda_few_gradient tartan_cuda_few_gradient_of(const tartan_cuda_chip *chip,
                                                     const tartan_cuda_conv_filter_gradient *p) {
    const int32_t rows = p->rows.edge, cols = p->cols.edge;
    tartan_cuda_few_gradient f = {.edge = tartan_cuda_few_edge(rows > cols ? rows : cols)}, best = {0};
    f.row_pieces = (rows + f.edge - 1) / f.edge, f.col_pieces = (cols + f.edge - 1) / f.edge;
    const double positions =
        (double)p->entries * (double)p->out.size[0] * (double)p->out.size[1] * (double)p->out.size[2];
    f.steps = ceil(positions / TARTAN_CUDA_FEW_POSITIONS);
    f.ctas = ceil((double)p->layout->blocks * f.row_pieces * f.col_pieces / TARTAN_CUDA_FEW_PIECES(f.edge));
    double least = INFINITY;
    for (f.groups = 1; f.groups <= TARTAN_CUDA_FEW_GROUPS; f.groups *= 2) {
        f.stages = (int32_t)fmin(TARTAN_CUDA_FEW_STAGES(f.edge), ceil(f.steps / f.groups));
        const int64_t bytes = (int64_t)f.groups * f.stages * TARTAN_CUDA_FEW_STAGE(f.edge);
        if (bytes > chip->shared_bytes) break;
        const double cost = cost_of(chip, &f, bytes);
        if (cost < least) best = f, least = cost;
    }
    return best;
}
