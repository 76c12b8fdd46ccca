// SPDX-License-Identifier: Apache-2.0
// Conversion to and from elements: coordinates (COO) and compressed rows (CSR).
#include "layout/places.h"
#include "matrix/matrix.h"

#include <string.h>

/* ---- Checks ---- */

static tartan_status check_one_head(const char *function, const tartan_layout *layout) {
    CHECK_IN(function, layout->shape.heads == 1, SHAPE, "layout has %" PRId64 " heads, expected 1",
             layout->shape.heads);
    return TARTAN_OK;
}

static tartan_status check_values(const char *function, const tartan_array *values, int64_t n, bool output) {
    PASS(tartan_i_array_check(function, "values", values, output));
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK_IN(function, values->ndim == 1 && values->shape[0] == n, SHAPE,
             "values has shape %s, expected [%" PRId64 "]", tartan_i_shape_text(values, text), n);
    return TARTAN_OK;
}

/* ---- Reading entries ---- */

// A matrix being filled element by element.
typedef struct filling {
    const char *function;
    tartan_matrix *matrix;
    uint8_t *seen; /* one bit for each element of the blocks */
    const tartan_array *values;
    tartan_i_tile_copy copy;
    int64_t block_row, block_col, id; /* the block found last; neighbours often share it */
} filling;

static void filling_end(filling *f) {
    tartan_i_free(f->seen);
    tartan_matrix_free(f->matrix);
}

// Checks the arguments of both conversions and allocates.
static tartan_status filling_begin(filling *f, const char *function, tartan_layout *layout,
                                   const tartan_array *values, int64_t n, int32_t dtype,
                                   int32_t block_order) {
    *f = (filling){.function = function, .values = values, .block_row = -1};
    PASS(check_one_head(function, layout));
    PASS(check_values(function, values, n, false));
    if (dtype == 0) dtype = values->dtype;
    PASS(tartan_i_matrix_check_new(function, layout, dtype, block_order));
    tartan_status status;
    TRY(tartan_i_matrix_new(layout, dtype, block_order, &f->matrix));
    TRY(tartan_matrix_fill_zero(f->matrix));
    TRY(tartan_i_allocate_zeroed(&f->seen, layout->blocks, (tartan_i_block_elements(f->matrix) + 7) / 8));
    f->copy = tartan_i_tile_copier(dtype, values->dtype);
    return TARTAN_OK;
fail:
    filling_end(f);
    return status;
}

static tartan_status put(filling *f, int64_t n, int64_t row, int64_t col) {
    const tartan_matrix *m = f->matrix;
    const tartan_layout *l = m->layout;
    int64_t i = tartan_i_block_row_at(l, row), j = tartan_i_block_col_at(l, col);
    if (i != f->block_row || j != f->block_col) {
        f->block_row = i, f->block_col = j;
        f->id = tartan_i_layout_find(l, 0, i, j);
    }
    int64_t id = f->id;
    CHECK_IN(f->function, id >= 0, LAYOUT,
             "entry %" PRId64 " at (%" PRId64 ", %" PRId64 ") is in block (%" PRId64 ", %" PRId64
             "), expected a stored block",
             n, row, col, i, j);
    int64_t elements = tartan_i_block_elements(m);
    int64_t offset = (row - tartan_i_row_begin(l, i)) * tartan_i_block_row_stride(m) +
                     (col - tartan_i_col_begin(l, j)) * tartan_i_block_col_stride(m);
    uint8_t *seen = f->seen + id * ((elements + 7) / 8) + offset / 8;
    CHECK_IN(f->function, (*seen >> (offset % 8) & 1) == 0, LAYOUT,
             "entry %" PRId64 " is at (%" PRId64 ", %" PRId64
             ") like an earlier entry, expected each position once",
             n, row, col);
    *seen |= (uint8_t)(1 << (offset % 8));
    f->copy(tartan_i_at(m->values, m->dtype, id * elements + offset), 1, 1,
            tartan_i_at(f->values->data, f->values->dtype, n * f->values->strides[0]), 1, 1, 1, 1);
    return TARTAN_OK;
}

