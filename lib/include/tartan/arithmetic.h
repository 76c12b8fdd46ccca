/* SPDX-License-Identifier: Apache-2.0
 * Arithmetic of matrices: sums, element-wise functions, scaling, diagonals, reductions, comparison.
 *
 * Results stay block-sparse. Elements outside the stored blocks are zeros and are not computed, so NaN occurs only in
 * stored blocks and 0 * NaN counts as 0 elsewhere. The layout of a result depends on the layouts of the operands,
 * never on their values.
 *
 * Operands may have any dtype. A result has the given dtype. dtype 0 means the dtype of the operand or, with two
 * operands, the smallest dtype that holds both exactly (f32 for f16 and bf16, f16 for two 8-bit types). Elements are
 * computed in f64, each product and sum rounded separately (fused in tartan_matrix_multiply), and rounded once to the
 * dtype of the result. Sums and products of two f32 or 16-bit elements are thus correctly rounded. Values that only
 * move keep their bits, NaN payloads included. Numbers for each row, column or block are f64. A result has the block
 * order of its first operand, and zeros in the padding of ragged blocks.
 *
 * Values must be on the context's device (in host memory for tartan_matrix_multiply). No result depends on the number
 * of threads of the context and, on the CPU, none depends on the block order. A GPU gives the same bits with three
 * exceptions: powers other than 2 and 0.5; sums, which it adds in an order that depends only on the layout, the dtype
 * and the block order; and payloads of NaN that were converted. A call waits for the device if it takes a list of
 * blocks, factors or a diagonal from the host, or returns numbers to the host. A call that fails leaves its operands
 * unchanged.
 * Common errors: HANDLE, SHAPE (frames that differ, lengths), DTYPE, ARGUMENT (also: the context is busy in another
 * thread), UNSUPPORTED (values elsewhere, dynamic layouts), OVERFLOW, MEMORY, DEVICE. */
#ifndef TARTAN_ARITHMETIC_H
#define TARTAN_ARITHMETIC_H

#include "tartan/context.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Element by element. The caller frees matrices in *out. ---- */

/* alpha A + beta B over the union of the layouts; equal layouts take no search. Where only one operand stores a
 * block, the result has a multiple of that block. The frames must be equal (tartan_matrix_reblock changes the block
 * size).
 * Errors: also ARGUMENT (alpha or beta not finite in the type of the sums). */
TARTAN_API tartan_status tartan_matrix_add(tartan_context *context, double alpha, const tartan_matrix *a,
                                           double beta, const tartan_matrix *b, int32_t dtype,
                                           tartan_matrix **out);

/* C = alpha A + beta B in an existing matrix whose layout has all blocks of A and of B. The other blocks of C become
 * zero. C may be A or B itself, for instance for C = alpha A + beta C.
 * Errors: also LAYOUT (a block that C does not store), ARGUMENT (C shares memory with A or B but is neither). */
TARTAN_API tartan_status tartan_axpby(tartan_context *context, double alpha, const tartan_matrix *a,
                                      double beta, const tartan_matrix *b, tartan_matrix *c);

typedef enum tartan_combination {
    TARTAN_COMBINE_MULTIPLY = 1, /* the Hadamard product, over the intersection of the layouts */
    TARTAN_COMBINE_MAXIMUM = 2,  /* over the union; NaN if either element is NaN */
    TARTAN_COMBINE_MINIMUM = 3,
} tartan_combination;

/* Combine A and B element by element (tartan_combination). */
TARTAN_API tartan_status tartan_matrix_combine(tartan_context *context, int32_t combination,
                                               const tartan_matrix *a, const tartan_matrix *b, int32_t dtype,
                                               tartan_matrix **out);

