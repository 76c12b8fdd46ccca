/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <signal.h>
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
    samples ours, peak, planning, openblas, mkl, bsr, csr; /* peak: GFLOP/s */
    char openblas_core[64];
    char blas_reason[REASON_ROOM], mkl_reason[REASON_ROOM], scipy_reason[REASON_ROOM];
} measured;

void fill_random(void *data, int32_t dtype, int64_t count) {
    uint64_t state =
        88172645463325252u; /* xorshift: the values hardly matter, only that they are not zeros */
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

/* Planning is what a new layout costs before its first product: its index sets, from given row lists. (The
 * cut of the work into shares is made in every product and is in its time.) */
static bool time_planning(const bench_case *c, const operands *o, samples *out) {
    const tartan_shape shape = {c->m, c->k, c->block, c->block, 1};
    int64_t blocks = tartan_layout_blocks(o->layout), pointers = tartan_layout_grid_rows(o->layout) + 1;
    int64_t *cols = malloc(sizeof *cols * (size_t)(blocks + 1));
    if (cols == NULL) return false;
    for (int64_t i = 0; i < blocks; i++) cols[i] = tartan_layout_col_indices(o->layout)[i];
    tartan_layout *copy = NULL;
    double start = seconds_now();
    tartan_status status =
        tartan_layout_from_csr(&shape, tartan_layout_row_pointers(o->layout), pointers, cols, blocks, &copy);
    out->seconds[out->count++] = seconds_now() - start;
    tartan_layout_free(copy);
    free(cols);
    return status == TARTAN_OK;
}

static bool make_operands(tartan_context *context, const bench_case *c, operands *o) {
    const tartan_shape shape = {c->m, c->k, c->block, c->block, 1};
    char parameters[64];
    snprintf(parameters, sizeof parameters, "density=%.17g", c->density);
    int64_t size = tartan_dtype_bytes(c->dtype), nb = c->op == BENCH_SPMM ? c->k * c->n : c->m * c->n;
    int64_t nc = c->op == BENCH_SPMM ? c->m * c->n : c->n * c->k;
    o->b = malloc((size_t)(nb * size)), o->c = malloc((size_t)(nc * size));
    bool dense = c->dtype == TARTAN_F64 || c->dtype == TARTAN_F32;
    if (dense) o->dense_a = malloc((size_t)(c->m * c->k * size));
    if (dense) o->dense_c = malloc((size_t)(c->m * (c->op == BENCH_SPMM ? c->n : c->k) * size));
    if (o->b == NULL || o->c == NULL || (dense && (o->dense_a == NULL || o->dense_c == NULL)))
        return complain("out of memory for the operands") == EXIT_FINE;
    fill_random(o->b, c->dtype, nb), fill_random(o->c, c->dtype, nc);
    if (dense) fill_random(o->dense_a, c->dtype, c->m * c->k);
    return (tartan_layout_from_pattern(&shape, "random", parameters, 1, &o->layout) == TARTAN_OK &&
            tartan_matrix_create(o->layout, c->dtype, TARTAN_ROW_MAJOR, &o->matrix) == TARTAN_OK &&
            tartan_matrix_fill_normal(context, o->matrix, 1, 1) == TARTAN_OK) ||
           complain_status("cannot make the operands") == EXIT_FINE;
}

static bool time_ours(tartan_context *context, const bench_case *c, operands *o, double *out_seconds) {
    tartan_array b, out;
    bool spmm = c->op == BENCH_SPMM;
    const int64_t b_shape[] = {spmm ? c->k : c->m, c->n},
                  c_shape[] = {spmm ? c->m : c->n, spmm ? c->n : c->k};
    if (tartan_array_init(o->b, c->dtype, 2, b_shape, NULL, &b) != TARTAN_OK ||
        tartan_array_init(o->c, c->dtype, 2, c_shape, NULL, &out) != TARTAN_OK)
        return false;
    double start = seconds_now();
    tartan_status status =
        spmm ? tartan_spmm(context, TARTAN_LEFT, TARTAN_NO_TRANSPOSE, 1, o->matrix, NULL, &b, 0, &out)
             : tartan_sddmm(context, 1, NULL, &b, 1, &out, 1, 0, o->matrix);
    *out_seconds = seconds_now() - start;
    return status == TARTAN_OK;
}

/* The peers of one case; each may be NULL. */
typedef struct peer_set {
    blas *openblas, *mkl;
    scipy *scipy;
} peer_set;

static void open_peers(const bench_case *c, const operands *o, bool wanted, peer_set *p, measured *r) {
    bool full = c->dtype == TARTAN_F64 || c->dtype == TARTAN_F32;
    const char *none = !wanted ? "not asked for"
                       : !full ? "no products of this dtype"
                               : NULL,
               *mkl = getenv("TARTAN_MKL");
    memset(p, 0, sizeof *p);
    snprintf(r->blas_reason, REASON_ROOM, "%s", none != NULL ? none : OPENBLAS_PATH " is not there");
    snprintf(r->mkl_reason, REASON_ROOM, "%s", none != NULL ? none : "TARTAN_MKL does not name libmkl_rt");
    snprintf(r->scipy_reason, REASON_ROOM, "%s", none != NULL ? none : "scipy has no sampled product");
    if (none != NULL) return;
    p->openblas = blas_open("openblas", OPENBLAS_PATH, c->threads);
    p->mkl = mkl != NULL ? blas_open("mkl", mkl, c->threads) : NULL;
    if (c->op == BENCH_SPMM) p->scipy = scipy_start(c, o, r->scipy_reason);
    if (p->openblas != NULL)
        snprintf(r->openblas_core, sizeof r->openblas_core, "%s", blas_core(p->openblas));
}

static void close_peers(peer_set *p) {
    scipy_stop(p->scipy);
    blas_close(p->mkl);
    blas_close(p->openblas);
}

static void time_peers(const peer_set *p, const bench_case *c, const operands *o, int round, measured *r) {
    /* scipy takes seconds for one product: a few rounds of it must do. */
    enum { SCIPY_ROUNDS = 3 };
    if (p->openblas != NULL && blas_time(p->openblas, c, o, &r->openblas.seconds[r->openblas.count]))
        r->openblas.count++;
    if (p->mkl != NULL && blas_time(p->mkl, c, o, &r->mkl.seconds[r->mkl.count])) r->mkl.count++;
    if (p->scipy == NULL || round >= SCIPY_ROUNDS) return;
    if (scipy_time(p->scipy, "bsr", &r->bsr.seconds[r->bsr.count])) r->bsr.count++;
    if (scipy_time(p->scipy, "csr", &r->csr.seconds[r->csr.count])) r->csr.count++;
}

static bool measure(tartan_context *context, const bench_case *c, operands *o, bool with_peers,
                    measured *out) {
    peer_set p;
    memset(out, 0, sizeof *out);
    open_peers(c, o, with_peers, &p, out);
    double warm_up, gflops;
    int32_t peak_dtype = c->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
    bool good = time_ours(context, c, o, &warm_up);
    for (int round = 0; good && round < c->rounds; round++) {
        good = time_ours(context, c, o, &out->ours.seconds[out->ours.count++]) &&
               time_planning(c, o, &out->planning) &&
               tartan_context_peak(context, peak_dtype, &gflops) == TARTAN_OK;
        if (good) out->peak.seconds[out->peak.count++] = gflops;
        time_peers(&p, c, o, round, out);
        progress(c->op == BENCH_SPMM ? "bench spmm" : "bench sddmm", (double)(round + 1) / c->rounds);
    }
    close_peers(&p);
    return good || complain_status("cannot measure") == EXIT_FINE;
}

static void add_peer(json_t *peers, json_t *ratios, const char *name, samples *s, double work, double ours,
                     const char *what, const char *reason) {
    if (s->count == 0) {
        json_object_set_new(peers, name, json_pack("{s:n, s:s}", "tflops", "reason", reason));
        json_object_set_new(ratios, name, json_null());
        return;
    }
    double tflops = 1e-12 * work / median(s);
    json_object_set_new(peers, name,
                        json_pack("{s:f, s:f, s:s, s:i}", "ms", 1e3 * median(s), "tflops", tflops, "counts",
                                  what, "samples", s->count));
    json_object_set_new(ratios, name, json_real(ours / tflops));
}

static json_t *describe(const bench_case *c, const operands *o, measured *r) {
    double elements = (double)tartan_layout_elements(o->layout), useful = 2 * elements * (double)c->n;
    double dense = 2 * (double)c->m * (double)c->k * (double)c->n, ours = 1e-12 * useful / median(&r->ours);
    double peak = 1e-3 * median(&r->peak);
    json_t *peers = json_object(), *ratios = json_object();
    json_object_set_new(ratios, "peak", json_real(ours / (peak * c->threads)));
    add_peer(peers, ratios, "openblas", &r->openblas, dense, ours, "the dense product", r->blas_reason);
    if (r->openblas.count > 0)
        json_object_set_new(json_object_get(peers, "openblas"), "core", json_string(r->openblas_core));
    add_peer(peers, ratios, "mkl", &r->mkl, dense, ours, "the dense product", r->mkl_reason);
    const char *one = "useful operations, one thread";
    add_peer(peers, ratios, "scipy", &r->bsr, useful, ours, one, r->scipy_reason);
    add_peer(peers, ratios, "scipy_csr", &r->csr, useful, ours, one, r->scipy_reason);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:I, s:f, s:[I,I,I], s:i, s:f, s:f, s:f, s:f, s:i, s:o, s:o}", "op",
        c->op == BENCH_SPMM ? "spmm" : "sddmm", "device", "cpu", "kernels", tartan_cpu_kernels(), "dtype",
        tartan_dtype_name(c->dtype), "threads", c->threads, "block", (json_int_t)c->block, "density",
        tartan_layout_density(o->layout), "shape", (json_int_t)c->m, (json_int_t)c->k, (json_int_t)c->n,
        "heads", 1, "ms", 1e3 * median(&r->ours), "tflops", ours, "planning_ms", 1e3 * median(&r->planning),
        "peak_tflops_per_thread", peak, "samples", r->ours.count, "peers", peers, "ratios", ratios);
}

