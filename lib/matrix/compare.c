// SPDX-License-Identifier: Apache-2.0
// Comparison of the values of two matrices, whatever their layouts, dtypes and block orders.
#include "tartan/arithmetic.h"

#include "matrix/work.h"

#include <math.h>

typedef struct job {
    const tartan_matrix *a, *b;
    double relative, absolute;
    bool equal_nan;
    int64_t *counts; /* one for each worker */
    int32_t workers;
} job;

static bool differ(const job *j, double x, double y) {
    if (x == y) return false;
    if (isnan(x) || isnan(y)) return !(j->equal_nan && isnan(x) && isnan(y));
    if (isinf(x) || isinf(y)) return true;
    return !(fabs(x - y) <= j->absolute + j->relative * fabs(y));
}

// Differences in a block; an id of -1 is a block of zeros, but not both are -1.
static int64_t count_block(const job *j, int64_t a, int64_t b) {
    double x[TARTAN_I_PIECE] = {0}, y[TARTAN_I_PIECE] = {0};
    const tartan_matrix *m = a >= 0 ? j->a : j->b;
    const int64_t id = a >= 0 ? a : b;
    int64_t count = 0;
    for (tartan_i_piece p = tartan_i_piece_begin(m, id); p.runs > 0; tartan_i_piece_next(m, id, &p)) {
        if (a >= 0) tartan_i_piece_load(j->a, a, &p, x);
        if (b >= 0) tartan_i_piece_load(j->b, b, &p, y);
        for (int64_t i = 0; i < p.runs * p.length; i++) count += differ(j, x[i], y[i]);
    }
    return count;
}

static void count_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *a = j->a->layout, *b = j->b->layout;
    int64_t begin, end, count = 0;
    tartan_i_share(a->shape.heads * a->grid_rows, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t u = a->row_pointers[i], v = b->row_pointers[i];
        const int64_t u_end = a->row_pointers[i + 1], v_end = b->row_pointers[i + 1];
        while (u < u_end || v < v_end) {
            const int64_t x = u < u_end ? a->block_cols[u] : INT64_MAX,
                          y = v < v_end ? b->block_cols[v] : INT64_MAX;
            count += count_block(j, x <= y ? u : -1, y <= x ? v : -1);
            u += x <= y;
            v += y <= x;
        }
    }
    j->counts[worker] = count;
}

tartan_status tartan_matrix_count_different(tartan_context *context, const tartan_matrix *a,
                                            const tartan_matrix *b, double relative, double absolute,
                                            int32_t equal_nan, double *out_value) {
    HOLD_MATRIX(a);
    HOLD_MATRIX(b);
    tartan_status status;
    CHECK(out_value != NULL, HANDLE, "out_value is NULL, expected a place for the result");
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_matrix_check_host(__func__, "a", a));
    PASS(tartan_i_matrix_check_host(__func__, "b", b));
    PASS(tartan_i_matrix_check_frame(__func__, "b", b, "a", a));
    CHECK(relative >= 0 && absolute >= 0, ARGUMENT,
          "relative and absolute are %g and %g, expected tolerances of 0 or more", relative, absolute);
    job j = {.a = a,
             .b = b,
             .relative = relative,
             .absolute = absolute,
             .equal_nan = equal_nan != 0,
             .workers = context->threads};
    NEW_ZEROED(j.counts, j.workers);
    const double blocks = (double)(a->layout->blocks + b->layout->blocks);
    TRY(tartan_i_work_run(__func__, context, 4 * blocks * (double)tartan_i_block_elements(a), count_task,
                          &j));
    int64_t count = 0;
    for (int32_t w = 0; w < j.workers; w++) count += j.counts[w];
    *out_value = (double)count;
fail:
    tartan_i_free(j.counts);
    return status;
}
