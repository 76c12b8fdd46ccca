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

/* ---- Gradients of filters by tiles of the dense gradient ---- */

static tartan_cuda_dense_side side_of(const tartan_cuda_slots *slots, int32_t tile) {
    tartan_cuda_dense_side s = {.blocks = slots->edge < tile ? tile / slots->edge : 1,
                                .pieces = (slots->edge + tile - 1) / tile};
    s.tiles = (int32_t)((slots->grid + s.blocks - 1) / s.blocks * s.pieces);
    return s;
}

/* Rounds of the SMs, and what these read (H200). */
static double dense_cost_of(const tartan_cuda_chip *chip, const tartan_cuda_dense_gradient *f, double steps) {
    const bool large = f->tile == 128;
    const double most = large ? 2 : 4, room = floor((double)(228 * 1024) / (double)(f->shared + 1024)),
                 at_once = fmin(most, room), ctas = f->tiles * f->splits,
                 of_sm = ceil(ctas / chip->processors), rounds = ceil(of_sm / at_once),
                 together = fmin(of_sm, at_once);
    const double step = (large ? 0.6 : 0.22) * fmax(together, large ? 1 : 1.5),
                 bytes = f->tiles * steps * 2 * TARTAN_CUDA_FEW_POSITIONS * f->tile * 2;
    return 3 + 0.5 * f->splits / 8 + rounds * (1 + fmax(f->share * step, bytes / 5e6 / rounds));
}

tartan_cuda_dense_gradient tartan_cuda_dense_gradient_of(const tartan_cuda_chip *chip,
                                                         const tartan_cuda_conv_filter_gradient *p) {
    const double positions = (double)p->entries * (double)p->out.size[0] * (double)p->out.size[1] *
                             (double)p->out.size[2],
                 steps = ceil(positions / TARTAN_CUDA_FEW_POSITIONS);
    tartan_cuda_dense_gradient best = {.cost = INFINITY};
    for (int32_t tile = 64; tile <= 128; tile *= 2)
        for (int32_t splits = 1; splits <= TARTAN_CUDA_FEW_SPLITS && splits <= steps; splits *= 2) {
            tartan_cuda_dense_gradient f = {.tile = tile, .splits = splits};
            f.row = side_of(&p->rows, tile), f.col = side_of(&p->cols, tile);
            f.tiles = (double)p->taps.taps * f.row.tiles * f.col.tiles;
            const double share = ceil(steps / splits);
            if (share > TARTAN_CUDA_DENSE_SHARE) continue;
            f.share = (int32_t)share;
            f.stages = (int32_t)fmin(TARTAN_CUDA_DENSE_STAGES(tile), share);
            const int64_t bytes = f.stages * TARTAN_CUDA_DENSE_STAGE(tile),
                          sums = TARTAN_CUDA_DENSE_SUMS(tile);
            f.shared = (bytes > sums ? bytes : sums) + f.share * TARTAN_CUDA_FEW_POSITIONS * 8;
            if (f.shared > chip->shared_bytes) continue;
            f.cost = dense_cost_of(chip, &f, steps);
            if (f.cost < best.cost) best = f;
        }
    return best;
}
