/* SPDX-License-Identifier: Apache-2.0
 * One case, on any device. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

double median(samples *s) {
    /* Insertion sort: few samples. */
    for (int i = 1; i < s->count; i++)
        for (int j = i; j > 0 && s->seconds[j] < s->seconds[j - 1]; j--) {
            double swap = s->seconds[j];
            s->seconds[j] = s->seconds[j - 1];
            s->seconds[j - 1] = swap;
        }
    if (s->count == 0) return 0;
    int middle = s->count / 2;
    return s->count % 2 ? s->seconds[middle] : (s->seconds[middle - 1] + s->seconds[middle]) / 2;
}

/* A case at work. */
typedef struct run {
    const bench_case *c;
    tartan_context *context;
    bench_operands operands;
    bench_peers *peers; /* on the CPU */
    samples ours, planning, peak /* GFLOP/s of one thread */;
} run;

/* Seconds of one call, of `calls` that follow each other. */
static tartan_status time_calls(run *r, bench_operands *o, int calls, double *out_seconds) {
    tartan_status status = tartan_context_sync(r->context);
    const double start = seconds_now();
    for (int i = 0; i < calls && status == TARTAN_OK; i++) status = r->c->op->call(r->context, r->c, o);
    if (status == TARTAN_OK) status = tartan_context_sync(r->context);
    *out_seconds = (seconds_now() - start) / calls;
    return status;
}

/* What the first call with a layout takes longer than later ones. */
static tartan_status time_first_call(run *r, tartan_layout *layout, double usual, double *out_more) {
    bench_operands fresh = r->operands;
    double first = 0;
    fresh.layout = layout;
    memset(fresh.matrices, 0, sizeof fresh.matrices);
    tartan_status status = bench_make_matrices(r->context, r->c, &fresh);
    if (status == TARTAN_OK) status = time_calls(r, &fresh, 1, &first);
    *out_more = first > usual ? first - usual : 0;
    bench_free_matrices(&fresh);
    return status;
}

/* Planning is what a new layout costs before the first call: its index sets, from given row lists. On a GPU, which gets them
 * with the first call, the additional time of that call counts too. (The CPU cuts the work into shares in every call.) */
static tartan_status time_planning(run *r, double usual) {
    const bench_case *c = r->c;
    const tartan_layout *from = r->operands.layout;
    const tartan_shape shape = {tartan_layout_rows(from), tartan_layout_cols(from),
                                tartan_layout_block_rows(from), tartan_layout_block_cols(from), 1};
    const int64_t blocks = tartan_layout_blocks(from), pointers = tartan_layout_grid_rows(from) + 1;
    int64_t *cols = malloc(sizeof *cols * (size_t)(blocks + 1));
    r->operands.out_of_memory = cols == NULL;
    if (cols == NULL) return TARTAN_ERR_MEMORY;
    for (int64_t i = 0; i < blocks; i++) cols[i] = tartan_layout_col_indices(from)[i];
    tartan_layout *layout = NULL;
    double start = seconds_now(), more = 0;
    tartan_status status = tartan_layout_from_csr(
        &shape, &(const tartan_compressed){tartan_layout_row_pointers(from), pointers, cols, blocks, 0},
        &layout);
    const double made = seconds_now() - start;
    if (status == TARTAN_OK && !c->on_host) status = time_first_call(r, layout, usual, &more);
    r->planning.seconds[r->planning.count++] = made + more;
    tartan_layout_free(layout);
    free(cols);
    return status;
}

/* The rest of a round on the CPU: the machine as it was when ours ran. */
static tartan_status time_others(run *r, int round) {
    double gflops;
    tartan_status status = time_planning(r, 0);
    if (status == TARTAN_OK && r->c->op->products) {
        status = tartan_context_peak(r->context, r->c->dtype, &gflops);
        r->peak.seconds[r->peak.count++] = gflops;
    }
    if (status == TARTAN_OK) peers_time(r->peers, round);
    return status;
}

static tartan_status measure(run *r) {
    enum { MAX_CALLS = 1000, PLANNINGS = 3 };
    const double shortest = 1e-3; /* seconds of a sample on a GPU */
    const bench_case *c = r->c;
    char title[40];
    snprintf(title, sizeof title, "bench %s", c->op->name);
    double once;
    tartan_status status = time_calls(r, &r->operands, 1, &once); /* makes index sets and loads kernels */
    if (status == TARTAN_OK) status = time_calls(r, &r->operands, 1, &once);
    if (status != TARTAN_OK) return status;
    const int calls = c->on_host ? 1 : once * MAX_CALLS <= shortest ? MAX_CALLS : 1 + (int)(shortest / once);
    for (int round = 0; round < c->rounds && status == TARTAN_OK; round++) {
        status = time_calls(r, &r->operands, calls, &r->ours.seconds[r->ours.count++]);
        if (status == TARTAN_OK && c->on_host) status = time_others(r, round);
        progress(title, (double)(round + 1) / c->rounds);
    }
    if (c->on_host) return status;
    const double usual = median(&r->ours);
    for (int i = 0; i < PLANNINGS && i < c->rounds && status == TARTAN_OK; i++)
        status = time_planning(r, usual);
    return status;
}

