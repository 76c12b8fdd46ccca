/* SPDX-License-Identifier: Apache-2.0
 * The problems of normalisation of channels. */
#include "backend/operation.h"
#include "dtype.h"
#include "problem.h"

#include <string.h>

enum { MOST_THREADS = 512 }; /* of a CTA */

static int64_t shares_of(int64_t all, int64_t each) {
    return (all + each - 1) / each;
}

/* CTAs of a cluster; more than 8 are not portable. */
static int32_t most_ctas(const tartan_cuda_chip *chip) {
    enum { LARGE_CHIP = 100 };
    return chip->major != 9 ? 1 : chip->processors < LARGE_CHIP ? 8 : 16;
}

/* Of runs a thread has the same unit in several images. */
static tartan_cuda_channel_shares share_runs(const tartan_cuda_chip *chip,
                                             const tartan_cuda_channel_norm *p) {
    enum { THREADS = 256 };
    const int64_t run = p->run, images = p->sweep.axes[TARTAN_CUDA_SUMMED].elements / run,
                  kept = TARTAN_CUDA_CHANNEL_ACCESSES / p->inputs;
    const int32_t most = most_ctas(chip);
    tartan_cuda_channel_shares c = {
        .ctas = 1, .wide = 1, .clusters = p->sweep.axes[TARTAN_CUDA_KEPT].elements};
    int64_t together = (run > THREADS ? MOST_THREADS : THREADS) / run;
    if (together > images) together = images;
    c.rows = (int32_t)(together * run);
    c.threads = (c.rows + 31) / 32 * 32;
    for (;; c.ctas *= 2) {
        const int64_t each = together > 0 ? shares_of(images, together * c.ctas) : INT64_MAX;
        if (each <= kept && (each == 1 || c.ctas == most || 2 * c.clusters * c.ctas > chip->processors))
            return c;
        if (c.ctas == most) break;
    }
    c.ctas = 0;
    return c;
}

tartan_cuda_channel_shares tartan_cuda_share_channels(const tartan_cuda_chip *chip,
                                                      const tartan_cuda_channel_norm *p) {
    enum { THREADS = 256, WIDE = 8, WIDE_BYTES = 64 };
    if (p->run > 0) return share_runs(chip, p);
    const int64_t numbers = p->sweep.axes[TARTAN_CUDA_SUMMED].elements,
                  channels = p->sweep.axes[TARTAN_CUDA_KEPT].elements,
                  kept = TARTAN_CUDA_CHANNEL_ACCESSES / p->inputs;
    const int32_t most = most_ctas(chip);
    tartan_cuda_channel_shares c = {.ctas = 1, .threads = THREADS, .wide = 1};
    const int32_t bytes = p->sweep.unit * tartan_cuda_bytes_of(p->sweep.array[0].dtype);
    while (p->across && c.wide < WIDE && c.wide * bytes < WIDE_BYTES && c.wide < channels) c.wide *= 2;
    c.clusters = shares_of(channels, c.wide);
    while (c.threads > 32 && c.threads / 2 >= numbers * c.wide) c.threads /= 2;
    /* As many CTAs as SMs, if there is an access for each thread: clusters that wait for others to end would take twice as long. */
    for (;; c.ctas *= 2) {
        const int64_t each = shares_of(numbers, (int64_t)c.threads / c.wide * c.ctas);
        if (each <= kept && (each == 1 || c.ctas == most || 2 * c.clusters * c.ctas > chip->processors))
            break;
        if (c.ctas < most) continue;
        const bool fits = shares_of(numbers, (int64_t)MOST_THREADS / c.wide * most) <= kept;
        c.ctas = fits || (p->sweep.unit == 1 && !p->across) ? most : 0;
        c.threads = MOST_THREADS;
        break;
    }
    c.rows = c.threads / c.wide;
    return c;
}

void tartan_cuda_join_runs(const tartan_cuda_chip *chip, tartan_cuda_channel_norm *p) {
    enum { LEAST = 1 << 18 }; /* fewer numbers are as fast one by one, or faster (H200) */
    tartan_cuda_channel_norm joined = *p;
    const int64_t run = p->sweep.axes[TARTAN_CUDA_SUMMED].length[0];
    if (p->any || p->across || p->terms * p->channels < LEAST || run > MOST_THREADS ||
        !tartan_cuda_sweep_join_lines(&joined.sweep))
        return;
    joined.run = (int32_t)run;
    if (tartan_cuda_share_channels(chip, &joined).ctas > 0) *p = joined;
}

