/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_MATRIX_MATRIX_H
#define TARTAN_MATRIX_MATRIX_H

#include "core/array.h"
#include "core/memory.h"
#include "layout/layout.h"
#include "tartan/matrix.h"

enum { TARTAN_I_DEVICE_CHARS = 24 };

struct tartan_matrix {
    uint32_t magic; /* TARTAN_I_MATRIX */
    int32_t dtype;
    int32_t block_order;
    int32_t device_type, device_id;
    char device[TARTAN_I_DEVICE_CHARS]; /* name of the device, "cuda:0" */
    bool owned;                         /* values came from tartan_i_allocate */
    tartan_layout *layout;
    void *values; /* [blocks, block_rows, block_cols] */
    tartan_release release;
    void *user;
    int32_t holds; /* calls that use it, less 1 once it is freed; by the __atomic builtins */
};

/* A call holds a matrix while it uses it. A matrix freed in the meantime lives until the last call lets go. */
void tartan_i_matrix_hold(tartan_matrix *matrix);
void tartan_i_matrix_let_go(tartan_matrix *matrix);

/* HOLD_MATRIX(matrix) holds an open matrix (and nothing else) until the block that it stands in ends. Public functions do
 * so first of all with each matrix that they are given. */
static inline tartan_matrix *tartan_i_matrix_held(const tartan_matrix *matrix) {
    tartan_matrix *held = (tartan_matrix *)matrix; /* counting is all that changes in it */
    if (!tartan_i_is(held, TARTAN_I_MATRIX)) return NULL;
    tartan_i_matrix_hold(held);
    return held;
}
static inline void tartan_i_matrix_end_hold(tartan_matrix *const *held) {
    if (*held != NULL) tartan_i_matrix_let_go(*held);
}
#define HOLD_MATRIX(matrix)                                                                                  \
    tartan_matrix *const held_##matrix __attribute__((cleanup(tartan_i_matrix_end_hold))) =                  \
        tartan_i_matrix_held(matrix)

/* Strides, in elements, of the row and column index inside a block. */
static inline int64_t tartan_i_block_row_stride(const tartan_matrix *m) {
    return m->block_order == TARTAN_ROW_MAJOR ? m->layout->shape.block_cols : 1;
}
static inline int64_t tartan_i_block_col_stride(const tartan_matrix *m) {
    return m->block_order == TARTAN_ROW_MAJOR ? 1 : m->layout->shape.block_rows;
}

/* The number of elements of a block, and the address of block `id`. */
static inline int64_t tartan_i_block_elements(const tartan_matrix *m) {
    return m->layout->shape.block_rows * m->layout->shape.block_cols;
}
static inline void *tartan_i_block_at(const tartan_matrix *m, int64_t id) {
    return tartan_i_at(m->values, m->dtype, id * tartan_i_block_elements(m));
}

/* An owned matrix. Its values are uninitialised, except blocks at ragged edges, which are zero. */
tartan_status tartan_i_matrix_new(tartan_layout *layout, int32_t dtype, int32_t block_order,
                                  tartan_matrix **out);

/* Sets the device of the values. */
void tartan_i_matrix_set_device(tartan_matrix *matrix, int32_t device_type, int32_t device_id);

/* Zeroes the padding of all ragged blocks, or of one block. */
void tartan_i_matrix_clear_padding(tartan_matrix *matrix);
void tartan_i_block_clear_padding(tartan_matrix *matrix, int64_t id);

/* Checks the arguments of every function that makes matrices. Errors: HANDLE, DTYPE, ARGUMENT. */
tartan_status tartan_i_matrix_check_new(const char *function, const tartan_layout *layout, int32_t dtype,
                                        int32_t block_order);

/* An open matrix `name` with values in host memory, on an ordinary or variable layout. Errors: HANDLE, UNSUPPORTED. */
tartan_status tartan_i_matrix_check_readable(const char *function, const char *name,
                                             const tartan_matrix *matrix);

/* UNSUPPORTED if the layout of the argument `name` has blocks of different sizes. Functions that take such layouts leave
 * this check out, or those that contain it: tartan_i_matrix_check_cpu, tartan_i_matrix_check_host. */
tartan_status tartan_i_matrix_check_even(const char *function, const char *name, const tartan_layout *layout);

/* Errors: HANDLE, UNSUPPORTED (values not in CPU memory, a dynamic layout, blocks of different sizes). */
tartan_status tartan_i_matrix_check_cpu(const char *function, const tartan_matrix *matrix);

/* UNSUPPORTED if the matrix `name` has a dynamic layout. */
tartan_status tartan_i_matrix_check_stays(const char *function, const char *name,
                                          const tartan_matrix *matrix);

/* The values as an array [blocks, block_rows, block_cols]. */
tartan_array tartan_i_matrix_view(const tartan_matrix *matrix);

/* Refuses (ARGUMENT) an output `name`, `bytes` long, that overlaps the values of `matrix`. */
tartan_status tartan_i_matrix_check_apart(const char *function, const tartan_matrix *matrix, const char *name,
                                          const void *output, int64_t bytes);

/* Copies block `from_id` of `from` (-1: zeros) to block `to_id` of `to`, transposed if `transposed`, and converts
 * the elements. The padding of `from` is not read, and `to`'s becomes zero. */
void tartan_i_block_copy(tartan_matrix *to, int64_t to_id, const tartan_matrix *from, int64_t from_id,
                         bool transposed);

/* The same for each of the blocks [begin, end) between two matrices of one layout. */
void tartan_i_blocks_copy(tartan_matrix *to, const tartan_matrix *from, int64_t begin, int64_t end);

#endif
