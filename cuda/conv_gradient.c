/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_gradient.h"

#include <math.h>

static int64_t up(int64_t x, int64_t unit) {
    return (x + unit - 1) / unit;
}
static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Positions from a row to the next. A tap reads what follows a row of x as the beginning of the next row, so both must be zeros:
 * outside of the image. Or the pitch has room for all that taps read. */
static int64_t pitch_of(const tartan_cuda_conv_filter_gradient *p, const tartan_cuda_gradient_form *f) {
    const int64_t width = p->out.size[2], before = p->taps.before[2], dilation = p->taps.dilation[2];
    if (!f->shared) return width;
    const int64_t reach = (f->tap_cols - 1) * dilation,
                  last = (p->taps.kernel[2] - 1) / f->tap_cols * f->tap_cols * dilation,
                  wrapped = larger(larger(p->in.size[2] + before, width + reach + last - before),
                                   (width + reach + 1) / 2);
    return larger(width, wrapped < width + reach ? wrapped : width + reach);
}

bool tartan_cuda_gradient_form_complete(const tartan_cuda_conv_filter_gradient *p,
                                        tartan_cuda_gradient_form *f) {
    const tartan_cuda_taps *t = &p->taps;
    f->tap_rows = f->groups, f->tap_cols = t->kernel[2] == 1 ? 1 : f->products;
    f->shared = t->stride[2] == 1 && f->tap_cols > 1;
    f->cols = 1;
    if (t->kernel[2] == 1) f->cols = (int32_t)up(f->col.tiles, up(f->col.tiles, f->products));
    const int64_t pitch = pitch_of(p, f), box_rows = f->rows + (f->groups - 1) * t->dilation[1],
                  positions = pitch * f->rows * f->images,
                  reach = f->shared ? (f->tap_cols - 1) * t->dilation[2] : 0;
    if (pitch * t->stride[2] > TARTAN_CUDA_GRADIENT_BOX || box_rows * t->stride[1] > TARTAN_CUDA_GRADIENT_BOX)
        return false;
    f->pitch = (int32_t)pitch, f->box_rows = (int32_t)box_rows;
    f->steps = (int32_t)up(positions, 16);
    const int64_t x_positions = larger(box_rows * pitch * f->images,
                                       16 * f->steps + (f->groups - 1) * t->dilation[1] * pitch + reach),
                  boxes = f->shared ? 1 : f->products; /* some may have no use */
    f->y_bytes = 16 * f->steps * TARTAN_CUDA_GRADIENT_LINE;
    f->x_bytes = (int32_t)up(x_positions, 8) * 8 * TARTAN_CUDA_GRADIENT_LINE;
    f->stage_bytes = f->y_bytes + (int32_t)boxes * f->x_bytes;
    f->strips = (int32_t)up(p->out.size[1], f->rows);
    const double all = (double)up(p->entries, f->images) * (double)p->out.size[0] * f->strips;
    if (all > INT32_MAX) return false;
    f->all = (int32_t)all;
    f->jobs = (double)t->kernel[0] * (double)up(t->kernel[1], f->tap_rows) *
              (double)up(t->kernel[2], f->tap_cols) * f->row.tiles * (double)up(f->col.tiles, f->cols);
    return true;
}

/* CTAs that run at once: a cluster has the SMs of one GPC, which are 16, or a few more. */
static double at_once(const tartan_cuda_chip *chip, int32_t splits, double of_sm) {
    enum { GPC = 16 };
    if (splits == 1) return chip->processors * of_sm;
    return floor(GPC * of_sm / splits) * splits * floor(chip->processors / GPC);
}

/* In microseconds (H200). `ctas`: that have blocks; `most`: that an SM has room for. */
static double us_of(const tartan_cuda_chip *chip, const tartan_cuda_conv_filter_gradient *p,
                    const tartan_cuda_gradient_form *f, double ctas, double most) {
    const double rounds = ceil(ctas / at_once(chip, f->splits, most)),
                 of_sm = fmin(most, ceil(ctas / rounds / chip->processors));
    /* Of a stage: products of all CTAs of an SM, or of a warpgroup that waits for each; bytes. */
    const double cycle = 1 / 1750.0, l2 = 5.6e6, sm = 80e3, /* bytes a microsecond: of all, of an SM */
        boxes = f->shared ? 1 : f->tap_cols * f->cols,
                 loaded = (double)f->pitch * TARTAN_CUDA_GRADIENT_LINE * f->images *
                          (f->rows + boxes * f->box_rows),
                 multiply =
                     cycle * f->steps * fmax(34.0 * f->groups * f->products * of_sm, 32.0 * f->products + 30),
                 load = loaded * fmax(ctas / rounds / l2, of_sm / sm), stage = 0.1 + fmax(multiply, load);
    const double memory = 3.3e6, bytes = 2.0 * (double)p->entries *
                                         ((double)p->in.channels * (double)p->in.size[0] *
                                              (double)p->in.size[1] * (double)p->in.size[2] +
                                          (double)p->out.channels * (double)p->out.size[0] *
                                              (double)p->out.size[1] * (double)p->out.size[2]);
    const double store = f->groups > 1 ? 4.5 + 2.0 / f->splits : f->products * (0.1 + 1.7 / f->splits);
    return 8.5 + fmax(rounds * (1 + f->share * stage + store * sqrt(of_sm)), bytes / memory);
}