/* Single elements that do not lie side by side in all arrays are faster in several launches from so many on (H200). */
enum { MOST_SINGLES = (1 << 20) - 1 };

static tartan_cuda_channel_norm channels_of(const tartan_array *x, const tartan_array *gain,
                                            const tartan_array *stats, const tartan_array *second,
                                            const tartan_array *third, int32_t inputs) {
    enum { MOST_CHANNELS = INT32_MAX / 16 };
    const int64_t channels = x->shape[1], all = tartan_i_array_elements(x);
    tartan_cuda_channel_norm p = {.channels = channels,
                                  .terms = channels > 0 ? all / channels : 0,
                                  .inputs = inputs,
                                  .gain = tartan_cuda_line_numbers_of(gain)};
    tartan_cuda_sweeping of = {.ndim = x->ndim,
                               .summed = ((1u << x->ndim) - 1) & ~2u,
                               .count = 3,
                               .keep_direction = true,
                               .array = {x, second, third}};
    memcpy(of.shape, x->shape, sizeof of.shape);
    p.sweep = tartan_cuda_sweep_of(&of);
    p.across = p.sweep.inner == TARTAN_CUDA_KEPT && channels > 1;
    if (stats != NULL) {
        p.stats = (tartan_cuda_line_numbers){stats->data, stats->strides[0]};
        p.stats_step = stats->strides[1];
    }
    if (all == 0) {
        p.why = "there are no numbers";
        return p;
    }
    const tartan_cuda_sweep *single = &p.sweep;
    tartan_cuda_sweep units = p.sweep;
    bool alike = true, side_by_side = true;
    for (int32_t i = 0; i < single->count; i++) {
        const tartan_cuda_swept *a = &single->array[i];
        if (a->data == NULL) continue;
        alike = alike && a->dtype == x->dtype;
        side_by_side = side_by_side && a->step[single->inner][0] == 1;
    }
    p.any = !alike || units.axes[TARTAN_CUDA_SUMMED].ndim > 2;
    if (!p.any) tartan_cuda_sweep_choose_unit(&units, 3, TARTAN_CUDA_UNITS_ALIKE);
    if (units.unit > 1 && units.rest == 0)
        p.sweep = units;
    else if (all > MOST_SINGLES && !side_by_side)
        p.why = "only for fewer than 2^20 numbers, or such as lie side by side in all arrays";
    if (channels > MOST_CHANNELS) p.why = "there are more than 2^27 channels";
    return p;
}

const char *tartan_cuda_channels_refuse(const tartan_cuda_chip *chip, const tartan_cuda_channel_norm *p) {
    if (p->why != NULL || tartan_cuda_share_channels(chip, p).ctas > 0) return p->why;
    return "channels have more numbers than a cluster of CTAs keeps";
}

tartan_status tartan_cuda_batch_norm_of(const tartan_host *host, const tartan_context *context,
                                        const void *of, void *to) {
    const tartan_op_batch_norm *op = of;
    tartan_cuda_channel_norm *out = to;
    (void)host, (void)context;
    *out = channels_of(op->x, op->gain, op->stats, op->y, NULL, 1);
    out->bias = tartan_cuda_line_numbers_of(op->bias);
    out->epsilon = op->epsilon;
    return TARTAN_OK;
}

tartan_status tartan_cuda_batch_norm_gradient_of(const tartan_host *host, const tartan_context *context,
                                                 const void *of, void *to) {
    const tartan_op_batch_norm_gradient *op = of;
    tartan_cuda_channel_norm *out = to;
    (void)host, (void)context;
    *out = channels_of(op->x, op->gain, op->stats, op->y_grad, op->x_grad, 2);
    out->gain_grad = tartan_cuda_line_numbers_of(op->gain_grad);
    out->bias_grad = tartan_cuda_line_numbers_of(op->bias_grad);
    return TARTAN_OK;
}
