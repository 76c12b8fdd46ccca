/* SPDX-License-Identifier: Apache-2.0
 * Arithmetic of matrices: sums, element-wise functions, scaling, diagonals, reductions, comparison.
 *
 * Results stay block-sparse: elements outside of the stored blocks are zeros and are not computed, so 0 * NaN is 0 there
 * and NaN only in stored blocks. The layout of a result follows from the layouts of the operands, never from their
 * values.
 *
 * dtypes: operands may have any dtype. A result has the given dtype. If that is 0, it has the dtype of its operand or, with
 * two operands, the smallest dtype that holds both exactly (f32 for f16 and bf16, f16 for two 8-bit types). Elements are
 * computed in f64, each product and sum rounded by itself (fused in tartan_matrix_multiply), and rounded once to the dtype
 * of the result. So f32 and 16-bit sums and products of two elements are correctly rounded. Values that only move keep
 * their bits, NaN payloads included. Numbers for each row, column or block are in f64. A result has the block order of its
 * first operand, and zeros in the padding of ragged blocks.
 *
 * Values must be on the context's device (tartan_matrix_multiply: in host memory). No result depends on the number of the
 * context's threads, and on the CPU none depends on the block order. A GPU gives the same bits with three exceptions: powers
 * other than 2 and 0.5; sums, which it adds in an order that depends only on the layout, the dtype and the block order; and
 * payloads of NaN that were converted. A call waits for the device if it takes a list of blocks, factors or a diagonal from
 * the host, or returns numbers to it. A call that fails leaves its operands as they were.
 * Common errors: HANDLE, SHAPE (frames that differ, lengths), DTYPE, ARGUMENT (also: the context is busy in another
 * thread), UNSUPPORTED (values elsewhere, dynamic layouts), OVERFLOW, MEMORY, DEVICE. */
#ifndef TARTAN_ARITHMETIC_H
#define TARTAN_ARITHMETIC_H

#include "tartan/context.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Element by element. Matrices in *out are the caller's to free. ---- */

/* alpha A + beta B over the union of the layouts, which takes no search if they are equal. Where only one of the two stores
 * a block, the result has a multiple of that block. The frames must be equal (tartan_matrix_reblock changes the block size).
 * Errors: also ARGUMENT (alpha or beta not finite in the type of the sums). */
TARTAN_API tartan_status tartan_matrix_add(tartan_context *context, double alpha, const tartan_matrix *a,
                                           double beta, const tartan_matrix *b, int32_t dtype,
                                           tartan_matrix **out);

/* C = alpha A + beta B in an existing matrix, whose layout has all blocks of A and of B; its other blocks become zero.
 * C may be A or B itself, which gives C = alpha A + beta C.
 * Errors: also LAYOUT (a block that C does not store), ARGUMENT (C shares memory with A or B, but is neither). */
TARTAN_API tartan_status tartan_axpby(tartan_context *context, double alpha, const tartan_matrix *a,
                                      double beta, const tartan_matrix *b, tartan_matrix *c);

typedef enum tartan_combination {
    TARTAN_COMBINE_MULTIPLY = 1, /* the Hadamard product, over the intersection of the layouts */
    TARTAN_COMBINE_MAXIMUM = 2,  /* over the union; NaN if either is NaN */
    TARTAN_COMBINE_MINIMUM = 3,
} tartan_combination;

/* A and B combined element by element (tartan_combination). */
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

/* Applies a function (`kind`, a tartan_function) to every stored element. All of these functions map zero to zero. Those that
 * have no parameter ignore `parameter`.
 * Errors: also ARGUMENT (kind; parameter not finite, or out of its range). */
TARTAN_API tartan_status tartan_matrix_apply(tartan_context *context, int32_t kind, double parameter,
                                             const tartan_matrix *matrix, int32_t dtype, tartan_matrix **out);

/* diag(row_factors) A diag(col_factors): each element is multiplied by the factor of its row, then by the factor of its column.
 * row_factors: [rows] for all heads or [heads, rows], of float32 or float64, in host memory or on the context's device; NULL
 * for none. col_factors: likewise for columns. */
TARTAN_API tartan_status tartan_matrix_scale(tartan_context *context, const tartan_array *row_factors,
                                             const tartan_array *col_factors, const tartan_matrix *matrix,
                                             int32_t dtype, tartan_matrix **out);

/* The matrix product A B, block-sparse: block (i, j) is stored if A stores block (i, k) and B stores block (k, j) for some
 * k. Each element is one chain of fused multiply-adds in the order of k. A and B must have the same number of
 * heads, and B's blocks must be as high as A's are wide. The time is proportional to the number of pairs of stored blocks
 * that meet. (tartan_spmm multiplies by dense matrices.)
 * Errors: also SHAPE (heads, inner sizes), OVERFLOW (the frame of the result). */
TARTAN_API tartan_status tartan_matrix_multiply(tartan_context *context, const tartan_matrix *a,
                                                const tartan_matrix *b, int32_t dtype, tartan_matrix **out);