/* A ratio for people; "-" where there is none. */
static const char *ratio(const json_t *line, const char *name, char *room, size_t size) {
    const json_t *value = json_object_get(json_object_get(line, "ratios"), name);
    snprintf(room, size, json_is_number(value) ? "%.2f" : "-", json_number_value(value));
    return room;
}

static void print_json(const json_t *line) {
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (text != NULL) puts(text);
    free(text);
}

static void print_line(const json_t *line, bool on_device) {
    char peak[32], bsr[32], csr[32], dense[32];
    printf("%-5s %-8s b %3lld  density %.3f %9.3f ms %8.2f GFLOP/s useful; ",
           json_string_value(json_object_get(line, "op")), json_string_value(json_object_get(line, "dtype")),
           (long long)json_integer_value(json_object_get(line, "block")),
           json_real_value(json_object_get(line, "density")), json_real_value(json_object_get(line, "ms")),
           1e3 * json_real_value(json_object_get(line, "tflops")));
    if (on_device)
        printf("planning %.3f ms, kernel %s on %s\n", json_real_value(json_object_get(line, "planning_ms")),
               json_string_value(json_object_get(line, "kernels")),
               json_string_value(json_object_get(line, "device")));
    else
        printf("%s of peak, %s x scipy bsr, %s x scipy csr, %s of dense OpenBLAS\n",
               ratio(line, "peak", peak, sizeof peak), ratio(line, "scipy", bsr, sizeof bsr),
               ratio(line, "scipy_csr", csr, sizeof csr), ratio(line, "openblas", dense, sizeof dense));
}

