/* SPDX-License-Identifier: Apache-2.0
 * The command `tartan bench`: what the user asks for, and the lines that answer. */
#include "bench.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Lines ---- */

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
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

static void print_line(const json_t *line, const bench_case *c, bool sweep) {
    char peak[32], bsr[32], csr[32], dense[32];
    const char *kernel = json_string_value(json_object_get(line, "kernels"));
    printf("%-18s %-8s ", c->op->name, tartan_dtype_name(c->dtype));
    if (!c->op->uses_no_blocks)
        printf("b %3lld  density %.3f ", (long long)c->block, number_of(line, "density"));
    printf("%9.3f ms ", number_of(line, "ms"));
    if (c->op->products)
        printf("%8.2f GFLOP/s useful; ", 1e3 * number_of(line, "tflops"));
    else
        printf("%8.2f GB/s; ", number_of(line, "gbytes_per_s"));
    if (!c->on_host)
        printf("planning %.3f ms, kernel %s on %s", number_of(line, "planning_ms"),
               kernel != NULL ? kernel : "not known", json_string_value(json_object_get(line, "device")));
    else if (c->op->gemm != NULL)
        printf("%s of the %s peak of %.1f, %s x scipy bsr, %s x scipy csr, %s of dense OpenBLAS",
               ratio(line, "peak", peak, sizeof peak), kernel != NULL ? kernel : "machine's",
               1e3 * c->threads * number_of(line, "peak_tflops_per_thread"),
               ratio(line, "scipy", bsr, sizeof bsr), ratio(line, "scipy_csr", csr, sizeof csr),
               ratio(line, "openblas", dense, sizeof dense));
    else if (c->op->products)
        printf("%s of the %s peak of %.1f", ratio(line, "peak", peak, sizeof peak),
               kernel != NULL ? kernel : "machine's",
               1e3 * c->threads * number_of(line, "peak_tflops_per_thread"));
    else
        printf("%s x memcpy", ratio(line, "memcpy", bsr, sizeof bsr));
    if (sweep) printf("; threads %d: %.2f x the first", c->threads, number_of(line, "speedup"));
    putchar('\n');
}

/* ---- What the user asks for: a case for each dtype, block and number of threads ---- */

enum { MAX_LIST = 64, MAX_SIZE = 1 << 20, MAX_THREADS = 4096, MAX_BLOCK = 256 };

typedef struct wish {
    bench_case base;
    bool as_json;
    int dtypes, blocks, threads;
    int32_t dtype[MAX_LIST], thread[MAX_LIST];
    int64_t block[MAX_LIST];
} wish;

/* The operations, as "spmm, sddmm or ...". */
static int complain_operation(const char *name) {
    char known[4096] = "";
    for (int i = 0; bench_op_at(i) != NULL; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s",
                 i == 0                       ? ""
                 : bench_op_at(i + 1) == NULL ? " or "
                                              : ", ",
                 bench_op_at(i)->name);
    }
    return complain_usage("no benchmark \"%s\", expected %s", name, known);
}

/* The next item of a list that is the value of an option. False at the end and, with a code, at an item too many. */
static bool next_of(const char *option, const char **list, int count, char *item, size_t size,
                    int *out_code) {
    if (!next_item(list, item, size)) return false;
    if (count < MAX_LIST) return true;
    *out_code = complain_usage("--%s has more than %d items", option, MAX_LIST);
    return false;
}

/* Edges of blocks, or numbers of threads. */
static int parse_integers(const arguments *a, const char *option, const char *fallback, const char *what,
                          int64_t most, int64_t *out, int *out_count) {
    const char *list = option_value(a, option, fallback);
    char item[32], *end;
    int code = EXIT_FINE;
    while (next_of(option, &list, *out_count, item, sizeof item, &code)) {
        const long long number = strtoll(item, &end, 10);
        if (end == item || *end != '\0' || number < 1 || number > most)
            return complain_usage("--%s has \"%s\", expected %s, 1 to %lld", option, item, what,
                                  (long long)most);
        out[(*out_count)++] = number;
    }
    return code;
}

static int parse_dtypes(const arguments *a, const char *fallback, wish *w) {
    const char *dtypes = option_value(a, "dtype", fallback);
    char item[32];
    int code = EXIT_FINE;
    while (next_of("dtype", &dtypes, w->dtypes, item, sizeof item, &code))
        if ((w->dtype[w->dtypes++] = parse_dtype(item)) == 0)
            return complain_usage("--dtype has \"%s\", expected f64, f32, f16 or bf16", item);
    return code;
}

static int parse_lists(const arguments *a, wish *w) {
    int64_t threads[MAX_LIST];
    int code = parse_dtypes(a, "f32,f64", w);
    if (code == EXIT_FINE)
        code = parse_integers(a, "block", "8,16,32,64", "edges of square blocks", MAX_BLOCK, w->block,
                              &w->blocks);
    if (code == EXIT_FINE)
        code = parse_integers(a, "threads", "1", "numbers of threads", MAX_THREADS, threads, &w->threads);
    for (int i = 0; i < w->threads; i++) w->thread[i] = (int32_t)threads[i];
    return code;
}

