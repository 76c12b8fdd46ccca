// SPDX-License-Identifier: Apache-2.0
// Comparison of the values of two matrices, whatever their layouts, dtypes and block orders.
#include "ops/arithmetic.h"

// The blocks of a and b, place by place; -1 where one of them stores nothing.
typedef struct pairs {
    int64_t count;
    int64_t *a, *b; /* NULL if the layouts are equal */
} pairs;

static tartan_status pairs_of(const tartan_layout *a, const tartan_layout *b, pairs *out) {
    *out = (pairs){.count = a->blocks};
    if (tartan_layout_equal(a, b) == 1) return TARTAN_OK;
    PASS(tartan_i_allocate(&out->a, a->blocks + b->blocks, sizeof *out->a));
    PASS(tartan_i_allocate(&out->b, a->blocks + b->blocks, sizeof *out->b));
    out->count = 0;
    for (int64_t i = 0; i < a->shape.heads * a->grid_rows; i++) {
        int64_t u = a->row_pointers[i], v = b->row_pointers[i];
        const int64_t u_end = a->row_pointers[i + 1], v_end = b->row_pointers[i + 1];
        while (u < u_end || v < v_end) {
            const int64_t x = u < u_end ? a->block_cols[u] : INT64_MAX,
                          y = v < v_end ? b->block_cols[v] : INT64_MAX;
            out->a[out->count] = x <= y ? u : -1;
            out->b[out->count++] = y <= x ? v : -1;
            u += x <= y;
            v += y <= x;
        }
    }
    return TARTAN_OK;
}

static tartan_status run(tartan_i_call *call, tartan_op_compare *compare, const pairs *p, double *count) {
    tartan_status status;
    const char *function = call->function;
    const tartan_context *context = call->context;
    tartan_array there;
    tartan_i_uploads uploads = {0};
    compare->function = function;
    compare->pairs = p->count;
    TRY(tartan_i_upload_list(&uploads, function, context, p->a, p->count, &compare->a_ids));
    TRY(tartan_i_upload_list(&uploads, function, context, p->b, p->count, &compare->b_ids));
    TRY(tartan_i_upload_numbers(&uploads, function, context, count, 1, true, &there));
    compare->count = &there;
    const tartan_op op = {.kind = TARTAN_OP_COMPARE, .compare = *compare};
    TRY(tartan_i_call_run(call, &op));
    TRY(tartan_i_download_numbers(function, context, &there, count));
fail:
    tartan_i_uploads_free(&uploads, context);
    return status;
}

tartan_status tartan_matrix_count_different(tartan_context *context, const tartan_matrix *a,
                                            const tartan_matrix *b, double relative, double absolute,
                                            int32_t equal_nan, double *out_value) {
    HOLD_MATRIX(a);
    HOLD_MATRIX(b);
    tartan_status status;
    CHECK(out_value != NULL, HANDLE, "out_value is NULL, expected a pointer for the result");
    PASS(tartan_i_work_check(__func__, context));
    PASS(tartan_i_arithmetic_check(__func__, context, "a", a));
    PASS(tartan_i_arithmetic_check(__func__, context, "b", b));
    PASS(tartan_i_matrix_check_frame(__func__, "b", b, "a", a));
    CHECK(relative >= 0 && absolute >= 0, ARGUMENT,
          "relative and absolute are %g and %g, expected tolerances of 0 or more", relative, absolute);
    tartan_op_compare op = {
        .a = a, .b = b, .relative = relative, .absolute = absolute, .equal_nan = equal_nan != 0};
    double count = 0;
    pairs p;
    tartan_i_call call;
    TRY(pairs_of(a->layout, b->layout, &p));
    TRY(tartan_i_call_enter(__func__, context, &call));
    status = p.count == 0 ? TARTAN_OK : run(&call, &op, &p, &count);
    tartan_i_call_leave(&call);
    if (status == TARTAN_OK) *out_value = count;
fail:
    tartan_i_free(p.a);
    tartan_i_free(p.b);
    return status;
}
