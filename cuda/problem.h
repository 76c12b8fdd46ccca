/* SPDX-License-Identifier: Apache-2.0
 * Operations in the form that kernels take, one struct each: one form for both sides, all transposes and all memory
 * orders. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_PROBLEM_H
#define TARTAN_CUDA_PROBLEM_H

#include "problem_conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operations of the plug-in. Each has a problem, tartan_cuda_<op>; a function that makes it of an operation that
 * lib/ops has checked, tartan_cuda_<op>_of; and a table of kernels, tartan_cuda_<op>_kernels (kernels.h). */
#define TARTAN_CUDA_OPERATIONS(X)                                                                            \
    X(SPMM, spmm)                                                                                            \
    X(SDDMM, sddmm)                                                                                          \
    X(GATE_GRADIENT, gate_gradient)                                                                          \
    X(GROWTH_SCORE, growth_score)                                                                            \
    X(BLOCK_COPY, block_copy)                                                                                \
    X(BLOCK_NORMS, block_norms)                                                                              \
    X(ELEMENTWISE, elementwise)                                                                              \
    X(ELEMENTS, elements)                                                                                    \
    X(REDUCE, reduce)                                                                                        \
    X(COMPARE, compare)                                                                                      \
    X(ATTENTION_FORWARD, attention_forward)                                                                  \
    X(ATTENTION_BACKWARD, attention_backward)                                                                \
    X(ATTENTION_BIAS_GRADIENT, attention_bias_gradient)                                                      \
    X(ATTENTION_MERGE, attention_merge)                                                                      \
    X(BLOCK_SOFTMAX, block_softmax)                                                                          \
    X(BLOCK_SOFTMAX_GRADIENT, block_softmax_gradient)                                                        \
    X(WINDOW_POOL, window_pool)                                                                              \
    X(WINDOW_GATHER, window_gather)                                                                          \
    X(WINDOW_SCATTER, window_scatter)                                                                        \
    X(CONV, conv)                                                                                            \
    X(CONV_FILTER_GRADIENT, conv_filter_gradient)                                                            \
    X(CHANNEL_LINEAR, channel_linear)                                                                        \
    X(CHANNEL_LINEAR_GRADIENT, channel_linear_gradient)                                                      \
    X(CONV_NORMALIZE, conv_normalize)                                                                        \
    X(CONV_NORMALIZE_GRADIENT, conv_normalize_gradient)

/* ---- Parts of problems ---- */

/* A number for each stored block, by block id: gates, for instance. */
typedef struct tartan_cuda_block_scalars {
    const void *data; /* NULL: there are none */
    int32_t dtype;    /* f32 or f64 */
    int64_t stride;
} tartan_cuda_block_scalars;

enum { TARTAN_CUDA_MAX_BATCH = 6 };

/* The batch of two operands, without the heads; strides in elements. Dimensions of length 1 are left out. */
typedef struct tartan_cuda_batch {
    int32_t ndim;
    int64_t entries; /* product of the lengths; 1 if ndim is 0 */
    int64_t lengths[TARTAN_CUDA_MAX_BATCH];
    int64_t first[TARTAN_CUDA_MAX_BATCH];  /* strides. spmm: of B; sddmm: of X */
    int64_t second[TARTAN_CUDA_MAX_BATCH]; /* spmm: of C; sddmm: of Y */
} tartan_cuda_batch;

/* A dense matrix for each batch entry and head: element (i, j) is at data + head * head_stride + batch offset +
 * i * row_stride + j * col_stride, in elements. */
typedef struct tartan_cuda_dense {
    void *data;
    int32_t dtype;
    int64_t head_stride, row_stride, col_stride;
} tartan_cuda_dense;

/* The values of a matrix: [blocks][block_rows * block_cols], inside a block in `order` (tartan_block_order). */
typedef struct tartan_cuda_blocks {
    void *values;
    int32_t dtype, order;
    const tartan_layout *layout;
} tartan_cuda_blocks;

/* ---- Problems; `nothing`: there is nothing to compute ---- */

/* C[m, n] = alpha * sum_k A[m, k] B[k, n] + beta * C[m, n] for every head and batch entry. */
typedef struct tartan_cuda_spmm {
    int32_t dtype; /* of A and B; C's is c.dtype */
    int64_t m, k, n, heads, blocks;
    int64_t grid_m, grid_k;
    int32_t block_m, block_k; /* of op(A) */
    const void *values;       /* [blocks][block_m * block_k] */
    int32_t a_m, a_k;         /* strides inside a block; one of them is 1 */
    bool by_columns;          /* block rows of op(A) are block columns of the layout */
    tartan_cuda_block_scalars gates;
    double alpha, beta;
    tartan_cuda_batch batch; /* first: B, second: C */
    tartan_cuda_dense b, c;  /* rows of b are k, of c are m */
    bool tf32;               /* f32 factors may be rounded to tf32 */
    bool allow_dense;        /* a dense copy of A may be multiplied by cuBLAS */
    bool nothing;
    bool dynamic; /* the layout is dynamic */
    const tartan_layout *layout;
    tartan_cuda_figures figures;
} tartan_cuda_spmm;

