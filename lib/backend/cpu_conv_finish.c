/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu_conv_finish.h"

#include <string.h>

tartan_i_cpu_finish tartan_i_cpu_finish_of(const tartan_op_conv *op, const tartan_i_kernels *k,
                                           const tartan_i_image *to) {
    const tartan_i_channels *side = to->side;
    return (tartan_i_cpu_finish){.op = op,
                                 .k = k,
                                 .to = to,
                                 .classes = op->edges != NULL ? op->edges->classes : 1,
                                 .entries = side->repeats ? side->count : side->slots};
}

static bool any(const tartan_i_cpu_finish *f) {
    return f->op->gain != NULL || f->op->bias != NULL;
}

int64_t tartan_i_cpu_finish_bytes(const tartan_i_cpu_finish *f) {
    return any(f) ? 2 * f->classes * f->entries * f->k->bytes : 0;
}

/* Fills the table of one array, which may have a row for each class, with `rest` where there is none. */
static void fill_table(const tartan_i_cpu_finish *f, const tartan_array *from, double rest, char *table) {
    const tartan_i_channels *side = f->to->side;
    for (int64_t class = 0; class < f->classes; class ++)
        for (int64_t i = 0; i < f->entries; i++) {
            const int64_t channel = side->repeats || side->of == NULL ? i : side->of[i];
            double value = rest;
            if (from != NULL && channel >= 0 && channel < side->count) {
                const int64_t row = from->ndim == 2 ? class * from->strides[0] : 0;
                value = tartan_i_load(from->data, from->dtype, row + channel * from->strides[from->ndim - 1]);
            }
            tartan_i_store(table, f->k->dtype, class * f->entries + i, value);
        }
}

void tartan_i_cpu_finish_fill(tartan_i_cpu_finish *f, char *memory) {
    if (!any(f)) return;
    f->gain = memory;
    f->bias = memory + f->classes * f->entries * f->k->bytes;
    fill_table(f, f->op->gain, 1, f->gain);
    fill_table(f, f->op->bias, 0, f->bias);
}

/* n sums, with one gain and bias for all or one for each step. Each operation rounds. */
#define APPLY(real, zero)                                                                                    \
    static void apply_##real(int64_t n, int64_t step, const real *gain, const real *bias, bool bias_first,   \
                             bool relu, real *sums) {                                                        \
        for (int64_t i = 0; gain != NULL && bias_first && i < n; i++)                                        \
            sums[i] = gain[i * step] * (sums[i] + bias[i * step]);                                           \
        for (int64_t i = 0; gain != NULL && !bias_first && i < n; i++)                                       \
            sums[i] = gain[i * step] * sums[i] + bias[i * step];                                             \
        for (int64_t i = 0; relu && i < n; i++) sums[i] = sums[i] <= zero ? zero : sums[i];                  \
    }
APPLY(float, 0.0f)
APPLY(double, 0.0)

/* n sums that lie side by side, of entries of gain and bias from `at` on. */
static void apply_line(const tartan_i_cpu_finish *f, int64_t n, int64_t step, int64_t at, char *sums) {
    const tartan_op_conv *op = f->op;
    const void *gain = f->gain != NULL ? f->gain + at * f->k->bytes : NULL,
               *bias = f->gain != NULL ? f->bias + at * f->k->bytes : NULL;
    const bool f64 = f->k->dtype == TARTAN_F64;
    if (f64 && step == 0)
        apply_double(n, 0, gain, bias, op->bias_first, op->relu, (double *)(void *)sums);
    else if (f64)
        apply_double(n, 1, gain, bias, op->bias_first, op->relu, (double *)(void *)sums);
    else if (step == 0)
        apply_float(n, 0, gain, bias, op->bias_first, op->relu, (float *)(void *)sums);
    else
        apply_float(n, 1, gain, bias, op->bias_first, op->relu, (float *)(void *)sums);
}

/* Applies gain, bias and ReLU to a row of positions and `n` entries from `first` on. Positions of one class that follow each
 * other are done together. */
