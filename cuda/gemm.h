/* SPDX-License-Identifier: Apache-2.0
 * A product in the form of cuBLAS, with a dense copy of op(A). Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_GEMM_H
#define TARTAN_CUDA_GEMM_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A strided batch; strides in elements. */
typedef struct tartan_cuda_gemm_batch {
    int32_t count;
    int64_t a, b, c;
} tartan_cuda_gemm_batch;

/* The copy is [heads][lines * line][ld]. A block is `line` contiguous lines of `across` elements; row i of block line l
 * is line i of each of its blocks, zeros where there is no block. by_columns: block lines are the layout's block columns.
 * Columns past the edge of the matrix, up to ld, are padding.
 *
 * cuBLAS computes out = alpha op(first) op(second) + beta out, all column-major: `first` is the copy, `second` is B and
 * `out` is C; or if C is row-major (swapped), `first` is B, `second` is the copy and `out` is C transposed. */
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
        calls; /* the longer of heads and batch entries, in one call; the other one */
} tartan_cuda_gemm;

/* Returns NULL, or in static text why cuBLAS cannot do it. */
const char *tartan_cuda_gemm_of(const tartan_cuda_spmm *p, tartan_cuda_gemm *out);

#ifdef __cplusplus
}
#endif
#endif
