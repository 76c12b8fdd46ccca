/* SPDX-License-Identifier: Apache-2.0
 * The CPU backend's table, and what its operations share. */
#include "backend/cpu.h"

#include "core/cpu.h"

#include <stdio.h>

/* ---- Shared ---- */

tartan_i_cpu_form tartan_i_cpu_form_of(const tartan_op_spmm *op) {
    const tartan_matrix *a = op->a;
    const tartan_layout *l = a->layout;
    const bool transposed = (op->transpose == TARTAN_TRANSPOSE) != (op->side == TARTAN_RIGHT);
    tartan_i_cpu_form f = {.transposed = transposed};
    f.out_block = transposed ? l->shape.block_cols : l->shape.block_rows;
    f.in_block = transposed ? l->shape.block_rows : l->shape.block_cols;
    f.out_size = transposed ? l->shape.cols : l->shape.rows;
    f.in_size = transposed ? l->shape.rows : l->shape.cols;
    f.grid_out = transposed ? l->grid_cols : l->grid_rows;
    f.grid_in = transposed ? l->grid_rows : l->grid_cols;
    f.a_row = transposed ? tartan_i_block_col_stride(a) : tartan_i_block_row_stride(a);
    f.a_col = transposed ? tartan_i_block_row_stride(a) : tartan_i_block_col_stride(a);
    f.block_elements = tartan_i_block_elements(a);
    tartan_i_cpu_form_take(&f, op, 0);
    return f;
}

void tartan_i_cpu_form_take(tartan_i_cpu_form *f, const tartan_op_spmm *op, int64_t head) {
    const tartan_layout *l = op->a->layout;
    const bool right = op->side == TARTAN_RIGHT;
    f->pointers = (f->transposed ? l->col_pointers : l->row_pointers) + head * f->grid_out;
    f->in_pointers = (f->transposed ? l->row_pointers : l->col_pointers) + head * f->grid_in;
    f->others = f->transposed ? l->col_rows : l->block_cols;
    f->ids = f->transposed ? l->col_ids : NULL;
    f->b = tartan_i_dense_of(op->b, right, l->shape.heads > 1 ? head : -1);
    f->c = tartan_i_dense_of(op->c, right, l->shape.heads > 1 ? head : -1);
    f->n = op->b->shape[op->b->ndim - (right ? 2 : 1)];
    tartan_i_dense_fold(&f->b, &f->b.col, &f->c, &f->c.col, &f->n);
}

double tartan_i_cpu_gate(const tartan_i_kernels *k, const tartan_array *gates, int64_t id) {
    if (gates == NULL) return 1;
    const double gate = tartan_i_load(gates->data, gates->dtype, id * gates->strides[0]);
    return k->dtype == TARTAN_F64 ? gate : (double)(float)gate;
}

int64_t tartan_i_cpu_strips(const tartan_i_kernels *k, int64_t n) {
    return tartan_i_ceil_div(tartan_i_ceil_div(n, k->lanes), TARTAN_I_MAX_VECTORS);
}

void tartan_i_cpu_strip(const tartan_i_kernels *k, int64_t n, int64_t i, int64_t *first, int64_t *width) {
    const int64_t vectors = tartan_i_ceil_div(n, k->lanes), strips = tartan_i_cpu_strips(k, n);
    const int64_t each = vectors / strips, rest = vectors % strips;
    *first = (i * each + (i < rest ? i : rest)) * k->lanes;
    *width = (each + (i < rest)) * k->lanes;
}

void tartan_i_cpu_strip_rows(const tartan_i_kernels *k, const tartan_i_strip *s, int64_t rows,
                             const tartan_i_term *terms, int64_t nterms) {
    const int64_t most = k->rows[s->width / k->lanes - 1], groups = tartan_i_ceil_div(rows, most);
    int64_t row = 0;
    for (int64_t g = 0; g < groups; g++) {
        tartan_i_strip part = *s;
        part.rows = rows / groups + (g < rows % groups);
        part.a = (const char *)s->a + row * s->a_row * k->bytes;
        part.sums = (char *)s->sums + row * s->sums_row * k->bytes;
        k->strip(&part, terms, nterms);
        row += part.rows;
    }
}

