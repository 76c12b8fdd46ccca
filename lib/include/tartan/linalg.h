/* SPDX-License-Identifier: Apache-2.0
 * Products of block-sparse and dense matrices.
 *
 * A call that fails leaves its outputs untouched. Outputs may not overlap inputs.
 *
 * dtypes: all operands have one dtype, but the output of a 16-bit product may also be f32. Products of 16-bit types
 * are summed in f32 and rounded once. Only tartan_spmm takes 8-bit types: A and B of one of them, C of f32, f16 or
 * bf16. Undo the scaling of their values with alpha, or block by block with gates.
 *
 * On the CPU each output element is one chain of fused multiply-adds in ascending order of the contracted index,
 * then `alpha * sum`, then `fma(beta, c, that)`, so its bits depend neither on the thread count nor on the
 * instruction set. AMX or AVX512-BF16 may multiply bf16 instead (docs/numerics.md), also with the same bits for any
 * thread count.
 * If beta is 0 the output is not read, so NaN in it does not matter.
 *
 * Error bound: |error| <= (8 + 2 sqrt(k)) eps |alpha| (|A||B|) + 2 eps |beta C|, with k terms per sum, and eps =
 * 2^-52 for sums in f64, 2^-23 in f32, 2^-13 for 8-bit factors on tensor cores (docs/numerics.md). */
#ifndef TARTAN_LINALG_H
#define TARTAN_LINALG_H

#include "tartan/context.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tartan_side {
    TARTAN_LEFT = 0,  /* C = alpha op(A) B + beta C */
    TARTAN_RIGHT = 1, /* C = alpha B op(A) + beta C */
} tartan_side;

typedef enum tartan_transpose {
    TARTAN_NO_TRANSPOSE = 0,
    TARTAN_TRANSPOSE = 1,
} tartan_transpose;

/* tartan_spmm and tartan_sddmm also take sparse operands with a dynamic layout (device.h). Gates then have [capacity]
 * numbers, of which those past the current blocks are ignored, and tartan_sddmm leaves the values past them alone. */

/* Sparse times dense: C = alpha op(A) B + beta C (side LEFT) or C = alpha B op(A) + beta C (side RIGHT).
 *   A      m x k, block-sparse; op(A) is A or its transpose
 *   gates  NULL, or [blocks] of f32 or f64: block w is multiplied by gates[w], and skipped if that is 0
 *   B      [batch..., k', n] (LEFT) or [batch..., n, m'] (RIGHT), any strides
 *   C      [batch..., m', n] (LEFT) or [batch..., n, k'] (RIGHT), m' x k' being the shape of op(A)
 * If A has h > 1 heads, the last batch dimension of B and C is h, and head i of A multiplies entry i. An empty
 * block row gives zeros (plus beta C). Any size may be 0. Gates, alpha and beta are rounded to the type of the
 * sums; gate * a is rounded before it is multiplied. Work: 2 * stored elements * n * batch operations.
 * Errors: HANDLE, SHAPE, DTYPE, ARGUMENT (side, op, alpha or beta not finite, overlap, a repeating output
 * stride), UNSUPPORTED (memory of another device), MEMORY. */
TARTAN_API tartan_status tartan_spmm(tartan_context *context, int32_t side, int32_t op, double alpha,
                                     const tartan_matrix *a, const tartan_array *gates, const tartan_array *b,
                                     double beta, tartan_array *c);

/* Sampled dense times dense: S = alpha (X1 Y1 + X2 Y2 + ...) + beta S, computed at the stored blocks of S only.
 *   X, Y   nx = ny pairs, 1 to 8: X [batch..., m, k], Y [batch..., k, n]; k and batch may differ between pairs.
 *          The sum runs over the batch as well. If S has h > 1 heads, the last batch dimension is h and
 *          selects the head instead.
 *   gates  NULL, or [blocks] of f32 or f64: block w is (gates[w] * alpha) * (...) + beta S_w; if the gate is 0,
 *          the product is taken as 0 and not computed
 *   S      m x n block-sparse, updated in place; the padding of ragged edge blocks stays zero
 * The gradient of the weight of Y = W X is S = dY X^T: pass dY and X with its last two strides exchanged.
 * Errors: as tartan_spmm, and ARGUMENT for a number of pairs outside 1..8. */
TARTAN_API tartan_status tartan_sddmm(tartan_context *context, double alpha, const tartan_array *gates,
                                      const tartan_array *x, int64_t nx, const tartan_array *y, int64_t ny,
                                      double beta, tartan_matrix *s);

/* Growth score of every block of the grid, stored or not, from the pairs of tartan_sddmm:
 *   score[i,j] = beta * score[i,j] + scale * sum over pairs and k of |X_i,k| * |Y_k,j|,
 * where |.| is the norm (TARTAN_NORM_MAX or TARTAN_NORM_L2) over the block's rows of X or columns of Y.
 *   X [m, k], Y [k, n]; the block size is that of `shape`, whose rows and cols are m and n, heads 1
 *   score [grid_rows, grid_cols], of f32 (f64 where X is f64); results that are not finite become 0
 * Norms are computed in f64 and rounded to the type of the score.
 * Source: the block-reduced full gradient of openai/blocksparse. Errors: as tartan_sddmm. */
TARTAN_API tartan_status tartan_growth_score(tartan_context *context, const tartan_shape *shape, int32_t norm,
                                             double scale, const tartan_array *x, int64_t nx,
                                             const tartan_array *y, int64_t ny, double beta,
                                             tartan_array *score);

/* ---- What would run ----
 * Between tartan_explain_begin and tartan_explain_end the operations above, called by this thread, describe
 * themselves instead of running: they check their operands, leave them as they are, and return the errors of the
 * checks. An operation that the backend does not support is described as such and returns OK. tartan_explain_end gives a JSON array with one object for each operation that was called:
 *   operation, backend, device     "spmm", "cpu", "cuda:0"
 *   operands                       name, dtype, shape, strides or block, blocks, heads and block order of each
 *   flops, bytes                   useful floating-point operations; the least number of bytes that must move
 *   supported, kernel, why         whether it would run, the kernel, and why that one
 *   refused                        every kernel that was not chosen, and why
 *   expected_tflops                from the backend's model, or null
 *   measured_tflops                the rate of the last such call on the context, or null (CPU only)
 * and whatever else the backend reports; the CPU's, for products: instruction_set, threads, column_ranges (that the
 * threads share the columns in), panels (that are packed one after the other) and faster, a list of sentences that name
 * what would run faster: another dtype, block order, block size or number of columns. Functions of matrix.h and
 * device.h run as usual. A thread that has begun must end before it exits, or the text leaks.
 * Errors: ARGUMENT (already begun; not begun), MEMORY, HANDLE. The caller frees the text with tartan_text_free. */
TARTAN_API tartan_status tartan_explain_begin(void);
TARTAN_API tartan_status tartan_explain_end(char **out_text);

#ifdef __cplusplus
}
#endif
#endif
