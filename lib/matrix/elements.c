// SPDX-License-Identifier: Apache-2.0
// Elements read and written by lists of their places.
#include "core/array.h"
#include "layout/places.h"
#include "layout/positions.h"
#include "matrix/work.h"
#include "tartan/structure.h"

static tartan_status check_places(const char *function, const tartan_places *places,
                                  const tartan_layout *layout) {
    const tartan_shape *s = &layout->shape;
    return tartan_i_places_check(function, places, s->heads, s->rows, s->cols);
}

static tartan_status check_values(const char *function, const tartan_array *values, int64_t n, bool output) {
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_array_check(function, "values", values, output));
    CHECK_IN(function, values->ndim == 1 && values->shape[0] == n, SHAPE,
             "values has shape %s, expected [%" PRId64 "]", tartan_i_shape_text(values, text), n);
    return TARTAN_OK;
}

// Where an element is; neighbours often share a block, so the last one is remembered.
typedef struct finder {
    const tartan_layout *layout;
    int64_t head, block_row, block_col, id;
} finder;

static int64_t find(finder *f, const tartan_places *p, int64_t n) {
    const int64_t head = tartan_i_head_at(p, n);
    const int64_t i = tartan_i_block_row_at(f->layout, p->rows[n]),
                  j = tartan_i_block_col_at(f->layout, p->cols[n]);
    if (head != f->head || i != f->block_row || j != f->block_col)
        *f = (finder){f->layout, head, i, j, tartan_i_layout_find(f->layout, head, i, j)};
    return f->id;
}

static void *element_at(const tartan_matrix *m, const finder *f, const tartan_places *p, int64_t n) {
    const int64_t row = p->rows[n] - tartan_i_row_begin(f->layout, f->block_row),
                  col = p->cols[n] - tartan_i_col_begin(f->layout, f->block_col);
    return tartan_i_at(tartan_i_block_at(m, f->id), m->dtype,
                       row * tartan_i_block_row_stride(m) + col * tartan_i_block_col_stride(m));
}

static finder begin(const tartan_layout *layout) {
    return (finder){.layout = layout, .head = -1, .id = -1};
}

tartan_status tartan_matrix_get_elements(const tartan_matrix *matrix, const tartan_places *places,
                                         tartan_array *values) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    PASS(check_places(__func__, places, matrix->layout));
    PASS(check_values(__func__, values, places->count, true));
    const tartan_array own = tartan_i_matrix_view(matrix);
    PASS(tartan_i_array_check_apart(__func__, "values", values, "the values of the matrix", &own));
    const tartan_i_tile_copy copy = tartan_i_tile_copier(values->dtype, matrix->dtype);
    const int64_t bytes = tartan_dtype_bytes(values->dtype);
    finder f = begin(matrix->layout);
    for (int64_t n = 0; n < places->count; n++) {
        void *to = tartan_i_at(values->data, values->dtype, n * values->strides[0]);
        if (find(&f, places, n) < 0)
            memset(to, 0, (size_t)bytes);
        else
            copy(to, 1, 1, element_at(matrix, &f, places, n), 1, 1, 1, 1);
    }
    return TARTAN_OK;
}

tartan_status tartan_matrix_set_elements(tartan_matrix *matrix, const tartan_places *places,
                                         const tartan_array *values, int32_t add) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_matrix_check_readable(__func__, "matrix", matrix));
    PASS(check_places(__func__, places, matrix->layout));
    PASS(check_values(__func__, values, places->count, false));
    const tartan_array own = tartan_i_matrix_view(matrix);
    PASS(tartan_i_array_check_apart(__func__, "matrix", &own, "values", values));
    const int64_t stride = values->strides[0];
    finder f = begin(matrix->layout);
    for (int64_t n = 0; n < places->count; n++)
        CHECK(find(&f, places, n) >= 0 || tartan_i_load(values->data, values->dtype, n * stride) == 0, LAYOUT,
              "element %" PRId64 " at (%" PRId64 ", %" PRId64
              ") is not stored, expected only zeros there (tartan_layout_add_elements adds blocks)",
              n, places->rows[n], places->cols[n]);
    const tartan_i_tile_copy copy = tartan_i_tile_copier(matrix->dtype, values->dtype);
    for (int64_t n = 0; n < places->count; n++) {
        if (find(&f, places, n) < 0) continue;
        void *to = element_at(matrix, &f, places, n);
        if (add != 0)
            tartan_i_store(to, matrix->dtype, 0,
                           tartan_i_load(to, matrix->dtype, 0) +
                               tartan_i_load(values->data, values->dtype, n * stride));
        else
            copy(to, 1, 1, tartan_i_at(values->data, values->dtype, n * stride), 1, 1, 1, 1);
    }
    return TARTAN_OK;
}

tartan_status tartan_layout_add_elements(tartan_layout *layout, const tartan_places *places,
                                         tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HOST_LAYOUT(layout);
    tartan_status status;
    PASS(check_places(__func__, places, layout));
    const tartan_shape frame = tartan_i_layout_frame(layout);
    tartan_layout *made = NULL;
    int64_t *positions = NULL, missing = 0, last = -1;
    finder f = begin(layout);
    NEW(positions, layout->blocks + places->count);
    tartan_i_layout_positions(layout, positions);
    for (int64_t n = 0; n < places->count; n++) {
        if (find(&f, places, n) >= 0) continue;
        const int64_t position = (f.head * layout->grid_rows + f.block_row) * layout->grid_cols + f.block_col;
        if (position != last) positions[layout->blocks + missing++] = position;
        last = position;
    }
    if (missing == 0) {
        made = tartan_layout_retain(layout);
    } else {
        TRY(tartan_i_layout_from_positions(__func__, &frame, positions, layout->blocks + missing, true, NULL,
                                           &made));
        TRY(tartan_i_layout_take_bounds_of(__func__, made, layout));
    }
    *out = made;
    made = NULL;
    status = TARTAN_OK;
fail:
    tartan_layout_free(made);
    tartan_i_free(positions);
    return status;
}