/* The instruction set of a CPU's kernel, or a device's kernel; null for operations that do not explain themselves. */
static json_t *kernel_of(run *r) {
    char *text = NULL;
    if (tartan_explain_begin() != TARTAN_OK) return json_null();
    (void)r->c->op->call(r->context, r->c, &r->operands);
    if (tartan_explain_end(&text) != TARTAN_OK) return json_null();
    json_t *answer = json_loads(text, 0, NULL);
    json_t *kernel = json_object_get(json_array_get(answer, 0), "instruction_set");
    if (kernel == NULL) kernel = json_object_get(json_array_get(answer, 0), "kernel");
    kernel = kernel != NULL ? json_incref(kernel) : json_null();
    json_decref(answer);
    tartan_text_free(text);
    return kernel;
}

static json_t *rate(double work, double seconds, double unit) {
    return work > 0 ? json_real(work / seconds / unit) : json_null();
}

static json_t *describe(run *r) {
    const bench_case *c = r->c;
    const tartan_layout *layout = r->operands.layout;
    const double seconds = median(&r->ours), flops = c->op->flops != NULL ? c->op->flops(c, layout) : 0;
    const double peak = 1e-3 * median(&r->peak);
    json_t *peers = json_object(), *ratios = json_object();
    if (r->peak.count > 0)
        json_object_set_new(ratios, "peak", json_real(1e-12 * flops / seconds / (peak * c->threads)));
    if (r->peers != NULL) peers_describe(r->peers, seconds, peers, ratios);
    json_t *shape = json_pack("[I,I]", (json_int_t)c->m, (json_int_t)c->k);
    const bool blocks = !c->op->uses_no_blocks;
    if (c->op->uses_n) json_array_append_new(shape, json_integer((json_int_t)c->n));
    return json_pack(
        "{s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:i, s:f, s:o, s:o, s:f, s:o, s:i, s:o, s:o}", "op",
        c->op->name, "device", tartan_context_device(r->context), "kernels", kernel_of(r), "dtype",
        tartan_dtype_name(c->dtype), "threads", c->on_host ? json_integer(c->threads) : json_null(), "block",
        blocks ? json_integer((json_int_t)c->block) : json_null(), "density",
        blocks ? json_real(tartan_layout_density(layout)) : json_null(), "shape", shape, "heads", 1, "ms",
        1e3 * seconds, "tflops", rate(flops, seconds, 1e12), "gbytes_per_s",
        rate(bench_bytes(c, &r->operands), seconds, 1e9), "planning_ms", 1e3 * median(&r->planning),
        "peak_tflops_per_thread", r->peak.count > 0 ? json_real(peak) : json_null(), "samples", r->ours.count,
        "peers", peers, "ratios", ratios);
}

static tartan_status prepare(run *r) {
    const bench_case *c = r->c;
    char options[160];
    const int used = snprintf(options, sizeof options, "math=%.100s ", c->math);
    if (c->on_host)
        snprintf(options + used, sizeof options - (size_t)used, "threads=%d", c->threads);
    else if (c->allow_dense)
        snprintf(options + used, sizeof options - (size_t)used, "allow_dense=1");
    tartan_status status = tartan_context_create(c->device, options, NULL, &r->context);
    if (status == TARTAN_OK) status = bench_make_operands(r->context, c, &r->operands);
    if (status != TARTAN_OK || !c->on_host) return status;
    r->peers = peers_open(c, &r->operands);
    r->operands.out_of_memory = r->peers == NULL;
    return r->peers != NULL ? TARTAN_OK : TARTAN_ERR_MEMORY;
}

json_t *bench_measure(const bench_case *c) {
    json_t *line = NULL;
    run *r = calloc(1, sizeof *r);
    if (r == NULL) {
        complain("out of memory");
        return NULL;
    }
    r->c = c;
    tartan_status status = prepare(r);
    if (status == TARTAN_OK) status = measure(r);
    if (status == TARTAN_OK)
        line = describe(r);
    else if (r->operands.out_of_memory)
        complain("out of memory");
    else
        complain_status("cannot measure");
    peers_close(r->peers);
    bench_free_operands(&r->operands);
    tartan_context_free(r->context);
    free(r);
    return line;
}
