/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <jansson.h>
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

/* Everything that one case measures, in the same rounds. */
typedef struct measured {
    samples ours, peak, planning, openblas, mkl, scipy;
    char openblas_core[64];
    const char *scipy_reason;
} measured;

static void fill_random(void *data, int32_t dtype, int64_t count) {
    uint64_t state = 88172645463325252u; /* xorshift: the values hardly matter, only that they are not zeros */
    for (int64_t i = 0; i < count; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        double value = (double)(state >> 11) / 9007199254740992.0 - 0.5;
        if (dtype == TARTAN_F64)
            ((double *)data)[i] = value;
        else if (dtype == TARTAN_F32)
            ((float *)data)[i] = (float)value;
        else /* a finite 16-bit number of either format, between 2^-8 and 1 */
            ((uint16_t *)data)[i] = (uint16_t)((state >> 63) << 15 | 0x3400 | (state >> 20 & 0x3ff));
    }
}

static void free_operands(operands *o) {
    free(o->dense_a), free(o->dense_c), free(o->b), free(o->c);
    tartan_matrix_free(o->matrix);
    tartan_layout_free(o->layout);
}

/* Planning is what a new layout costs before its first product: its index sets, from given row lists. */
static bool time_planning(const bench_case *c, const operands *o, samples *out) {
    const tartan_shape shape = {c->m, c->k, c->block, c->block, 1};
    int64_t blocks = tartan_layout_blocks(o->layout), pointers = tartan_layout_grid_rows(o->layout) + 1;
    int64_t *cols = malloc(sizeof *cols * (size_t)(blocks + 1));
    if (cols == NULL) return false;
    for (int64_t i = 0; i < blocks; i++) cols[i] = tartan_layout_col_indices(o->layout)[i];
    tartan_layout *copy = NULL;
    double start = seconds_now();
    tartan_status status = tartan_layout_from_csr(&shape, tartan_layout_row_pointers(o->layout), pointers, cols, blocks, &copy);
    out->seconds[out->count++] = seconds_now() - start;
    tartan_layout_free(copy);
    free(cols);
    return status == TARTAN_OK;
}

static bool make_operands(tartan_context *context, const bench_case *c, operands *o) {
    const tartan_shape shape = {c->m, c->k, c->block, c->block, 1};
    char parameters[64];
    snprintf(parameters, sizeof parameters, "density=%.17g", c->density);
    memset(o, 0, sizeof *o);
    int64_t size = tartan_dtype_bytes(c->dtype), nb = c->op == BENCH_SPMM ? c->k * c->n : c->m * c->n;
    int64_t nc = c->op == BENCH_SPMM ? c->m * c->n : c->n * c->k;
    o->b = malloc((size_t)(nb * size)), o->c = malloc((size_t)(nc * size));
    bool dense = c->dtype == TARTAN_F64 || c->dtype == TARTAN_F32;
    if (dense) o->dense_a = malloc((size_t)(c->m * c->k * size));
    if (dense) o->dense_c = malloc((size_t)(c->m * (c->op == BENCH_SPMM ? c->n : c->k) * size));
    if (o->b == NULL || o->c == NULL || (dense && (o->dense_a == NULL || o->dense_c == NULL))) return false;
    fill_random(o->b, c->dtype, nb), fill_random(o->c, c->dtype, nc);
    if (dense) fill_random(o->dense_a, c->dtype, c->m * c->k);
    return tartan_layout_from_pattern(&shape, "random", parameters, 1, &o->layout) == TARTAN_OK &&
           tartan_matrix_create(o->layout, c->dtype, TARTAN_ROW_MAJOR, &o->matrix) == TARTAN_OK &&
           tartan_matrix_fill_normal(context, o->matrix, 1, 1) == TARTAN_OK;
}

