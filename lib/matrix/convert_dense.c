// SPDX-License-Identifier: Apache-2.0
// Dense arrays to matrices and back.
#include "matrix/matrix.h"

// One head of a dense operand.
typedef struct plane {
    char *data;
    int32_t dtype;
    int64_t row_stride, col_stride;
} plane;

static plane plane_of(const tartan_array *dense, int64_t head) {
    bool batched = dense->ndim == 3;
    return (plane){
        .data = tartan_i_at(dense->data, dense->dtype, batched ? head * dense->strides[0] : 0),
        .dtype = dense->dtype,
        .row_stride = dense->strides[batched ? 1 : 0],
        .col_stride = dense->strides[batched ? 2 : 1],
    };
}

static void *element(const plane *p, int64_t row, int64_t col) {
    return tartan_i_at(p->data, p->dtype, row * p->row_stride + col * p->col_stride);
}

static tartan_status check_dense(const char *function, const tartan_layout *layout, const tartan_array *dense,
                                 bool output) {
    PASS(tartan_i_array_check(function, "dense", dense, output));
    const tartan_shape *s = &layout->shape;
    bool fits = s->heads > 1 ? dense->ndim == 3 && dense->shape[0] == s->heads : dense->ndim == 2;
    fits = fits && dense->shape[dense->ndim - 2] == s->rows && dense->shape[dense->ndim - 1] == s->cols;
    if (fits) return TARTAN_OK;
    tartan_array expected = {.ndim = s->heads > 1 ? 3 : 2, .shape = {s->heads, s->rows, s->cols}};
    if (s->heads == 1) expected.shape[0] = s->rows, expected.shape[1] = s->cols;
    char is[TARTAN_I_SHAPE_TEXT], should[TARTAN_I_SHAPE_TEXT];
    return tartan_i_fail(TARTAN_ERR_SHAPE, function, "dense has shape %s, expected %s (as the layout)",
                         tartan_i_shape_text(dense, is), tartan_i_shape_text(&expected, should));
}

tartan_status tartan_matrix_from_dense(tartan_layout *layout, const tartan_array *dense, int32_t dtype,
                                       int32_t block_order, tartan_matrix **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    PASS(check_dense(__func__, layout, dense, false));
    if (dtype == 0) dtype = dense->dtype;
    PASS(tartan_i_matrix_check_new(__func__, layout, dtype, block_order));
    tartan_matrix *m;
    PASS(tartan_i_matrix_new(layout, dtype, block_order, &m));

    const tartan_shape *s = &layout->shape;
    tartan_i_tile_copy copy = tartan_i_tile_copier(dtype, dense->dtype);
    int64_t row_stride = tartan_i_block_row_stride(m), col_stride = tartan_i_block_col_stride(m);
    for (int64_t h = 0; h < s->heads; h++) {
        plane p = plane_of(dense, h);
        const int64_t *pointers = layout->row_pointers + h * layout->grid_rows;
        for (int64_t id = pointers[0]; id < pointers[layout->grid_rows]; id++) {
            int64_t i = layout->block_rows[id], j = layout->block_cols[id];
            copy(tartan_i_block_at(m, id), row_stride, col_stride,
                 element(&p, tartan_i_row_begin(layout, i), tartan_i_col_begin(layout, j)), p.row_stride,
                 p.col_stride, tartan_i_rows_of(layout, i), tartan_i_cols_of(layout, j));
        }
    }
    *out = m;
    return TARTAN_OK;
}

// Zeroes rows x cols elements starting at (row, col).
static void zero_tile(const plane *p, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    if (rows == 0 || cols == 0) return;
    int64_t outer = rows, outer_stride = p->row_stride, inner = cols, inner_stride = p->col_stride;
    if (p->row_stride == 1) outer = cols, outer_stride = p->col_stride, inner = rows, inner_stride = 1;
    size_t bytes = (size_t)tartan_dtype_bytes(p->dtype);
    for (int64_t o = 0; o < outer; o++) {
        char *run = (char *)element(p, row, col) + o * outer_stride * (int64_t)bytes;
        if (inner_stride == 1) {
            memset(run, 0, (size_t)inner * bytes);
        } else {
            for (int64_t i = 0; i < inner; i++) memset(run + i * inner_stride * (int64_t)bytes, 0, bytes);
        }
    }
}

tartan_status tartan_matrix_to_dense(const tartan_matrix *matrix, tartan_array *dense) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    PASS(check_dense(__func__, matrix->layout, dense, true));
    const char *begin, *end;
    tartan_i_array_extent(dense, &begin, &end);
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "dense", begin, end - begin));

    const tartan_layout *l = matrix->layout;
    const tartan_shape *s = &l->shape;
    tartan_i_tile_copy copy = tartan_i_tile_copier(dense->dtype, matrix->dtype);
    int64_t row_stride = tartan_i_block_row_stride(matrix), col_stride = tartan_i_block_col_stride(matrix);
    for (int64_t h = 0; h < s->heads; h++) {
        plane p = plane_of(dense, h);
        for (int64_t i = 0; i < l->grid_rows; i++) {
            const int64_t *pointers = l->row_pointers + h * l->grid_rows + i;
            int64_t row = tartan_i_row_begin(l, i), rows = tartan_i_rows_of(l, i), done = 0;
            for (int64_t id = pointers[0]; id < pointers[1]; id++) {
                int64_t col = tartan_i_col_begin(l, l->block_cols[id]),
                        cols = tartan_i_cols_of(l, l->block_cols[id]);
                zero_tile(&p, row, done, rows, col - done);
                copy(element(&p, row, col), p.row_stride, p.col_stride, tartan_i_block_at(matrix, id),
                     row_stride, col_stride, rows, cols);
                done = col + cols;
            }
            zero_tile(&p, row, done, rows, s->cols - done);
        }
    }
    return TARTAN_OK;
}
