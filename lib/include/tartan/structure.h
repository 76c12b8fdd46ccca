/* SPDX-License-Identifier: Apache-2.0
 * Matrices by element: creates them from lists of elements, reads and writes elements, and cuts, joins and reblocks
 * matrices at any boundary. Results stay block-sparse. Their layout depends on the layouts of the operands, never on
 * their values, unless a function says otherwise. Values that keep their dtype keep their bits, NaN payloads
 * included. The padding of ragged blocks is zero.
 *
 * Functions use the threads of their context, and no result depends on their number. Values must be in host memory. A
 * call that fails leaves its operands unchanged. The caller frees matrices and layouts in *out.
 * Common errors: HANDLE, SHAPE, DTYPE, ARGUMENT (also: the context is busy in another thread), LAYOUT (an index out
 * of range), UNSUPPORTED (values on a device, dynamic layouts), OVERFLOW, MEMORY. */
#ifndef TARTAN_STRUCTURE_H
#define TARTAN_STRUCTURE_H

#include "tartan/context.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- From elements. The functions also create the layout, with every block that contains at least one of the
 * elements. Time is proportional to the numbers of elements and rows. heads must be 1; dtype 0 means the dtype of the
 * values. ---- */

/* What to do with repeated elements. */
typedef enum tartan_duplicates {
    TARTAN_DUPLICATES_REFUSED = 0, /* LAYOUT */
    TARTAN_DUPLICATES_ADDED = 1,   /* in the order given, each sum rounded to the dtype of the matrix */
} tartan_duplicates;

/* From the positions of the elements (COO) and their values [count]. */
TARTAN_API tartan_status tartan_matrix_from_elements(tartan_context *context, const tartan_shape *shape,
                                                     const tartan_places *places, const tartan_array *values,
                                                     int32_t duplicates, int32_t dtype, int32_t block_order,
                                                     tartan_matrix **out);

/* From compressed rows (CSR) or columns (CSC) and the values of their entries [nindices]. */
TARTAN_API tartan_status tartan_matrix_from_compressed(tartan_context *context, const tartan_shape *shape,
                                                       const tartan_compressed *lists,
                                                       const tartan_array *values, int32_t duplicates,
                                                       int32_t dtype, int32_t block_order,
                                                       tartan_matrix **out);

/* From blocks in any order: values [count, block_rows, block_cols] with any strides, at `places` in the grid. Blocks
 * at the same position are added in the order given, in f32, or in f64 if either dtype is f64, and rounded once.
 * heads of the places may be NULL if shape->heads is 1. */
TARTAN_API tartan_status tartan_matrix_from_blocks(tartan_context *context, const tartan_shape *shape,
                                                   const tartan_places *places, const tartan_array *values,
                                                   int32_t dtype, int32_t block_order, tartan_matrix **out);

/* ---- Assembly plans, for adding blocks or elements into matrices of one layout again and again. A plan lists which
 * items add up at each position: out_order[out_ends[p - 1]] .. out_order[out_ends[p] - 1] for position p, in the
 * order of the items. tartan_segment_sum adds by a plan. out_order [places->count] counts items from 0. Time is
 * proportional to the numbers of items and positions. heads may be NULL: head 0. Errors: also LAYOUT (an item whose
 * block is not stored). ---- */

/* A plan for blocks at `places` in the grid; out_ends [blocks]. The x and z of tartan_segment_sum are then the values
 * of the matrix. */
TARTAN_API tartan_status tartan_layout_block_plan(const tartan_layout *layout, const tartan_places *places,
                                                  int64_t *out_order, int64_t nout_order, int64_t *out_ends,
                                                  int64_t nout_ends);

/* A plan for elements; out_ends [blocks * block_rows * block_cols], in the memory order of a matrix of that block
 * order. The x and z of tartan_segment_sum are then its values as one line. */
TARTAN_API tartan_status tartan_layout_element_plan(const tartan_layout *layout, const tartan_places *places,
                                                    int32_t block_order, int64_t *out_order,
                                                    int64_t nout_order, int64_t *out_ends, int64_t nout_ends);

/* ---- Elements ---- */

/* Read the elements at `places` into values [count] of any dtype. Elements that are not stored are 0. */
TARTAN_API tartan_status tartan_matrix_get_elements(const tartan_matrix *matrix, const tartan_places *places,
                                                    tartan_array *values);

/* Write values [count] to the elements at `places` or, if `add` is not 0, adds them. If an element is repeated, the
 * last value stays, or all are added. A zero for an element that is not stored is ignored. Errors: also LAYOUT
 * (another number for an element that is not stored). */
TARTAN_API tartan_status tartan_matrix_set_elements(tartan_matrix *matrix, const tartan_places *places,
                                                    const tartan_array *values, int32_t add);

/* Add to the layout every block that contains one of the elements at `places`; returns the layout itself (a new
 * reference) if it has them all. tartan_matrix_project then gives a matrix room for the elements. */
TARTAN_API tartan_status tartan_layout_add_elements(tartan_layout *layout, const tartan_places *places,
                                                    tartan_layout **out);

/* ---- Cutting and joining at any element. The result has every block that contains an element of a stored block.
 * ---- */

