/* SPDX-License-Identifier: Apache-2.0
 * Dense operands of the CPU operations: a matrix of any strides and dtype, repeated over batch entries. Its
 * elements are packed into reals before a product, and stored from sums after it. */
#ifndef TARTAN_BACKEND_CPU_DENSE_H
#define TARTAN_BACKEND_CPU_DENSE_H

#include "kernels/kernels.h"
#include "tartan/array.h"

typedef struct tartan_i_dense {
    char *data;
    int32_t dtype;
    int64_t bytes;    /* bytes per element */
    int64_t row, col; /* strides, in elements */
    int32_t nbatch;
    int64_t batch[TARTAN_MAX_NDIM], batch_strides[TARTAN_MAX_NDIM];
} tartan_i_dense;

/* The last two dimensions become rows and columns (exchanged if `exchange`), the others the batch. `head` >= 0
 * selects that entry of the last batch dimension, which is then dropped. Only `nbatch` entries of the lists are written:
 * clearing the others would cost a small product more than its numbers. */
void tartan_i_dense_of(const tartan_array *array, bool exchange, int64_t head, tartan_i_dense *out);

/* The number of batch entries; the address of element (0, 0) of one of them, in row-major order of the batch. */
int64_t tartan_i_dense_entries(const tartan_i_dense *d);
char *tartan_i_dense_entry(const tartan_i_dense *d, int64_t entry);

/* Merges trailing batch dimensions of two operands into a matrix dimension of `*count` elements with the given
 * strides, as long as both operands continue it with constant strides. */
void tartan_i_dense_fold(tartan_i_dense *a, int64_t *a_stride, tartan_i_dense *b, int64_t *b_stride,
                         int64_t *count);

/* n elements of `dtype`, `stride` elements apart, to contiguous reals and back. */
void tartan_i_line_load(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t stride, int64_t n,
                        void *out);
void tartan_i_line_store(const tartan_i_kernels *k, int32_t dtype, const void *in, int64_t n, char *out,
                         int64_t stride);

/* Packs a rows x cols piece at `in` as reals: out[i * out_row + j] is its element (i, j). */
void tartan_i_pack(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t in_row, int64_t in_col,
                   int64_t rows, int64_t cols, char *out, int64_t out_row);

/* out(i, j) = alpha * sums[i * sums_row + j], then fma(beta, old out(i, j), that) if beta is not 0. */
void tartan_i_commit(const tartan_i_kernels *k, const char *sums, int64_t sums_row, int64_t rows,
                     int64_t cols, double alpha, double beta, int32_t dtype, char *out, int64_t out_row,
                     int64_t out_col);

#endif
