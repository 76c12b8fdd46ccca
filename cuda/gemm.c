/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm.h"

#include "dtype.h"

/* cuBLAS counts in 32 bits, and so does the kernel that writes the copy, which counts the padding of blocks too. */
static const int64_t most = (int64_t)1 << 30;
static const double most_bytes = (double)((int64_t)1 << 36); /* of the copy */

/* Whether BLAS can take d: column-major, or transposed. */
static bool is_matrix(const tartan_cuda_dense *d, int64_t rows, int64_t cols, bool *transposed, int32_t *ld) {
    for (int32_t i = 0; i < 2; i++) {
        const int64_t unit = i == 0 ? d->row_stride : d->col_stride;
        const int64_t other = i == 0 ? d->col_stride : d->row_stride, length = i == 0 ? rows : cols;
        if (unit != 1 || other < length || other > INT32_MAX) continue;
        *transposed = i != 0;
        *ld = (int32_t)other;
        return true;
    }
    return false;
}

/* The lines of the copy run along the contiguous lines of blocks, so that these are copied as they are. */
static const char *describe_copy(const tartan_cuda_spmm *p, tartan_cuda_gemm *g) {
    const bool by_m = p->a_k == 1; /* lines of the copy are rows of op(A) */
    g->bytes = tartan_cuda_bytes_of(p->dtype);
    g->out_bytes = tartan_cuda_bytes_of(p->c.dtype);
    const int64_t unit = 16 / g->bytes;
    g->by_columns = p->by_columns == by_m;
    g->line = by_m ? p->block_m : p->block_k;
    g->across = by_m ? p->block_k : p->block_m;
    g->lines = by_m ? p->grid_m : p->grid_k;
    g->ld = ((by_m ? p->grid_k : p->grid_m) * g->across + unit - 1) / unit * unit;
    const double elements = (double)p->heads * (double)g->lines * (double)g->line * (double)g->ld;
    if (elements * g->bytes > most_bytes || p->heads * g->lines > most)
        return "the dense copy of a would have more than 2^36 bytes or 2^30 lines of blocks";
    g->elements = p->heads * g->lines * g->line * g->ld;
    g->ld_a = (int32_t)g->ld;
    return NULL;
}

const char *tartan_cuda_gemm_of(const tartan_cuda_spmm *p, tartan_cuda_gemm *out) {
    tartan_cuda_gemm g = {0};
    bool b_transposed, c_transposed;
    if (p->m < 1 || p->n < 1 || p->k < 1 || p->m > most || p->n > most || p->k > most)
        return "only for 1 to 2^30 rows and columns";
    if (p->batch.ndim > 1) return "only for one batch dimension";
    if (p->batch.entries < 1 || p->batch.entries > most || p->heads > most)
        return "only for 1 to 2^30 batch entries and heads";
    if (!is_matrix(&p->b, p->k, p->n, &b_transposed, &g.ld_b))
        return "b needs one stride of 1 element, and the other below 2^31 and at least as long as its rows "
               "or columns";
    if (!is_matrix(&p->c, p->m, p->n, &c_transposed, &g.ld_c))
        return "c needs one stride of 1 element, and the other below 2^31 and at least as long as its rows "
               "or columns";
    const tartan_cuda_gemm_batch entries = {(int32_t)p->batch.entries, 0,
                                            p->batch.ndim > 0 ? p->batch.first[0] : 0,
                                            p->batch.ndim > 0 ? p->batch.second[0] : 0};
    if (entries.b < 0 || entries.c < 0 || (p->heads > 1 && (p->b.head_stride < 0 || p->c.head_stride < 0)))
        return "only for batches and heads with strides that are not negative";
    const char *why = describe_copy(p, &g);
    if (why != NULL) return why;
    const tartan_cuda_gemm_batch heads = {(int32_t)p->heads, g.lines * g.line * g.ld, p->b.head_stride,
                                          p->c.head_stride};
    const bool by_head = heads.count > entries.count;
    g.batch = by_head ? heads : entries;
    g.calls = by_head ? entries : heads;
    const bool a_transposed = p->a_k == 1;
    g.swapped = c_transposed;
    g.transposed_first = g.swapped ? !b_transposed : a_transposed;
    g.transposed_second = g.swapped ? !a_transposed : b_transposed;
    g.rows = (int32_t)(g.swapped ? p->n : p->m);
    g.cols = (int32_t)(g.swapped ? p->m : p->n);
    g.terms = (int32_t)p->k;
    *out = g;
    return NULL;
}
