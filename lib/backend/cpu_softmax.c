/* SPDX-License-Identifier: Apache-2.0
 * Softmax along lines, its logarithm and cross entropy, and their gradients, on the CPU.
 *
 * Lines are reals: f64, else f32. Sums over a line are made of parts, each of which the kernels add up in chains; parts are added in
 * f64 in their order. */
#include "backend/cpu_lines.h"
#include "core/array.h"
#include "core/workspace.h"

#include <math.h>
#include <string.h>

enum {
    WORK = 24,   /* about as many operations as an element takes */
    PART = 2048, /* elements of a part: a multiple of 32, the bits of a word of masks */
};

typedef struct job {
    tartan_i_line_job lines;
    double scale, smoothing;
    int64_t base, ignored;
    int32_t x, y, mask, labels, weights, loss, lse, slope; /* numbers of arrays; -1: there is none */
} job;

static void *at(const job *j, const void *x, int64_t i) {
    return (char *)x + i * j->lines.kernels.bytes;
}

static double number(const job *j, const void *x, int64_t i) {
    return tartan_i_load(x, j->lines.kernels.dtype, i);
}

/* ---- Sums over a line ---- */

#define EACH_PART(n, begin, length)                                                                          \
    for (int64_t begin = 0, length; (length = (n)-begin < PART ? (n)-begin : PART) > 0; begin += PART)

static const uint32_t *part_of(const uint32_t *mask, int64_t begin) {
    return mask == NULL ? NULL : mask + begin / 32;
}

static double sum_of(const job *j, const void *x) {
    double sum = 0;
    EACH_PART(j->lines.n, begin, length) sum += j->lines.kernels.row_sum(length, at(j, x, begin));
    return sum;
}

static double dot_of(const job *j, const void *x, const void *y) {
    double sum = 0;
    EACH_PART(j->lines.n, begin, length)
    sum += j->lines.kernels.dot(length, at(j, x, begin), at(j, y, begin));
    return sum;
}

/* y = exp(scale x - most), where `most` becomes the largest scale x, and y = 0 where masked; returns the sum. If there is none,
 * or all are -infinity, `most` becomes -infinity, y 0 and the sum 0. A scale below 0 is applied first. */
static double exp_of(const job *j, const void *x, const uint32_t *mask, double scale, void *y, double *most) {
    const tartan_i_kernels *k = &j->lines.kernels;
    const int64_t n = j->lines.n;
    if (scale < 0) {
        k->scale(n, scale, x, y);
        x = y, scale = 1;
    }
    const double largest = k->row_max(n, x, mask);
    /* as the kernel multiplies it */
    *most = k->dtype == TARTAN_F64 ? scale * largest : (double)((float)scale * (float)largest);
    const double shift = largest == -(double)INFINITY ? 0 : *most;
    double sum = 0;
    EACH_PART(n, begin, length)
    sum += k->row_exp_sum(length, scale, at(j, x, begin), shift, part_of(mask, begin), at(j, y, begin));
    if (sum == 0) *most = -(double)INFINITY;
    return sum;
}

/* y[i] = (a x[i] - b z[i]) - c for all reals of a line, in f64; without z, z[i] is 1. y may be x or z. */
#define COMBINE(real)                                                                                        \
    static void combine_##real(int64_t n, double a, const real *x, double b, const real *z, double c,        \
                               real *y) {                                                                    \
        if (z == NULL)                                                                                       \
            for (int64_t i = 0; i < n; i++) y[i] = (real)((a * (double)x[i] - b) - c);                       \
        else                                                                                                 \
            for (int64_t i = 0; i < n; i++) y[i] = (real)((a * (double)x[i] - b * (double)z[i]) - c);        \
    }
COMBINE(float)
COMBINE(double)

static void combine(const job *j, double a, const void *x, double b, const void *z, double c, void *y) {
    if (j->lines.kernels.dtype == TARTAN_F64)
        combine_double(j->lines.n, a, x, b, z, c, y);
    else
        combine_float(j->lines.n, a, x, b, z, c, y);
}

/* ---- Each line ---- */

static void softmax_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    void *y = tartan_i_line_at(g, j->y, i);
    double most;
    const double sum = exp_of(j, tartan_i_line_at(g, j->x, i),
                              tartan_i_line_mask(g, j->mask, i, (uint32_t *)g->scratch), j->scale, y, &most);
    j->lines.kernels.scale(j->lines.n, sum == 0 ? 0 : 1 / sum, y, y);
}

/* y = (scale x - most) - log(sum) */
static void log_softmax_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const void *x = tartan_i_line_at(g, j->x, i);
    void *y = tartan_i_line_at(g, j->y, i);
    double most;
    const double sum = exp_of(j, x, NULL, j->scale, g->scratch, &most);
    combine(j, j->scale, x, most, NULL, log(sum), y);
}

