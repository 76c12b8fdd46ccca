/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_MATRIX_MATRIX_H
#define TARTAN_MATRIX_MATRIX_H

#include "core/memory.h"
#include "layout/layout.h"
#include "tartan/matrix.h"

struct tartan_matrix {
    uint32_t magic; /* TARTAN_I_MATRIX */
    int32_t dtype;
    int32_t block_order;
    int32_t device_type, device_id;
    bool owned; /* values came from tartan_i_allocate */
    tartan_layout *layout;
    void *values; /* [blocks, block_rows, block_cols] */
    tartan_release release;
    void *user;
};

/* Strides, in elements, of the row and column index inside a block. */
static inline int64_t tartan_i_block_row_stride(const tartan_matrix *m) {
    return m->block_order == TARTAN_ROW_MAJOR ? m->layout->shape.block_cols : 1;
}
static inline int64_t tartan_i_block_col_stride(const tartan_matrix *m) {
    return m->block_order == TARTAN_ROW_MAJOR ? 1 : m->layout->shape.block_rows;
}

/* An owned matrix with values not initialised. */
tartan_status tartan_i_matrix_new(tartan_layout *layout, int32_t dtype, int32_t block_order,
                                  tartan_matrix **out);

#endif
