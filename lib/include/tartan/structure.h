/* SPDX-License-Identifier: Apache-2.0
 * Matrices of elements: made from lists of elements, read and written element by element, cut, joined and rebuilt at
 * any boundary. Results stay block-sparse. Their layout follows from the layouts of the operands, never from their
 * values, unless a function says otherwise. Values whose dtype stays the same keep their bits, NaN payloads included. The
 * padding of ragged blocks is zero.
 *
 * Functions use the threads of their context, and no result depends on how many there are. Values must be in host memory. A call that fails
 * leaves its operands as they were. Matrices and layouts in *out are the caller's to free.
 * Common errors: HANDLE, SHAPE, DTYPE, ARGUMENT (also: the context is busy in another thread), LAYOUT (an index out of
 * range), UNSUPPORTED (values on a device, dynamic layouts), OVERFLOW, MEMORY. */
#ifndef TARTAN_STRUCTURE_H
#define TARTAN_STRUCTURE_H

#include "tartan/context.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- From elements. The functions also make the layout, which has every block that holds at least one of the elements.
 * The time is proportional to the numbers of elements and rows. heads must be 1; dtype 0 means the dtype of the values.
 * ---- */

/* What happens to an element that is given more than once. */
typedef enum tartan_duplicates {
    TARTAN_DUPLICATES_REFUSED = 0, /* LAYOUT */
    TARTAN_DUPLICATES_ADDED = 1,   /* in the order given, each sum rounded to the dtype of the matrix */
} tartan_duplicates;

/* From the places of the elements (COO) and their values [count]. */
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

/* From blocks in any order: values [count, block_rows, block_cols] of any strides, at `places` in the grid of blocks. Blocks at one place
 * are added in the order given, in f32, or f64 if either dtype is f64, and rounded once. heads of the places may be NULL if
 * shape->heads is 1. */
TARTAN_API tartan_status tartan_matrix_from_blocks(tartan_context *context, const tartan_shape *shape,
                                                   const tartan_places *places, const tartan_array *values,
                                                   int32_t dtype, int32_t block_order, tartan_matrix **out);

/* ---- Plans of assembly: blocks or elements are added into matrices of one layout again and again. A plan says which items are
 * added up at each place: those of place p are out_order[out_ends[p - 1]] .. out_order[out_ends[p] - 1], in the order of the
 * list. tartan_segment_sum adds by a plan. out_order [places->count], items counted from 0. The time is proportional to the
 * numbers of items and places. heads may be NULL: head 0. Errors: also LAYOUT (an item whose block is not stored). ---- */

/* Of blocks at `places` in the grid; out_ends [blocks]. tartan_segment_sum's x and z are then the values of the matrix. */
TARTAN_API tartan_status tartan_layout_block_plan(const tartan_layout *layout, const tartan_places *places,
                                                  int64_t *out_order, int64_t nout_order, int64_t *out_ends,
                                                  int64_t nout_ends);

/* Of elements; out_ends [blocks * block_rows * block_cols], in the order of memory of a matrix of that block order: x and z are its
 * values as one line. */
TARTAN_API tartan_status tartan_layout_element_plan(const tartan_layout *layout, const tartan_places *places,
                                                    int32_t block_order, int64_t *out_order,
                                                    int64_t nout_order, int64_t *out_ends, int64_t nout_ends);

/* ---- Elements ---- */

/* Reads the elements at `places` into values [count] of any dtype. Elements that are not stored are 0. */
TARTAN_API tartan_status tartan_matrix_get_elements(const tartan_matrix *matrix, const tartan_places *places,
                                                    tartan_array *values);

/* Writes values [count] to the elements at `places` or, if `add` is not 0, adds them. If an element is given more than
 * once, the last value stays; when adding, all of them count. A zero where nothing is stored is ignored. Errors: also
 * LAYOUT (another number where nothing is stored). */
TARTAN_API tartan_status tartan_matrix_set_elements(tartan_matrix *matrix, const tartan_places *places,
                                                    const tartan_array *values, int32_t add);