/* An integer option within bounds. */
static bool take(const arguments *a, const char *name, int64_t fallback, int64_t most, int64_t *out) {
    if (!option_integer(a, name, fallback, out)) return false;
    if (*out >= 1 && *out <= most) return true;
    complain("--%s is %lld, expected 1 to %lld", name, (long long)*out, (long long)most);
    return false;
}

/* What the machine can do at most has no operands. */
static int run_peak(const arguments *a, wish *w) {
    static const char *const unused[] = {"block",  "size",        "n",        "density", "rounds",
                                         "device", "allow-dense", "no-peers", "math"};
    char fallback[16];
    int64_t threads[MAX_LIST];
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (option_given(a, unused[i]))
            return complain_usage("--%s is not for peak, which takes --dtype, --threads and --json",
                                  unused[i]);
    int code = parse_dtypes(a, "f32,f64,bf16", w);
    snprintf(fallback, sizeof fallback, "1,%ld", sysconf(_SC_NPROCESSORS_ONLN));
    if (code == EXIT_FINE)
        code = parse_integers(a, "threads", strcmp(fallback, "1,1") == 0 ? "1" : fallback,
                              "numbers of threads", MAX_THREADS, threads, &w->threads);
    for (int i = 0; i < w->threads; i++) w->thread[i] = (int32_t)threads[i];
    if (code != EXIT_FINE) return code;
    return bench_peak(option_given(a, "json"), w->dtype, w->dtypes, w->thread, w->threads);
}

static int parse_wish(const arguments *a, wish *w) {
    bench_case *c = &w->base;
    int64_t rounds;
    memset(w, 0, sizeof *w);
    if (a->positional_count != 1) return show_usage(&command_bench);
    c->op = bench_op_named(a->positional[0]);
    if (c->op == NULL) return complain_operation(a->positional[0]);
    if (!parse_pair("--size", option_value(a, "size", "4096"), &c->m, &c->k) ||
        !take(a, "n", c->op->usual_n > 0 ? c->op->usual_n : 512, MAX_SIZE, &c->n) ||
        !option_number(a, "density", 0.1, &c->density) || !take(a, "rounds", 9, MAX_ROUNDS, &rounds))
        return EXIT_USAGE;
    if (c->m < 1 || c->k < 1 || c->m > MAX_SIZE || c->k > MAX_SIZE)
        return complain_usage("--size is %lldx%lld, expected 1 to %d", (long long)c->m, (long long)c->k,
                              MAX_SIZE);
    if (c->density <= 0 || c->density > 1)
        return complain_usage("--density is %g, expected more than 0, at most 1", c->density);
    c->device = option_value(a, "device", "cpu");
    c->on_host = strncmp(c->device, "cuda", 4) != 0;
    c->math = option_value(a, "math", "exact");
    c->allow_dense = option_given(a, "allow-dense");
    if (!c->on_host && option_given(a, "threads")) return complain_usage("--threads is for the CPU only");
    if (c->on_host && c->allow_dense) return complain_usage("--allow-dense is for GPUs only");
    c->rounds = (int)rounds;
    c->with_peers = c->on_host && !option_given(a, "no-peers");
    w->as_json = option_given(a, "json");
    return parse_lists(a, w);
}

/* ---- The command ---- */

static int run_case(const wish *w, const bench_case *c, double *first_ms) {
    json_t *line = bench_measure(c);
    if (line == NULL) return EXIT_FAILED;
    const double ms = number_of(line, "ms");
    if (*first_ms == 0) *first_ms = ms;
    json_object_set_new(line, "speedup", c->on_host ? json_real(*first_ms / ms) : json_null());
    if (w->as_json)
        print_json(line);
    else
        print_line(line, c, w->threads > 1);
    fflush(stdout);
    json_decref(line);
    return EXIT_FINE;
}

