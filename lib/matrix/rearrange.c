// SPDX-License-Identifier: Apache-2.0
// New matrices whose blocks come from those of another.
#include "layout/positions.h"
#include "matrix/matrix.h"

// The matrix of `layout` whose block i is block sources[i] of `matrix`; takes both over.
static tartan_status finish(const tartan_matrix *matrix, tartan_layout *layout, int64_t *sources,
                            bool transposed, tartan_matrix **out) {
    tartan_status status = tartan_i_matrix_new(layout, matrix->dtype, matrix->block_order, out);
    if (status == TARTAN_OK) tartan_i_blocks_copy(*out, matrix, sources, transposed);
    tartan_layout_free(layout);
    tartan_i_free(sources);
    return status;
}

tartan_status tartan_matrix_transpose(const tartan_matrix *matrix, tartan_matrix **out) {
    CHECK_OUT(out);
    PASS(tartan_i_matrix_check_cpu(__func__, matrix));
    tartan_layout *layout;
    int64_t *sources;
    PASS(tartan_i_layout_transpose(matrix->layout, &sources, &layout));
    return finish(matrix, layout, sources, true, out);
}

tartan_status tartan_matrix_permute(const tartan_matrix *matrix, const int64_t *row_order, int64_t nrow_order,
                                    const int64_t *col_order, int64_t ncol_order, tartan_matrix **out) {
    CHECK_OUT(out);
    PASS(tartan_i_matrix_check_cpu(__func__, matrix));
    tartan_layout *layout;
    int64_t *sources;
    PASS(tartan_i_layout_permute(matrix->layout, row_order, nrow_order, col_order, ncol_order, &sources,
                                 &layout));
    return finish(matrix, layout, sources, false, out);
}

tartan_status tartan_matrix_slice(const tartan_matrix *matrix, int64_t row_begin, int64_t row_end,
                                  int64_t col_begin, int64_t col_end, tartan_matrix **out) {
    CHECK_OUT(out);
    PASS(tartan_i_matrix_check_cpu(__func__, matrix));
    tartan_layout *layout;
    int64_t *sources;
    PASS(tartan_i_layout_slice(matrix->layout, row_begin, row_end, col_begin, col_end, &sources, &layout));
    return finish(matrix, layout, sources, false, out);
}

// The block of `from` at the place of each block of `to`, or -1: a merge of the row lists.
static void match_blocks(const tartan_layout *to, const tartan_layout *from, int64_t *sources) {
    for (int64_t i = 0; i < to->shape.heads * to->grid_rows; i++) {
        int64_t other = from->row_pointers[i], end = from->row_pointers[i + 1];
        for (int64_t id = to->row_pointers[i]; id < to->row_pointers[i + 1]; id++) {
            while (other < end && from->block_cols[other] < to->block_cols[id]) other++;
            sources[id] = other < end && from->block_cols[other] == to->block_cols[id] ? other : -1;
        }
    }
}

tartan_status tartan_matrix_project(const tartan_matrix *matrix, tartan_layout *layout, tartan_matrix **out) {
    CHECK_OUT(out);
    PASS(tartan_i_matrix_check_cpu(__func__, matrix));
    CHECK_HANDLE(layout, LAYOUT, "layout");
    const tartan_shape *a = &layout->shape, *b = &matrix->layout->shape;
    CHECK(a->rows == b->rows && a->cols == b->cols && a->heads == b->heads, SHAPE,
          "layout is %" PRId64 " x %" PRId64 " with %" PRId64 " heads, expected %" PRId64 " x %" PRId64
          " with %" PRId64 " (as the matrix)",
          a->rows, a->cols, a->heads, b->rows, b->cols, b->heads);
    CHECK(a->block_rows == b->block_rows && a->block_cols == b->block_cols, SHAPE,
          "layout has blocks of %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64
          " (as the matrix)",
          a->block_rows, a->block_cols, b->block_rows, b->block_cols);
    int64_t *sources;
    PASS(tartan_i_allocate(&sources, layout->blocks, sizeof *sources));
    match_blocks(layout, matrix->layout, sources);
    return finish(matrix, tartan_layout_retain(layout), sources, false, out);
}

tartan_status tartan_matrix_rearrange(const tartan_matrix *matrix, tartan_layout *layout,
                                      const int64_t *sources, int64_t nsources, tartan_matrix **out) {
    CHECK_OUT(out);
    PASS(tartan_i_matrix_check_cpu(__func__, matrix));
    CHECK_HANDLE(layout, LAYOUT, "layout");
    const tartan_shape *a = &layout->shape, *b = &matrix->layout->shape;
    CHECK(a->block_rows == b->block_rows && a->block_cols == b->block_cols, SHAPE,
          "layout has blocks of %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64
          " (as the matrix)",
          a->block_rows, a->block_cols, b->block_rows, b->block_cols);
    PASS(tartan_i_list_check(__func__, "sources", sources, nsources, layout->blocks, "blocks of the layout"));
    for (int64_t id = 0; id < nsources; id++) {
        CHECK(sources[id] >= -1 && sources[id] < matrix->layout->blocks, LAYOUT,
              "sources[%" PRId64 "] is %" PRId64 ", expected -1 .. %" PRId64, id, sources[id],
              matrix->layout->blocks - 1);
    }
    PASS(tartan_i_matrix_new(layout, matrix->dtype, matrix->block_order, out));
    tartan_i_blocks_copy(*out, matrix, sources, false);
    return TARTAN_OK;
}