/* The first row whose entries + rows before it reach `target`. */
static int64_t bisect_rows(const int64_t *pointers, int64_t rows, int64_t target) {
    int64_t low = 0, high = rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (pointers[middle] - pointers[0] + middle < target)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void tartan_i_cpu_share_rows(const int64_t *pointers, int64_t rows, int32_t workers, int32_t w,
                             int64_t *begin, int64_t *end) {
    const int64_t total = pointers[rows] - pointers[0] + rows;
    int64_t from, to;
    tartan_i_share(total, workers, w, &from, &to);
    *begin = bisect_rows(pointers, rows, from);
    *end = w == workers - 1 ? rows : bisect_rows(pointers, rows, to);
}

/* ---- The table ---- */

static int32_t cpu_devices(const char **out_reason) {
    *out_reason = "";
    return 1;
}

static void cpu_describe(int32_t i, char *text, int64_t size) {
    (void)i;
    snprintf(text, (size_t)size, "{\"kernels\": \"%s\", \"threads\": %d}", tartan_cpu_kernels(),
             tartan_i_default_threads());
}

static tartan_status cpu_open(const char *function, const tartan_i_context_options *options,
                              void **out_device) {
    (void)function;
    (void)options;
    *out_device = NULL;
    return TARTAN_OK;
}

static void cpu_close(void *device) {
    (void)device;
}

static tartan_status cpu_sync(const char *function, void *device) {
    (void)function;
    (void)device; /* every operation has finished when it returns */
    return TARTAN_OK;
}

static tartan_status cpu_allocate(const char *function, void *device, int64_t bytes, void **out_pointer,
                                  void **out_owner) {
    (void)function;
    (void)device;
    *out_owner = NULL;
    PASS(tartan_i_allocate(out_pointer, bytes, 1));
    *out_owner = *out_pointer;
    return TARTAN_OK;
}

static tartan_status cpu_copy(const char *function, void *device, void *to, const void *from, int64_t bytes,
                              tartan_copy_kind kind) {
    (void)function;
    (void)device;
    (void)kind;
    memcpy(to, from, (size_t)bytes);
    return TARTAN_OK;
}

static tartan_status cpu_clear(const char *function, void *device, void *to, int64_t bytes) {
    (void)function;
    (void)device;
    memset(to, 0, (size_t)bytes);
    return TARTAN_OK;
}

static bool cpu_supports(void *device, const tartan_op *op, const char **out_reason) {
    (void)device;
    (void)op;
    *out_reason = "";
    return true;
}

/* The instruction sets whose kernels run, and why others that there are kernels for do not. */
static tartan_status cpu_explain(const tartan_context *context, const tartan_op *op, tartan_i_text *text) {
    (void)context;
    (void)op;
    const tartan_i_cpu_features detected = tartan_i_cpu_detect(), in_use = tartan_i_cpu_in_use();
    tartan_i_text_add(text, "\"kernel\": \"%s\", \"why\": \"%s\", \"refused\": [", tartan_cpu_kernels(),
                      in_use != detected ? "the best that TARTAN_CPU allows"
                                         : "the best kernels there are for this CPU");
    const char *separator = "";
    for (int i = 0; i < TARTAN_I_CPU_FEATURES; i++) {
        const tartan_i_cpu_features bit = (tartan_i_cpu_features)1 << i;
        if (!(tartan_i_kernels_known() & bit & ~in_use)) continue;
        tartan_i_text_add(text, "%s{\"kernel\": \"%s\", \"why\": \"%s\"}", separator, tartan_i_cpu_name(i),
                          detected & bit ? "TARTAN_CPU does not allow it" : "this CPU does not have it");
        separator = ", ";
    }
    tartan_i_text_add(text, "], \"expected_tflops\": null");
    return text->status;
}

/* Where the blocks of a layout change, an operation works on those of the last mask. */
static tartan_status run_spmm(const tartan_context *context, const tartan_op_spmm *op) {
    tartan_op_spmm now = *op;
    tartan_matrix a;
    now.a = tartan_i_cpu_matrix_now(op->a, &a);
    return tartan_i_cpu_spmm(context, &now);
}
static tartan_status run_sddmm(const tartan_context *context, const tartan_op_sddmm *op) {
    tartan_op_sddmm now = *op;
    tartan_matrix s;
    now.s = (tartan_matrix *)tartan_i_cpu_matrix_now(op->s, &s);
    return tartan_i_cpu_sddmm(context, &now);
}

const tartan_backend tartan_i_backend_cpu = {
    .abi = TARTAN_BACKEND_ABI,
    .name = "cpu",
    .device_type = TARTAN_CPU,
    .devices = cpu_devices,
    .describe = cpu_describe,
    .open = cpu_open,
    .close = cpu_close,
    .sync = cpu_sync,
    .allocate = cpu_allocate,
    .release = tartan_i_free,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .index_create = tartan_i_cpu_index_create,
    .index_update = tartan_i_cpu_index_update,
    .index_fetch = tartan_i_cpu_index_fetch,
    .index_release = tartan_i_cpu_index_release,
    .supports = cpu_supports,
    .spmm = run_spmm,
    .sddmm = run_sddmm,
    .gate_gradient = tartan_i_cpu_gate_gradient,
    .growth_score = tartan_i_cpu_growth_score,
    .block_copy = tartan_i_cpu_block_copy,
    .block_norms = tartan_i_cpu_block_norms,
    .explain = cpu_explain,
};

tartan_status tartan_context_peak(tartan_context *context, int32_t dtype, double *out_gflops) {
    CHECK_HANDLE(context, CONTEXT, "context");
    CHECK(out_gflops != NULL, HANDLE, "out_gflops is NULL, expected a place for the result");
    CHECK(dtype == TARTAN_F64 || dtype == TARTAN_F32, DTYPE,
          "dtype is %d, expected %d (float64) or %d (float32)", dtype, TARTAN_F64, TARTAN_F32);
    const tartan_i_kernels kernels = tartan_i_cpu_kernels(dtype);
    PASS(tartan_i_context_enter(__func__, context));
    *out_gflops = tartan_i_kernels_peak(&kernels);
    tartan_i_context_leave(context);
    return TARTAN_OK;
}
