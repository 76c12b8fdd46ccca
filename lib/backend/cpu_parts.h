/* SPDX-License-Identifier: Apache-2.0
 * Products of f32 as sums of bf16 on the CPU. */
#ifndef TARTAN_BACKEND_CPU_PARTS_H
#define TARTAN_BACKEND_CPU_PARTS_H

#include "backend/cpu.h"

/* TARTAN_I_BF16X3 for two parts, TARTAN_I_BF16X6 for three. */
int32_t tartan_i_cpu_factor_of_parts(int32_t parts);

/* Why f32 factors are not split into that many parts for products of blocks of rows x k with `cols` columns at least; NULL:
 * they are. */
const char *tartan_i_cpu_parts_refuse(const tartan_context *context, int32_t parts, int64_t rows, int64_t k,
                                      int64_t cols);

/* As tartan_i_pack_right and tartan_i_pack_left, of f32. A row of the right factor is `parts` lines of out_row pairs, one of the
 * left factor `parts` lines of fit.units. */
void tartan_i_split_right(const tartan_i_kernels *k, const char *in, int64_t in_row, int64_t in_col,
                          int64_t rows, int64_t cols, char *out, int64_t out_row);
void tartan_i_split_left(const tartan_i_kernels *k, const tartan_i_fit *fit, const char *in, int64_t in_row,
                         int64_t in_col, int64_t rows, int64_t cols, char *out);

/* sums (+)= a b of rows x k and k x cols numbers anywhere, in the chains of all kernels for f32. For a few sums: it packs as it
 * goes. */
typedef struct tartan_i_real_product {
    const float *a, *b;
    int64_t a_row, a_col, b_row, b_col;
    int64_t rows, k, cols;
    float *sums;
    int64_t sums_row;
    bool first; /* start at zero */
} tartan_i_real_product;
void tartan_i_cpu_add_reals(const tartan_i_real_product *p);

#endif