/* x_grad = scale y (y_grad - sum of y y_grad); weights hold y_grad, slope x_grad. */
static void softmax_gradient_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const tartan_i_kernels *k = &j->lines.kernels;
    const void *y = tartan_i_line_at(g, j->y, i), *y_grad = tartan_i_line_at(g, j->weights, i);
    void *x_grad = tartan_i_line_at(g, j->slope, i);
    const double dot = dot_of(j, y, y_grad);
    k->row_gradient(j->lines.n, y, y_grad, dot, NULL, x_grad);
    if (j->scale != 1) k->scale(j->lines.n, j->scale, x_grad, x_grad);
}

/* x_grad = scale (y_grad - exp(y) sum of y_grad). */
static void log_softmax_gradient_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const tartan_i_kernels *k = &j->lines.kernels;
    const void *y = tartan_i_line_at(g, j->y, i), *y_grad = tartan_i_line_at(g, j->weights, i);
    void *x_grad = tartan_i_line_at(g, j->slope, i);
    const double sum = sum_of(j, y_grad);
    k->row_exp_sum(j->lines.n, 1, y, 0, NULL, g->scratch);
    combine(j, j->scale, y_grad, j->scale * sum, g->scratch, 0, x_grad);
}

/* The label of a line from 0 on; -1: the line is left out; -2: there is no such class. */
static int64_t label_of(const job *j, const tartan_i_line_group *g, int64_t i) {
    const int64_t label =
        tartan_i_index_at(tartan_i_line_at(g, j->labels, i), j->lines.grid.array[j->labels].dtype, 0);
    if (label == j->ignored) return -1;
    return label - j->base >= 0 && label - j->base < j->lines.n ? label - j->base : -2;
}

/* slope = factor (weights - target). The weights are the exponentials in `e`, which may be the slope, times `inverse`. */
static void slope_of(const job *j, const void *e, double inverse, double factor, int64_t label, void *slope) {
    const tartan_i_kernels *k = &j->lines.kernels;
    const double own = factor * (1 - j->smoothing);
    if (j->smoothing == 0)
        k->scale(j->lines.n, inverse * factor, e, slope);
    else
        combine(j, inverse * factor, e, factor * j->smoothing / (double)j->lines.n, NULL, 0, slope);
    tartan_i_store(slope, k->dtype, label, number(j, slope, label) - own);
}

static void fill(const job *j, void *x, double value) {
    for (int64_t e = 0; e < j->lines.n; e++) tartan_i_store(x, j->lines.kernels.dtype, e, value);
}

static void cross_entropy_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const void *x = tartan_i_line_at(g, j->x, i);
    void *slope = tartan_i_line_at(g, j->slope, i);
    const int64_t label = label_of(j, g, i), n = j->lines.n;
    double most, loss = label == -1 ? 0 : (double)NAN;
    const double own = label >= 0 ? number(j, x, label) : 0;
    const double mean = j->smoothing == 0 ? 0 : sum_of(j, x) / (double)n;
    /* the slope may be x, whose exponentials then take its place */
    const double sum = exp_of(j, x, NULL, 1, slope != NULL ? slope : g->scratch, &most), rest = log(sum);
    if (label >= 0) {
        loss = rest + (1 - j->smoothing) * (most - own);
        if (j->smoothing != 0) loss += j->smoothing * (most - mean);
    }
    tartan_i_line_set_number(g, j->loss, i, loss);
    tartan_i_line_set_number(g, j->lse, i, most + rest);
    if (slope == NULL) return;
    const double factor = j->scale * (j->weights < 0 ? 1 : tartan_i_line_number(g, j->weights, i));
    if (label >= 0)
        slope_of(j, slope, 1 / sum, factor, label, slope);
    else
        fill(j, slope, loss);
}

static void cross_entropy_gradient_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const void *x = tartan_i_line_at(g, j->x, i);
    void *slope = tartan_i_line_at(g, j->slope, i);
    const int64_t label = label_of(j, g, i);
    if (label < 0) {
        fill(j, slope, label == -1 ? 0 : (double)NAN);
        return;
    }
    j->lines.kernels.row_exp_sum(j->lines.n, 1, x, tartan_i_line_number(g, j->lse, i), NULL, slope);
    slope_of(j, slope, 1, tartan_i_line_number(g, j->weights, i), label, slope);
}

/* ---- All of them ---- */

