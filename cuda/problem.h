/* SPDX-License-Identifier: Apache-2.0
 * Products as kernels see them: one form for both sides, all transposes and all memory orders. Plain C, so that
 * reduction to this form, planning and the choice of kernels are tested without a GPU. */
#ifndef TARTAN_CUDA_PROBLEM_H
#define TARTAN_CUDA_PROBLEM_H

#include "index.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TARTAN_CUDA_MAX_BATCH = 6 };

/* Batch entries of two or three operands that go together, with the strides of each, in elements; the head is not
 * among the dimensions. Dimensions of length 1 are left out. */
typedef struct tartan_cuda_batch {
    int32_t ndim;
    int64_t entries; /* product of the lengths; 1 if ndim is 0 */
    int64_t lengths[TARTAN_CUDA_MAX_BATCH];
    int64_t first[TARTAN_CUDA_MAX_BATCH];  /* spmm: of B; sddmm: of X */
    int64_t second[TARTAN_CUDA_MAX_BATCH]; /* spmm: of C; sddmm: of Y */
} tartan_cuda_batch;

/* A dense matrix of each batch entry and head: element (i, j) is at data + head * head_stride + batch offset +
 * i * row_stride + j * col_stride, in elements. */
typedef struct tartan_cuda_dense {
    void *data;
    int32_t dtype;
    int64_t head_stride, row_stride, col_stride;
} tartan_cuda_dense;

/* C[m, n] = alpha * sum_k A[m, k] B[k, n] + beta * C[m, n] for every head and batch entry. */
typedef struct tartan_cuda_spmm {
    int32_t dtype; /* of A and B; C's is c.dtype */
    int64_t m, k, n, heads, blocks;
    int64_t grid_m, grid_k;
    int32_t block_m, block_k; /* of op(A) */
    const void *values;       /* [blocks][block_m * block_k] */
    int32_t a_m, a_k;         /* strides inside a block; one of them is 1 */
    bool by_columns;          /* op(A)'s block rows are the layout's block columns */
    const void *gates;        /* [blocks] with gate_stride, or NULL */
    int32_t gate_dtype;
    int64_t gate_stride;
    double alpha, beta;
    tartan_cuda_batch batch; /* first: B, second: C */
    tartan_cuda_dense b, c;  /* rows of b are k, of c are m */
    bool tf32;               /* f32 factors may be rounded to tf32 */
    bool allow_dense;        /* a dense copy of A may be multiplied by cuBLAS */
} tartan_cuda_spmm;

/* S block = gate * alpha * sum over pairs, batch and k of X[m, k] Y[k, n], + beta * S, at the stored blocks. */
typedef struct tartan_cuda_sddmm {
    int32_t dtype; /* of X and Y; S's is s_dtype */
    int32_t s_dtype;
    int64_t m, n, heads, blocks;
    int64_t grid_m, grid_n;
    int32_t block_m, block_n;
    void *values;     /* [blocks][block_m * block_n] */
    int32_t s_m, s_n; /* strides inside a block; one of them is 1 */
    const void *gates;
    int32_t gate_dtype;
    int64_t gate_stride;
    double alpha, beta;
    int32_t pairs;
    struct {
        int64_t k;
        tartan_cuda_batch batch; /* first: X, second: Y */
        tartan_cuda_dense x, y;  /* rows of x are m, of y are k */
    } pair[TARTAN_I_MAX_PAIRS];
    bool tf32;
} tartan_cuda_sddmm;

/* Reduce operations (already checked by lib/ops) to these forms. Batch dimensions that both operands walk as a
 * continuation of n (spmm) or k (sddmm) are merged into it, and what is left into as few as can be. */
void tartan_cuda_spmm_of(const tartan_context *context, const tartan_op_spmm *op, tartan_cuda_spmm *out);
void tartan_cuda_sddmm_of(const tartan_context *context, const tartan_op_sddmm *op, tartan_cuda_sddmm *out);

#ifdef __cplusplus
}
#endif
#endif