/* The layout and every block that holds one of the elements at `places`; the layout itself (a new reference) if it has them all.
 * tartan_matrix_project then gives a matrix room for the elements. */
TARTAN_API tartan_status tartan_layout_add_elements(tartan_layout *layout, const tartan_places *places,
                                                    tartan_layout **out);

/* ---- Cutting and joining at any element. The result has every block that holds an element of a stored block. ---- */

/* Rows row_begin .. row_end - 1 and columns col_begin .. col_end - 1, in blocks of the same size, counted from the first
 * element of the cut; of the largest where they differ. (tartan_matrix_slice cuts between blocks.) Errors: ARGUMENT (a range). */
TARTAN_API tartan_status tartan_matrix_cut(tartan_context *context, const tartan_matrix *matrix,
                                           int64_t row_begin, int64_t row_end, int64_t col_begin,
                                           int64_t col_end, tartan_matrix **out);

/* Selects rows and columns: element (i, j) of the result is element (rows[i], cols[j]). A list may name a row or column any
 * number of times, in any order. NULL with length 0 selects all of them, in their order; a list of length 0 that is not
 * NULL selects none. */
TARTAN_API tartan_status tartan_matrix_select(tartan_context *context, const tartan_matrix *matrix,
                                              const int64_t *rows, int64_t nrows, const int64_t *cols,
                                              int64_t ncols, tartan_matrix **out);

/* The same matrix in blocks of another size; its layout is the one that tartan_layout_reblock makes. */
TARTAN_API tartan_status tartan_matrix_reblock(tartan_context *context, const tartan_matrix *matrix,
                                               int64_t block_rows, int64_t block_cols, tartan_matrix **out);

typedef enum tartan_direction {
    TARTAN_DOWN = 1,      /* A above B; they have the same columns */
    TARTAN_RIGHTWARD = 2, /* A left of B; they have the same rows */
    TARTAN_DIAGONAL = 3,  /* A above and left of B, nothing stored elsewhere */
} tartan_direction;

/* A and B joined, head by head, in blocks of the size of A's and in A's block order. The dtype is the smallest that holds
 * both. */
TARTAN_API tartan_status tartan_matrix_concatenate(tartan_context *context, int32_t direction,
                                                   const tartan_matrix *a, const tartan_matrix *b,
                                                   tartan_matrix **out);

/* The Kronecker product A (x) D with a dense D [p, q] or, if `dense_first` is not 0, D (x) A: elements A(i, j) * D(k, l)
 * at (i p + k, j q + l) or at (k rows + i, l cols + j), computed in f64 and rounded once. dtype 0 means the smallest
 * that holds both. A (x) D has blocks of block_rows * p x block_cols * q where a side is at most 256 then, and else as
 * A has. D (x) A has the blocks of A, and none where D is 0. */
TARTAN_API tartan_status tartan_matrix_kronecker(tartan_context *context, const tartan_matrix *matrix,
                                                 const tartan_array *dense, int32_t dense_first,
                                                 int32_t dtype, tartan_matrix **out);

/* ---- Parts ---- */

typedef enum tartan_triangle {
    TARTAN_LOWER = 1, /* elements (i, j) with j - i <= offset */
    TARTAN_UPPER = 2, /* elements (i, j) with j - i >= offset */
} tartan_triangle;

/* A triangle; the other elements are zero, and blocks that have none of its elements are not stored. */
TARTAN_API tartan_status tartan_matrix_triangle(tartan_context *context, const tartan_matrix *matrix,
                                                int32_t triangle, int64_t offset, tartan_matrix **out);

/* The blocks that hold an element with |x| > tolerance, or NaN; their other elements stay. This layout depends on the
 * values. On any device. Errors: also ARGUMENT (a tolerance that is negative or NaN). */
TARTAN_API tartan_status tartan_matrix_drop_zeros(tartan_context *context, const tartan_matrix *matrix,
                                                  double tolerance, tartan_matrix **out);

#ifdef __cplusplus
}
#endif
#endif