/* `scratch`: the function has a line of reals of its own; a mask takes less. */
static tartan_status run(const tartan_context *context, job *j, int32_t lead, tartan_i_line_function line,
                         uint32_t read, uint32_t written, bool scratch) {
    const int64_t n = j->lines.n;
    j->lines.scratch_bytes =
        scratch || j->mask >= 0 ? (n + 31) / 32 * 32 * (scratch ? j->lines.kernels.bytes : 1) : 0;
    return tartan_i_lines_run(context, &j->lines, lead, read, written, WORK * (double)n, line, j);
}

static job job_of(const tartan_context *context, const tartan_array *x, double scale) {
    job j = {.lines = tartan_i_lines_of(context, x), .scale = scale};
    j.x = j.y = j.mask = j.labels = j.weights = j.loss = j.lse = j.slope = -1;
    return j;
}

tartan_status tartan_i_cpu_softmax(const tartan_context *context, const tartan_op *any) {
    const tartan_op_softmax *op = &any->softmax;
    job j = job_of(context, op->x, op->scale);
    j.x = tartan_i_lines_add(&j.lines, op->x);
    j.mask = tartan_i_lines_add_raw(&j.lines, op->mask);
    j.y = tartan_i_lines_add(&j.lines, op->y);
    return run(context, &j, j.x, softmax_line, tartan_i_line_bit(j.x), tartan_i_line_bit(j.y), false);
}

tartan_status tartan_i_cpu_log_softmax(const tartan_context *context, const tartan_op *any) {
    const tartan_op_log_softmax *op = &any->log_softmax;
    job j = job_of(context, op->x, op->scale);
    j.x = tartan_i_lines_add(&j.lines, op->x);
    j.y = tartan_i_lines_add(&j.lines, op->y);
    return run(context, &j, j.x, log_softmax_line, tartan_i_line_bit(j.x), tartan_i_line_bit(j.y), true);
}

static tartan_status run_gradient(const tartan_context *context, const tartan_op_softmax_gradient *op,
                                  tartan_i_line_function line, bool scratch) {
    job j = job_of(context, op->y, op->scale);
    j.y = tartan_i_lines_add(&j.lines, op->y);
    j.weights = tartan_i_lines_add(&j.lines, op->y_grad);
    j.slope = tartan_i_lines_add(&j.lines, op->x_grad);
    return run(context, &j, j.y, line, tartan_i_line_bit(j.y) | tartan_i_line_bit(j.weights),
               tartan_i_line_bit(j.slope), scratch);
}

tartan_status tartan_i_cpu_softmax_gradient(const tartan_context *context, const tartan_op *any) {
    return run_gradient(context, &any->softmax_gradient, softmax_gradient_line, false);
}

tartan_status tartan_i_cpu_log_softmax_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_log_softmax_gradient *op = &any->log_softmax_gradient;
    const tartan_op_softmax_gradient same = {
        .y = op->y, .y_grad = op->y_grad, .x_grad = op->x_grad, .scale = op->scale};
    return run_gradient(context, &same, log_softmax_gradient_line, true);
}

tartan_status tartan_i_cpu_cross_entropy(const tartan_context *context, const tartan_op *any) {
    const tartan_op_cross_entropy *op = &any->cross_entropy;
    job j = job_of(context, op->logits, op->scale);
    j.smoothing = op->label_smoothing, j.ignored = op->ignore_index, j.base = op->base;
    j.x = tartan_i_lines_add(&j.lines, op->logits);
    j.labels = tartan_i_lines_add_numbers(&j.lines, op->labels);
    j.weights = tartan_i_lines_add_numbers(&j.lines, op->weights);
    j.loss = tartan_i_lines_add_numbers(&j.lines, op->loss);
    j.lse = tartan_i_lines_add_numbers(&j.lines, op->lse);
    j.slope = tartan_i_lines_add(&j.lines, op->slope);
    return run(context, &j, j.x, cross_entropy_line, tartan_i_line_bit(j.x), tartan_i_line_bit(j.slope),
               op->slope == NULL);
}

tartan_status tartan_i_cpu_cross_entropy_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_cross_entropy_gradient *op = &any->cross_entropy_gradient;
    job j = job_of(context, op->logits, 1);
    j.smoothing = op->label_smoothing, j.ignored = op->ignore_index, j.base = op->base;
    j.x = tartan_i_lines_add(&j.lines, op->logits);
    j.labels = tartan_i_lines_add_numbers(&j.lines, op->labels);
    j.lse = tartan_i_lines_add_numbers(&j.lines, op->lse);
    j.weights = tartan_i_lines_add_numbers(&j.lines, op->loss_grad);
    j.slope = tartan_i_lines_add(&j.lines, op->logits_grad);
    return run(context, &j, j.x, cross_entropy_gradient_line, tartan_i_line_bit(j.x),
               tartan_i_line_bit(j.slope), false);
}
