/* SPDX-License-Identifier: Apache-2.0 */
#include "refuse.h"

#include "backend/operation.h"
#include "dtype.h"
#include "gemm.h"
#include "kernels.h"

/* ---- Operations ---- */

/* Whether the kernels of an operation take blocks of different sizes. */
static bool takes_sizes(int32_t kind) {
    return kind == TARTAN_OP_SPMM || kind == TARTAN_OP_SDDMM || kind == TARTAN_OP_GATE_GRADIENT ||
           kind == TARTAN_OP_BLOCK_COPY || kind == TARTAN_OP_BLOCK_NORMS || kind == TARTAN_OP_ELEMENTWISE ||
           kind == TARTAN_OP_ELEMENTS || kind == TARTAN_OP_REDUCE || kind == TARTAN_OP_COMPARE ||
           kind == TARTAN_OP_BLOCK_SOFTMAX || kind == TARTAN_OP_BLOCK_SOFTMAX_GRADIENT;
}

/* Kernels count blocks in 32 bits, and so rows and columns where boundaries are listed. */
static const char *refuse_layout(int32_t kind, const tartan_layout *layout) {
    if (layout == NULL) return NULL;
    if (layout->blocks > INT32_MAX) return "the layout has 2^31 blocks or more";
    if (!tartan_i_is_variable(layout)) return NULL;
    if (!takes_sizes(kind)) return "the layout has blocks of different sizes";
    if (layout->shape.rows > INT32_MAX || layout->shape.cols > INT32_MAX)
        return "the layout has blocks of different sizes and 2^31 rows or columns or more";
    return NULL;
}

/* Places of lines have 32 bits, and what is sorted is counted in 31. */
static const char *refuse_selection(const tartan_array *x, int64_t k) {
    return x->shape[x->ndim - 1] > UINT32_MAX || k > INT32_MAX
               ? "lines have 2^32 numbers or more, or k is 2^31 or more"
               : NULL;
}

const char *tartan_cuda_op_refuses(const tartan_cuda_chip *chip, const tartan_op *op) {
    if (tartan_cuda_kernels_of(op->kind) == NULL) return "it does not have this operation";
    for (int32_t i = 0; i < op->noperands; i++) {
        const tartan_i_operand *one = &op->operands[i];
        const char *why = refuse_layout(op->kind, one->matrix != NULL ? one->matrix->layout : one->layout);
        if (why != NULL) return why;
    }
    switch (op->kind) {
    case TARTAN_OP_EMBEDDING_GRADIENT:
        return tartan_i_array_elements(op->embedding_gradient.indices) > INT32_MAX
                   ? "there are 2^31 indices or more"
                   : NULL;
    case TARTAN_OP_TOP_K:
        return refuse_selection(op->top_k.x, op->top_k.k);
    case TARTAN_OP_TOP_K_SOFTMAX:
        return refuse_selection(op->top_k_softmax.x, op->top_k_softmax.k);
    case TARTAN_OP_RECTIFIED_TOP_K:
        return refuse_selection(op->rectified_top_k.x, op->rectified_top_k.k);
    default:
        return tartan_cuda_whole_refuses(chip, op);
    }
}

/* ---- Kernels ---- */

static const char ONE_SIZE[] = "only for blocks of one size",
                  MULTIPLES[] = "only for boundaries that are multiples of 8 where blocks differ in size";

static bool is_tuned_block(int32_t rows, int32_t cols) {
    return rows == cols && (rows == 8 || rows == 16 || rows == 32 || rows == 64 || rows == 128);
}

static bool has_unit_stride(const tartan_cuda_dense *d) {
    return d->row_stride == 1 || d->col_stride == 1;
}

/* Both strides fit in 31 bits of bytes. */
static bool is_near(const tartan_cuda_dense *d, int32_t dtype) {
    const int64_t most = INT32_MAX / tartan_cuda_bytes_of(dtype);
    return d->row_stride <= most && d->row_stride >= -most && d->col_stride <= most && d->col_stride >= -most;
}

static bool is_aligned(const void *pointer, int64_t bytes) {
    return (uintptr_t)pointer % (uintptr_t)bytes == 0;
}

/* ---- Sparse times dense ---- */

/* Why blocks cannot be taken as sub-blocks of `edge`, or NULL. */
static const char *refuse_sub_blocks(const tartan_cuda_spmm *p, int32_t edge) {
    if (edge == 0) return p->variable ? MULTIPLES : "only for blocks whose edges are multiples of 8";
    if (edge == p->block_m && edge == p->block_k) return NULL;
    if (p->dynamic) return "only for square blocks of 8, 16, 32, 64 or 128 if the layout is dynamic";
    if ((double)p->blocks * p->block_m * p->block_k / edge > INT32_MAX)
        return "only for fewer than 2^31 rows of sub-blocks";
    return NULL;
}