tartan_status tartan_matrix_from_coo(tartan_layout *layout, const tartan_places *places,
                                     const tartan_array *values, int32_t dtype, int32_t block_order,
                                     tartan_matrix **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    PASS(
        tartan_i_places_check(__func__, places, layout->shape.heads, layout->shape.rows, layout->shape.cols));
    tartan_status status;
    filling f;
    PASS(filling_begin(&f, __func__, layout, values, places->count, dtype, block_order));
    for (int64_t n = 0; n < places->count; n++) TRY(put(&f, n, places->rows[n], places->cols[n]));
    *out = f.matrix;
    f.matrix = NULL;
    status = TARTAN_OK;
fail:
    filling_end(&f);
    return status;
}

tartan_status tartan_matrix_from_csr(tartan_layout *layout, const tartan_compressed *lists,
                                     const tartan_array *values, int32_t dtype, int32_t block_order,
                                     tartan_matrix **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    const int64_t rows = layout->shape.rows;
    PASS(tartan_i_row_lists_check(__func__, lists, rows, "rows + 1", layout->shape.cols));
    tartan_status status;
    filling f;
    PASS(filling_begin(&f, __func__, layout, values, lists->nindices, dtype, block_order));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = lists->pointers[r]; n < lists->pointers[r + 1]; n++)
            TRY(put(&f, n, r, lists->indices[n]));
    *out = f.matrix;
    f.matrix = NULL;
    status = TARTAN_OK;
fail:
    filling_end(&f);
    return status;
}

/* ---- Writing entries ---- */

static tartan_status check_output(const char *function, const tartan_matrix *matrix, tartan_array *values) {
    PASS(check_one_head(function, matrix->layout));
    PASS(check_values(function, values, tartan_layout_elements(matrix->layout), true));
    const char *begin, *end;
    tartan_i_array_extent(values, &begin, &end);
    return tartan_i_matrix_check_apart(function, matrix, "values", begin, end - begin);
}

// Checks an index output: its length, and that it does not overlap either values array.
static tartan_status check_index_output(const char *function, const tartan_matrix *matrix,
                                        const tartan_array *values, const char *name, const int64_t *indices,
                                        int64_t n, int64_t expected, const char *meaning) {
    PASS(tartan_i_list_check(function, name, indices, n, expected, meaning));
    int64_t bytes = n * (int64_t)sizeof *indices;
    PASS(tartan_i_matrix_check_apart(function, matrix, name, indices, bytes));
    const char *begin, *end;
    tartan_i_array_extent(values, &begin, &end);
    CHECK_IN(function, n == 0 || (const char *)indices >= end || begin >= (const char *)indices + bytes,
             ARGUMENT, "%s overlaps values, expected separate memory", name);
    return TARTAN_OK;
}

static bool is_apart(const int64_t *a, int64_t na, const int64_t *b, int64_t nb) {
    return na == 0 || nb == 0 || a >= b + nb || b >= a + na;
}

// Where elements go, row by row. `rows` may be NULL.
typedef struct entries {
    int64_t *rows, *cols;
    const tartan_array *values;
    tartan_i_tile_copy copy; /* NULL: rows of blocks are copied as they are */
} entries;

// Writes the rows of a block whose first elements go to `at` and each `width` elements after it.
static void write_block(const tartan_matrix *m, int64_t id, const entries *to, int64_t at, int64_t width) {
    const tartan_layout *l = m->layout;
    const int64_t row = tartan_i_row_begin(l, l->block_rows[id]),
                  height = tartan_i_rows_of(l, l->block_rows[id]);
    const int64_t col = tartan_i_col_begin(l, l->block_cols[id]),
                  count = tartan_i_cols_of(l, l->block_cols[id]);
    const int64_t row_stride = tartan_i_block_row_stride(m), col_stride = tartan_i_block_col_stride(m);
    const size_t bytes = (size_t)(count * tartan_dtype_bytes(m->dtype));
    for (int64_t r = 0; r < height; r++, at += width) {
        const void *from = tartan_i_at(tartan_i_block_at(m, id), m->dtype, r * row_stride);
        void *values = tartan_i_at(to->values->data, to->values->dtype, at * to->values->strides[0]);
        if (to->copy == NULL)
            memcpy(values, from, bytes);
        else
            to->copy(values, 0, to->values->strides[0], from, 0, col_stride, 1, count);
        for (int64_t c = 0; c < count; c++) to->cols[at + c] = col + c;
        for (int64_t c = 0; to->rows != NULL && c < count; c++) to->rows[at + c] = row + r;
    }
}