typedef enum tartan_function {
    TARTAN_APPLY_MULTIPLY = 1, /* x * parameter */
    TARTAN_APPLY_DIVIDE = 2,   /* x / parameter, which is not 0 */
    TARTAN_APPLY_POWER = 3, /* x to the power of parameter, which is above 0; 2 gives x * x, 0.5 the root */
    TARTAN_APPLY_ABS = 4,
    TARTAN_APPLY_SIGN = 5,  /* -1, 0, 1; NaN stays NaN */
    TARTAN_APPLY_ROUND = 6, /* to the nearest integer, halves to even */
} tartan_function;

/* Apply a function (`kind`, a tartan_function) to every stored element. All these functions map zero to zero.
 * Functions without a parameter ignore `parameter`.
 * Errors: also ARGUMENT (kind; parameter not finite or out of range). */
TARTAN_API tartan_status tartan_matrix_apply(tartan_context *context, int32_t kind, double parameter,
                                             const tartan_matrix *matrix, int32_t dtype, tartan_matrix **out);

/* diag(row_factors) A diag(col_factors): multiplies each element by the factor of its row, then by the factor of its
 * column. row_factors: [rows] for all heads or [heads, rows], of f32 or f64, in host memory or on the context's
 * device; NULL for none. col_factors: likewise for columns. */
TARTAN_API tartan_status tartan_matrix_scale(tartan_context *context, const tartan_array *row_factors,
                                             const tartan_array *col_factors, const tartan_matrix *matrix,
                                             int32_t dtype, tartan_matrix **out);

/* The matrix product A B, block-sparse: block (i, j) is stored if A stores block (i, k) and B stores block (k, j) for
 * some k. Each element is one chain of fused multiply-adds in the order of k. A and B must have the same number of
 * heads, and the height of B's blocks must equal the width of A's. Time is proportional to the number of pairs of
 * blocks to multiply. (tartan_spmm multiplies by dense matrices.)
 * Errors: also SHAPE (heads, inner sizes), OVERFLOW (the frame of the result). */
TARTAN_API tartan_status tartan_matrix_multiply(tartan_context *context, const tartan_matrix *a,
                                                const tartan_matrix *b, int32_t dtype, tartan_matrix **out);

/* ---- Diagonals. Diagonal `offset` holds the elements (i, i + offset); 0 is the main diagonal. Its length is the
 * number of rows i with 0 <= i < rows and 0 <= i + offset < cols. ---- */

/* Add to the layout every block that the diagonal crosses; returns the layout itself (a new reference) if it has
 * them all. tartan_matrix_project then gives a matrix room for its diagonal. */
TARTAN_API tartan_status tartan_layout_add_diagonal(tartan_layout *layout, int64_t offset,
                                                    tartan_layout **out);

/* alpha A + D, where D has `diagonal` on this diagonal and zeros elsewhere. `diagonal` is [length] for all heads,
 * [heads * length], or [1] for one number everywhere. The result has every block that the diagonal crosses. Errors:
 * also ARGUMENT (alpha). */
TARTAN_API tartan_status tartan_matrix_add_diagonal(tartan_context *context, double alpha,
                                                    const tartan_matrix *matrix, int64_t offset,
                                                    const double *diagonal, int64_t ndiagonal, int32_t dtype,
                                                    tartan_matrix **out);

/* Read the diagonal, [heads * length]; elements that are not stored are 0. */
TARTAN_API tartan_status tartan_matrix_get_diagonal(tartan_context *context, const tartan_matrix *matrix,
                                                    int64_t offset, double *out_diagonal,
                                                    int64_t nout_diagonal);

/* Write the diagonal, given as for tartan_matrix_add_diagonal, in place. A zero for an element that is not stored is
 * ignored.
 * Errors: also LAYOUT (another number for an element that is not stored). */
TARTAN_API tartan_status tartan_matrix_set_diagonal(tartan_context *context, tartan_matrix *matrix,
                                                    int64_t offset, const double *diagonal,
                                                    int64_t ndiagonal);

/* The sum of the diagonal `offset` (as for tartan_matrix_add_diagonal) of each head, [heads]. The time is in proportion to the
 * blocks, not to the rows. */
TARTAN_API tartan_status tartan_matrix_trace(tartan_context *context, const tartan_matrix *matrix,
                                             int64_t offset, double *out_results, int64_t nout_results);

