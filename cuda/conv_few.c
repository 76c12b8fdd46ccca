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

/* In microseconds: what L2 gives all SMs, or the steps of a CTA one after another (H200). */
static double us_of(double bytes, double share, double step) {
    const double rate = 3.9e6; /* bytes a microsecond */
    return 4 + fmax(bytes / rate, 1 + share * step);
}

/* Steps of a line, on average. */
static double few_steps_of(const tartan_cuda_conv *p) {
    const double edge = tartan_cuda_few_edge(p->from_slots.edge);
    return (double)p->layout->blocks * ceil(p->from_slots.edge / edge) / (double)p->to_slots.grid * edge /
           TARTAN_CUDA_FEW_INNER;
}

int32_t tartan_cuda_conv_few_splits(const tartan_cuda_conv *p, int32_t processors) {
    const double ctas = tartan_cuda_conv_few_ctas(p), steps = few_steps_of(p);
    int32_t splits = 1;
    while (2 * splits <= TARTAN_CUDA_FEW_SPLITS && ctas * 2 * splits <= 2.0 * processors &&
           steps >= 2.0 * splits)
        splits *= 2;
    return splits;
}

/* How often all SMs are filled with CTAs of so many bytes. */
static double rounds_of(const tartan_cuda_chip *chip, const tartan_cuda_few_gradient *f) {
    enum { OWN = 1024 /* that the system adds to each CTA */, GROUPS_OF_SM = 8 };
    const int64_t bytes = (int64_t)f->groups * f->stages * TARTAN_CUDA_FEW_STAGE(f->edge),
                  room = (chip->shared_bytes + OWN) / (bytes + OWN), most = GROUPS_OF_SM / f->groups;
    return ceil(f->ctas / ((double)chip->processors * (double)(room < most ? room : most)));
}

/* Rounds of so many steps, in the time of a step; a CTA takes five for all else (H200). */
static double cost_of(const tartan_cuda_chip *chip, const tartan_cuda_few_gradient *f) {
    enum { ALL_ELSE = 5 };
    return rounds_of(chip, f) * (ALL_ELSE + ceil(f->steps / f->groups));
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
        if ((int64_t)f.groups * f.stages * TARTAN_CUDA_FEW_STAGE(f.edge) > chip->shared_bytes) break;
        const double cost = cost_of(chip, &f);
        if (cost < least) best = f, least = cost;
    }
    return best;
}

double tartan_cuda_few_gradient_us(const tartan_cuda_chip *chip, const tartan_cuda_few_gradient *f) {
    const double slots = TARTAN_CUDA_FEW_PIECES(f->edge) * f->edge, look_ups = f->edge == 8 ? 2 : 0,
                 rate = 3.8e6, bytes = f->ctas * f->steps * 2 * TARTAN_CUDA_FEW_POSITIONS * slots * 2;
    return 1.9 + look_ups + 0.5 * ceil(f->ctas / chip->processors) +
           fmax(bytes / rate, rounds_of(chip, f) * ceil(f->steps / f->groups));
}

/* ---- Gradients of filters by tiles of the dense gradient ---- */

tartan_cuda_dense_side tartan_cuda_dense_side_of(const tartan_cuda_slots *slots, int32_t tile) {
    tartan_cuda_dense_side s = {.blocks = slots->edge < tile ? tile / slots->edge : 1,
                                .pieces = (slots->edge + tile - 1) / tile};
    s.tiles = (int32_t)((slots->grid + s.blocks - 1) / s.blocks * s.pieces);
    return s;
}

/* Before and after its steps a CTA takes a part of an SM's time, less where it stores only a share of the sums; SMs that have more CTAs
 * than others decide. `used`: lines of a tile that have blocks, of which alone pixels are loaded (H200). */
static double dense_us_of(const tartan_cuda_chip *chip, const tartan_cuda_dense_gradient *f, double steps,
                          double used) {
    const double rate = 5.9e6, step = 0.46, ctas = f->tiles * f->splits,
                 of_sm = ceil(ctas / chip->processors),
                 room = floor((double)(chip->shared_bytes + 1024) / (double)(f->shared + 1024)),
                 rounds = ceil(of_sm / fmin(TARTAN_CUDA_DENSE_CTAS, room)),
                 bytes = f->tiles * steps * 2 * TARTAN_CUDA_FEW_POSITIONS * TARTAN_CUDA_DENSE_SLOTS * 2;
    return 3.6 + of_sm * (0.35 + 0.4 / f->splits) +
           fmax(bytes * (0.5 + 0.5 * used) / rate, rounds * f->share * step);
}

