/* SPDX-License-Identifier: Apache-2.0
 * The stored blocks of a matrix, for writers. */
#include "formats.h"

#include <stdlib.h>
#include <string.h>

void bsr_free(bsr *b) {
    free(b->row_pointers), free(b->block_cols);
    tartan_matrix_free(b->matrix);
    tartan_layout_free(b->layout);
}

tartan_status cast_matrix(const tartan_matrix *matrix, int32_t dtype, int32_t block_order,
                          tartan_matrix **out) {
    tartan_context *context = NULL;
    tartan_status status = tartan_context_create("cpu", NULL, NULL, &context);
    if (status == TARTAN_OK) status = tartan_matrix_cast(context, matrix, dtype, block_order, out);
    tartan_context_free(context);
    return status;
}

bool bsr_of(const tartan_matrix *matrix, int32_t dtype, bsr *out) {
    memset(out, 0, sizeof *out);
    if (tartan_matrix_get_layout(matrix, &out->layout) != TARTAN_OK) return false;
    out->blocks = tartan_layout_blocks(out->layout);
    out->pointers = tartan_layout_grid_rows(out->layout) + 1;
    out->row_pointers = malloc(sizeof(int64_t) * (size_t)out->pointers);
    out->block_cols = malloc(sizeof(int64_t) * (size_t)(out->blocks + 1));
    if (out->row_pointers == NULL || out->block_cols == NULL)
        complain("out of memory for the index lists");
    else if (tartan_layout_get_row_lists(out->layout, out->row_pointers, out->pointers, out->block_cols,
                                         out->blocks) != TARTAN_OK ||
             cast_matrix(matrix, dtype, TARTAN_ROW_MAJOR, &out->matrix) != TARTAN_OK ||
             tartan_matrix_values(out->matrix, &out->values) != TARTAN_OK)
        complain_status("cannot take the matrix apart");
    else
        return true;
    bsr_free(out);
    return false;
}