/* Chooses splits and stages for a form, and leaves the best one in *best; false if the form does not fit. */
static bool divide(const tartan_cuda_chip *chip, const tartan_cuda_conv_filter_gradient *p,
                   tartan_cuda_gradient_form f, double used, tartan_cuda_gradient_form *best) {
    enum {
        OWN = 1024 /* that the system adds to each CTA */,
        FIXED = 4096 /* blocks, barriers, alignment */
    };
    const int64_t sums = (int64_t)f.groups * f.products * TARTAN_CUDA_GRADIENT_SUMS;
    bool fits = false;
    for (f.splits = 1; f.splits <= TARTAN_CUDA_FEW_SPLITS; f.splits *= 2) {
        f.share = (int32_t)up(f.all, f.splits);
        if (f.splits > 1 && (f.splits - 1) * (int64_t)f.share >= f.all) continue; /* one has nothing to do */
        for (int32_t most = f.groups > 1 ? 1 : TARTAN_CUDA_GRADIENT_CTAS; most > 0; most--) {
            const int64_t room = (chip->shared_bytes + OWN) / most - OWN - FIXED;
            f.stages = (int32_t)(room / f.stage_bytes);
            if (f.stages > TARTAN_CUDA_GRADIENT_STAGES) f.stages = TARTAN_CUDA_GRADIENT_STAGES;
            if (f.stages > f.share) f.stages = f.share;
            if (room < sums || f.stages < (f.share < 2 ? f.share : 2)) continue;
            f.bytes = larger((int64_t)f.stages * f.stage_bytes, sums) + FIXED;
            fits = true;
            f.us = us_of(chip, p, &f, used * f.splits, most);
            if (f.us < best->us) *best = f;
        }
    }
    return fits;
}

/* Fills in what comes before all else; false if there is no such form. */
static bool begin(const tartan_cuda_conv_filter_gradient *p, int32_t groups, int32_t products,
                  tartan_cuda_gradient_form *f) {
    const tartan_cuda_taps *t = &p->taps;
    *f = (tartan_cuda_gradient_form){.row = tartan_cuda_dense_side_of(&p->rows, TARTAN_CUDA_DENSE_SLOTS),
                                     .col = tartan_cuda_dense_side_of(&p->cols, TARTAN_CUDA_DENSE_SLOTS),
                                     .groups = groups,
                                     .products = products};
    const bool strided = t->stride[1] != 1 || t->stride[2] != 1;
    if (products == 1) return groups == 1 && t->kernel[2] == 1;
    if (t->kernel[2] == 1) return groups == 1 && f->col.tiles > 1;
    return groups == 1 || (t->kernel[1] > 1 && !strided);
}

/* Tries some numbers of rows and images. */
static void search(const tartan_cuda_chip *chip, const tartan_cuda_conv_filter_gradient *p,
                   tartan_cuda_gradient_form f, tartan_cuda_gradient_form *best) {
    enum { TRIED = 4 };
    const int64_t height = p->out.size[1];
    const double density =
        (double)p->layout->blocks / ((double)p->taps.taps * (double)p->rows.grid * (double)p->cols.grid);
    f.rows = 0;
    for (int64_t parts = 1, tried = 0; parts <= height && tried < TRIED; parts++) {
        if (up(height, parts) == f.rows) continue;
        f.rows = (int32_t)up(height, parts);
        const bool whole = parts == 1 && f.groups == 1 && p->out.size[0] == 1;
        bool fits = false;
        for (f.images = 1; f.images <= (whole ? 4 : 1) && f.images <= p->entries; f.images *= 2) {
            if (!tartan_cuda_gradient_form_complete(p, &f)) continue;
            /* Clusters that have blocks: at most, as a rule, since a few more might wait for all others. */
            const double used = 1 - pow(1 - fmin(density, 1), (double)f.row.blocks * f.col.blocks * f.cols),
                         few = fmin(f.row.tiles * up(f.col.tiles, f.cols), 1e6),
                         spread = f.row.blocks * f.col.blocks * f.cols > 1
                                      ? 1.5 * sqrt(used * (1 - used) / few)
                                      : 0;
            fits |= divide(chip, p, f, ceil(f.jobs * fmin(used + spread, 1) - 0.01), best);
        }
        tried += fits;
    }
}

tartan_cuda_gradient_form tartan_cuda_gradient_form_of(const tartan_cuda_chip *chip,
                                                       const tartan_cuda_conv_filter_gradient *p) {
    tartan_cuda_gradient_form f, best = {.us = INFINITY};
    for (int32_t groups = 1; groups <= TARTAN_CUDA_GRADIENT_GROUPS; groups += 2)
        for (int32_t products = 1; products <= TARTAN_CUDA_GRADIENT_PRODUCTS; products += 2)
            if (begin(p, groups, products, &f)) search(chip, p, f, &best);
    return best;
}
