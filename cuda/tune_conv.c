/* SPDX-License-Identifier: Apache-2.0
 * Tuning of convolution. */
#include "conv_few.h"
#include "conv_jobs.h"
#include "conv_steps.h"
#include "dtype.h"
#include "tune.h"

#include <math.h>

double tartan_cuda_conv_plain_rate(const void *problem) {
    const tartan_cuda_conv *p = problem;
    return p->dtype == TARTAN_F64 ? 0.5 : 1;
}

/* The rate of products for each kind of factors, times the share of a list's weights that a line of the filter has. */
static double pieces_rate(int32_t dtype, bool tf32, const tartan_cuda_figures *figures, bool adjoint,
                          int32_t edge) {
    int32_t lines = 0;
    while (lines + 1 < TARTAN_CUDA_SHARES && edge << lines < 64) lines++;
    const double rate = tartan_cuda_is_half(dtype) ? 200 : dtype == TARTAN_F64 ? 20 : tf32 ? 100 : 60;
    return rate * figures->share[adjoint][lines] / (1 << lines);
}

/* The rate of conv_pieces, times what it takes for each microsecond of conv_wgmma. */
static double f32_rate(const tartan_cuda_conv *p, const tartan_cuda_conv_form *form) {
    const double rate = tartan_cuda_conv_pieces_rate(p), start = 8;
    const tartan_cuda_image *out = p->adjoint ? &p->from : &p->to;
    const double flops = 2.0 * (double)p->layout->blocks * p->from_slots.edge * p->to_slots.edge *
                         (double)p->entries * (double)out->size[0] * (double)out->size[1] *
                         (double)out->size[2];
    return rate * (start + flops / (1e6 * rate)) / tartan_cuda_conv_f32_us(p, form);
}

/* A CTA takes 64 output channels, all with the merged list of the block rows in them. */
double tartan_cuda_conv_wgmma_rate(const void *problem) {
    const tartan_cuda_conv *p = problem;
    const tartan_cuda_conv_form form = tartan_cuda_conv_form_of(p);
    if (p->dtype == TARTAN_F32) return f32_rate(p, &form);
    int32_t lines = 0;
    while (lines + 1 < TARTAN_CUDA_SHARES && p->to_slots.edge << lines < TARTAN_CUDA_CONV_GROUP) lines++;
    const double rate =
        500 * tartan_cuda_conv_form_share(p, &form) * p->figures.share[p->adjoint][lines] / (1 << lines);
    /* CTAs of 256 positions leave SMs idle where these are few; conv_pieces divides lists then, if they are long. */
    const double positions =
        (double)p->entries * (double)p->to.size[0] * (double)p->to.size[1] * (double)p->to.size[2];
    const double channels = (double)p->to.channels,
                 ctas = ceil(positions / 256) * ceil(channels / TARTAN_CUDA_CONV_GROUP),
                 list = (double)p->layout->blocks * p->from_slots.edge * p->to_slots.edge / channels;
    return p->active.layout == NULL && ctas < 32 && list >= 1024 ? rate * ctas / 32 : rate;
}

/* Products of numbers that are loaded for each: bound by instructions. */
double tartan_cuda_conv_depthwise_rate(const void *problem) {
    (void)problem;
    return 24;
}

double tartan_cuda_conv_pieces_rate(const void *problem) {
    const tartan_cuda_conv *p = problem;
    return pieces_rate(p->from.dtype, p->tf32, &p->figures, p->adjoint, p->to_slots.edge);
}

double tartan_cuda_conv_filter_gradient_pieces_rate(const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    const int32_t dtype = p->in.dtype == p->out.dtype ? p->in.dtype : TARTAN_F32;
    return pieces_rate(dtype, p->tf32, &p->figures, false, p->rows.edge);
}

double tartan_cuda_conv_filter_gradient_plain_rate(const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    return p->dtype == TARTAN_F64 ? 0.5 : 1;
}

/* Products of 16 x 8 sums are bound by loads from shared memory; a warp that multiplies 32 slots loads the pixels of x half as
 * often. */
double tartan_cuda_conv_filter_gradient_mma_rate(const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    const tartan_cuda_conv_job_form form = tartan_cuda_conv_job_form_of(p);
    const int32_t high = 16 * form.high, padded = (p->rows.edge + high - 1) / high * high;
    /* Few taps share the pixels that are loaded. */
    const double shared = p->taps.taps < 4 ? 0.4 : 1;
    return shared * (form.high == 2 ? 190 : 110) * tartan_cuda_conv_job_share(p, &form) * p->rows.edge /
           padded;
}

/* Where positions are so few that these kernels take them, their rates are beyond those of others, which leave SMs idle and take several
 * launches; but for the zeros that fill up blocks. */
static double few_rate(const tartan_cuda_slots *a, double a_edge, const tartan_cuda_slots *b, double b_edge) {
    return 600 * a->edge / (a_edge * ceil(a->edge / a_edge)) * b->edge / (b_edge * ceil(b->edge / b_edge));
}

double tartan_cuda_conv_few_rate(const void *problem) {
    const tartan_cuda_conv *p = problem;
    return few_rate(&p->from_slots, tartan_cuda_few_edge(p->from_slots.edge), &p->to_slots,
                    TARTAN_CUDA_FEW_SLOTS);
}

double tartan_cuda_conv_filter_gradient_few_rate(const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    const double edge = tartan_cuda_few_edge(p->rows.edge > p->cols.edge ? p->rows.edge : p->cols.edge);
    return few_rate(&p->cols, edge, &p->rows, edge);
}

double tartan_cuda_conv_dense_rate(const void *problem) {
    (void)problem;
    return 600;
}

double tartan_cuda_conv_filter_gradient_dense_rate(const void *problem) {
    (void)problem;
    return 600;
}

double tartan_cuda_conv_filter_gradient_wgmma_rate(const void *problem) {
    (void)problem;
    return 700;
}
