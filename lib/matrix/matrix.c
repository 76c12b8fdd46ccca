// SPDX-License-Identifier: Apache-2.0
// Matrices: create, wrap, copy blocks, free, query.
#include "matrix/matrix.h"

#include <stdio.h>

/* ---- Checks ---- */

tartan_status tartan_i_matrix_check_new(const char *function, const tartan_layout *layout, int32_t dtype,
                                        int32_t block_order) {
    if (!tartan_i_is_host_layout(layout)) return tartan_i_fail_handle(function, "layout", layout, "layout");
    CHECK_IN(function, tartan_i_is_number(dtype), DTYPE, "dtype is %d, expected %d .. %d (a tartan_dtype)",
             dtype, TARTAN_F64, TARTAN_I_LAST_DTYPE);
    CHECK_IN(function, block_order == TARTAN_ROW_MAJOR || block_order == TARTAN_COL_MAJOR, ARGUMENT,
             "block_order is %d, expected %d (row-major) or %d (column-major)", block_order, TARTAN_ROW_MAJOR,
             TARTAN_COL_MAJOR);
    return TARTAN_OK;
}

tartan_status tartan_i_matrix_check_readable(const char *function, const char *name,
                                             const tartan_matrix *matrix) {
    CHECK_IN(function, tartan_i_is(matrix, TARTAN_I_MATRIX), HANDLE, "%s is %s, expected an open matrix",
             name, matrix == NULL ? "NULL" : "closed or not one of Tartan's");
    CHECK_IN(function, matrix->device_type == TARTAN_CPU, UNSUPPORTED,
             "%s has its values on CUDA device %d, expected CPU memory here", name, matrix->device_id);
    return tartan_i_matrix_check_stays(function, name, matrix);
}

tartan_status tartan_i_matrix_check_even(const char *function, const char *name,
                                         const tartan_layout *layout) {
    CHECK_IN(function, !tartan_i_is_variable(layout), UNSUPPORTED,
             "%s has blocks of different sizes, which are not supported here", name);
    return TARTAN_OK;
}

tartan_status tartan_i_matrix_check_cpu(const char *function, const tartan_matrix *matrix) {
    PASS(tartan_i_matrix_check_readable(function, "matrix", matrix));
    return tartan_i_matrix_check_even(function, "matrix", matrix->layout);
}

tartan_status tartan_i_matrix_check_stays(const char *function, const char *name,
                                          const tartan_matrix *matrix) {
    CHECK_IN(function, !tartan_i_is_dynamic(matrix->layout), UNSUPPORTED,
             "%s has a dynamic layout, expected an ordinary one (tartan_matrix_to_host makes such a matrix)",
             name);
    return TARTAN_OK;
}

tartan_status tartan_i_matrix_check_apart(const char *function, const tartan_matrix *matrix, const char *name,
                                          const void *output, int64_t bytes) {
    uintptr_t a = (uintptr_t)matrix->values, b = (uintptr_t)output;
    int64_t values =
        matrix->layout->blocks * tartan_i_block_elements(matrix) * tartan_dtype_bytes(matrix->dtype);
    CHECK_IN(function, bytes == 0 || values == 0 || a >= b + (uintptr_t)bytes || b >= a + (uintptr_t)values,
             ARGUMENT, "%s overlaps the values of the matrix, expected separate memory", name);
    return TARTAN_OK;
}

/* ---- Making ---- */

void tartan_i_matrix_set_device(tartan_matrix *m, int32_t device_type, int32_t device_id) {
    m->device_type = device_type;
    m->device_id = device_id;
    if (device_type == TARTAN_CPU)
        snprintf(m->device, sizeof m->device, "cpu");
    else
        snprintf(m->device, sizeof m->device, "cuda:%" PRId32, device_id);
}

// Zeroes the blocks that have padding.
static void zero_ragged(tartan_matrix *m) {
    const tartan_layout *l = m->layout;
    if (!tartan_i_is_ragged(l)) return;
    size_t bytes = (size_t)(tartan_i_block_elements(m) * tartan_dtype_bytes(m->dtype));
    for (int64_t id = 0; id < l->blocks; id++) {
        bool whole = tartan_i_rows_of(l, l->block_rows[id]) == l->shape.block_rows &&
                     tartan_i_cols_of(l, l->block_cols[id]) == l->shape.block_cols;
        if (!whole) memset(tartan_i_block_at(m, id), 0, bytes);
    }
}

