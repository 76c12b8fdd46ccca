// SPDX-License-Identifier: Apache-2.0
// A counting sort of elements by row.
#include "matrix/element_rows.h"

#include <string.h>

void tartan_i_element_rows_end(tartan_i_element_rows *e) {
    tartan_i_free(e->own_pointers);
    tartan_i_free(e->own_cols);
    tartan_i_free(e->own_sources);
    tartan_i_free(e->own_values);
}

/* ---- Sorting ---- */

void tartan_i_accumulate(int64_t *pointers, int64_t rows) {
    for (int64_t r = 0; r < rows; r++) pointers[r + 1] += pointers[r];
}

// From coordinates.
tartan_status tartan_i_element_rows_of_coordinates(tartan_i_element_rows *e, const int64_t *rows,
                                                   const int64_t *cols) {
    tartan_status status;
    const int64_t all = e->shape->rows;
    bool sorted = true;
    NEW_ZEROED(e->own_pointers, all + 1);
    for (int64_t n = 0; n < e->count; n++) {
        e->own_pointers[rows[n] + 1]++;
        sorted = sorted && (n == 0 || rows[n - 1] <= rows[n]);
    }
    tartan_i_accumulate(e->own_pointers, all);
    e->pointers = e->own_pointers;
    e->cols = cols;
    if (sorted) return TARTAN_OK;
    NEW(e->own_cols, e->count);
    NEW(e->own_sources, e->count);
    for (int64_t n = 0; n < e->count; n++) { /* pointers[r] moves from the begin of row r to its end */
        const int64_t at = e->own_pointers[rows[n]]++;
        e->own_cols[at] = cols[n];
        e->own_sources[at] = n;
    }
    memmove(e->own_pointers + 1, e->own_pointers, (size_t)all * sizeof *e->own_pointers);
    e->own_pointers[0] = 0;
    e->cols = e->own_cols;
    e->sources = e->own_sources;
    return TARTAN_OK;
fail:
    return status;
}

// From compressed columns.
tartan_status tartan_i_element_rows_of_columns(tartan_i_element_rows *e, const int64_t *pointers,
                                               const int64_t *rows) {
    tartan_status status;
    const int64_t all = e->shape->rows;
    NEW_ZEROED(e->own_pointers, all + 1);
    NEW(e->own_cols, e->count);
    NEW(e->own_sources, e->count);
    for (int64_t n = 0; n < e->count; n++) e->own_pointers[rows[n] + 1]++;
    tartan_i_accumulate(e->own_pointers, all);
    for (int64_t col = 0; col < e->shape->cols; col++)
        for (int64_t n = pointers[col]; n < pointers[col + 1]; n++) {
            const int64_t at = e->own_pointers[rows[n]]++;
            e->own_cols[at] = col;
            e->own_sources[at] = n;
        }
    memmove(e->own_pointers + 1, e->own_pointers, (size_t)all * sizeof *e->own_pointers);
    e->own_pointers[0] = 0;
    e->pointers = e->own_pointers;
    e->cols = e->own_cols;
    e->sources = e->own_sources;
    return TARTAN_OK;
fail:
    return status;
}

tartan_status tartan_i_element_rows_take_values(tartan_i_element_rows *e, const tartan_array *values,
                                                int32_t dtype) {
    e->values = values->data;
    if (e->count == 0 || (values->dtype == dtype && values->strides[0] == 1)) return TARTAN_OK;
    PASS(tartan_i_allocate(&e->own_values, e->count, tartan_dtype_bytes(dtype)));
    tartan_i_tile_copier(dtype, values->dtype)(e->own_values, 0, 1, values->data, 0, values->strides[0], 1,
                                               e->count);
    e->values = e->own_values;
    return TARTAN_OK;
}
