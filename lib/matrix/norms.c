// SPDX-License-Identifier: Apache-2.0
// Norms of blocks, in f64. NaN in a block makes its norm NaN.
#include "layout/positions.h"
#include "matrix/matrix.h"

#include <math.h>

// The stored elements of a block as f64, one contiguous run after the other.
typedef struct runs {
    const tartan_matrix *matrix;
    tartan_i_tile_copy copy;
    int64_t id, count, length; /* `count` runs of `length` elements */
    int64_t outer_stride;
    double numbers[TARTAN_I_MAX_BLOCK];
} runs;

static void runs_begin(runs *r, int64_t id) {
    const tartan_layout *l = r->matrix->layout;
    bool by_row = r->matrix->block_order == TARTAN_ROW_MAJOR;
    int64_t rows = tartan_i_rows_of(l, l->block_rows[id]), cols = tartan_i_cols_of(l, l->block_cols[id]);
    r->id = id;
    r->count = by_row ? rows : cols;
    r->length = by_row ? cols : rows;
    r->outer_stride = by_row ? l->shape.block_cols : l->shape.block_rows;
}

static void runs_load(runs *r, int64_t n) {
    const tartan_matrix *m = r->matrix;
    const void *run = tartan_i_at(tartan_i_block_at(m, r->id), m->dtype, n * r->outer_stride);
    r->copy(r->numbers, 0, 1, run, 0, 1, 1, r->length);
}

static double norm_max(runs *r) {
    double largest = 0;
    for (int64_t n = 0; n < r->count; n++) {
        runs_load(r, n);
        for (int64_t i = 0; i < r->length; i++) {
            double size = fabs(r->numbers[i]);
            largest = size > largest || isnan(size) ? size : largest; // never leaves NaN
        }
    }
    return largest;
}

static double norm_l1(runs *r) {
    double sum = 0;
    for (int64_t n = 0; n < r->count; n++) {
        runs_load(r, n);
        for (int64_t i = 0; i < r->length; i++) sum += fabs(r->numbers[i]);
    }
    return sum;
}

// sqrt of the sum of (x / unit)^2.
static double scaled_l2(runs *r, double unit) {
    double sum = 0;
    for (int64_t n = 0; n < r->count; n++) {
        runs_load(r, n);
        for (int64_t i = 0; i < r->length; i++) sum += r->numbers[i] / unit * (r->numbers[i] / unit);
    }
    return sqrt(sum);
}

// Only where squares of f64 leave their range (or get near its lower end, where digits are lost) are the
// elements scaled by the largest.
static double norm_l2(runs *r) {
    double plain = scaled_l2(r, 1);
    if (isnan(plain) || (plain > 1e-140 && plain < 1e150)) return plain;
    double largest = norm_max(r);
    return largest == 0 || isinf(largest) ? largest : largest * scaled_l2(r, largest);
}

tartan_status tartan_matrix_block_norms(const tartan_matrix *matrix, int32_t norm, double *out_norms,
                                        int64_t nout_norms) {
    PASS(tartan_i_matrix_check_cpu(__func__, matrix));
    int64_t blocks = matrix->layout->blocks;
    CHECK(norm >= TARTAN_NORM_MAX && norm <= TARTAN_NORM_L2, ARGUMENT,
          "norm is %d, expected %d (max), %d (L1) or %d (L2)", norm, TARTAN_NORM_MAX, TARTAN_NORM_L1,
          TARTAN_NORM_L2);
    PASS(tartan_i_list_check(__func__, "out_norms", out_norms, nout_norms, blocks, "blocks"));
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "out_norms", out_norms,
                                     blocks * (int64_t)sizeof *out_norms));
    runs r = {.matrix = matrix, .copy = tartan_i_tile_copier(TARTAN_F64, matrix->dtype)};
    for (int64_t id = 0; id < blocks; id++) {
        runs_begin(&r, id);
        out_norms[id] = norm == TARTAN_NORM_MAX  ? norm_max(&r)
                        : norm == TARTAN_NORM_L1 ? norm_l1(&r)
                                                 : norm_l2(&r);
    }
    return TARTAN_OK;
}