void tartan_i_block_clear_padding(tartan_matrix *m, int64_t id) {
    const tartan_layout *l = m->layout;
    const int64_t row_stride = tartan_i_block_row_stride(m), col_stride = tartan_i_block_col_stride(m);
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]);
    const int64_t cols = tartan_i_cols_of(l, l->block_cols[id]);
    if (rows == l->shape.block_rows && cols == l->shape.block_cols) return;
    for (int64_t i = 0; i < l->shape.block_rows; i++)
        for (int64_t j = i < rows ? cols : 0; j < l->shape.block_cols; j++)
            tartan_i_store(tartan_i_block_at(m, id), m->dtype, i * row_stride + j * col_stride, 0);
}

void tartan_i_matrix_clear_padding(tartan_matrix *m) {
    if (!tartan_i_is_ragged(m->layout)) return;
    for (int64_t id = 0; id < m->layout->blocks; id++) tartan_i_block_clear_padding(m, id);
}

tartan_status tartan_i_matrix_new(tartan_layout *layout, int32_t dtype, int32_t block_order,
                                  tartan_matrix **out) {
    tartan_status status;
    tartan_matrix *m = NULL;
    *out = NULL;
    NEW_ZEROED(m, 1);
    int64_t block = layout->shape.block_rows * layout->shape.block_cols;
    TRY(tartan_i_allocate(&m->values, layout->blocks, block * tartan_dtype_bytes(dtype)));
    m->magic = TARTAN_I_MATRIX;
    m->dtype = dtype;
    m->block_order = block_order;
    tartan_i_matrix_set_device(m, TARTAN_CPU, 0);
    m->owned = true;
    m->layout = tartan_layout_retain(layout);
    zero_ragged(m);
    *out = m;
    return TARTAN_OK;
fail:
    tartan_i_free(m);
    return status;
}

tartan_status tartan_matrix_create(tartan_layout *layout, int32_t dtype, int32_t block_order,
                                   tartan_matrix **out) {
    CHECK_OUT(out);
    PASS(tartan_i_matrix_check_new(__func__, layout, dtype, block_order));
    PASS(tartan_i_matrix_new(layout, dtype, block_order, out));
    return tartan_matrix_fill_zero(*out);
}

// The order inside the blocks of [blocks, block_rows, block_cols], or -1 if they are not contiguous. The stride of
// a dimension of length 1 does not matter.
static int32_t order_of(const tartan_array *a) {
    int64_t blocks = a->shape[0], br = a->shape[1], bc = a->shape[2];
    if (blocks == 0)
        return a->strides[1] == 1 && a->strides[2] == br && bc > 1 ? TARTAN_COL_MAJOR : TARTAN_ROW_MAJOR;
    if (blocks > 1 && a->strides[0] != br * bc) return -1;
    if ((br == 1 || a->strides[1] == bc) && (bc == 1 || a->strides[2] == 1)) return TARTAN_ROW_MAJOR;
    if ((br == 1 || a->strides[1] == 1) && (bc == 1 || a->strides[2] == br)) return TARTAN_COL_MAJOR;
    return -1;
}