static json_t *bench_on_cpu(const bench_case *c, bool with_peers) {
    tartan_context *context = NULL;
    char options[40];
    snprintf(options, sizeof options, "threads=%d", c->threads);
    if (tartan_context_create(c->device, options, NULL, &context) != TARTAN_OK) {
        complain_status("cannot start");
        return NULL;
    }
    operands o = {0};
    measured *r = malloc(sizeof *r);
    json_t *line = NULL;
    if (r == NULL)
        complain("out of memory");
    else if (make_operands(context, c, &o) && measure(context, c, &o, with_peers, r))
        line = describe(c, &o, r);
    free_operands(&o);
    free(r);
    tartan_context_free(context);
    return line;
}

static bool is_device(const bench_case *c) {
    return strncmp(c->device, "cuda", 4) == 0;
}

static int run_case(const bench_case *c, bool with_peers, bool as_json) {
    json_t *line = is_device(c) ? bench_on_device(c) : bench_on_cpu(c, with_peers);
    if (line == NULL) return EXIT_FAILED;
    if (as_json)
        print_json(line);
    else
        print_line(line, is_device(c));
    fflush(stdout);
    json_decref(line);
    return EXIT_FINE;
}

enum { MAX_LIST = 64, MAX_SIZE = 1 << 20, MAX_THREADS = 4096, MAX_BLOCK = 256 };

/* What the user asks for: a case for each dtype and each block. */
typedef struct wish {
    bench_case base;
    int dtypes, blocks;
    int32_t dtype[MAX_LIST];
    int64_t block[MAX_LIST];
} wish;

static int parse_lists(const arguments *a, wish *w) {
    const char *dtypes = option_value(a, "dtype", "f32,f64"),
               *blocks = option_value(a, "block", "8,16,32,64");
    char item[32];
    while (w->dtypes < MAX_LIST && next_item(&dtypes, item, sizeof item))
        if ((w->dtype[w->dtypes++] = parse_dtype(item)) == 0)
            return complain_usage("--dtype has \"%s\", expected f64, f32, f16 or bf16", item);
    while (w->blocks < MAX_LIST && next_item(&blocks, item, sizeof item)) {
        int64_t *block = &w->block[w->blocks++], other;
        if (!parse_pair("--block", item, block, &other)) return EXIT_USAGE;
        if (*block < 1 || *block > MAX_BLOCK || other != *block)
            return complain_usage("--block has \"%s\", expected edges of square blocks, 1 to %d", item,
                                  MAX_BLOCK);
    }
    return EXIT_FINE;
}

