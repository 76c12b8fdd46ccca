/* SPDX-License-Identifier: Apache-2.0
 * A benchmark case on a device: ours alone. Peers on a GPU are timed by `./run gpu-bench`. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CALLS = 1000, PLANNINGS = 3 };
static const double shortest = 1e-3; /* seconds of a sample */

/* A product's operands where the device has them. */
typedef struct placed {
    tartan_layout *layout;
    tartan_matrix *matrix;
    tartan_buffer *first, *second; /* spmm: B [k, n], C [m, n]; sddmm: X [m, n], Y [n, k] */
    bool full;                     /* memory of the host ran out, of which the library does not know */
} placed;

static tartan_status place_dense(tartan_context *context, int32_t dtype, int64_t rows, int64_t cols,
                                 placed *p, tartan_buffer **out) {
    const int64_t shape[] = {rows, cols};
    tartan_array array;
    void *data = malloc((size_t)(rows * cols * tartan_dtype_bytes(dtype)));
    if ((p->full = data == NULL)) return TARTAN_ERR_MEMORY;
    fill_random(data, dtype, rows * cols);
    tartan_status status = tartan_array_init(data, dtype, 2, shape, NULL, &array);
    if (status == TARTAN_OK) status = tartan_buffer_from_array(context, &array, out);
    free(data);
    return status;
}

/* A matrix of the layout; what its values are hardly matters, only that they are not zeros. */
static tartan_status place_matrix(tartan_context *context, const bench_case *c, tartan_layout *layout,
                                  tartan_matrix **out) {
    tartan_context *host = NULL;
    tartan_matrix *matrix = NULL;
    tartan_status status = tartan_context_create("cpu", NULL, NULL, &host);
    if (status == TARTAN_OK) status = tartan_matrix_create(layout, c->dtype, TARTAN_ROW_MAJOR, &matrix);
    if (status == TARTAN_OK) status = tartan_matrix_fill_normal(host, matrix, 1, 1);
    if (status == TARTAN_OK) status = tartan_matrix_to_device(context, matrix, out);
    tartan_matrix_free(matrix);
    tartan_context_free(host);
    return status;
}

static tartan_status place(tartan_context *context, const bench_case *c, placed *p) {
    const tartan_shape shape = {c->m, c->k, c->block, c->block, 1};
    const bool spmm = c->op == BENCH_SPMM;
    char parameters[64];
    snprintf(parameters, sizeof parameters, "density=%.17g", c->density);
    tartan_status status = tartan_layout_from_pattern(&shape, "random", parameters, 1, &p->layout);
    if (status == TARTAN_OK) status = place_matrix(context, c, p->layout, &p->matrix);
    if (status == TARTAN_OK) status = place_dense(context, c->dtype, spmm ? c->k : c->m, c->n, p, &p->first);
    if (status == TARTAN_OK)
        status = place_dense(context, c->dtype, spmm ? c->m : c->n, spmm ? c->n : c->k, p, &p->second);
    return status;
}

static void free_placed(placed *p) {
    tartan_buffer_free(p->first), tartan_buffer_free(p->second);
    tartan_matrix_free(p->matrix);
    tartan_layout_free(p->layout);
}

static tartan_status call_once(tartan_context *context, const bench_case *c, const placed *p,
                               tartan_matrix *matrix) {
    tartan_array first, second;
    tartan_status status = tartan_buffer_view(p->first, &first);
    if (status == TARTAN_OK) status = tartan_buffer_view(p->second, &second);
    if (status != TARTAN_OK) return status;
    if (c->op == BENCH_SPMM)
        return tartan_spmm(context, TARTAN_LEFT, TARTAN_NO_TRANSPOSE, 1, matrix, NULL, &first, 0, &second);
    return tartan_sddmm(context, 1, NULL, &first, 1, &second, 1, 0, matrix);
}

/* Seconds of one product, of `calls` that are asked for one after another and waited for together. */
static tartan_status time_calls(tartan_context *context, const bench_case *c, const placed *p,
                                tartan_matrix *matrix, int calls, double *out_seconds) {
    tartan_status status = tartan_context_sync(context);
    const double start = seconds_now();
    for (int i = 0; i < calls && status == TARTAN_OK; i++) status = call_once(context, c, p, matrix);
    if (status == TARTAN_OK) status = tartan_context_sync(context);
    *out_seconds = (seconds_now() - start) / calls;
    return status;
}

