/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of convolution cannot do. */
#include "conv_few.h"
#include "conv_gradient.h"
#include "conv_jobs.h"
#include "conv_pieces.h"
#include "conv_steps.h"
#include "dtype.h"
#include "refuse.h"
#include "tune.h"

#include <math.h>

static bool is_small(const tartan_cuda_image *x) {
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        if (x->size[d] > TARTAN_CUDA_IMAGE_SIDE) return false;
    return true;
}

const char *tartan_cuda_conv_wgmma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_conv *p = problem;
    const tartan_cuda_slots *from = &p->from_slots, *to = &p->to_slots;
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    if (p->dtype != TARTAN_F32 && !tartan_cuda_is_half(p->dtype))
        return "only for float32, float16 and bfloat16";
    if (p->from.dtype != p->dtype) return "only for images of the filter's dtype";
    for (int32_t d = 1; d < TARTAN_I_DIMS; d++)
        if (!p->adjoint && p->taps.stride[d] > TARTAN_CUDA_CONV_STRIDE) return "only for strides up to 8";
    if (p->adjoint && (double)p->taps.stride[0] * (double)p->taps.stride[1] * (double)p->taps.stride[2] >
                          TARTAN_CUDA_CONV_PHASES)
        return "input gradients only of strides with a product up to 16";
    if (from->channels->of != NULL || to->channels->of != NULL) return "only for channels without sets";
    if (from->edge % 8 != 0 || to->edge % 8 != 0) return "only for blocks whose edges are multiples of 8";
    if (p->from.channels % 8 != 0) return "only for multiples of 8 channels to read";
    if (p->layout->blocks == 0) return "the layout has no blocks";
    if (p->from.size[0] * p->from.size[1] * p->from.size[2] == 0) return "x has no elements";
    if (!is_small(&p->from) || !is_small(&p->to) || p->entries > INT32_MAX)
        return "only for images of fewer than 2^30 pixels a side";
    if ((uintptr_t)p->values % 16 != 0) return "the filter's address is no multiple of 16 bytes";
    if ((double)p->layout->blocks * from->edge * to->edge * tartan_cuda_bytes_of(p->dtype) / 16 > INT32_MAX)
        return "only for filters of less than 32 GiB";
    const tartan_cuda_conv_form form = tartan_cuda_conv_form_of(p);
    const tartan_layout *active = p->active_from ? NULL : p->active.layout;
    double planes = (double)p->entries * (double)p->to.size[0];
    if (active != NULL && tartan_cuda_conv_spreads(p) > 1)
        return "input gradients with strides only of whole images";
    if (active != NULL) {
        planes = (double)active->blocks * (double)p->active.size[0];
        if ((double)active->shape.heads * (double)active->grid_rows * (double)active->grid_cols > 2e9)
            return "only for fewer than 2e9 windows";
    }
    if (planes * form.row_blocks * form.strips * (double)(to->grid * to->edge / TARTAN_CUDA_CONV_GROUP + 1) *
            (double)tartan_cuda_conv_spreads(p) * form.splits >
        2e9)
        return "only for fewer than 2e9 tiles";
    return NULL;
}

/* Whether pieces of 16 bytes, or smaller ones where a position has less, can be counted in 32 bits. */
static bool has_few_pieces(const tartan_cuda_image *x, int64_t entries, const tartan_cuda_slots *slots) {
    const double bytes = (double)slots->grid * slots->edge * tartan_cuda_bytes_of(x->dtype);
    return (double)entries * (double)x->size[0] * (double)x->size[1] * (double)x->size[2] * (bytes / 16 + 1) <
           INT32_MAX;
}

/* What both kernels count in 32 bits; `phases`: of positions of `to`. */
static const char *refuses_pieces(const tartan_cuda_chip *chip, const tartan_layout *layout,
                                  const tartan_cuda_taps *taps, const tartan_cuda_image *from,
                                  const tartan_cuda_image *to, int64_t entries,
                                  const tartan_cuda_active *active, double slots, double phases) {
    const tartan_shape *s = &layout->shape;
    double positions = (double)entries;
    if (chip->shared_bytes < TARTAN_CUDA_PIECES_SHARED) return "needs more shared memory than a CTA may have";
    if (layout->blocks == 0) return "the layout has no blocks";
    if (from->size[0] * from->size[1] * from->size[2] == 0) return "x has no elements";
    if (!is_small(from) || !is_small(to) || entries > INT32_MAX)
        return "only for images of fewer than 2^30 pixels a side";
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        positions *= (double)to->size[d];
        if ((double)taps->kernel[d] * (double)taps->dilation[d] + (double)taps->before[d] > 1 << 30)
            return "only for filters of fewer than 2^30 pixels a side";
    }
    if (active != NULL && active->layout != NULL)
        positions = (double)active->layout->blocks * (double)active->size[0] * (double)active->size[1] *
                    (double)active->size[2];
    if (positions > INT32_MAX) return "only for fewer than 2^31 positions";
    if ((double)layout->blocks * (double)s->block_rows * (double)s->block_cols > 1 << 30 ||
        (double)layout->grid_cols * (double)s->block_cols > 1 << 28)
        return "only for filters of up to 2^30 weights and 2^28 columns";
    if ((positions / TARTAN_CUDA_PIECES_POSITIONS + phases) * (slots / 16 + 1) > 2e9)
        return "only for fewer than 2e9 tiles";
    return NULL;
}