// A row of a block row of whole blocks, and where it goes.
typedef struct line {
    const void *from;
    void *values;
    const int32_t *block_cols;
    int64_t *cols;
    int64_t blocks, elements, width; /* of a block row, of a block, of its rows */
} line;

#define WRITE_LINE(bits)                                                                                     \
    static inline __attribute__((always_inline)) void write_runs_##bits(const line *w, int64_t width) {      \
        const uint##bits##_t *from = w->from;                                                                \
        uint##bits##_t *values = w->values;                                                                  \
        int64_t *cols = w->cols;                                                                             \
        for (int64_t k = 0; k < w->blocks; k++, from += w->elements, values += width, cols += width) {       \
            const int64_t col = w->block_cols[k] * width;                                                    \
            for (int64_t c = 0; c < width; c++) values[c] = from[c];                                         \
            for (int64_t c = 0; c < width; c++) cols[c] = col + c;                                           \
        }                                                                                                    \
    }                                                                                                        \
    static void write_line_##bits(const line *w) {                                                           \
        if (w->width == 1)                                                                                   \
            write_runs_##bits(w, 1);                                                                         \
        else if (w->width == 2)                                                                              \
            write_runs_##bits(w, 2);                                                                         \
        else if (w->width == 4)                                                                              \
            write_runs_##bits(w, 4);                                                                         \
        else                                                                                                 \
            write_runs_##bits(w, w->width);                                                                  \
    }
WRITE_LINE(64)
WRITE_LINE(32)

// Whether all blocks are whole and row-major, in the dtype and order of `values`, of 4 or 8 bytes.
static bool are_plain(const tartan_matrix *m, const tartan_array *values) {
    const int64_t bytes = tartan_dtype_bytes(m->dtype);
    return m->block_order == TARTAN_ROW_MAJOR && values->strides[0] == 1 && values->dtype == m->dtype &&
           !tartan_i_is_ragged(m->layout) && (bytes == 4 || bytes == 8);
}

static void write_plain(const tartan_matrix *m, int64_t *pointers, int64_t *rows, int64_t *cols,
                        tartan_array *values) {
    const tartan_layout *l = m->layout;
    const tartan_shape *s = &l->shape;
    const int64_t elements = tartan_i_block_elements(m), bytes = tartan_dtype_bytes(m->dtype);
    int64_t next = 0;    /* rows that have a pointer */
    if (elements == 1) { /* the blocks are the entries */
        for (int64_t i = 0; i < l->blocks; i++) cols[i] = l->block_cols[i];
        for (int64_t i = 0; rows != NULL && i < l->blocks; i++) rows[i] = l->block_rows[i];
        if (pointers != NULL) memcpy(pointers, l->row_pointers, (size_t)(s->rows + 1) * sizeof *pointers);
        if (l->blocks > 0) memcpy(values->data, m->values, (size_t)(l->blocks * bytes));
        return;
    }
    for (int64_t id = 0, n = 0; id < l->blocks;) {
        const int64_t i = l->block_rows[id], blocks = l->row_pointers[i + 1] - id;
        const int64_t width = blocks * s->block_cols;
        for (; pointers != NULL && next < i * s->block_rows; next++) pointers[next] = n;
        for (int64_t r = 0; r < s->block_rows; r++, n += width) {
            const line w = {.from = (const char *)tartan_i_block_at(m, id) + r * s->block_cols * bytes,
                            .values = (char *)values->data + n * bytes,
                            .block_cols = l->block_cols + id,
                            .cols = cols + n,
                            .blocks = blocks,
                            .elements = elements,
                            .width = s->block_cols};
            (bytes == 8 ? write_line_64 : write_line_32)(&w);
            for (int64_t c = 0; rows != NULL && c < width; c++) rows[n + c] = i * s->block_rows + r;
            if (pointers != NULL) pointers[next++] = n;
        }
        id += blocks;
    }
    if (pointers != NULL)
        for (; next <= s->rows; next++) pointers[next] = l->blocks * elements;
}