/* ---- Diagonals. Diagonal `offset` holds the elements (i, i + offset); 0 is the main one. Its length is the number of
 * rows i with 0 <= i < rows and 0 <= i + offset < cols. ---- */

/* The layout and every block that the diagonal crosses; the layout itself (a new reference) if it has them all.
 * tartan_matrix_project then gives a matrix room for its diagonal. */
TARTAN_API tartan_status tartan_layout_add_diagonal(tartan_layout *layout, int64_t offset,
                                                    tartan_layout **out);

/* alpha A + D, where D has the numbers of `diagonal` on this diagonal and is zero elsewhere: [length] for all heads, [heads * length], or [1]
 * for one number everywhere. The result has every block that the diagonal crosses. Errors: also ARGUMENT (alpha). */
TARTAN_API tartan_status tartan_matrix_add_diagonal(tartan_context *context, double alpha,
                                                    const tartan_matrix *matrix, int64_t offset,
                                                    const double *diagonal, int64_t ndiagonal, int32_t dtype,
                                                    tartan_matrix **out);

/* Reads the diagonal, [heads * length]; elements that are not stored are 0. */
TARTAN_API tartan_status tartan_matrix_get_diagonal(tartan_context *context, const tartan_matrix *matrix,
                                                    int64_t offset, double *out_diagonal,
                                                    int64_t nout_diagonal);

/* Writes the diagonal, given as for tartan_matrix_add_diagonal, in place. A zero where nothing is stored is ignored.
 * Errors: also LAYOUT (another number where nothing is stored). */
TARTAN_API tartan_status tartan_matrix_set_diagonal(tartan_context *context, tartan_matrix *matrix,
                                                    int64_t offset, const double *diagonal,
                                                    int64_t ndiagonal);

/* The sum of the main diagonal of each head, [heads]. */
TARTAN_API tartan_status tartan_matrix_trace(tartan_context *context, const tartan_matrix *matrix,
                                             double *out_results, int64_t nout_results);

/* ---- Reductions to f64 numbers. Elements that are not stored count as zeros. ---- */

typedef enum tartan_reduction {
    TARTAN_REDUCE_SUM = 1,
    TARTAN_REDUCE_MEAN = 2,
    TARTAN_REDUCE_MINIMUM = 3,
    TARTAN_REDUCE_MAXIMUM = 4,
    TARTAN_REDUCE_ABS_SUM = 5,     /* sum of absolute values */
    TARTAN_REDUCE_ABS_MAXIMUM = 6, /* largest absolute value */
    TARTAN_REDUCE_NORM = 7,        /* root of the sum of squares, which may exceed the range of f64 */
    TARTAN_REDUCE_NONZEROS = 8,    /* the number of elements that are not 0; NaN counts */
} tartan_reduction;

/* What a reduction returns a number for. */
typedef enum tartan_each {
    TARTAN_EACH_ROW = 1,    /* [heads * rows] */
    TARTAN_EACH_COLUMN = 2, /* [heads * cols] */
    TARTAN_EACH_BLOCK = 3,  /* [blocks]: of the stored elements of each block */
    TARTAN_EACH_HEAD = 4,   /* [heads] */
} tartan_each;

/* Numbers for each row, column, block or head. NaN in an operand makes the result NaN; the mean, the minimum and the
 * maximum of no elements are NaN too. The CPU adds elements in ascending order of their column (of their row for
 * EACH_COLUMN), in one chain. The sum of a head adds the sums of its rows and, on the CPU, so does the sum of a block. */
TARTAN_API tartan_status tartan_matrix_reduce(tartan_context *context, const tartan_matrix *matrix,
                                              int32_t reduction, int32_t each, double *out_results,
                                              int64_t nout_results);

typedef enum tartan_norm_kind {
    TARTAN_MATRIX_NORM_ONE = 1,       /* the largest sum of absolute values of a column */
    TARTAN_MATRIX_NORM_INFINITY = 2,  /* the largest sum of absolute values of a row */
    TARTAN_MATRIX_NORM_FROBENIUS = 3, /* root of the sum of squares */
    TARTAN_MATRIX_NORM_MAX = 4,       /* the largest absolute value */
} tartan_norm_kind;

/* A norm (tartan_norm_kind) of each head, [heads]; 0 if there are no elements. */
TARTAN_API tartan_status tartan_matrix_norm(tartan_context *context, const tartan_matrix *matrix,
                                            int32_t kind, double *out_results, int64_t nout_results);

/* The number of elements in which A and B differ, zeros that are not stored included. Two elements are equal if a == b
 * or if both are finite and |a - b| <= absolute + relative * |b|. Two NaN are equal if `equal_nan` is not 0. With tolerances of 0
 * the result is 0 if and only if all values are equal. Errors: also ARGUMENT (a tolerance that is negative or NaN). */
TARTAN_API tartan_status tartan_matrix_count_different(tartan_context *context, const tartan_matrix *a,
                                                       const tartan_matrix *b, double relative,
                                                       double absolute, int32_t equal_nan, double *out_value);

#ifdef __cplusplus
}
#endif
#endif