static void apply(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row, int64_t first, int64_t n,
                  tartan_i_cpu_sums sums) {
    const tartan_i_edges *edges = f->op->edges;
    if (f->gain == NULL && !f->op->relu) return;
    for (int64_t i = 0, run; i < row->count; i += run) {
        const int64_t class =
            edges == NULL ? 0 : tartan_i_edges_class(edges, row->d, row->h, row->w + i * row->w_step);
        run = edges == NULL ? row->count : 1;
        while (i + run < row->count &&
               tartan_i_edges_class(edges, row->d, row->h, row->w + (i + run) * row->w_step) == class)
            run++;
        const int64_t at = class * f->entries + first;
        char *from = sums.data + i * sums.position * f->k->bytes;
        for (int64_t j = 0; sums.slot == 1 && j < run; j++)
            apply_line(f, n, 1, at, from + j * sums.position * f->k->bytes);
        for (int64_t j = 0; sums.slot != 1 && j < n; j++)
            apply_line(f, run, 0, at + j, from + j * sums.slot * f->k->bytes);
    }
}

/* Where results of a row of positions belong, from channel `first` on. */
static char *place_of(const tartan_i_image *to, const tartan_i_cpu_finished *row, int64_t first) {
    const int64_t offset = row->n * to->item + first * to->channel + row->d * to->step[0] +
                           row->h * to->step[1] + row->w * to->step[2];
    return to->data + offset * to->bytes;
}

/* Stores sums of the channels first .. first + n - 1. */
static void store(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row, int64_t first, int64_t n,
                  tartan_i_cpu_sums sums) {
    const tartan_i_image *to = f->to;
    const int64_t step = row->w_step * to->step[2];
    char *out = place_of(to, row, first);
    const double beta = f->op->add ? 1 : 0;
    if (sums.slot == 1)
        tartan_i_commit(f->k, sums.data, sums.position, row->count, n, 1, beta, to->dtype, out, step,
                        to->channel);
    else
        tartan_i_commit(f->k, sums.data, sums.slot, n, row->count, 1, beta, to->dtype, out, to->channel,
                        step);
}

tartan_i_cpu_sums tartan_i_cpu_finish_place(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row,
                                            int64_t first) {
    return (tartan_i_cpu_sums){
        .data = place_of(f->to, row, first), .slot = 1, .position = row->w_step * f->to->step[2]};
}

void tartan_i_cpu_finish_in_place(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row,
                                  int64_t first, int64_t n) {
    apply(f, row, first, n, tartan_i_cpu_finish_place(f, row, first));
}

void tartan_i_cpu_finish_slots(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row, int64_t first,
                               int64_t block, tartan_i_cpu_sums sums) {
    const tartan_i_channels *side = f->to->side;
    const int64_t n = tartan_i_channels_in(side, first, block);
    apply(f, row, first, n, sums);
    for (int64_t i = 0, run; i < n; i += run, sums.data += run * sums.slot * f->k->bytes) {
        const int64_t channel = side->of == NULL ? first + i : side->of[first + i];
        run = side->of == NULL ? n : 1;
        while (i + run < n && side->of[first + i + run] == channel + run) run++;
        store(f, row, channel, run, sums);
    }
}

void tartan_i_cpu_finish_add(const tartan_i_cpu_finish *f, int64_t count, int64_t first, int64_t block,
                             tartan_i_cpu_sums sums, tartan_i_cpu_sums all) {
    const tartan_i_channels *side = f->to->side;
    const int64_t n = tartan_i_channels_in(side, first, block);
    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < count; p++) {
            const int64_t to = side->of[first + i] * all.slot + p * all.position,
                          from = i * sums.slot + p * sums.position;
            if (f->k->dtype == TARTAN_F64)
                ((double *)(void *)all.data)[to] += ((const double *)(const void *)sums.data)[from];
            else
                ((float *)(void *)all.data)[to] += ((const float *)(const void *)sums.data)[from];
        }
}

void tartan_i_cpu_finish_channels(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row,
                                  tartan_i_cpu_sums all) {
    const int64_t count = f->to->side->count;
    apply(f, row, 0, count, all);
    store(f, row, 0, count, all);
}