const char *tartan_cuda_spmm_simt_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_spmm *p = problem;
    if (p->variable) return ONE_SIZE;
    (void)chip;
    if (p->dtype != TARTAN_F32) return "only for float32";
    if (p->block_m % 8 != 0 || p->block_k % 8 != 0) return "only for blocks whose edges are multiples of 8";
    if (p->blocks == 0) return "the matrix has no blocks";
    return NULL;
}

const char *tartan_cuda_spmm_mma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_spmm *p = problem;
    if (chip->major < 8) return "needs compute capability 8.0 or more";
    if (tartan_cuda_is_8_bits(p->dtype)) return "only for types of 16 bits or more";
    if (p->dtype == TARTAN_F32 && !p->tf32) return "rounds float32 to tf32, which the context does not allow";
    const char *blocks = refuse_sub_blocks(p, tartan_cuda_spmm_edge(p));
    if (blocks != NULL) return blocks;
    if (p->blocks == 0) return "the matrix has no blocks";
    if (!has_unit_stride(&p->b)) return "neither the rows nor the columns of b are contiguous";
    if (!is_near(&p->b, p->dtype)) return "only for strides of b below 2^31 bytes";
    if (p->n > INT32_MAX || p->k > INT32_MAX || p->batch.entries > INT32_MAX)
        return "only for fewer than 2^31 rows, columns and batch entries";
    const double strips = ((double)p->n / 128 + 1) * (double)p->batch.entries;
    if (strips * (double)p->heads * ((double)p->grid_m * p->block_m / 64 + 1) > 2e9)
        return "only for fewer than 2e9 tiles of the output";
    if (tartan_cuda_is_half(p->dtype) && p->gates.data != NULL && p->c.dtype == TARTAN_F32)
        return "would round gated values to 16 bits, and c is float32";
    return NULL;
}

/* What the kernels that load by TMA and multiply by wgmma have in common; `lines`: rows of tiles of a head. */
static const char *refuse_tiles(const tartan_cuda_spmm *p, double lines) {
    if (p->blocks == 0 || p->m == 0 || p->k == 0) return "the matrix has no blocks";
    if (p->n < 8) return "only for 8 columns or more";
    if (p->n > INT32_MAX || p->m > INT32_MAX || p->k > INT32_MAX)
        return "only for fewer than 2^31 rows and columns";
    if (!is_aligned(p->values, 16)) return "the values of a are not aligned to 16 bytes";
    if (p->batch.ndim > 1 || p->batch.entries > INT32_MAX) return "only for one batch dimension";
    if (((double)p->n / 256 + 1) * lines * (double)p->heads * (double)p->batch.entries > 2e9)
        return "only for fewer than 2e9 tiles of the output";
    if (tartan_cuda_is_half(p->dtype) && p->gates.data != NULL && p->c.dtype == TARTAN_F32)
        return "would round gated values to 16 bits, and c is float32";
    if (!has_unit_stride(&p->b)) return "neither the rows nor the columns of b are contiguous";
    return NULL;
}

const char *tartan_cuda_spmm_wgmma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_spmm *p = problem;
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    if (!tartan_cuda_is_half(p->dtype) && !tartan_cuda_is_8_bits(p->dtype) && !p->tf32)
        return "only for float16, bfloat16, 8-bit types and tf32";
    const int32_t edge = tartan_cuda_spmm_wgmma_edge(p);
    const char *why = refuse_sub_blocks(p, edge);
    if (why != NULL) return why;
    why = refuse_tiles(p, (double)p->grid_m * (p->block_m / edge));
    if (why != NULL) return why;
    if (p->tf32 && p->a_k != 1) return "tf32 needs the summed index of a to be contiguous";
    if (p->k % edge != 0)
        return edge == p->block_k ? "only for whole block columns" : "only for whole columns of sub-blocks";
    if (tartan_cuda_is_8_bits(p->dtype)) {
        if (edge < 16) return "only for blocks of 16 or more with 8-bit types";
        if (p->gates.data != NULL) return "would round gated values to 8 bits";
        if (p->a_k != 1) return "8-bit types need the summed index of a to be contiguous";
        if (p->b.row_stride != 1) return "8-bit types need the summed index of b to be contiguous";
    }
    return NULL;
}

/* Whether f32 rows of C are contiguous, but do not all begin at multiples of 16 bytes, as vectors_of of
 * kernels/spmm_describe.cuh sees it. */
