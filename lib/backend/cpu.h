/* SPDX-License-Identifier: Apache-2.0
 * The operations of the CPU backend and what they share. */
#ifndef TARTAN_BACKEND_CPU_H
#define TARTAN_BACKEND_CPU_H

#include "backend/backend.h"
#include "backend/cpu_dense.h"
#include "core/parallel.h"
#include "kernels/kernels.h"

tartan_status tartan_i_cpu_spmm(const tartan_context *context, const tartan_op *op);
/* The part of tartan_i_cpu_spmm that has few columns; whether it is the better way. */
bool tartan_i_cpu_spmm_is_narrow(const tartan_context *context, const tartan_op *op);
tartan_status tartan_i_cpu_spmm_narrow(const tartan_context *context, const tartan_op *op);
tartan_status tartan_i_cpu_sddmm(const tartan_context *context, const tartan_op *op);
tartan_status tartan_i_cpu_gate_gradient(const tartan_context *context, const tartan_op *op);
tartan_status tartan_i_cpu_growth_score(const tartan_context *context, const tartan_op *op);

/* The kernels in use for sums over `dtype`. */
static inline tartan_i_kernels tartan_i_cpu_kernels(int32_t dtype) {
    tartan_i_kernels kernels;
    tartan_i_kernels_fill(tartan_i_cpu_level_in_use(), tartan_i_sum_dtype(dtype), &kernels);
    return kernels;
}

/* Gate of a block in the sum type of the kernels; 1 where there are no gates. */
double tartan_i_cpu_gate(const tartan_i_kernels *k, const tartan_array *gates, int64_t id);

/* Vectors that cover n columns, in strips of nearly equal width: how many strips there are, and the first
 * column and the width of one of them. */
int64_t tartan_i_cpu_strips(const tartan_i_kernels *k, int64_t n);
void tartan_i_cpu_strip(const tartan_i_kernels *k, int64_t n, int64_t i, int64_t *first, int64_t *width);

/* Runs the strip kernel over all `rows` rows of `s`, in groups of nearly equal size that suit its width. */
void tartan_i_cpu_strip_rows(const tartan_i_kernels *k, const tartan_i_strip *s, int64_t rows,
                             const tartan_i_term *terms, int64_t nterms);

/* Worker `w`'s share of the rows of a list, by entries + rows. */
void tartan_i_cpu_share_rows(const int64_t *pointers, int64_t rows, int32_t workers, int32_t w,
                             int64_t *begin, int64_t *end);

#endif