/* ---- Reductions to f64 numbers. Elements that are not stored count as zeros. ---- */

typedef enum tartan_reduction {
    TARTAN_REDUCE_SUM = 1,
    TARTAN_REDUCE_MEAN = 2,
    TARTAN_REDUCE_MINIMUM = 3,
    TARTAN_REDUCE_MAXIMUM = 4,
    TARTAN_REDUCE_ABS_SUM = 5,     /* sum of absolute values */
    TARTAN_REDUCE_ABS_MAXIMUM = 6, /* largest absolute value */
    TARTAN_REDUCE_NORM = 7, /* square root of the sum of squares, even if that sum exceeds the range of f64 */
    TARTAN_REDUCE_NONZEROS = 8, /* the number of elements that are not 0; NaN counts */
} tartan_reduction;

/* What each number of a reduction covers. */
typedef enum tartan_each {
    TARTAN_EACH_ROW = 1,    /* [heads * rows] */
    TARTAN_EACH_COLUMN = 2, /* [heads * cols] */
    TARTAN_EACH_BLOCK = 3,  /* [blocks]: the stored elements of each block */
    TARTAN_EACH_HEAD = 4,   /* [heads] */
} tartan_each;

/* Reduce each row, column, block or head to a number. NaN in an operand makes the result NaN; the mean, the minimum
 * and the maximum of no elements are NaN too. The CPU adds elements in ascending order of their column (of their row
 * for EACH_COLUMN), in one chain. The sum of a head adds the sums of its rows and, on the CPU, so does the sum of a
 * block. */
TARTAN_API tartan_status tartan_matrix_reduce(tartan_context *context, const tartan_matrix *matrix,
                                              int32_t reduction, int32_t each, double *out_results,
                                              int64_t nout_results);

typedef enum tartan_norm_kind {
    TARTAN_MATRIX_NORM_ONE = 1,       /* the largest sum of absolute values of a column */
    TARTAN_MATRIX_NORM_INFINITY = 2,  /* the largest sum of absolute values of a row */
    TARTAN_MATRIX_NORM_FROBENIUS = 3, /* square root of the sum of squares */
    TARTAN_MATRIX_NORM_MAX = 4,       /* the largest absolute value */
} tartan_norm_kind;

/* A norm (tartan_norm_kind) of each head, [heads]; 0 for a matrix without elements. */
TARTAN_API tartan_status tartan_matrix_norm(tartan_context *context, const tartan_matrix *matrix,
                                            int32_t kind, double *out_results, int64_t nout_results);

/* Count the elements in which A and B differ, zeros that are not stored included. Two elements are equal if a == b
 * or if both are finite and |a - b| <= absolute + relative * |b|. Two NaN are equal if `equal_nan` is not 0. With
 * both tolerances 0 the result is 0 if and only if all values are equal. Errors: also ARGUMENT (a negative tolerance,
 * or NaN). */
TARTAN_API tartan_status tartan_matrix_count_different(tartan_context *context, const tartan_matrix *a,
                                                       const tartan_matrix *b, double relative,
                                                       double absolute, int32_t equal_nan, double *out_value);

/* ---- Sparse factors ---- */

/* The elements of the inverse of L L' at the places of a Cholesky factor L, which CHOLMOD or others made, by the recursion of
 * Takahashi: as much work as the factorisation, where solving for all columns costs n times a solution. `factor` has the columns of
 * L: rows ascending, beginning with the diagonal, all that elimination fills. values and inverse are f64 vectors with an element for
 * each index, and may be the same memory. The diagonal of the inverse is at the first places of the columns. Errors: HANDLE, SHAPE
 * (or a dtype), ARGUMENT (no such factor), LAYOUT (the lists), MEMORY. */
TARTAN_API tartan_status tartan_selected_inverse(const tartan_compressed *factor, const tartan_array *values,
                                                 tartan_array *inverse);

#ifdef __cplusplus
}
#endif
#endif
