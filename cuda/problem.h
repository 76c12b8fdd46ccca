/* SPDX-License-Identifier: Apache-2.0
 * Problems: operations in the form that kernels take, one form for both sides, all transposes and all memory orders. An operation
 * whose own struct, tartan_op_<op>, has that form is its problem. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_PROBLEM_H
#define TARTAN_CUDA_PROBLEM_H

#include "problem_classes.h"
#include "problem_conv.h"
#include "problem_points.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* ---- Problems ---- */

/* C[m, n] = alpha * sum_k A[m, k] B[k, n] + beta * C[m, n] for every head and batch entry. */
typedef struct tartan_cuda_spmm {
    bool nothing;
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
    bool dynamic;            /* the layout is dynamic */
    bool variable;           /* blocks differ in size; block_m and block_k are the largest */
    const tartan_layout *layout;
    tartan_cuda_figures figures;
} tartan_cuda_spmm;

/* The edge of the squares into which kernels for squares cut blocks (tartan_cuda_sub_edge); 0: none fits. */
int32_t tartan_cuda_spmm_edge(const tartan_cuda_spmm *p);

/* The same product with blocks cut into square sub-blocks of `edge`, which divides both edges of a block. Their number, the
 * grid and the figures, which are estimated, change; strides inside a block, values and gates stay. */
tartan_cuda_spmm tartan_cuda_spmm_in_sub_blocks(const tartan_cuda_spmm *p, int32_t edge);

/* S block = gate * alpha * sum over pairs, batch and k of X[m, k] Y[k, n], + beta * S, at the stored blocks. */
typedef struct tartan_cuda_sddmm {
    bool nothing;
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
    bool dynamic;  /* the layout is dynamic */
    bool variable; /* blocks differ in size */
    const tartan_layout *layout;
    tartan_cuda_figures figures;
} tartan_cuda_sddmm;

int32_t tartan_cuda_sddmm_edge(const tartan_cuda_sddmm *p);

/* The same with blocks cut into square sub-blocks, as for spmm. */
tartan_cuda_sddmm tartan_cuda_sddmm_in_sub_blocks(const tartan_cuda_sddmm *p, int32_t edge);

/* out[w] = sum of dW_w * W_w over the elements of block w; then dW_w = gate_w * dW_w if there are gates. */
typedef struct tartan_cuda_gate_gradient {
    bool nothing;
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
    const tartan_layout *layout;
} tartan_cuda_gate_gradient;

/* score[i, j] = beta * score[i, j] + scale * sum over pairs and k of |X_i[., k]| |Y_j[k, .]|, the norms of block row i
 * of X and block column j of Y. */
typedef struct tartan_cuda_growth_score {
    bool nothing;
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
} tartan_cuda_growth_score;

/* An array of [batch, heads, tokens, d], strides in elements. */
typedef struct tartan_cuda_tensor {
    void *data;
    int32_t dtype;
    int64_t batch, head, token, element; /* strides */
} tartan_cuda_tensor;

/* What both passes of attention share (tartan/operations.h). */
typedef struct tartan_cuda_attention {
    int32_t dtype;                                 /* of q, k and v */
    int32_t sum_dtype;                             /* of lse and bias */
    int64_t batch, heads, kv_heads, tq, tk, d, dv; /* dv: elements of a value; d: of a query and a key */
    tartan_cuda_tensor q, k, v;
    int64_t layout_heads, blocks, grid_q, grid_k;
    int64_t layout_entry,
        layout_head; /* heads of the layout from a batch entry, and from a head, to the next */
    int32_t block_q, block_k;
    double scale, softcap; /* softcap: 0 if there is none */
    bool causal;
    int64_t query_offset, causal_from;
    const tartan_block_mask *block_mask; /* in host memory; or NULL */
    int32_t bias_kind;                   /* tartan_i_bias */
    const void *bias;                    /* of sum_dtype */
    int64_t bias_head, bias_element;     /* strides; bias_head is 0 where all heads share a row */
    int64_t bias_reach;                  /* r of the kind DISTANCE */
    int64_t bias_batch, bias_query;      /* strides of the kind DENSE, whose keys are bias_element apart */
    double dropout;
    int64_t seed;
    bool any_order; /* of sums: results may depend on the run */
    const tartan_layout *layout;
    tartan_cuda_figures figures;
} tartan_cuda_attention;

