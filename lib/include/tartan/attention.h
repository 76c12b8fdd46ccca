/* SPDX-License-Identifier: Apache-2.0
 * Block-sparse attention. For each batch entry and head, with visible(i) the keys that query i may see,
 *
 *     s[i,j]  = scale * sum_d q[i,d] k[j,d] + bias[i,j]        for j in visible(i)
 *     lse[i]  = log(exp(sink) + sum_j exp(s[i,j]))             without the first term if there are no sinks
 *     out[i]  = sum_j exp(s[i,j] - lse[i]) v[j]
 *
 * Key j is visible to query i if the layout stores its block, the block mask keeps the element, and, with the option
 * causal=1, j <= i + query_offset or j < causal_from. A query that sees no key gets out = 0 and lse = sink, or -infinity
 * without sinks.
 *
 * Scores are never stored: memory grows with tq + tk, and the backward pass computes them again from lse. A call that
 * fails leaves its outputs untouched. Outputs may not overlap inputs.
 *
 * dtypes: q, k, v and their gradients have one dtype: f64, f32, f16 or bf16. out has the same, or f32 where that has 16
 * bits. lse is of f32, or f64 for f64. Sums of 16-bit types are kept in f32, and the weights exp(s - max) are rounded to
 * the dtype before they are multiplied by v, as everywhere on tensor cores. Bits do not depend on the number of
 * threads, nor, unless deterministic=0 allows it, on the run; those of f32 and f64 on the CPU do not depend on the
 * instruction set either.
 *
 * The parts of attention are operations of their own: tartan_sddmm makes scores of q and k^T, tartan_block_softmax (operations.h)
 * makes weights of scores, and tartan_spmm sums v by weights. Backward: tartan_sddmm of out_grad and v^T,
 * tartan_block_softmax_gradient, then three products.
 *
 * Source: Dao, "FlashAttention-2" (2023), for the running maximum and the backward formulas; Child et al., "Generating
 * Long Sequences with Sparse Transformers" (2019), for the patterns. */
#ifndef TARTAN_ATTENTION_H
#define TARTAN_ATTENTION_H

#include "tartan/context.h"
#include "tartan/layout.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out and lse of the formulas above.
 *   layout      tq x tk elements in blocks of (queries x keys), ordinary or dynamic (device.h). Its heads are 1, for
 *               all; those of q; or batch * heads, where batch entry b has heads b * heads, b * heads + 1, ...
 *   q           [batch, heads, tq, d], any strides, as all arrays here
 *   k, v        [batch, kv_heads, tk, d]; kv_heads divides heads, and head h uses kv head h / (heads / kv_heads)
 *   options     NULL, or a list of "name=value" separated by blanks or commas:
 *     scale=0.125       default 1 / sqrt(d); any finite number
 *     causal=1          hides later keys; default 0
 *     query_offset=96   with causal=1: query i stands at position i + query_offset of the keys. tk - tq aligns the
 *                       last query with the last key, as decoding wants. Default 0
 *     causal_from=64    with causal=1: keys before this one are visible to all queries (autoregress_at_key of
 *                       openai/blocksparse). Default 0
 *     bias=slopes       what the bias array holds:
 *                       slopes    [heads]: bias[i,j] = slope * (j - i - query_offset) (ALiBi)
 *                       distance  [heads or 1, 2r + 1]: the number at clamp(j - i - query_offset, -r, r) + r
 *                       block     [heads or 1, blocks]: one number for each stored block, of a dynamic layout for
 *                                 each of its capacity. [1, blocks] if the layout has more than one head
 *     dropout=0.1       drops each weight with this probability and divides the others by 1 - dropout. lse is that
 *                       without dropout. Default 0
 *     seed=7            for dropout: equal seeds drop the same elements (batch, head, i, j), on every device. 0 or
 *                       more, default 0
 *     deterministic=0   for the backward pass: a GPU may add up q_grad in an order that depends on the run, where that
 *                       is faster. Default 1. The forward pass ignores it
 *   block_mask  NULL, or an in-block mask of this layout, which is then not dynamic
 *   bias        NULL, or an array as the option bias says, of the dtype of lse
 *   sinks       NULL, or [heads], of the dtype of lse: a logit that takes a share of each softmax of its head and has no
 *               value, so that the weights of a query add up to less than 1. -infinity: none
 *   out         [batch, heads, tq, d]
 *   lse         NULL, or [batch, heads, tq]
 * Work: 4 d operations for each visible pair. Any size may be 0.
 * Errors: HANDLE, SHAPE, DTYPE, LAYOUT (the mask is of another layout), ARGUMENT (options, overlap, an output whose
 * elements share memory), UNSUPPORTED (memory of another device), MEMORY. */