/* An integer option within bounds. */
static bool take(const arguments *a, const char *name, int64_t fallback, int64_t most, int64_t *out) {
    if (!option_integer(a, name, fallback, out)) return false;
    if (*out >= 1 && *out <= most) return true;
    complain("--%s is %lld, expected 1 to %lld", name, (long long)*out, (long long)most);
    return false;
}

static int parse_wish(const arguments *a, wish *w) {
    bench_case *c = &w->base;
    int64_t threads, rounds;
    memset(w, 0, sizeof *w);
    if (a->positional_count != 1) return show_usage(&command_bench);
    if (strcmp(a->positional[0], "spmm") != 0 && strcmp(a->positional[0], "sddmm") != 0)
        return complain_usage("no benchmark \"%s\", expected spmm or sddmm", a->positional[0]);
    c->op = strcmp(a->positional[0], "sddmm") == 0 ? BENCH_SDDMM : BENCH_SPMM;
    if (!parse_pair("--size", option_value(a, "size", "4096"), &c->m, &c->k) ||
        !take(a, "n", 512, MAX_SIZE, &c->n) || !option_number(a, "density", 0.1, &c->density) ||
        !take(a, "threads", 1, MAX_THREADS, &threads) || !take(a, "rounds", 9, MAX_ROUNDS, &rounds))
        return EXIT_USAGE;
    if (c->m < 1 || c->k < 1 || c->m > MAX_SIZE || c->k > MAX_SIZE)
        return complain_usage("--size is %lldx%lld, expected 1 to %d", (long long)c->m, (long long)c->k,
                              MAX_SIZE);
    if (c->density <= 0 || c->density > 1)
        return complain_usage("--density is %g, expected more than 0, at most 1", c->density);
    c->device = option_value(a, "device", "cpu");
    c->allow_dense = option_given(a, "allow-dense");
    if (is_device(c) && option_given(a, "threads")) return complain_usage("--threads is of the CPU");
    if (!is_device(c) && c->allow_dense) return complain_usage("--allow-dense is of a GPU");
    c->threads = (int32_t)threads;
    c->rounds = (int)rounds;
    return parse_lists(a, w);
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {
        {"json", true, false},     {"no-peers", true, false},    {"dtype", false, false},
        {"block", false, false},   {"size", false, false},       {"n", false, false},
        {"density", false, false}, {"threads", false, false},    {"rounds", false, false},
        {"device", false, false},  {"allow-dense", true, false}, {NULL, false, false}};
    arguments a;
    wish w;
    int code;
    if (!parse_arguments(&command_bench, specs, argc, argv, &a, &code)) return code;
    int result = parse_wish(&a, &w);
    bool with_peers = !option_given(&a, "no-peers") && !(result == EXIT_FINE && is_device(&w.base));
    signal(SIGPIPE, SIG_IGN); /* a peer that ends early is a peer that is not there */
    if (result == EXIT_FINE && with_peers) blas_choose_core();
    for (int i = 0; i < w.dtypes && result == EXIT_FINE; i++)
        for (int j = 0; j < w.blocks && result == EXIT_FINE; j++) {
            bench_case c = w.base;
            c.dtype = w.dtype[i], c.block = w.block[j];
            result = run_case(&c, with_peers, option_given(&a, "json"));
        }
    return result;
}

const command command_bench = {
    "bench", "measure a product beside its peers",
    "Usage: tartan bench spmm|sddmm [OPTIONS]\n\n"
    "Times block-sparse products on random layouts. Each round times ours, then each peer, then the peak of\n"
    "the machine, so that all see the same machine; medians are printed. Only operations on stored blocks "
    "are\n"
    "counted (\"useful\"); a dense BLAS is counted with all that it does.\n\n"
    "  --dtype LIST     of f64, f32, f16, bf16 (default f32,f64)\n"
    "  --block LIST     edges of square blocks (default 8,16,32,64)\n"
    "  --size MxK       of the sparse matrix (default 4096)\n"
    "  --n N            columns of the dense operand, or the summed size of sddmm (default 512)\n"
    "  --density D      share of stored blocks (default 0.1)\n"
    "  --threads T      ours and the BLAS's; scipy has one (default 1)\n"
    "  --rounds R       (default 9)\n"
    "  --device DEVICE  cpu (default), cuda, cuda:1: there ours alone, in samples of a millisecond or more\n"
    "  --allow-dense    a GPU may multiply a dense copy by cuBLAS\n"
    "  --no-peers       ours and the peak alone\n"
    "  --json           one JSON object a line\n\n"
    "Peers: scipy (BSR and CSR, in the Python that $PYTHON names), OpenBLAS (with whichever core type is "
    "fastest\n"
    "here: it misjudges some CPUs), MKL (where $TARTAN_MKL names libmkl_rt). The peak is the rate of "
    "independent\n"
    "fused multiply-adds held in registers.\n",
    run};
