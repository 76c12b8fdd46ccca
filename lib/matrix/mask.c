/* SPDX-License-Identifier: Apache-2.0
 * In-block masks applied to values. */
#include "layout/block_mask.h"
#include "matrix/matrix.h"

static void clear_block(tartan_matrix *matrix, const tartan_block_mask *mask, int64_t id) {
    const tartan_shape *s = &matrix->layout->shape;
    const int64_t row = tartan_i_block_row_stride(matrix), col = tartan_i_block_col_stride(matrix);
    const size_t bytes = (size_t)tartan_dtype_bytes(matrix->dtype);
    char *block = tartan_i_block_at(matrix, id);
    for (int64_t i = 0; i < s->block_rows; i++)
        for (int64_t w = 0; w < mask->row_words; w++) {
            const uint32_t word = tartan_i_block_mask_word(mask, id, i, w);
            for (int64_t j = 32 * w; word != UINT32_MAX && j < s->block_cols && j < 32 * (w + 1); j++)
                if ((word >> (j % 32) & 1) == 0)
                    memset(block + (i * row + j * col) * (int64_t)bytes, 0, bytes);
        }
}

tartan_status tartan_matrix_apply_mask(tartan_matrix *matrix, const tartan_block_mask *block_mask) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_cpu(__func__, matrix));
    CHECK_HANDLE(block_mask, BLOCK_MASK, "block mask");
    const tartan_layout *own = matrix->layout, *other = block_mask->layout;
    CHECK(own == other || strcmp(tartan_i_layout_identity(own), tartan_i_layout_identity(other)) == 0, LAYOUT,
          "block_mask has another layout (%s), expected the layout of the matrix (%s)",
          tartan_i_layout_identity(other), tartan_i_layout_identity(own));
    for (int64_t id = 0; id < own->blocks; id++) clear_block(matrix, block_mask, id);
    return TARTAN_OK;
}
