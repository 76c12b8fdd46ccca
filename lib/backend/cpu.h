/* SPDX-License-Identifier: Apache-2.0
 * The operations of the CPU backend and what they share. */
#ifndef TARTAN_BACKEND_CPU_H
#define TARTAN_BACKEND_CPU_H

#include "backend/backend.h"
#include "backend/cpu_dense.h"
#include "core/parallel.h"
#include "kernels/kernels.h"

tartan_status tartan_i_cpu_spmm(const tartan_context *context, const tartan_op_spmm *op);
/* The part of tartan_i_cpu_spmm that has few columns; whether it is the better way. */
bool tartan_i_cpu_spmm_is_narrow(const tartan_context *context, const tartan_op_spmm *op);
tartan_status tartan_i_cpu_spmm_narrow(const tartan_context *context, const tartan_op_spmm *op);
tartan_status tartan_i_cpu_sddmm(const tartan_context *context, const tartan_op_sddmm *op);
tartan_status tartan_i_cpu_gate_gradient(const tartan_context *context, const tartan_op_gate_gradient *op);
tartan_status tartan_i_cpu_growth_score(const tartan_context *context, const tartan_op_growth_score *op);
tartan_status tartan_i_cpu_block_copy(const tartan_context *context, const tartan_op_block_copy *op);
tartan_status tartan_i_cpu_block_norms(const tartan_context *context, const tartan_op_block_norms *op);

/* Index sets of layouts whose blocks change; see the backend table. */
tartan_status tartan_i_cpu_index_create(const char *function, void *device, const tartan_layout *layout,
                                        void **out_index);
tartan_status tartan_i_cpu_index_from_mask(const char *function, void *device, void *index, const void *mask);
tartan_status tartan_i_cpu_index_fetch(const char *function, void *device, void *index, int64_t *out_blocks,
                                       int64_t *out_row_pointers, int32_t *out_block_cols);
void tartan_i_cpu_index_release(void *index, void *device);

/* The matrix itself, or `copy`, made of it with the layout of the last mask. */
const tartan_matrix *tartan_i_cpu_matrix_now(const tartan_matrix *matrix, tartan_matrix *copy);

/* The kernels in use for sums over `dtype`, with products of reals. */
tartan_i_kernels tartan_i_cpu_kernels(int32_t dtype);

/* The same with the best product for factors of `dtype`. Gates that scale blocks make reals of them first. */
tartan_i_kernels tartan_i_cpu_product_kernels(int32_t dtype, const tartan_array *gates);

/* A product of tartan_spmm as C = op(A) B: on the right it is transposed. */
typedef struct tartan_i_cpu_form {
    bool transposed;                                                   /* op(A) is A transposed */
    int64_t out_block, in_block, out_size, in_size, grid_out, grid_in; /* rows and columns of op(A) */
    int64_t a_row, a_col, block_elements;                              /* of a block, as op(A) has it */

    /* Of the head at work: op(A) as row lists, `others` and `ids` (NULL: the position itself) by position; how many
     * blocks each column has; and B and C, whose rows are the contracted index and rows of op(A). */
    const int64_t *pointers, *in_pointers, *ids;
    const int32_t *others;
    tartan_i_dense b, c;
    int64_t n; /* columns of one batch entry */
} tartan_i_cpu_form;

/* The form of a product, with its first head; and another head of it. */
tartan_i_cpu_form tartan_i_cpu_form_of(const tartan_op_spmm *op);
void tartan_i_cpu_form_take(tartan_i_cpu_form *f, const tartan_op_spmm *op, int64_t head);

/* Gate of a block in the sum type of the kernels; 1 where there are no gates. */
double tartan_i_cpu_gate(const tartan_i_kernels *k, const tartan_array *gates, int64_t id);

/* Strips of vectors: how many cover `vectors` of them in nearly equal widths, and the first column and the width of
 * one. */
int64_t tartan_i_cpu_strips(const tartan_i_product *p, int64_t vectors);
void tartan_i_cpu_strip(const tartan_i_product *p, int64_t vectors, int64_t i, int64_t *first,
                        int64_t *width);

/* How a left factor of rows x k elements is laid out in units: with rows and units that fill tiles, if there are any.
 * It is used in place only if that adds nothing. */
typedef struct tartan_i_fit {
    int64_t rows, units, tile_rows, tile_units;
} tartan_i_fit;
tartan_i_fit tartan_i_cpu_fit(const tartan_i_product *p, int64_t rows, int64_t k);

/* Runs the strip kernel over all `rows` rows of `s`, in groups of nearly equal size that suit its width. */
void tartan_i_cpu_strip_rows(const tartan_i_kernels *k, const tartan_i_strip *s, int64_t rows,
                             const tartan_i_term *terms, int64_t nterms);

/* Before and after strips of this shape on a thread. */
void tartan_i_cpu_begin(const tartan_i_product *p, const tartan_i_fit *fit);
void tartan_i_cpu_end(const tartan_i_product *p);

/* Worker `w`'s share of the rows of a list, by entries + rows. */
void tartan_i_cpu_share_rows(const int64_t *pointers, int64_t rows, int32_t workers, int32_t w,
                             int64_t *begin, int64_t *end);

/* A right factor, rows x cols elements of `dtype` at `in`, as a product reads it: out[i * out_row + j] is unit i of
 * column j. Rows that a last unit lacks are zeros. */
void tartan_i_pack_right(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t in_row,
                         int64_t in_col, int64_t rows, int64_t cols, char *out, int64_t out_row);

/* A left factor of pairs, rows x cols elements at `in`, as fit.rows x fit.units units, zeros added. */
void tartan_i_pack_left(const tartan_i_kernels *k, const tartan_i_fit *fit, const char *in, int64_t in_row,
                        int64_t in_col, int64_t rows, int64_t cols, char *out);

#endif