static bool begins_anywhere(const tartan_cuda_spmm *p) {
    const bool apart = (p->heads == 1 || p->c.head_stride % 4 == 0) &&
                       (p->batch.ndim == 0 || p->batch.second[0] % 4 == 0) && p->c.row_stride % 4 == 0;
    return p->beta == 0 && p->c.col_stride == 1 && !(apart && is_aligned(p->c.data, 16));
}

const char *tartan_cuda_spmm_swapped_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_spmm *p = problem;
    if (p->variable) return ONE_SIZE;
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    if (!tartan_cuda_is_half(p->dtype) && !p->tf32) return "only for float16, bfloat16 and tf32";
    if (p->block_m % 8 != 0 || p->block_k % 8 != 0) return "only for blocks whose edges are multiples of 8";
    if (p->block_m < 72 || p->block_m > 128) return "only for blocks of 72 to 128 rows";
    if (p->tf32 && p->a_k != 1) return "tf32 needs the summed index of a to be contiguous";
    if (p->tf32 && (p->b.col_stride != 1 || p->b.row_stride == 1))
        return "tf32 needs the columns of b to be contiguous";
    if (p->tf32 && begins_anywhere(p)) return "would store one by one what spmm_wgmma stores by 16 bytes";
    return refuse_tiles(p, (double)p->grid_m);
}

const char *tartan_cuda_spmm_narrow_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_spmm *p = problem;
    if (p->variable) return ONE_SIZE;
    if (chip->major < 8) return "needs compute capability 8.0 or more";
    if (!tartan_cuda_is_half(p->dtype)) return "only for float16 and bfloat16";
    if (p->block_m % 8 != 0 || p->block_k % 8 != 0) return "only for blocks whose edges are multiples of 8";
    if (p->blocks == 0) return "the matrix has no blocks";
    if (p->n > 1024) return "only for at most 1024 columns";
    if (p->k > INT32_MAX || p->heads * p->grid_m > INT32_MAX / 8)
        return "only for fewer than 2^31 terms and 2^28 block rows";
    if (p->batch.entries > UINT16_MAX) return "only for fewer than 2^16 batch entries";
    if (!is_aligned(p->values, 16)) return "the values of a are not aligned to 16 bytes";
    if (p->gates.data != NULL && p->c.dtype == TARTAN_F32)
        return "would round gated values to 16 bits, and c is float32";
    return NULL;
}

const char *tartan_cuda_spmm_few_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_spmm *p = problem;
    if (p->variable) return ONE_SIZE;
    if (tartan_cuda_is_8_bits(p->dtype)) return "only for types of 16 bits or more";
    if (p->blocks == 0) return "the matrix has no blocks";
    if (tartan_cuda_spmm_narrow_refuses(chip, p) == NULL) return "spmm_narrow can multiply these";
    if (p->n > 128) return "only for at most 128 columns";
    if (p->heads * p->grid_m > (1 << 27) / p->block_m) return "only for at most 2^27 rows";
    if (p->batch.entries > UINT16_MAX) return "only for fewer than 2^16 batch entries";
    return NULL;
}

const char *tartan_cuda_spmm_dense_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_spmm *p = problem;
    if (p->variable) return ONE_SIZE;
    tartan_cuda_gemm gemm;
    if (!p->allow_dense) return "uses cuBLAS with a dense copy of a, which the context does not allow";
    if (chip->no_cublas != NULL) return chip->no_cublas;
    if (tartan_cuda_is_8_bits(p->dtype)) return "only for types of 16 bits or more";
    if (p->blocks == 0) return "the matrix has no blocks";
    if (tartan_cuda_is_half(p->dtype) && p->gates.data != NULL && p->c.dtype == TARTAN_F32)
        return "would round gated values to 16 bits, and c is float32";
    return tartan_cuda_gemm_of(p, &gemm);
}

const char *tartan_cuda_spmm_gather_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_spmm *p = problem;
    if (chip->major < 8) return "needs compute capability 8.0 or more";
    if (tartan_cuda_is_8_bits(p->dtype)) return "only for types of 16 bits or more";
    if (p->blocks == 0) return "the matrix has no blocks";
    /* With few columns these two fill only a part of their tiles of 256, and take twice as long. */
    const bool few = p->n <= 128 && (p->dtype == TARTAN_F64 || (p->dtype == TARTAN_F32 && !p->tf32));
    if (!few &&
        (tartan_cuda_spmm_mma_refuses(chip, p) == NULL || tartan_cuda_spmm_simt_refuses(chip, p) == NULL))
        return "only where spmm_mma and spmm_simt cannot, or for at most 128 columns of float32 or float64";
    if (p->m > INT32_MAX || p->k > INT32_MAX) return "only for fewer than 2^31 rows and columns";
    if (tartan_cuda_is_half(p->dtype) && p->gates.data != NULL && p->c.dtype == TARTAN_F32)
        return "would round gated values to 16 bits, and c is float32";
    return NULL;
}