tartan_status tartan_matrix_wrap(tartan_layout *layout, const tartan_array *values, tartan_release release,
                                 void *user, tartan_matrix **out) {
    CHECK_OUT(out);
    if (!tartan_i_is_layout(layout)) return tartan_i_fail_handle(__func__, "layout", layout, "layout");
    PASS(tartan_i_array_check_any(__func__, "values", values, false));
    CHECK(!tartan_i_is_dynamic(layout) ||
              (values->device_type == layout->device_type && values->device_id == layout->device_id),
          UNSUPPORTED, "values is on device %d:%d, expected %d:%d (as the layout)", values->device_type,
          values->device_id, layout->device_type, layout->device_id);
    char text[TARTAN_I_SHAPE_TEXT];
    const tartan_shape *s = &layout->shape;
    CHECK(values->ndim == 3 && values->shape[0] == layout->blocks && values->shape[1] == s->block_rows &&
              values->shape[2] == s->block_cols,
          SHAPE,
          "values has shape %s, expected [%" PRId64 ", %" PRId64 ", %" PRId64 "] (blocks of the layout)",
          tartan_i_shape_text(values, text), layout->blocks, s->block_rows, s->block_cols);
    int32_t order = order_of(values);
    CHECK(order >= 0, SHAPE,
          "values has strides [%" PRId64 ", %" PRId64 ", %" PRId64
          "], expected contiguous blocks, each row- or "
          "column-major",
          values->strides[0], values->strides[1], values->strides[2]);
    tartan_matrix *m;
    PASS(tartan_i_allocate_zeroed(&m, 1, sizeof *m));
    m->magic = TARTAN_I_MATRIX;
    m->dtype = values->dtype;
    m->block_order = order;
    tartan_i_matrix_set_device(m, values->device_type, values->device_id);
    m->layout = tartan_layout_retain(layout);
    m->values = values->data;
    m->release = release;
    m->user = user;
    *out = m;
    return TARTAN_OK;
}

void tartan_matrix_free(tartan_matrix *matrix) {
    if (!tartan_i_is(matrix, TARTAN_I_MATRIX)) return;
    matrix->magic = 0;
    tartan_i_matrix_let_go(matrix);
}

tartan_status tartan_matrix_take_values(tartan_matrix *matrix, tartan_array *out_view) {
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    CHECK(out_view != NULL, HANDLE, "out_view is NULL, expected a pointer for the result");
    CHECK(matrix->owned, ARGUMENT,
          "matrix has memory of others, expected one that the library made in host memory");
    CHECK(__atomic_load_n(&matrix->holds, __ATOMIC_ACQUIRE) == 0, ARGUMENT,
          "matrix is in use by another call, expected one that nobody uses");
    *out_view = tartan_i_matrix_view(matrix);
    tartan_i_hand_over(matrix->values);
    matrix->owned = false;
    tartan_matrix_free(matrix);
    return TARTAN_OK;
}

void tartan_i_matrix_hold(tartan_matrix *matrix) {
    __atomic_fetch_add(&matrix->holds, 1, __ATOMIC_RELAXED);
}

void tartan_i_matrix_let_go(tartan_matrix *matrix) {
    if (__atomic_fetch_sub(&matrix->holds, 1, __ATOMIC_ACQ_REL) != 0) return;
    if (matrix->owned) tartan_i_free(matrix->values);
    if (matrix->release != NULL) matrix->release(matrix->user);
    tartan_layout_free(matrix->layout);
    tartan_i_free(matrix);
}

/* ---- Copying blocks ---- */

/* Whether the elements of blocks follow each other in one order; a block of one row or column has only one. */
static bool in_one_order(const tartan_matrix *to, const tartan_matrix *from) {
    const tartan_shape *s = &to->layout->shape;
    return to->block_order == from->block_order || s->block_rows == 1 || s->block_cols == 1;
}

void tartan_i_block_copy(tartan_matrix *to, int64_t to_id, const tartan_matrix *from, int64_t from_id,
                         bool transposed) {
    const tartan_layout *l = to->layout, *fl = from->layout;
    const int64_t elements = tartan_i_block_elements(to);
    void *block = tartan_i_block_at(to, to_id);
    int64_t rows = 0, cols = 0;
    if (from_id >= 0) {
        const int64_t from_rows = tartan_i_rows_of(fl, fl->block_rows[from_id]);
        const int64_t from_cols = tartan_i_cols_of(fl, fl->block_cols[from_id]);
        rows = tartan_i_rows_of(l, l->block_rows[to_id]);
        cols = tartan_i_cols_of(l, l->block_cols[to_id]);
        if (rows > (transposed ? from_cols : from_rows)) rows = transposed ? from_cols : from_rows;
        if (cols > (transposed ? from_rows : from_cols)) cols = transposed ? from_rows : from_cols;
    }
    if (rows * cols < elements) memset(block, 0, (size_t)(elements * tartan_dtype_bytes(to->dtype)));
    if (rows * cols == 0) return;
    const tartan_i_tile_copy copy = tartan_i_tile_copier(to->dtype, from->dtype);
    const void *old = tartan_i_block_at(from, from_id);
    if (!transposed && in_one_order(to, from) && rows * cols == elements &&
        elements == tartan_i_block_elements(from)) {
        copy(block, 0, 1, old, 0, 1, 1, elements);
        return;
    }
    const int64_t row = tartan_i_block_row_stride(from), col = tartan_i_block_col_stride(from);
    copy(block, tartan_i_block_row_stride(to), tartan_i_block_col_stride(to), old, transposed ? col : row,
         transposed ? row : col, rows, cols);
}

