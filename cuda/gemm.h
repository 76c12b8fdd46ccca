/* SPDX-License-Identifier: Apache-2.0
 * A product as cuBLAS takes it: with a dense copy of op(A). Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_GEMM_H
#define TARTAN_CUDA_GEMM_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Products that go together: each matrix of one is that of the one before plus a stride, in elements. */
typedef struct tartan_cuda_gemm_batch {
    int32_t count;
    int64_t a, b, c;
} tartan_cuda_gemm_batch;

/* The copy is [heads][lines * line][ld]: row i of block line l has, block by block, row i of the line's blocks, zeros
 * where there is none. A block has `line` rows of `across` neighbours in memory; which lists have the lines says
 * by_columns. Its padding, up to ld and behind the last element of the matrix, belongs to no element.
 *
 * cuBLAS is asked for out = alpha op(first) op(second) + beta out, all of them column-major. `first` is the copy,
 * `second` is B and `out` is C; or where C has its rows contiguous, `first` is B, `second` is the copy, and `out` is C
 * transposed (swapped). */
typedef struct tartan_cuda_gemm {
    bool by_columns;
    int32_t line, across;
    int64_t lines, ld;
    int64_t elements;         /* of the copy, all heads */
    int32_t bytes, out_bytes; /* of an element of A and B, and of C */
    bool swapped, transposed_first, transposed_second;
    int32_t rows, cols, terms; /* of out and of the sums */
    int32_t ld_a, ld_b, ld_c;
    tartan_cuda_gemm_batch batch,
        calls; /* the longer of heads and batch entries, in one call; and the other */
} tartan_cuda_gemm;

/* NULL, or in static text why cuBLAS cannot do this one. */
const char *tartan_cuda_gemm_of(const tartan_cuda_spmm *p, tartan_cuda_gemm *out);

#ifdef __cplusplus
}
#endif
#endif