tartan_cuda_dense_gradient tartan_cuda_dense_gradient_of(const tartan_cuda_chip *chip,
                                                         const tartan_cuda_conv_filter_gradient *p) {
    const double positions = (double)p->entries * (double)p->out.size[0] * (double)p->out.size[1] *
                             (double)p->out.size[2],
                 steps = ceil(positions / TARTAN_CUDA_FEW_POSITIONS),
                 density = (double)p->layout->blocks /
                           ((double)p->taps.taps * (double)p->rows.grid * (double)p->cols.grid);
    tartan_cuda_dense_gradient best = {.us = INFINITY};
    for (int32_t splits = 1; splits <= TARTAN_CUDA_FEW_SPLITS; splits *= 2) {
        tartan_cuda_dense_gradient f = {.splits = splits,
                                        .row = tartan_cuda_dense_side_of(&p->rows, TARTAN_CUDA_DENSE_SLOTS),
                                        .col = tartan_cuda_dense_side_of(&p->cols, TARTAN_CUDA_DENSE_SLOTS)};
        f.tiles = (double)p->taps.taps * f.row.tiles * f.col.tiles;
        const double share = ceil(steps / splits);
        /* Rounding up may leave one CTA of a cluster without steps, never two. */
        if (share > TARTAN_CUDA_DENSE_SHARE || share * (splits - 2) >= steps) continue;
        f.share = (int32_t)share;
        /* As many stages as let all CTAs that an SM may have run at once. */
        const int64_t places = f.share * TARTAN_CUDA_FEW_POSITIONS * 8,
                      together =
                          (int64_t)fmin(ceil(f.tiles * splits / chip->processors), TARTAN_CUDA_DENSE_CTAS);
        for (f.stages = (int32_t)fmin(TARTAN_CUDA_DENSE_STAGES, share);; f.stages = 2) {
            f.shared = f.stages * TARTAN_CUDA_DENSE_STAGE + places;
            if (f.stages <= 2 || (f.shared + 1024) * together <= chip->shared_bytes + 1024) break;
        }
        f.us = dense_us_of(chip, &f, steps, 1 - pow(1 - fmin(density, 1), fmin(f.row.blocks, f.col.blocks)));
        if (f.us < best.us) best = f;
    }
    return best;
}

/* ---- Convolutions whose weights are multiplied as a dense filter's ---- */

/* Of CTAs that take steps of 64 positions and `slots` slots of `to`; `step`: of the CTAs of an SM, for each. */
static double conv_us_of(double ctas, double splits, double steps, double slots, double step) {
    const double bytes = ctas * steps * (TARTAN_CUDA_FEW_POSITIONS + slots) * TARTAN_CUDA_FEW_INNER * 2;
    return us_of(bytes, ceil(steps / splits), step);
}

double tartan_cuda_conv_few_us(const tartan_cuda_chip *chip, const tartan_cuda_conv *p) {
    return conv_us_of(tartan_cuda_conv_few_ctas(p), tartan_cuda_conv_few_splits(p, chip->processors),
                      few_steps_of(p), TARTAN_CUDA_FEW_SLOTS, 0.4);
}

tartan_cuda_dense_conv tartan_cuda_dense_conv_of(const tartan_cuda_chip *chip, const tartan_cuda_conv *p) {
    tartan_cuda_dense_conv f = {.from = tartan_cuda_dense_side_of(&p->from_slots, TARTAN_CUDA_DENSE_SLOTS),
                                .to = tartan_cuda_dense_side_of(&p->to_slots, TARTAN_CUDA_DENSE_SLOTS)};
    const double positions = (double)p->entries * (double)p->to.size[0] * (double)p->to.size[1] *
                             (double)p->to.size[2],
                 taps = (double)p->taps.taps,
                 density = (double)p->layout->blocks /
                           (taps * (double)p->from_slots.grid * (double)p->to_slots.grid),
                 used = 1 - pow(1 - fmin(density, 1), f.from.blocks * f.to.blocks); /* steps with blocks */
    f.ctas = ceil(positions / TARTAN_CUDA_FEW_POSITIONS) * f.to.tiles;
    f.steps = (int32_t)fmin(taps * f.from.tiles, INT32_MAX / 2);
    f.splits = 1;
    while (2 * f.splits <= TARTAN_CUDA_FEW_SPLITS && f.ctas * 2 * f.splits <= 2.0 * chip->processors &&
           f.steps >= 4 * f.splits && (2 * f.splits - 1) * ((f.steps - 1) / (2 * f.splits) + 1) < f.steps)
        f.splits *= 2;
    f.share = (f.steps + f.splits - 1) / f.splits;
    const double of_sm = ceil(f.ctas * f.splits / chip->processors);
    f.us = conv_us_of(f.ctas, f.splits, f.steps * used, TARTAN_CUDA_DENSE_SLOTS * density,
                      fmax(0.8, 0.45 * of_sm));
    return f;
}