/* ---- Sampled dense times dense ---- */

/* Why blocks cannot be taken as sub-blocks of `edge` rows, or NULL. */
static const char *refuse_parts(const tartan_cuda_sddmm *p, int32_t edge) {
    if (edge == 0) return p->variable ? MULTIPLES : "only for blocks whose edges are multiples of 8";
    if (is_tuned_block(p->block_m, p->block_n) && !p->variable) return NULL;
    if (p->dynamic) return "only for square blocks of 8, 16, 32, 64 or 128 if the layout is dynamic";
    if ((double)p->blocks * p->block_m * p->block_n / edge > INT32_MAX)
        return "only for fewer than 2^31 rows of sub-blocks";
    return NULL;
}

const char *tartan_cuda_sddmm_mma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_sddmm *p = problem;
    if (chip->major < 8) return "needs compute capability 8.0 or more";
    if (p->dtype == TARTAN_F32 && !p->tf32) return "rounds float32 to tf32, which the context does not allow";
    const char *blocks = refuse_parts(p, tartan_cuda_sddmm_edge(p));
    if (blocks != NULL) return blocks;
    if (p->blocks == 0) return "the matrix has no blocks";
    for (int32_t i = 0; i < p->pairs; i++) {
        if (!has_unit_stride(&p->pair[i].x)) return "neither the rows nor the columns of x are contiguous";
        if (!has_unit_stride(&p->pair[i].y)) return "neither the rows nor the columns of y are contiguous";
        if (!is_near(&p->pair[i].x, p->dtype) || !is_near(&p->pair[i].y, p->dtype))
            return "only for strides of x and y below 2^31 bytes";
        if (p->pair[i].k > INT32_MAX || p->pair[i].batch.entries > INT32_MAX)
            return "only for fewer than 2^31 terms and batch entries";
        if ((p->pair[i].x.col_stride == 1) != (p->pair[0].x.col_stride == 1) ||
            (p->pair[i].y.row_stride == 1) != (p->pair[0].y.row_stride == 1))
            return "only for pairs of the same memory order";
    }
    return NULL;
}

const char *tartan_cuda_sddmm_gather_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_sddmm *p = problem;
    if (chip->major < 8) return "needs compute capability 8.0 or more";
    if (p->blocks == 0) return "the matrix has no blocks";
    if (p->dtype != TARTAN_F64 && tartan_cuda_sddmm_mma_refuses(chip, p) == NULL)
        return "only in float64 where sddmm_mma can";
    if (p->m >= INT32_MAX / 2 || p->n >= INT32_MAX / 2) return "only for fewer than 2^30 rows and columns";
    if ((double)p->heads * (double)p->grid_m * (p->block_m / 8 + 1) > INT32_MAX)
        return "only for fewer than 2^31 rows of tiles";
    return NULL;
}

const char *tartan_cuda_sddmm_wgmma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_sddmm *p = problem;
    if (p->variable) return ONE_SIZE;
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    if (!tartan_cuda_is_half(p->dtype)) return "only for float16 and bfloat16";
    const char *blocks = refuse_parts(p, tartan_cuda_sub_edge(p->block_m, p->block_n));
    if (blocks != NULL) return blocks;
    if (p->block_n > 256) return "only for blocks of at most 256 columns";
    if (p->blocks == 0) return "the matrix has no blocks";
    if (p->m > INT32_MAX || p->n > INT32_MAX) return "only for fewer than 2^31 rows and columns";
    double terms = 0;
    for (int32_t i = 0; i < p->pairs; i++) {
        const int64_t k = p->pair[i].k, entries = p->pair[i].batch.entries;
        if (k < 8 || k > INT32_MAX || entries < 1) return "only for sums of 8 to 2^31 terms";
        terms += (double)(k + 63) * (double)entries; /* whole stages of 64 */
        if (terms > INT32_MAX) return "only for sums of 8 to 2^31 terms";
        if (p->pair[i].batch.ndim > 1) return "only for one batch dimension";
        if ((p->pair[i].x.row_stride == 1) != (p->pair[0].x.row_stride == 1) ||
            (p->pair[i].y.row_stride == 1) != (p->pair[0].y.row_stride == 1))
            return "only for pairs of the same memory order";
        if (!has_unit_stride(&p->pair[i].x)) return "neither the rows nor the columns of x are contiguous";
        if (!has_unit_stride(&p->pair[i].y)) return "neither the rows nor the columns of y are contiguous";
    }
    return NULL;
}