static int run_all(const wish *w) {
    int result = EXIT_FINE;
    for (int i = 0; i < w->dtypes; i++)
        for (int j = 0; j < (w->base.op->uses_no_blocks ? 1 : w->blocks); j++) {
            double first_ms = 0;
            for (int t = 0; t < w->threads && result == EXIT_FINE; t++) {
                bench_case c = w->base;
                c.dtype = w->dtype[i], c.block = w->block[j], c.threads = w->thread[t];
                result = run_case(w, &c, &first_ms);
            }
        }
    return result;
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {
        {"json", true, false},     {"no-peers", true, false},    {"dtype", false, false},
        {"block", false, false},   {"size", false, false},       {"n", false, false},
        {"density", false, false}, {"threads", false, false},    {"rounds", false, false},
        {"device", false, false},  {"allow-dense", true, false}, {"list", true, false},
        {"math", false, false},    {NULL, false, false}};
    arguments a;
    wish w;
    int code;
    if (!parse_arguments(&command_bench, specs, argc, argv, &a, &code)) return code;
    if (option_given(&a, "list") && a.count == 1 && a.positional_count == 0) {
        for (int i = 0; bench_op_at(i) != NULL; i++) puts(bench_op_at(i)->name);
        return EXIT_FINE;
    }
    if (option_given(&a, "list")) return show_usage(&command_bench);
    if (a.positional_count == 1 && strcmp(a.positional[0], "peak") == 0) {
        memset(&w, 0, sizeof w);
        return run_peak(&a, &w);
    }
    const int result = parse_wish(&a, &w);
    if (result != EXIT_FINE) return result;
    signal(SIGPIPE, SIG_IGN); /* a peer that ends early is a peer that is not there */
    w.base.with_openblas = w.base.with_peers && w.base.op->gemm != NULL && blas_choose_core();
    return run_all(&w);
}

const command command_bench = {
    "bench", "measure an operation beside its peers",
    "Usage: tartan bench OPERATION [OPTIONS]\n"
    "       tartan bench peak [--dtype LIST] [--threads LIST] [--json]\n"
    "       tartan bench --list\n"
    "\n"
    "Times an operation on random block-sparse matrices. Each round times Tartan, then each peer, then the "
    "peak\n"
    "of the machine, so all are measured under the same conditions. Medians are printed. Rates of Tartan "
    "count only\n"
    "the operations on stored blocks (\"useful\" ones); rates of a dense BLAS count all of its operations.\n"
    "\n"
    "  spmm             C = A B, A sparse\n"
    "  sddmm            A = X Y at the stored blocks\n"
    "  growth_score     scores every block of the grid, from X and Y\n"
    "  block_copy       copies every block to another position of a second matrix\n"
    "  block_norms      computes the L2 norm of every block\n"
    "  elementwise      C = alpha A + beta B on one layout\n"
    "  elements         reads the diagonal to the host\n"
    "  reduce           sums every block\n"
    "  compare          counts the elements in which two matrices differ\n"
    "  attention_forward, attention_backward\n"
    "                   block-sparse attention, one head of M queries, K keys and head dimension N\n"
    "  attention_bias_gradient\n"
    "                   the gradients of a bias of 257 distances and of a sink, for the same\n"
    "  window_pool      the active windows of a mask of M x K\n"
    "  window_gather, window_scatter\n"
    "                   windows of an image of M x K with N contiguous channels; gather reads one more "
    "position\n"
    "                   on each side\n"
    "  conv, conv_filter_gradient\n"
    "                   a 3 x 3 convolution from K to M channels of an image of N x N, channels last\n"
    "  conv_normalize, conv_normalize_gradient\n"
    "                   weight normalisation of such a filter\n"
    "--list names more operations, which the library describes (tartan_op_describe): element-wise "
    "functions,\n"
    "norms of arrays of M x K, and others.\n"
    "\n"
    "`tartan bench peak` measures the limits of this machine: multiply-adds held in registers, and reading "
    "from\n"
    "each cache and from memory. By default it measures f32, f64 and bf16, with one thread and with one on "
    "each\n"
    "processor at once; --dtype and --threads choose others.\n"
    "\n"
    "  --dtype LIST     f64, f32, f16, bf16 (default f32,f64)\n"
    "  --block LIST     edges of square blocks (default 8,16,32,64)\n"
    "  --size MxK       size of the sparse matrix (default 4096)\n"
    "  --n N            columns of B or X (default 512); head dimension of attention, or channels (default "
    "64)\n"
    "  --density D      fraction of stored blocks (default 0.1)\n"
    "  --threads LIST   threads of Tartan and of the BLAS; other peers use one (default 1). With several "
    "numbers,\n"
    "                   each line gives the speedup over the first\n"
    "  --rounds R       number of rounds (default 9)\n"
    "  --device DEVICE  cpu (default), cuda, cuda:1. A GPU times Tartan only, in samples of a millisecond or "
    "more\n"
    "  --allow-dense    allow a GPU to multiply a dense copy with cuBLAS\n"
    "  --math MODE      math mode of the context: exact (default), tf32, bf16x3 or bf16x6. The peak stays "
    "that of --dtype\n"
    "  --no-peers       measure only Tartan and the peak\n"
    "  --json           print one JSON object a line\n"
    "  --list           list the operations, one a line\n"
    "\n"
    "Peers of products: scipy (BSR and CSR, in the Python that $PYTHON names), OpenBLAS (with the core type "
    "that is\n"
    "fastest here, since it misjudges some CPUs), MKL (if $TARTAN_MKL names libmkl_rt). The peak is the rate "
    "of\n"
    "independent multiply-adds held in registers, with the instructions that products of the dtype use, "
    "times the\n"
    "number of threads. The peer of the other operations is memcpy of as many bytes.\n",
    run};