const char *tartan_cuda_conv_pieces_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_conv *p = problem;
    const tartan_cuda_active *active = p->active_from ? NULL : &p->active;
    double phases = 1;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        if (p->adjoint) phases *= (double)p->taps.stride[d];
    if (phases > TARTAN_CUDA_PIECES_PHASES) return "only for strides with a product up to 512";
    if (phases > 1 && active != NULL && active->layout != NULL)
        return "input gradients with strides only of whole images";
    if (!has_few_pieces(&p->from, p->entries, &p->from_slots))
        return "only for images of fewer than 2^31 pieces of 16 bytes";
    return refuses_pieces(chip, p->layout, &p->taps, &p->from, &p->to, p->entries, active,
                          (double)p->to_slots.grid * p->to_slots.edge, phases);
}

/* What both depthwise kernels need: pieces of 16 bytes, and slots that are channels. */
static const char *refuses_depthwise(bool depthwise, const tartan_cuda_slots *from,
                                     const tartan_cuda_slots *to, int64_t from_channels,
                                     int64_t to_channels) {
    if (!depthwise) return "only for depthwise filters of 8, 16, ... channels";
    if (from->channels->of != NULL || to->channels->of != NULL) return "only for channels without sets";
    if (from_channels % 8 != 0 || to_channels % 8 != 0) return "only for multiples of 8 channels";
    return NULL;
}

const char *tartan_cuda_conv_depthwise_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_conv *p = problem;
    const char *why =
        refuses_depthwise(p->depthwise, &p->from_slots, &p->to_slots, p->from.channels, p->to.channels);
    if (why != NULL) return why;
    if (p->from.dtype != p->dtype) return "only for images of the filter's dtype";
    return tartan_cuda_conv_pieces_refuses(chip, problem);
}

const char *tartan_cuda_conv_filter_gradient_depthwise_refuses(const tartan_cuda_chip *chip,
                                                               const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    const char *why = refuses_depthwise(p->depthwise, &p->cols, &p->rows, p->in.channels, p->out.channels);
    if (why != NULL) return why;
    if (p->in.dtype != p->dtype || p->out.dtype != p->dtype) return "only for images of one dtype";
    return tartan_cuda_conv_filter_gradient_pieces_refuses(chip, problem);
}

const char *tartan_cuda_conv_filter_gradient_pieces_refuses(const tartan_cuda_chip *chip,
                                                            const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    if (!has_few_pieces(&p->in, p->entries, &p->cols) || !has_few_pieces(&p->out, p->entries, &p->rows))
        return "only for images of fewer than 2^31 pieces of 16 bytes";
    return refuses_pieces(chip, p->layout, &p->taps, &p->in, &p->out, p->entries, NULL,
                          (double)p->rows.grid * p->rows.edge, 1);
}

const char *tartan_cuda_conv_filter_gradient_mma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    if (!tartan_cuda_is_half(p->dtype)) return "only for float16 and bfloat16";
    if (p->in.dtype != p->dtype || p->out.dtype != p->dtype) return "only for images of one dtype";
    if (p->rows.channels->of != NULL || p->cols.channels->of != NULL) return "only for channels without sets";
    if (p->rows.edge % 8 != 0 || p->cols.edge % 8 != 0)
        return "only for blocks whose edges are multiples of 8";
    if (p->in.channels % 8 != 0 || p->out.channels % 8 != 0) return "only for multiples of 8 channels";
    if (p->entries * p->out.size[0] * p->out.size[1] * p->out.size[2] == 0 ||
        p->in.size[0] * p->in.size[1] * p->in.size[2] == 0)
        return "an image has no elements";
    if (!is_small(&p->in) || !is_small(&p->out) || p->entries > INT32_MAX)
        return "only for images of fewer than 2^30 pixels a side";
    if ((double)p->layout->blocks * p->rows.edge * p->cols.edge > INT32_MAX)
        return "only for filters of fewer than 2^31 weights";
    const tartan_layout *active = p->active.layout;
    if (active != NULL &&
        (double)active->shape.heads * (double)active->grid_rows * (double)active->grid_cols > 2e9)
        return "only for fewer than 2e9 windows";
    const tartan_cuda_conv_job_form form = tartan_cuda_conv_job_form_of(p);
    if (form.shared > chip->shared_bytes) return "needs more shared memory than a CTA may have";
    if ((double)p->entries * (double)p->out.size[0] * form.tiles_h * form.tiles_w > 2e9)
        return "only for fewer than 2e9 tiles";
    return NULL;
}

