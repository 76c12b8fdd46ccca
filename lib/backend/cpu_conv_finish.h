/* SPDX-License-Identifier: Apache-2.0
 * The last step of a convolution on the CPU: gain, bias, ReLU, the old value, and storing in the output. */
#ifndef TARTAN_BACKEND_CPU_CONV_FINISH_H
#define TARTAN_BACKEND_CPU_CONV_FINISH_H

#include "backend/cpu_conv.h"

typedef struct tartan_i_cpu_finish {
    const tartan_op_conv *op;
    const tartan_i_kernels *k;
    const tartan_i_image *to;
    int64_t classes, entries; /* of gain and bias: a row of `entries` reals for each class */
    char *gain, *bias;        /* by slot, or by channel where channels repeat; NULL: none */
} tartan_i_cpu_finish;

/* A row of positions (n, d, h, w), (n, d, h, w + w_step), ... of the output. */
typedef struct tartan_i_cpu_finished {
    int64_t n, d, h, w, w_step, count;
} tartan_i_cpu_finished;

/* `k` and `to` are kept. The bytes of the tables of gain and bias; and filling them. */
tartan_i_cpu_finish tartan_i_cpu_finish_of(const tartan_op_conv *op, const tartan_i_kernels *k,
                                           const tartan_i_image *to);
int64_t tartan_i_cpu_finish_bytes(const tartan_i_cpu_finish *f);
void tartan_i_cpu_finish_fill(tartan_i_cpu_finish *f, char *memory);

/* Sums of some positions: strides between slots and between positions, one of them 1. */
typedef struct tartan_i_cpu_sums {
    char *data;
    int64_t slot, position;
} tartan_i_cpu_sums;

/* Finishes a row of sums of the slots first .. first + block - 1, which have different channels. Overwrites them. */
void tartan_i_cpu_finish_slots(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row, int64_t first,
                               int64_t block, tartan_i_cpu_sums sums);

/* The place of results of a row from channel `first` on, as sums: for channels that lie side by side, where the output has the type of
 * sums. And the last step of sums that were made there. */
tartan_i_cpu_sums tartan_i_cpu_finish_place(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row,
                                            int64_t first);
void tartan_i_cpu_finish_in_place(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row,
                                  int64_t first, int64_t n);

/* Adds such sums of `count` positions to the sums of all channels; and finishes these. */
void tartan_i_cpu_finish_add(const tartan_i_cpu_finish *f, int64_t count, int64_t first, int64_t block,
                             tartan_i_cpu_sums sums, tartan_i_cpu_sums all);
void tartan_i_cpu_finish_channels(const tartan_i_cpu_finish *f, const tartan_i_cpu_finished *row,
                                  tartan_i_cpu_sums all);

#endif
