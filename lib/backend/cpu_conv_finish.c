/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu_conv_finish.h"

#include <string.h>

tartan_i_cpu_finish tartan_i_cpu_finish_of(const tartan_op_conv *op, const tartan_i_kernels *k,
                                           const tartan_i_cpu_image *to) {
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

/* One position: n sums, their gains and biases. Each step rounds. */
#define APPLY(real, zero)                                                                                    \
    static void apply_##real(int64_t n, const real *gain, const real *bias, bool bias_first, bool relu,      \
                             real *sums) {                                                                   \
        for (int64_t i = 0; gain != NULL && bias_first && i < n; i++)                                        \
            sums[i] = gain[i] * (sums[i] + bias[i]);                                                         \
        for (int64_t i = 0; gain != NULL && !bias_first && i < n; i++)                                       \
            sums[i] = gain[i] * sums[i] + bias[i];                                                           \
        for (int64_t i = 0; relu && i < n; i++) sums[i] = sums[i] <= zero ? zero : sums[i];                  \
    }
APPLY(float, 0.0f)
APPLY(double, 0.0)

/* Applies gain, bias and ReLU to sums[positions][width], of `n` entries from `first` on. */
static void apply(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row, int64_t first, int64_t n,
                  int64_t width, char *sums) {
    const tartan_op_conv *op = f->op;
    if (f->gain == NULL && !op->relu) return;
    for (int64_t i = 0; i < row->count; i++) {
        const int64_t class =
            op->edges == NULL ? 0 : tartan_i_edges_class(op->edges, row->d, row->h, row->w + i * row->w_step);
        const int64_t at = (class * f->entries + first) * f->k->bytes;
        const void *gain = f->gain != NULL ? f->gain + at : NULL,
                   *bias = f->gain != NULL ? f->bias + at : NULL;
        char *to = sums + i * width * f->k->bytes;
        if (f->k->dtype == TARTAN_F64)
            apply_double(n, gain, bias, op->bias_first, op->relu, (double *)(void *)to);
        else
            apply_float(n, gain, bias, op->bias_first, op->relu, (float *)(void *)to);
    }
}

/* Stores sums[positions][width] of the channels first .. first + n - 1. */
static void store(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row, int64_t first, int64_t n,
                  int64_t width, const char *sums) {
    const tartan_i_cpu_image *to = f->to;
    const int64_t offset = row->n * to->n_stride + first * to->c_stride + row->d * to->stride[0] +
                           row->h * to->stride[1] + row->w * to->stride[2];
    tartan_i_commit(f->k, sums, width, row->count, n, 1, f->op->add ? 1 : 0, to->dtype,
                    to->data + offset * to->bytes, row->w_step * to->stride[2], to->c_stride);
}

void tartan_i_cpu_finish_slots(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row, int64_t first,
                               int64_t block, int64_t width, char *sums) {
    const tartan_i_channels *side = f->to->side;
    const int64_t n = tartan_i_channels_in(side, first, block);
    apply(f, row, first, n, width, sums);
    for (int64_t i = 0, run; i < n; i += run) {
        const int64_t channel = side->of == NULL ? first + i : side->of[first + i];
        run = side->of == NULL ? n : 1;
        while (i + run < n && side->of[first + i + run] == channel + run) run++;
        store(f, row, channel, run, width, sums + i * f->k->bytes);
    }
}

void tartan_i_cpu_finish_add(const tartan_i_cpu_finish *f, int64_t count, int64_t first, int64_t block,
                             int64_t width, const char *sums, char *all) {
    const tartan_i_channels *side = f->to->side;
    const int64_t n = tartan_i_channels_in(side, first, block);
    for (int64_t p = 0; p < count; p++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t to = p * side->count + side->of[first + i], from = p * width + i;
            if (f->k->dtype == TARTAN_F64)
                ((double *)(void *)all)[to] += ((const double *)(const void *)sums)[from];
            else
                ((float *)(void *)all)[to] += ((const float *)(const void *)sums)[from];
        }
}

void tartan_i_cpu_finish_channels(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row, char *all) {
    const int64_t count = f->to->side->count;
    apply(f, row, 0, count, count, all);
    store(f, row, 0, count, count, all);
}