/* The same product, its blocks taken as square sub-blocks of `edge`, which divides both edges of a block: their number, the
 * grid, and the figures, estimated. Strides inside a block, values and gates stay. */
tartan_cuda_spmm tartan_cuda_spmm_in_sub_blocks(const tartan_cuda_spmm *p, int32_t edge);

/* S block = gate * alpha * sum over pairs, batch and k of X[m, k] Y[k, n], + beta * S, at the stored blocks. */
typedef struct tartan_cuda_sddmm {
    int32_t dtype; /* of X and Y; S's is s_dtype */
    int32_t s_dtype;
    int64_t m, n, heads, blocks;
    int64_t grid_m, grid_n;
    int32_t block_m, block_n;
    void *values;     /* [blocks][block_m * block_n] */
    int32_t s_m, s_n; /* strides inside a block; one of them is 1 */
    tartan_cuda_block_scalars gates;
    double alpha, beta;
    int32_t pairs;
    struct {
        int64_t k;
        tartan_cuda_batch batch; /* first: X, second: Y */
        tartan_cuda_dense x, y;  /* rows of x are m, of y are k */
    } pair[TARTAN_I_MAX_PAIRS];
    bool tf32;
    bool nothing;
    bool dynamic; /* the layout is dynamic */
    const tartan_layout *layout;
    tartan_cuda_figures figures;
} tartan_cuda_sddmm;

/* out[w] = sum of dW_w * W_w over the elements of block w; then dW_w = gate_w * dW_w if there are gates. */
typedef struct tartan_cuda_gate_gradient {
    const void *w;
    void *dw;
    int64_t blocks;
    int32_t block_rows, block_cols;
    bool by_row, same_order;              /* W's blocks are row-major; dW's have the same order */
    bool ragged;                          /* the last block row or column is */
    int64_t rows, cols, grid_rows, heads; /* used where ragged */
    tartan_cuda_block_scalars gates;
    void *out;
    int64_t out_stride;
    int32_t dtype;
    bool nothing;
    const tartan_layout *layout;
} tartan_cuda_gate_gradient;

/* score[i, j] = beta * score[i, j] + scale * sum over pairs and k of |X_i[., k]| |Y_j[k, .]|, the norms of block row i
 * of X and block column j of Y. */
typedef struct tartan_cuda_growth_score {
    int32_t dtype, norm;
    int64_t rows, cols; /* of X, of Y */
    int32_t block_rows, block_cols;
    int64_t grid_rows, grid_cols;
    double scale, beta;
    int32_t pairs;
    struct {
        int64_t k;
        const void *x, *y;
        int64_t x_row, x_k, y_k, y_col; /* strides */
    } pair[TARTAN_I_MAX_PAIRS];
    void *score; /* [grid_rows, grid_cols] */
    int64_t score_row, score_col;
    bool nothing;
} tartan_cuda_growth_score;

/* tartan_op_block_copy: a gather by `sources`, or a scatter by `targets`. */
typedef struct tartan_cuda_block_copy {
    tartan_cuda_blocks to, from;
    const int64_t *sources, *targets;
    bool transposed;
    bool nothing;
} tartan_cuda_block_copy;

/* out[w] = the tartan_norm of block w, in f64; NaN if the block holds one. */
typedef struct tartan_cuda_block_norms {
    tartan_cuda_blocks from;
    int32_t norm;
    double *out;
    bool nothing;
} tartan_cuda_block_norms;

/* A number for each head and line (row or column); strides in elements. */
typedef struct tartan_cuda_line_scalars {
    const void *data; /* NULL: there are none */
    int32_t dtype;    /* f32 or f64 */
    int64_t head, line;
} tartan_cuda_line_scalars;

/* tartan_op_elementwise. */
typedef struct tartan_cuda_elementwise {
    tartan_cuda_blocks to, a, b; /* b has no layout if there is one operand */
    const int64_t *a_sources, *b_sources;
    int32_t form, kind;
    double alpha, beta;
    tartan_cuda_line_scalars rows, cols;
    bool nothing;
} tartan_cuda_elementwise;

/* tartan_op_elements. */
typedef struct tartan_cuda_elements {
    tartan_cuda_blocks from, to; /* without values where there is no such matrix */
    int64_t count;
    double alpha;
    const int64_t *sources, *targets;
    double *numbers;
    bool writes;
    bool nothing;
} tartan_cuda_elements;

/* tartan_op_reduce. */
typedef struct tartan_cuda_reduce {
    tartan_cuda_blocks from;
    int32_t kind, each;
    const double *units; /* or NULL */
    double *out;
    bool nothing;
} tartan_cuda_reduce;

/* tartan_op_compare. */
typedef struct tartan_cuda_compare {
    tartan_cuda_blocks a, b;
    int64_t pairs;
    const int64_t *a_ids, *b_ids; /* or both NULL */
    double relative, absolute;
    bool equal_nan;
    double *count;
    bool nothing;
} tartan_cuda_compare;