static bool time_ours(tartan_context *context, const bench_case *c, operands *o, double *out_seconds) {
    tartan_array b, out;
    bool spmm = c->op == BENCH_SPMM;
    const int64_t b_shape[] = {spmm ? c->k : c->m, c->n}, c_shape[] = {spmm ? c->m : c->n, spmm ? c->n : c->k};
    if (tartan_array_init(o->b, c->dtype, 2, b_shape, NULL, &b) != TARTAN_OK ||
        tartan_array_init(o->c, c->dtype, 2, c_shape, NULL, &out) != TARTAN_OK)
        return false;
    double start = seconds_now();
    tartan_status status = spmm ? tartan_spmm(context, TARTAN_LEFT, TARTAN_NO_TRANSPOSE, 1, o->matrix, NULL, &b, 0, &out)
                                : tartan_sddmm(context, 1, NULL, &b, 1, &out, 1, 0, o->matrix);
    *out_seconds = seconds_now() - start;
    return status == TARTAN_OK;
}

static void time_blas(blas **b, const bench_case *c, const operands *o, samples *out) {
    if (*b == NULL) return;
    if (blas_time(*b, c, o, &out->seconds[out->count])) out->count++;
}

/* scipy takes seconds for one product: a few rounds of it must do. */
enum { SCIPY_ROUNDS = 3 };

static bool measure(tartan_context *context, const bench_case *c, operands *o, bool with_peers, measured *out) {
    memset(out, 0, sizeof *out);
    out->scipy_reason = c->op == BENCH_SDDMM ? "scipy has no sampled product" : "not asked for";
    bool full = c->dtype == TARTAN_F64 || c->dtype == TARTAN_F32, peers = with_peers && full;
    if (with_peers && !full) out->scipy_reason = "scipy has no 16-bit products";
    const char *mkl_path = getenv("TARTAN_MKL");
    blas *openblas = peers ? blas_open("openblas", "libopenblas.so.0", c->threads) : NULL;
    blas *mkl = peers && mkl_path != NULL ? blas_open("mkl", mkl_path, c->threads) : NULL;
    scipy *sp = peers && c->op == BENCH_SPMM ? scipy_start(c, o, &out->scipy_reason) : NULL;
    if (openblas != NULL) snprintf(out->openblas_core, sizeof out->openblas_core, "%s", blas_core(openblas));
    double warm_up, gflops;
    bool good = time_ours(context, c, o, &warm_up);
    for (int round = 0; good && round < c->rounds; round++) {
        good = time_ours(context, c, o, &out->ours.seconds[out->ours.count++]) && time_planning(c, o, &out->planning) &&
               tartan_context_peak(context, full ? c->dtype : TARTAN_F32, &gflops) == TARTAN_OK;
        if (good) out->peak.seconds[out->peak.count++] = gflops;
        time_blas(&openblas, c, o, &out->openblas);
        time_blas(&mkl, c, o, &out->mkl);
        if (sp != NULL && round < SCIPY_ROUNDS && scipy_time(sp, &out->scipy.seconds[out->scipy.count])) out->scipy.count++;
        progress(c->op == BENCH_SPMM ? "bench spmm" : "bench sddmm", (double)(round + 1) / c->rounds);
    }
    scipy_stop(sp);
    blas_close(mkl);
    blas_close(openblas);
    return good;
}

static void add_peer(json_t *peers, json_t *ratios, const char *name, samples *s, double work, double ours, const char *what,
                     const char *reason) {
    if (s->count == 0) {
        json_object_set_new(peers, name, json_pack("{s:n, s:s}", "tflops", "reason", reason));
        json_object_set_new(ratios, name, json_null());
        return;
    }
    double tflops = 1e-12 * work / median(s);
    json_object_set_new(peers, name, json_pack("{s:f, s:f, s:s, s:i}", "ms", 1e3 * median(s), "tflops", tflops, "counts", what,
                                               "samples", s->count));
    json_object_set_new(ratios, name, json_real(ours / tflops));
}