/* lse of both passes is an array of [batch, heads, tq]; in the forward pass its data may be NULL. */
typedef struct tartan_cuda_attention_forward {
    bool nothing;
    tartan_cuda_attention in;
    const void *sinks; /* one for each head, of in.sum_dtype; or NULL */
    int64_t sinks_element;
    tartan_cuda_tensor out, lse; /* lse.element is unused */
} tartan_cuda_attention_forward;

typedef struct tartan_cuda_attention_backward {
    bool nothing;
    tartan_cuda_attention in;
    tartan_cuda_tensor out, lse, out_grad, q_grad, k_grad, v_grad;
} tartan_cuda_attention_backward;

typedef struct tartan_cuda_attention_bias_gradient {
    bool nothing;
    tartan_cuda_attention in;
    const void *sinks; /* as in the forward pass */
    int64_t sinks_element;
    tartan_cuda_tensor out, lse, out_grad;
    void *bias_grad, *sinks_grad; /* of in.sum_dtype; or NULL */
    int64_t planes, width;        /* of the bias, which is [planes][width] */
    /* Of bias_grad: plane p is at p / plane_heads and p % plane_heads, number n at n / columns and n % columns. */
    int64_t plane_heads, columns;
    int64_t plane_batch_stride, plane_stride, row_stride, number_stride;
    int64_t sinks_grad_element;
    /* Groups of batch entries and heads, which share a plane: group g has the entries g * member_first + n * member_step. */
    int64_t groups, member_first, member_step;
} tartan_cuda_attention_bias_gradient;

/* out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b; the data of lse may be NULL. */
typedef struct tartan_cuda_attention_merge {
    bool nothing;
    int64_t batch, heads, tokens, d;
    int32_t sum_dtype;                                       /* of every lse */
    tartan_cuda_tensor out_a, lse_a, out_b, lse_b, out, lse; /* lse.element is unused */
} tartan_cuda_attention_merge;

/* ---- Making them ---- */

/* Makes the problem of an operation that lib/ops has checked: `of` is its struct, tartan_op_<op>, `out` the problem's. For
 * products, batch dimensions that continue n (spmm) or k (sddmm) in both operands are folded into it, and the rest are merged into
 * as few as possible. Errors: MEMORY. */
typedef tartan_status tartan_cuda_maker(const tartan_host *host, const tartan_context *context,
                                        const void *of, void *out);

#define MADE(op)      tartan_cuda_maker tartan_cuda_##op##_of;
#define MANY(op, ...) MADE(op)
#define PLAIN(op)
#include "kernels.def"
#undef MADE
#undef MANY
#undef PLAIN

/* Room for any of them; all begin with `nothing`: there is nothing to compute. */
typedef union tartan_cuda_problem {
    bool nothing;
    tartan_cuda_spmm spmm;
    tartan_cuda_sddmm sddmm;
    tartan_cuda_gate_gradient gate_gradient;
    tartan_cuda_growth_score growth_score;
    tartan_cuda_attention_forward attention_forward;
    tartan_cuda_attention_backward attention_backward;
    tartan_cuda_attention_bias_gradient attention_bias_gradient;
    tartan_cuda_attention_merge attention_merge;
    tartan_cuda_window_pool window_pool;
    tartan_cuda_window_gather window_gather;
    tartan_cuda_window_scatter window_scatter;
    tartan_cuda_channel_linear channel_linear;
    tartan_cuda_channel_linear_gradient channel_linear_gradient;
    tartan_cuda_conv conv;
    tartan_cuda_conv_filter_gradient conv_filter_gradient;
    tartan_cuda_conv_normalize conv_normalize;
    tartan_cuda_conv_normalize_gradient conv_normalize_gradient;
    tartan_cuda_point2_gradient point2_gradient;
    tartan_cuda_fused fused;
    tartan_cuda_classes classes;
    tartan_cuda_norm norm;
    tartan_cuda_norm_gradient norm_gradient;
    tartan_cuda_add_norm add_norm;
    tartan_cuda_add_norm_gradient add_norm_gradient;
    tartan_cuda_channel_norm channel_norm;
    tartan_cuda_points points;
} tartan_cuda_problem;

#ifdef __cplusplus
}
#endif
#endif