/* An array of [batch, heads, tokens, d], strides in elements. */
typedef struct tartan_cuda_tensor {
    void *data;
    int32_t dtype;
    int64_t batch, head, token, element; /* strides */
} tartan_cuda_tensor;

/* What both passes of attention share (tartan/attention.h). */
typedef struct tartan_cuda_attention {
    int32_t dtype;     /* of q, k and v */
    int32_t sum_dtype; /* of lse and bias */
    int64_t batch, heads, kv_heads, tq, tk, d;
    tartan_cuda_tensor q, k, v;
    int64_t layout_heads, blocks, grid_q, grid_k;
    int64_t layout_entry,
        layout_head; /* heads of the layout from a batch entry, and from a head, to the next */
    int32_t block_q, block_k;
    double scale;
    bool causal;
    int64_t query_offset, causal_from;
    const tartan_block_mask *block_mask; /* in host memory; or NULL */
    int32_t bias_kind;                   /* tartan_i_bias */
    const void *bias;                    /* of sum_dtype */
    int64_t bias_head, bias_element;     /* strides; bias_head is 0 where all heads share a row */
    int64_t bias_reach;                  /* r of the kind DISTANCE */
    double dropout;
    int64_t seed;
    bool any_order; /* of sums: results may depend on the run */
    const tartan_layout *layout;
    tartan_cuda_figures figures;
} tartan_cuda_attention;

/* lse of both passes is an array of [batch, heads, tq]; in the forward pass its data may be NULL. */
typedef struct tartan_cuda_attention_forward {
    tartan_cuda_attention in;
    const void *sinks; /* one for each head, of in.sum_dtype; or NULL */
    int64_t sinks_element;
    tartan_cuda_tensor out, lse; /* lse.element is unused */
    bool nothing;
} tartan_cuda_attention_forward;

typedef struct tartan_cuda_attention_backward {
    tartan_cuda_attention in;
    tartan_cuda_tensor out, lse, out_grad, q_grad, k_grad, v_grad;
    bool nothing;
} tartan_cuda_attention_backward;

typedef struct tartan_cuda_attention_bias_gradient {
    tartan_cuda_attention in;
    const void *sinks; /* as in the forward pass */
    int64_t sinks_element;
    tartan_cuda_tensor out, lse, out_grad;
    void *bias_grad, *sinks_grad;        /* of in.sum_dtype; or NULL */
    int64_t planes, width;               /* of the bias, which is [planes][width] */
    int64_t plane_stride, number_stride; /* of bias_grad */
    int64_t sinks_grad_element;
    int64_t
        groups; /* of batch entries and heads, which share a plane: group g has the entries g, g + groups, ... */
    bool nothing;
} tartan_cuda_attention_bias_gradient;

/* out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b; the data of lse may be NULL. */
typedef struct tartan_cuda_attention_merge {
    int64_t batch, heads, tokens, d;
    int32_t sum_dtype;                                       /* of every lse */
    tartan_cuda_tensor out_a, lse_a, out_b, lse_b, out, lse; /* lse.element is unused */
    bool nothing;
} tartan_cuda_attention_merge;

/* y = exp(scale x - lse) at the visible elements (tartan/attention.h), else 0. */
typedef struct tartan_cuda_block_softmax {
    tartan_cuda_blocks x, y;
    double scale;
    bool causal;
    int64_t query_offset, causal_from;
    const tartan_block_mask *block_mask; /* in host memory; or NULL */
    void *lse;                           /* of the type of the sums; or NULL */
    int64_t lse_head, lse_row;           /* strides */
    bool nothing;
} tartan_cuda_block_softmax;

/* dx = scale y (dy - the sum of dy y over the row) */
typedef struct tartan_cuda_block_softmax_gradient {
    tartan_cuda_blocks y, dy, dx;
    double scale;
    bool nothing;
} tartan_cuda_block_softmax_gradient;

/* Batch dimensions that both operands step through as a continuation of n (spmm) or k (sddmm) are folded into it, and the
 * rest merged into as few as possible. Errors: MEMORY. */
#define TARTAN_CUDA_PROBLEM_OF(NAME, name)                                                                   \
    tartan_status tartan_cuda_##name##_of(const tartan_host *host, const tartan_context *context,            \
                                          const tartan_op_##name *op, tartan_cuda_##name *out);
TARTAN_CUDA_OPERATIONS(TARTAN_CUDA_PROBLEM_OF)
#undef TARTAN_CUDA_PROBLEM_OF

/* The problem of any operation that has kernels. */
typedef struct tartan_cuda_problem {
    bool nothing; /* to compute */
    union {
#define TARTAN_CUDA_MEMBER(NAME, name) tartan_cuda_##name name;
        TARTAN_CUDA_OPERATIONS(TARTAN_CUDA_MEMBER)
#undef TARTAN_CUDA_MEMBER
    } of;
} tartan_cuda_problem;

tartan_status tartan_cuda_problem_of(const tartan_host *host, const tartan_context *context,
                                     const tartan_op *op, tartan_cuda_problem *out);

#ifdef __cplusplus
}
#endif
#endif