/* What a new layout costs: to make it from row lists, and what its first product takes longer than another. */
static tartan_status time_planning(tartan_context *context, const bench_case *c, placed *p, double usual,
                                   samples *out) {
    const tartan_shape shape = {c->m, c->k, c->block, c->block, 1};
    const int64_t blocks = tartan_layout_blocks(p->layout), pointers = tartan_layout_grid_rows(p->layout) + 1;
    int64_t *cols = malloc(sizeof *cols * (size_t)(blocks + 1));
    if ((p->full = cols == NULL)) return TARTAN_ERR_MEMORY;
    for (int64_t i = 0; i < blocks; i++) cols[i] = tartan_layout_col_indices(p->layout)[i];
    tartan_layout *layout = NULL;
    tartan_matrix *matrix = NULL;
    double start = seconds_now(), made, first = 0;
    tartan_status status = tartan_layout_from_csr(&shape, tartan_layout_row_pointers(p->layout), pointers,
                                                  cols, blocks, &layout);
    made = seconds_now() - start;
    if (status == TARTAN_OK) status = place_matrix(context, c, layout, &matrix);
    if (status == TARTAN_OK) status = time_calls(context, c, p, matrix, 1, &first);
    out->seconds[out->count++] = made + (first > usual ? first - usual : 0);
    tartan_matrix_free(matrix);
    tartan_layout_free(layout);
    free(cols);
    return status;
}

/* The kernel that runs; free with free(). NULL where that cannot be had. */
static char *kernel_of(tartan_context *context, const bench_case *c, const placed *p) {
    char *text = NULL, *name = NULL;
    if (tartan_explain_begin() != TARTAN_OK) return NULL;
    (void)call_once(context, c, p, p->matrix);
    if (tartan_explain_end(&text) != TARTAN_OK) return NULL;
    json_t *answer = json_loads(text, 0, NULL);
    const char *kernel = json_string_value(json_object_get(json_array_get(answer, 0), "kernel"));
    if (kernel != NULL) name = strdup(kernel);
    json_decref(answer);
    tartan_text_free(text);
    return name;
}

static tartan_status measure(tartan_context *context, const bench_case *c, placed *p, samples *ours,
                             samples *planning) {
    double once;
    tartan_status status = time_calls(context, c, p, p->matrix, 1, &once); /* makes the index sets */
    if (status == TARTAN_OK) status = time_calls(context, c, p, p->matrix, 1, &once);
    if (status != TARTAN_OK) return status;
    const int calls = once * MAX_CALLS <= shortest ? MAX_CALLS : 1 + (int)(shortest / once);
    for (int round = 0; round < c->rounds && status == TARTAN_OK; round++) {
        status = time_calls(context, c, p, p->matrix, calls, &ours->seconds[ours->count++]);
        progress(c->op == BENCH_SPMM ? "bench spmm" : "bench sddmm", (double)(round + 1) / c->rounds);
    }
    const double usual = median(ours);
    for (int i = 0; i < PLANNINGS && i < c->rounds && status == TARTAN_OK; i++)
        status = time_planning(context, c, p, usual, planning);
    return status;
}

static json_t *describe(tartan_context *context, const bench_case *c, const placed *p, samples *ours,
                        samples *planning) {
    const double useful = 2 * (double)tartan_layout_elements(p->layout) * (double)c->n;
    char *kernel = kernel_of(context, c, p);
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:s, s:n, s:I, s:f, s:[I,I,I], s:i, s:f, s:f, s:f, s:n, s:i, s:{}, s:{}}",
                  "op", c->op == BENCH_SPMM ? "spmm" : "sddmm", "device", tartan_matrix_device(p->matrix),
                  "kernels", kernel != NULL ? kernel : "", "dtype", tartan_dtype_name(c->dtype), "threads",
                  "block", (json_int_t)c->block, "density", tartan_layout_density(p->layout), "shape",
                  (json_int_t)c->m, (json_int_t)c->k, (json_int_t)c->n, "heads", 1, "ms", 1e3 * median(ours),
                  "tflops", 1e-12 * useful / median(ours), "planning_ms", 1e3 * median(planning),
                  "peak_tflops_per_thread", "samples", ours->count, "peers", "ratios");
    free(kernel);
    return line;
}

json_t *bench_on_device(const bench_case *c) {
    tartan_context *context = NULL;
    placed p = {0};
    json_t *line = NULL;
    samples *all = calloc(2, sizeof *all);
    p.full = all == NULL;
    tartan_status status =
        p.full ? TARTAN_ERR_MEMORY
               : tartan_context_create(c->device, c->allow_dense ? "allow_dense=1" : NULL, NULL, &context);
    if (status == TARTAN_OK) status = place(context, c, &p);
    if (status == TARTAN_OK) status = measure(context, c, &p, &all[0], &all[1]);
    if (status == TARTAN_OK) line = describe(context, c, &p, &all[0], &all[1]);
    if (p.full)
        complain("out of memory");
    else if (status != TARTAN_OK)
        complain_status("cannot measure");
    free_placed(&p);
    tartan_context_free(context);
    free(all);
    return line;
}