/* ---- Few positions ---- */

/* Whether 16 bytes of channels can be loaded where they are, and counted in 32 bits. */
static bool is_loadable(const tartan_cuda_image *x, int64_t entries) {
    bool good = (x->channel == 1 || x->channels == 1) && (uintptr_t)x->data % 16 == 0 &&
                x->channels % 8 == 0 && (entries == 1 || x->entry % 8 == 0);
    double span = fabs((double)x->entry) * (double)entries;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        good = good && (x->size[d] == 1 || x->step[d] % 8 == 0);
        span += x->size[d] == 1 ? 0 : fabs((double)x->step[d]) * (double)x->size[d];
    }
    return good && span / 8 < INT32_MAX;
}

/* What both kernels of few positions need of a filter. */
static const char *refuses_few(int32_t dtype, const tartan_cuda_slots *from, const tartan_cuda_slots *to,
                               const void *values, const tartan_cuda_active *active) {
    if (!tartan_cuda_is_half(dtype)) return "only for float16 and bfloat16";
    if (active->layout != NULL) return "only for whole images";
    if (from->channels->of != NULL || to->channels->of != NULL) return "only for channels without sets";
    if (from->edge % 8 != 0 || to->edge % 8 != 0) return "only for blocks whose edges are multiples of 8";
    if ((uintptr_t)values % 16 != 0) return "the filter's address is no multiple of 16 bytes";
    return NULL;
}

/* What conv_few and conv_dense need. */
static const char *refuses_few_conv(const tartan_cuda_chip *chip, const tartan_cuda_conv *p) {
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    const char *why = refuses_few(p->dtype, &p->from_slots, &p->to_slots, p->values, &p->active);
    if (why != NULL) return why;
    if (p->from.dtype != p->dtype) return "only for images of the filter's dtype";
    if (p->from.channels < p->from_slots.grid * p->from_slots.edge)
        return "only for channels to read that fill their blocks";
    if (!is_loadable(&p->from, p->entries)) return "only for images whose channels can be read by 16 bytes";
    return tartan_cuda_conv_pieces_refuses(chip, p);
}

static bool are_few_ctas(const tartan_cuda_chip *chip, const tartan_cuda_conv *p) {
    const double most = p->to_slots.edge == 8 ? 2 : 1; /* other kernels are slow where blocks are small */
    return tartan_cuda_conv_few_ctas(p) <= most * chip->processors &&
           (!p->adjoint || p->taps.taps <= TARTAN_CUDA_FEW_TAPS);
}

/* Whether all blocks of several lines, as a dense filter, take less time than the blocks of each line. */
static bool prefers_dense_conv(const tartan_cuda_chip *chip, const tartan_cuda_conv *p) {
    const tartan_cuda_dense_conv f = tartan_cuda_dense_conv_of(chip, p);
    return p->to_slots.edge >= 32 &&
           p->from_slots.edge >= 32 && /* tables of small blocks take long to make */
           are_few_ctas(chip, p) && f.us < tartan_cuda_conv_few_us(chip, p);
}

const char *tartan_cuda_conv_few_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_conv *p = problem;
    const char *why = refuses_few_conv(chip, p);
    if (why != NULL) return why;
    if (p->adjoint && p->taps.taps > TARTAN_CUDA_FEW_TAPS) return "input gradients only of up to 64 taps";
    if (!are_few_ctas(chip, p)) return "only for few positions";
    if (prefers_dense_conv(chip, p)) return "conv_dense takes less time";
    return NULL;
}

const char *tartan_cuda_conv_dense_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_conv *p = problem;
    const char *why = refuses_few_conv(chip, p);
    if (why != NULL) return why;
    if (!prefers_dense_conv(chip, p)) return "only for few positions, and where conv_few takes longer";
    return NULL;
}

static const char *refuses_few_gradient(const tartan_cuda_conv_filter_gradient *p) {
    const char *why = refuses_few(p->dtype, &p->cols, &p->rows, NULL, &p->active);
    if (why != NULL) return why;
    if (p->in.dtype != p->dtype || p->out.dtype != p->dtype) return "only for images of one dtype";
    if (!is_loadable(&p->in, p->entries) || !is_loadable(&p->out, p->entries))
        return "only for images whose channels can be read by 16 bytes";
    return NULL;
}

