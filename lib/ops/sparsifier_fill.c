/* SPDX-License-Identifier: Apache-2.0
 * What new blocks of a weight hold at first. */
#include "layout/positions.h"
#include "ops/blocks.h"
#include "ops/sparsifier.h"
#include "tartan/device.h"
#include "tartan/operations.h"

#include <math.h>
#include <stdio.h>

/* The new blocks of a moved weight: their ids and positions in its layout, and how many elements they have inside the matrix. */
typedef struct fresh_blocks {
    int64_t *ids, *positions, *rows, *cols, count;
} fresh_blocks;

static void free_fresh(fresh_blocks *f) {
    tartan_i_free(f->ids);
    tartan_i_free(f->positions);
    tartan_i_free(f->rows);
    tartan_i_free(f->cols);
}

/* Finds the new blocks, and the sum of squares and the number of the elements that stay, from the norms of all blocks. */
static tartan_status find_fresh(const tartan_i_sparse_weight *w, int64_t taps, const double *norms,
                                fresh_blocks *out, double *out_squares, double *out_elements) {
    tartan_status status;
    const tartan_layout *l = w->next;
    int64_t count = 0, at = 0;
    for (int64_t id = 0; id < l->blocks; id++) count += taps * (w->sources[id] < 0);
    NEW(out->ids, count);
    NEW(out->positions, count);
    NEW(out->rows, count);
    NEW(out->cols, count);
    for (int64_t r = 0; r < l->shape.heads * l->grid_rows; r++)
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t id = l->row_pointers[r]; id < l->row_pointers[r + 1]; id++, at++) {
                const int64_t rows = tartan_i_rows_of(l, r % l->grid_rows);
                const int64_t cols = tartan_i_cols_of(l, l->block_cols[id]), i = out->count;
                if (w->sources[id] >= 0) {
                    *out_squares += norms[at] * norms[at];
                    *out_elements += (double)(rows * cols);
                    continue;
                }
                out->ids[i] = at;
                out->positions[i] = (r * taps + tap) * l->grid_cols + l->block_cols[id];
                out->rows[i] = rows;
                out->cols[i] = cols;
                out->count++;
            }
    status = TARTAN_OK;
fail:
    return status;
}

/* Sets what blocks [rows, cols] have beyond the matrix to 0. */
static void clear_padding(const fresh_blocks *f, const tartan_shape *shape, double *values) {
    for (int64_t i = 0; i < f->count; i++)
        for (int64_t r = 0; r < shape->block_rows; r++)
            for (int64_t c = 0; c < shape->block_cols; c++, values++)
                if (r >= f->rows[i] || c >= f->cols[i]) *values = 0;
}

static tartan_status draw(tartan_context *context, const tartan_sparsifier *s, int64_t weight, double size,
                          tartan_array *values) {
    enum { BYTES = 160 };
    char options[BYTES];
    const int64_t seed = tartan_i_sparsifier_seed(s, weight);
    if (s->fill == FILL_NORMAL) {
        snprintf(options, BYTES, "deviation=%.17g seed=%" PRId64, size, seed);
        return tartan_random_normal(context, options, values);
    }
    snprintf(options, BYTES, "low=%.17g high=%.17g seed=%" PRId64, -size, size, seed);
    return tartan_random_uniform(context, options, values);
}

static tartan_status new_on(const char *function, tartan_context *context, tartan_layout *layout,
                            tartan_matrix **out) {
    tartan_i_call call;
    PASS(tartan_i_call_enter(function, context, &call));
    const tartan_status status = tartan_i_matrix_new_on(&call, layout, TARTAN_F64, TARTAN_ROW_MAJOR, out);
    tartan_i_call_leave(&call);
    return status;
}

/* A matrix of the new blocks alone, on the context's device. Where blocks have padding, it is made on the host. */
static tartan_status drawn_blocks(const char *function, tartan_context *context, const tartan_sparsifier *s,
                                  int64_t weight, const fresh_blocks *f, const tartan_shape *shape,
                                  double size, tartan_matrix **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    tartan_matrix *drawn = NULL;
    tartan_array values;
    const tartan_shape *whole = &s->weights[weight].next->shape;
    const bool ragged = whole->rows % whole->block_rows != 0 || whole->cols % whole->block_cols != 0;
    TRY(tartan_i_layout_from_positions(function, shape, f->positions, f->count, false, NULL, &layout));
    TRY(new_on(function, ragged ? s->host : context, layout, &drawn));
    values = tartan_i_matrix_view(drawn);
    TRY(draw(ragged ? s->host : context, s, weight, size, &values));
    if (ragged) {
        clear_padding(f, shape, values.data);
        TRY(tartan_matrix_to_device(context, drawn, out));
    } else {
        *out = drawn;
        drawn = NULL;
    }
fail:
    tartan_layout_free(layout);
    tartan_matrix_free(drawn);
    return status;
}

static tartan_status fill(const char *function, tartan_context *context, const tartan_sparsifier *s,
                          int64_t weight, int64_t taps, tartan_matrix *matrix) {
    tartan_status status;
    const int64_t blocks = matrix->layout->blocks;
    double *norms = NULL, squares = 0, elements = 0;
    fresh_blocks fresh = {0};
    tartan_matrix *drawn = NULL;
    NEW(norms, blocks);
    TRY(tartan_matrix_block_norms(context, matrix, TARTAN_NORM_L2, norms, blocks));
    TRY(find_fresh(&s->weights[weight], taps, norms, &fresh, &squares, &elements));
    const double size = elements > 0 ? s->fill_scale * sqrt(squares / elements) : 0;
    if (!isfinite(size)) {
        status =
            tartan_i_fail(TARTAN_ERR_ARGUMENT, function,
                          "values of weight %" PRId64 " have the root mean square %g, expected finite values",
                          weight, sqrt(squares / elements));
        goto fail;
    }
    TRY(drawn_blocks(function, context, s, weight, &fresh, &matrix->layout->shape, size, &drawn));
    TRY(tartan_matrix_scatter(context, drawn, fresh.ids, fresh.count, matrix));
fail:
    tartan_i_free(norms);
    free_fresh(&fresh);
    tartan_matrix_free(drawn);
    return status;
}

tartan_status tartan_sparsifier_fill(tartan_context *context, const tartan_sparsifier *sparsifier,
                                     int64_t weight, tartan_matrix *matrix) {
    HOLD_MATRIX(matrix);
    tartan_i_sparse_weight *w = NULL;
    PASS(tartan_i_sparsifier_prepared(__func__, sparsifier, weight, &w));
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    const tartan_layout *is = matrix->layout;
    const int64_t taps = tartan_i_sparsifier_taps(is, w->next);
    CHECK(taps > 0, LAYOUT,
          "matrix has %" PRId64 " blocks on layout %s, expected those of weight %" PRId64
          " after the prepared step: %" PRId64 " on layout %s",
          is->blocks, tartan_i_layout_identity(is), weight, w->next->blocks,
          tartan_i_layout_identity(w->next));
    CHECK(is->shape.block_rows == w->next->shape.block_rows &&
              is->shape.block_cols == w->next->shape.block_cols,
          SHAPE,
          "matrix has blocks of %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64
          ", those of weight %" PRId64,
          is->shape.block_rows, is->shape.block_cols, w->next->shape.block_rows, w->next->shape.block_cols,
          weight);
    if (sparsifier->fill == FILL_ZERO || w->sources == NULL) return TARTAN_OK;
    return fill(__func__, context, sparsifier, weight, taps, matrix);
}