static json_t *describe(const bench_case *c, const operands *o, measured *r) {
    double elements = (double)tartan_layout_elements(o->layout), useful = 2 * elements * (double)c->n;
    double dense = 2 * (double)c->m * (double)c->k * (double)c->n, ours = 1e-12 * useful / median(&r->ours);
    double peak = 1e-3 * median(&r->peak);
    json_t *peers = json_object(), *ratios = json_object();
    json_object_set_new(ratios, "peak", json_real(ours / (peak * c->threads)));
    add_peer(peers, ratios, "openblas", &r->openblas, dense, ours, "the dense product", "no OpenBLAS or no such dtype");
    if (r->openblas.count > 0) json_object_set_new(json_object_get(peers, "openblas"), "core", json_string(r->openblas_core));
    add_peer(peers, ratios, "mkl", &r->mkl, dense, ours, "the dense product", "TARTAN_MKL does not name libmkl_rt");
    add_peer(peers, ratios, "scipy", &r->scipy, useful, ours, "useful operations, one thread", r->scipy_reason);
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:f, s:[I,I,I], s:i, s:f, s:f, s:f, s:f, s:i, s:o, s:o}", "op",
                     c->op == BENCH_SPMM ? "spmm" : "sddmm", "device", "cpu", "kernels", tartan_cpu_level(), "dtype",
                     tartan_dtype_name(c->dtype), "threads", c->threads, "block", (json_int_t)c->block, "density",
                     tartan_layout_density(o->layout), "shape", (json_int_t)c->m, (json_int_t)c->k, (json_int_t)c->n, "heads",
                     1, "ms", 1e3 * median(&r->ours), "tflops", ours, "planning_ms", 1e3 * median(&r->planning),
                     "peak_tflops_per_thread", peak, "samples", r->ours.count, "peers", peers, "ratios", ratios);
}

static double field(const json_t *line, const char *object, const char *name) {
    return json_number_value(json_object_get(json_object_get(line, object), name));
}

static void print_line(const json_t *line, bool as_json) {
    if (as_json) {
        char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(6));
        if (text != NULL) puts(text);
        free(text);
    } else {
        printf("%-6s %-8s b %3lld  density %.3f  %9.3f ms  %8.2f GFLOP/s useful  %4.2f of peak  %6.2f x scipy  %4.2f of dense OpenBLAS\n",
               json_string_value(json_object_get(line, "op")), json_string_value(json_object_get(line, "dtype")),
               (long long)json_integer_value(json_object_get(line, "block")), json_real_value(json_object_get(line, "density")),
               json_real_value(json_object_get(line, "ms")), 1e3 * json_real_value(json_object_get(line, "tflops")),
               field(line, "ratios", "peak"), field(line, "ratios", "scipy"), field(line, "ratios", "openblas"));
    }
    fflush(stdout);
}

static int run_case(const bench_case *c, bool with_peers, bool as_json) {
    tartan_context *context = NULL;
    if (tartan_context_open("cpu", c->threads, 0, &context) != TARTAN_OK) return complain_status("cannot start");
    operands o;
    measured *r = malloc(sizeof *r);
    int result = EXIT_FAILED;
    if (r == NULL || !make_operands(context, c, &o))
        complain_status("cannot make the operands");
    else if (!measure(context, c, &o, with_peers, r))
        complain_status("cannot measure");
    else {
        json_t *line = describe(c, &o, r);
        print_line(line, as_json);
        json_decref(line);
        result = EXIT_FINE;
    }
    if (r != NULL) free_operands(&o);
    free(r);
    tartan_context_free(context);
    return result;
}

/* Comma-separated lists: "8,16,32" and "f32,f64". */
static int64_t next_item(const char **list, char *item, size_t size) {
    size_t length = strcspn(*list, ",");
    if (length == 0 || length >= size) return 0;
    memcpy(item, *list, length);
    item[length] = '\0';
    *list += length + ((*list)[length] == ',');
    return (int64_t)length;
}