/* Up to 2.2 times as fast as conv_filter_gradient_mma with 2304 steps of CTAs (H200). */
static bool are_few_steps(const tartan_cuda_few_gradient *f) {
    return f->steps <= 32 && (f->steps <= 4 || f->steps * f->ctas <= 16384);
}

/* Whether dense tiles take less time than a filter's blocks, or than other kernels, which reach 100 TFLOP/s (H200). */
static bool prefers_dense(const tartan_cuda_chip *chip, const tartan_cuda_conv_filter_gradient *p) {
    const tartan_cuda_dense_gradient dense = tartan_cuda_dense_gradient_of(chip, p);
    const tartan_cuda_few_gradient few = tartan_cuda_few_gradient_of(chip, p);
    if (chip->major != 9 || chip->minor != 0) return false;
    if (are_few_steps(&few)) return dense.us < 0.97 * tartan_cuda_few_gradient_us(chip, &few);
    const double flops =
        2.0 * (double)p->layout->blocks * p->rows.edge * p->cols.edge * few.steps * TARTAN_CUDA_FEW_POSITIONS;
    return few.steps <= 64 && dense.us < 8 + flops / 100e6;
}

const char *tartan_cuda_conv_filter_gradient_dense_refuses(const tartan_cuda_chip *chip,
                                                           const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    const char *why = refuses_few_gradient(p);
    if (why != NULL) return why;
    if (!prefers_dense(chip, p)) return "only for few positions, and where other kernels take longer";
    return tartan_cuda_conv_filter_gradient_pieces_refuses(chip, problem);
}

const char *tartan_cuda_conv_filter_gradient_few_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    const char *why = refuses_few_gradient(p);
    if (why != NULL) return why;
    const tartan_cuda_few_gradient f = tartan_cuda_few_gradient_of(chip, p);
    if (!are_few_steps(&f)) return "only for few positions";
    if (f.ctas * TARTAN_CUDA_FEW_PIECES(f.edge) > INT32_MAX) return "only for fewer than 2^31 blocks";
    if (prefers_dense(chip, p)) return "conv_filter_gradient_dense takes less time";
    return tartan_cuda_conv_filter_gradient_pieces_refuses(chip, problem);
}

/* Whether TMA can load boxes of the image. */
static bool is_boxed(const tartan_cuda_image *x, int64_t entries) {
    const int64_t most = (int64_t)1 << 38;
    bool good = entries == 1 || (x->entry > 0 && x->entry < most);
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        good = good && (x->size[d] == 1 || (x->step[d] > 0 && x->step[d] < most));
    return good;
}

/* Whether tiles by wgmma take less time than the kernels for few positions, or than those for many. */
static bool prefers_wgmma(const tartan_cuda_chip *chip, const tartan_cuda_conv_filter_gradient *p) {
    const double us = tartan_cuda_gradient_form_of(chip, p).us;
    const tartan_cuda_few_gradient few = tartan_cuda_few_gradient_of(chip, p);
    if (are_few_steps(&few) && 0.95 * tartan_cuda_few_gradient_us(chip, &few) <= us) return false;
    if (few.steps <= 64 && 0.95 * tartan_cuda_dense_gradient_of(chip, p).us <= us) return false;
    /* The other kernels launch twice, and reach less than their rates with small blocks and with one tap. */
    const double share = p->taps.taps == 1    ? 0.5
                         : p->rows.edge <= 8  ? 0.4
                         : p->rows.edge <= 16 ? 0.6
                                              : 0.87,
                 flops = 2.0 * (double)p->layout->blocks * p->rows.edge * p->cols.edge * few.steps *
                         TARTAN_CUDA_FEW_POSITIONS,
                 rate = fmax(tartan_cuda_conv_filter_gradient_mma_rate(p),
                             tartan_cuda_conv_filter_gradient_pieces_rate(p));
    return us < 16 + flops / (1e6 * rate * share);
}

const char *tartan_cuda_conv_filter_gradient_wgmma_refuses(const tartan_cuda_chip *chip,
                                                           const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    const char *why = refuses_few_gradient(p);
    if (why != NULL) return why;
    if (!is_boxed(&p->in, p->entries) || !is_boxed(&p->out, p->entries))
        return "only for images whose strides are positive";
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        if (p->taps.stride[d] > TARTAN_CUDA_CONV_STRIDE) return "only for strides up to 8";
    why = tartan_cuda_conv_filter_gradient_pieces_refuses(chip, problem);
    if (why != NULL) return why;
    if (!prefers_wgmma(chip, p))
        return "only for images with narrow rows, and where other kernels take longer";
    return NULL;
}