TARTAN_API tartan_status tartan_attention_forward(tartan_context *context, const tartan_layout *layout,
                                                  const tartan_array *q, const tartan_array *k,
                                                  const tartan_array *v, const char *options,
                                                  const tartan_block_mask *block_mask,
                                                  const tartan_array *bias, const tartan_array *sinks,
                                                  tartan_array *out, tartan_array *lse);

/* The gradients with respect to q, k and v, given out_grad, that with respect to out:
 *     p = exp(s - lse),  delta[i] = sum_d out[i,d] out_grad[i,d],  ds[i,j] = p[i,j] (out_grad[i] . v[j] - delta[i])
 *     q_grad[i] = scale sum_j ds[i,j] k[j],  k_grad[j] = scale sum_i ds[i,j] q[i],  v_grad[j] = sum_i p[i,j] out_grad[i]
 * k_grad and v_grad sum over the heads that share a kv head. Arguments up to `bias` and their options are those of the
 * forward pass, `out` and `lse` its results (lse contains the sinks, which are no argument here), `out_grad` has the
 * shape and dtype of `out`, the gradients those of q, k and v. Work: 10 d operations for each visible pair, and 4 d to
 * compute scores again where that is faster than to wait for sums of other threads or CTAs. With deterministic=0 a
 * kernel of a GPU adds up q_grad in f32, in memory of its own of 4 bytes for each element of q (d rounded up to 64 or
 * 128). Errors: as tartan_attention_forward. */
TARTAN_API tartan_status tartan_attention_backward(
    tartan_context *context, const tartan_layout *layout, const tartan_array *q, const tartan_array *k,
    const tartan_array *v, const char *options, const tartan_block_mask *block_mask, const tartan_array *bias,
    const tartan_array *out, const tartan_array *lse, const tartan_array *out_grad, tartan_array *q_grad,
    tartan_array *k_grad, tartan_array *v_grad);

/* The gradients with respect to the bias array and the sinks, of the formulas above:
 *     slopes    bias_grad[h] = sum_{b,i,j} ds[i,j] (j - i - query_offset)
 *     distance  bias_grad[h, n] = sum of ds[i,j] where clamp(j - i - query_offset, -r, r) + r is n
 *     block     bias_grad[h, n] = sum of ds[i,j] in block n
 *     sinks     sinks_grad[h] = -sum_{b,i} exp(sinks[h] - lse[i]) delta[i]
 * each also over the batch entries and, if the bias is shared, the heads. One of bias_grad and sinks_grad may be NULL; the
 * others have the shape and dtype of `bias` and `sinks`. All other arguments are those of tartan_attention_backward.
 * Sums of f32 and 16-bit types are kept in f64. Work: 4 d operations for each visible pair, as scores are computed again;
 * without bias_grad none. Errors: as tartan_attention_forward. */
TARTAN_API tartan_status tartan_attention_bias_gradient(
    tartan_context *context, const tartan_layout *layout, const tartan_array *q, const tartan_array *k,
    const tartan_array *v, const char *options, const tartan_block_mask *block_mask, const tartan_array *bias,
    const tartan_array *sinks, const tartan_array *out, const tartan_array *lse, const tartan_array *out_grad,
    tartan_array *bias_grad, tartan_array *sinks_grad);

#ifdef __cplusplus
}
#endif
#endif