// Writes all elements. Without pointers, rows that store nothing cost nothing.
static void write_entries(const tartan_matrix *m, int64_t *pointers, int64_t *rows, int64_t *cols,
                          tartan_array *values) {
    const tartan_layout *l = m->layout;
    if (are_plain(m, values)) {
        write_plain(m, pointers, rows, cols, values);
        return;
    }
    const bool plain =
        m->block_order == TARTAN_ROW_MAJOR && values->strides[0] == 1 && values->dtype == m->dtype;
    const entries to = {.rows = rows,
                        .cols = cols,
                        .values = values,
                        .copy = plain ? NULL : tartan_i_tile_copier(values->dtype, m->dtype)};
    int64_t n = 0, next = 0; /* elements, and rows that have a pointer */
    for (int64_t id = 0; id < l->blocks;) {
        const int64_t i = l->block_rows[id], end = l->row_pointers[i + 1];
        const int64_t first = tartan_i_row_begin(l, i), height = tartan_i_rows_of(l, i);
        int64_t width = 0, at = n; /* elements of a row */
        for (int64_t k = id; k < end; k++) width += tartan_i_cols_of(l, l->block_cols[k]);
        if (pointers != NULL) {
            for (; next < first; next++) pointers[next] = n;
            for (int64_t r = 0; r < height; r++) pointers[next++] = n + r * width;
        }
        for (; id < end; at += tartan_i_cols_of(l, l->block_cols[id++])) write_block(m, id, &to, at, width);
        n += height * width;
    }
    if (pointers != NULL)
        for (; next <= l->shape.rows; next++) pointers[next] = n;
}

tartan_status tartan_matrix_to_coo(const tartan_matrix *matrix, int64_t *out_entry_rows,
                                   int64_t nout_entry_rows, int64_t *out_entry_cols, int64_t nout_entry_cols,
                                   tartan_array *values) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    PASS(check_output(__func__, matrix, values));
    int64_t n = values->shape[0];
    PASS(check_index_output(__func__, matrix, values, "out_entry_rows", out_entry_rows, nout_entry_rows, n,
                            "stored elements"));
    PASS(check_index_output(__func__, matrix, values, "out_entry_cols", out_entry_cols, nout_entry_cols, n,
                            "stored elements"));
    CHECK(is_apart(out_entry_rows, n, out_entry_cols, n), ARGUMENT,
          "out_entry_rows and out_entry_cols overlap, expected separate memory");
    write_entries(matrix, NULL, out_entry_rows, out_entry_cols, values);
    return TARTAN_OK;
}

tartan_status tartan_matrix_to_csr(const tartan_matrix *matrix, int64_t *out_row_pointers,
                                   int64_t nout_row_pointers, int64_t *out_cols, int64_t nout_cols,
                                   tartan_array *values) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    PASS(check_output(__func__, matrix, values));
    int64_t n = values->shape[0], rows = matrix->layout->shape.rows;
    PASS(check_index_output(__func__, matrix, values, "out_row_pointers", out_row_pointers, nout_row_pointers,
                            rows + 1, "rows + 1"));
    PASS(check_index_output(__func__, matrix, values, "out_cols", out_cols, nout_cols, n, "stored elements"));
    CHECK(is_apart(out_row_pointers, rows + 1, out_cols, n), ARGUMENT,
          "out_row_pointers and out_cols overlap, expected separate memory");
    write_entries(matrix, out_row_pointers, NULL, out_cols, values);
    return TARTAN_OK;
}