/* Rows row_begin .. row_end - 1 and columns col_begin .. col_end - 1, in blocks of the same size, counted from the
 * first element of the cut, or of the largest size if sizes differ. But up to 4 rows (or columns) of a block become as
 * few as store no zeros beside them: 4 x 4 from row 2 and column 8 on become 2 x 4. (tartan_matrix_slice cuts between
 * blocks.) Errors: ARGUMENT (a range). */
TARTAN_API tartan_status tartan_matrix_cut(tartan_context *context, const tartan_matrix *matrix,
                                           int64_t row_begin, int64_t row_end, int64_t col_begin,
                                           int64_t col_end, tartan_matrix **out);

/* Select rows and columns: element (i, j) of the result is element (rows[i], cols[j]). A list may name rows or
 * columns repeatedly and in any order. NULL with length 0 selects all of them, in order; a list of length 0 that is
 * not NULL selects none. Blocks get as few rows as store no zeros beside them: every second row of blocks of 8 x 8 is in
 * blocks of 4 x 8, rows in a random order in 1 x 8. But more than 4 rows stay while, on average, three quarters of a
 * block stay together; the same is true of columns. Only the lists decide; tartan_matrix_reblock gives other sizes. */
TARTAN_API tartan_status tartan_matrix_select(tartan_context *context, const tartan_matrix *matrix,
                                              const int64_t *rows, int64_t nrows, const int64_t *cols,
                                              int64_t ncols, tartan_matrix **out);

/* The same matrix in blocks of another size, on the layout that tartan_layout_reblock creates. */
TARTAN_API tartan_status tartan_matrix_reblock(tartan_context *context, const tartan_matrix *matrix,
                                               int64_t block_rows, int64_t block_cols, tartan_matrix **out);

/* The same matrix in blocks that begin at the boundaries row_bounds [block rows + 1] and col_bounds [block columns + 1],
 * each from 0 to the rows or columns of the matrix; those of another layout from tartan_layout_get_boundaries. NULL
 * with length 0 keeps the boundaries of the matrix. The result has the blocks that elements of stored blocks lie in. Errors:
 * SHAPE (the last boundary), LAYOUT (a block that is empty or larger than 256). */
TARTAN_API tartan_status tartan_matrix_reblock_at(tartan_context *context, const tartan_matrix *matrix,
                                                  const int64_t *row_bounds, int64_t nrow_bounds,
                                                  const int64_t *col_bounds, int64_t ncol_bounds,
                                                  tartan_matrix **out);

/* The elements in the same order, row by row or, if `by_column` is not 0, column by column, as a matrix of rows x cols
 * in blocks of the same size (the largest, if sizes differ). heads must be 1. Errors: SHAPE (another number of
 * elements), OVERFLOW (2^63 elements or more). */
TARTAN_API tartan_status tartan_matrix_reshape(tartan_context *context, const tartan_matrix *matrix,
                                               int64_t rows, int64_t cols, int32_t by_column,
                                               tartan_matrix **out);

typedef enum tartan_direction {
    TARTAN_DOWN = 1,      /* one below the other; all have the same columns */
    TARTAN_RIGHTWARD = 2, /* one to the right of the other; all have the same rows */
    TARTAN_DIAGONAL = 3,  /* each below and to the right of the one before, nothing stored elsewhere */
} tartan_direction;

/* Join matrices [nmatrices], one or more, head by head, in blocks of the first one's size (its largest, if sizes
 * differ) and in its block order. The dtype is the smallest that holds all. A matrix may occur repeatedly. */
TARTAN_API tartan_status tartan_matrix_concatenate(tartan_context *context, int32_t direction,
                                                   const tartan_matrix *const *matrices, int64_t nmatrices,
                                                   tartan_matrix **out);

/* The Kronecker product A (x) D with a dense D [p, q] or, if `dense_first` is not 0, D (x) A: elements A(i, j) * D(k,
 * l) at (i p + k, j q + l) or at (k rows + i, l cols + j), computed in f64 and rounded once. dtype 0 means the
 * smallest dtype that holds both. Blocks of A (x) D have block_rows * p rows and block_cols * q columns; a side that
 * would exceed 256 keeps the size it has in A. D (x) A has the blocks of A, and none where D is 0. */
TARTAN_API tartan_status tartan_matrix_kronecker(tartan_context *context, const tartan_matrix *matrix,
                                                 const tartan_array *dense, int32_t dense_first,
                                                 int32_t dtype, tartan_matrix **out);

/* ---- Parts ---- */

typedef enum tartan_triangle {
    TARTAN_LOWER = 1, /* elements (i, j) with j - i <= offset */
    TARTAN_UPPER = 2, /* elements (i, j) with j - i >= offset */
} tartan_triangle;

/* A triangle. Other elements are zero, and blocks without elements of the triangle are not stored. */
TARTAN_API tartan_status tartan_matrix_triangle(tartan_context *context, const tartan_matrix *matrix,
                                                int32_t triangle, int64_t offset, tartan_matrix **out);

/* The blocks that contain an element with |x| > tolerance, or NaN; the other elements of these blocks stay. The
 * layout of the result depends on the values. The function runs on any device. Errors: also ARGUMENT (a negative
 * tolerance, or NaN). */
TARTAN_API tartan_status tartan_matrix_drop_zeros(tartan_context *context, const tartan_matrix *matrix,
                                                  double tolerance, tartan_matrix **out);

#ifdef __cplusplus
}
#endif
#endif