static int run_cases(bench_case c, const char *dtypes, const char *blocks, bool with_peers, bool as_json) {
    char dtype[16], block[16];
    while (next_item(&dtypes, dtype, sizeof dtype)) {
        c.dtype = parse_dtype(dtype);
        if (c.dtype == 0) return complain("--dtype has \"%s\", expected f64, f32, f16 or bf16", dtype);
        const char *rest = blocks;
        while (next_item(&rest, block, sizeof block)) {
            int64_t other;
            if (!parse_pair("--block", block, &c.block, &other)) return EXIT_USAGE;
            int result = run_case(&c, with_peers, as_json);
            if (result != EXIT_FINE) return result;
        }
    }
    return EXIT_FINE;
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {
        {"json", true, false},     {"no-peers", true, false}, {"dtype", false, false},  {"block", false, false},
        {"size", false, false},    {"n", false, false},       {"density", false, false}, {"threads", false, false},
        {"rounds", false, false},  {NULL, false, false}};
    arguments a;
    int code;
    if (!parse_arguments(&command_bench, specs, argc, argv, &a, &code)) return code;
    bench_case c = {.op = BENCH_SPMM};
    int64_t threads, rounds;
    if (a.positional_count != 1 || (strcmp(a.positional[0], "spmm") != 0 && strcmp(a.positional[0], "sddmm") != 0)) {
        fputs(command_bench.help, stderr);
        return EXIT_USAGE;
    }
    if (strcmp(a.positional[0], "sddmm") == 0) c.op = BENCH_SDDMM;
    if (!parse_pair("--size", option_value(&a, "size", "4096"), &c.m, &c.k) || !option_integer(&a, "n", 512, &c.n) ||
        !option_number(&a, "density", 0.1, &c.density) || !option_integer(&a, "threads", 1, &threads) ||
        !option_integer(&a, "rounds", 9, &rounds))
        return EXIT_USAGE;
    if (threads < 1 || threads > 4096 || rounds < 1 || rounds > MAX_ROUNDS || c.n < 1 || c.n > 1 << 20)
        return complain("--threads, --rounds and --n must be 1 or more, --rounds at most %d", MAX_ROUNDS);
    c.threads = (int32_t)threads;
    c.rounds = (int)rounds;
    return run_cases(c, option_value(&a, "dtype", "f32,f64"), option_value(&a, "block", "8,16,32,64"),
                     !option_given(&a, "no-peers"), option_given(&a, "json"));
}

const command command_bench = {
    "bench", "measure a product beside its peers",
    "Usage: tartan bench spmm|sddmm [OPTIONS]\n\n"
    "Times block-sparse products on random layouts. Each round times ours, then each peer, then the peak of\n"
    "the machine, so that all see the same machine; medians are printed. Only operations on stored blocks are\n"
    "counted (\"useful\"); a dense BLAS is counted with all that it does.\n\n"
    "  --dtype LIST     of f64, f32, f16, bf16 (default f32,f64)\n"
    "  --block LIST     edges of square blocks (default 8,16,32,64)\n"
    "  --size MxK       of the sparse matrix (default 4096)\n"
    "  --n N            columns of the dense operand, or the summed size of sddmm (default 512)\n"
    "  --density D      share of stored blocks (default 0.1)\n"
    "  --threads T      ours and the BLAS's; scipy has one (default 1)\n"
    "  --rounds R       (default 9)\n"
    "  --no-peers       ours and the peak alone\n"
    "  --json           one JSON object a line\n\n"
    "Peers: scipy (BSR, in the Python that $PYTHON names), OpenBLAS (told its CPU where it would misjudge it), MKL\n"
    "(where $TARTAN_MKL names libmkl_rt). tartan 'peak' is the rate of independent fused multiply-adds in registers.\n",
    run};