void tartan_i_blocks_copy(tartan_matrix *to, const tartan_matrix *from, int64_t begin, int64_t end) {
    if (in_one_order(to, from) && !tartan_i_is_ragged(to->layout)) { /* one run of elements */
        tartan_i_tile_copier(to->dtype, from->dtype)(tartan_i_block_at(to, begin), 0, 1,
                                                     tartan_i_block_at(from, begin), 0, 1, 1,
                                                     (end - begin) * tartan_i_block_elements(to));
        return;
    }
    for (int64_t id = begin; id < end; id++) tartan_i_block_copy(to, id, from, id, false);
}

/* ---- Asking ---- */

tartan_status tartan_matrix_get_layout(const tartan_matrix *matrix, tartan_layout **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    CHECK_HANDLE(matrix, MATRIX, "matrix");
    *out = tartan_layout_retain(matrix->layout);
    return TARTAN_OK;
}

int32_t tartan_matrix_dtype(const tartan_matrix *matrix) {
    return tartan_i_is(matrix, TARTAN_I_MATRIX) ? matrix->dtype : -1;
}

int32_t tartan_matrix_block_order(const tartan_matrix *matrix) {
    return tartan_i_is(matrix, TARTAN_I_MATRIX) ? matrix->block_order : -1;
}

tartan_array tartan_i_matrix_view(const tartan_matrix *matrix) {
    const tartan_layout *l = matrix->layout;
    return (tartan_array){
        .data = matrix->values,
        .dtype = matrix->dtype,
        .device_type = matrix->device_type,
        .device_id = matrix->device_id,
        .ndim = 3,
        .shape = {l->blocks, l->shape.block_rows, l->shape.block_cols},
        .strides = {tartan_i_block_elements(matrix), tartan_i_block_row_stride(matrix),
                    tartan_i_block_col_stride(matrix)},
    };
}

tartan_status tartan_matrix_values(tartan_matrix *matrix, tartan_array *out_view) {
    HOLD_MATRIX(matrix);
    CHECK(out_view != NULL, HANDLE, "out_view is NULL, expected a pointer for the result");
    CHECK_HANDLE(matrix, MATRIX, "matrix");
    *out_view = tartan_i_matrix_view(matrix);
    return TARTAN_OK;
}

tartan_status tartan_matrix_entry(const tartan_matrix *matrix, int64_t head, int64_t row, int64_t col,
                                  double *out_value) {
    HOLD_MATRIX(matrix);
    CHECK(out_value != NULL, HANDLE, "out_value is NULL, expected a pointer for the result");
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    const tartan_layout *l = matrix->layout;
    const tartan_shape *s = &l->shape;
    CHECK(head >= 0 && head < s->heads, ARGUMENT, "head is %" PRId64 ", expected 0 .. %" PRId64, head,
          s->heads - 1);
    CHECK(row >= 0 && row < s->rows, ARGUMENT, "row is %" PRId64 ", expected 0 .. %" PRId64, row,
          s->rows - 1);
    CHECK(col >= 0 && col < s->cols, ARGUMENT, "col is %" PRId64 ", expected 0 .. %" PRId64, col,
          s->cols - 1);
    const int64_t i = tartan_i_block_row_at(l, row), j = tartan_i_block_col_at(l, col);
    int64_t id = tartan_i_layout_find(l, head, i, j);
    int64_t offset = (row - tartan_i_row_begin(l, i)) * tartan_i_block_row_stride(matrix) +
                     (col - tartan_i_col_begin(l, j)) * tartan_i_block_col_stride(matrix);
    *out_value = id < 0 ? 0 : tartan_i_load(tartan_i_block_at(matrix, id), matrix->dtype, offset);
    return TARTAN_OK;
}
