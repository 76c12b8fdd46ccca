/* SPDX-License-Identifier: Apache-2.0
 * What an operation is compared with on the CPU: dense products and scipy's for a product, memcpy for what moves memory
 * alone. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

/* One peer: seconds of its runs, or the reason why there are none. */
typedef struct peer {
    const char *name, *counts; /* what its rate counts */
    char reason[REASON_ROOM];
    double work; /* operations or bytes of one run */
    samples runs;
} peer;

enum { OPENBLAS, MKL, SCIPY, SCIPY_CSR, PRODUCT_PEERS };

struct bench_peers {
    const bench_case *c;
    double work; /* of ours: useful operations, or bytes */
    double unit; /* of a rate */
    const char *rate;
    int count;
    peer all[PRODUCT_PEERS];

    blas *openblas, *mkl;
    scipy *scipy;
    bench_gemm gemm;
    void *dense, *product; /* for a BLAS: the sparse matrix as a dense one, and the result */
    void *from, *to;       /* for memcpy */
};

static peer *add_peer(bench_peers *p, const char *name, const char *counts, double work) {
    peer *one = &p->all[p->count++];
    one->name = name, one->counts = counts, one->work = work;
    return one;
}

/* ---- Opening ---- */

/* The operands that a BLAS needs besides ours. */
static bool make_dense(bench_peers *p) {
    const bench_case *c = p->c;
    const int64_t size = tartan_dtype_bytes(c->dtype);
    bench_gemm *g = &p->gemm;
    p->product = calloc((size_t)(g->m * g->n), (size_t)size);
    if (p->product == NULL) return false;
    if (g->left != NULL && g->right != NULL) return true;
    const int64_t elements = g->left == NULL ? g->m * g->k : g->k * g->n;
    p->dense = malloc((size_t)(elements * size));
    if (p->dense == NULL) return false;
    fill_random(p->dense, c->dtype, elements);
    *(g->left == NULL ? &g->left : &g->right) = p->dense;
    return true;
}

static bool open_product_peers(bench_peers *p, const bench_operands *o) {
    const bench_case *c = p->c;
    const bool full = c->dtype == TARTAN_F64 || c->dtype == TARTAN_F32;
    const char *none = !c->with_peers ? "not asked for" : !full ? "no products of this dtype" : NULL;
    const char *mkl = getenv("TARTAN_MKL"), *one = "useful operations, one thread",
               *all = "the dense product", *no_scipy = none != NULL ? none : c->op->no_scipy;
    p->gemm = c->op->gemm(c, o);
    const double dense = 2 * (double)p->gemm.m * (double)p->gemm.n * (double)p->gemm.k;
    snprintf(add_peer(p, "openblas", all, dense)->reason, REASON_ROOM, "%s",
             none != NULL ? none : OPENBLAS_PATH " is not there or does not work");
    snprintf(add_peer(p, "mkl", all, dense)->reason, REASON_ROOM, "%s",
             none != NULL ? none : "TARTAN_MKL does not name libmkl_rt");
    peer *bsr = add_peer(p, "scipy", one, p->work);
    if (no_scipy != NULL)
        snprintf(bsr->reason, REASON_ROOM, "%s", no_scipy);
    else
        p->scipy = scipy_start(c, o->layout, bsr->reason);
    memcpy(add_peer(p, "scipy_csr", one, p->work)->reason, bsr->reason, REASON_ROOM);
    if (none != NULL) return true;
    p->openblas = c->with_openblas ? blas_open("openblas", OPENBLAS_PATH, c->threads) : NULL;
    p->mkl = mkl != NULL ? blas_open("mkl", mkl, c->threads) : NULL;
    return (p->openblas == NULL && p->mkl == NULL) || make_dense(p);
}

static bool open_memcpy(bench_peers *p) {
    peer *copy =
        add_peer(p, "memcpy", "the same number of bytes, half read and half written, one thread", p->work);
    snprintf(copy->reason, REASON_ROOM, "not asked for");
    if (!p->c->with_peers) return true;
    const size_t half = (size_t)(p->work / 2);
    p->from = malloc(half + 1), p->to = malloc(half + 1);
    if (p->from == NULL || p->to == NULL) return false;
    memset(p->from, 1, half), memset(p->to, 2, half);
    return true;
}

bench_peers *peers_open(const bench_case *c, const bench_operands *o) {
    bench_peers *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    const bool product = c->op->gemm != NULL;
    p->c = c;
    p->work = product ? c->op->flops(c, o->layout) : bench_bytes(c, o);
    p->unit = product ? 1e12 : 1e9;
    p->rate = product ? "tflops" : "gbytes_per_s";
    if (product ? open_product_peers(p, o) : c->op->products || open_memcpy(p)) return p;
    peers_close(p);
    return NULL;
}

void peers_close(bench_peers *p) {
    if (p == NULL) return;
    scipy_stop(p->scipy);
    blas_close(p->mkl);
    blas_close(p->openblas);
    free(p->dense), free(p->product), free(p->from), free(p->to);
    free(p);
}

/* ---- Timing ---- */

static void keep(peer *one, double seconds) {
    one->runs.seconds[one->runs.count++] = seconds;
}

static double time_memcpy(bench_peers *p) {
    const double start = seconds_now();
    memcpy(p->to, p->from, (size_t)(p->work / 2));
    const double taken = seconds_now() - start;
    volatile char *result = p->to; /* or the compiler may leave the copy out */
    (void)*result;
    return taken;
}

void peers_time(bench_peers *p, int round) {
    /* scipy takes seconds for one product: a few rounds of it must do. */
    enum { SCIPY_ROUNDS = 3 };
    double seconds;
    if (p->openblas != NULL)
        keep(&p->all[OPENBLAS], blas_time(p->openblas, p->c->dtype, &p->gemm, p->product));
    if (p->mkl != NULL) keep(&p->all[MKL], blas_time(p->mkl, p->c->dtype, &p->gemm, p->product));
    if (p->scipy != NULL && round < SCIPY_ROUNDS) {
        if (scipy_time(p->scipy, "bsr", &seconds)) keep(&p->all[SCIPY], seconds);
        if (scipy_time(p->scipy, "csr", &seconds)) keep(&p->all[SCIPY_CSR], seconds);
    }
    if (p->from != NULL) keep(&p->all[0], time_memcpy(p));
}

/* ---- Describing ---- */

void peers_describe(bench_peers *p, double our_seconds, json_t *peers, json_t *ratios) {
    const double ours = p->work / our_seconds;
    for (int i = 0; i < p->count; i++) {
        peer *one = &p->all[i];
        if (one->runs.count == 0) {
            json_object_set_new(peers, one->name, json_pack("{s:n, s:s}", p->rate, "reason", one->reason));
            json_object_set_new(ratios, one->name, json_null());
            continue;
        }
        const double seconds = median(&one->runs), rate = one->work / seconds;
        json_object_set_new(peers, one->name,
                            json_pack("{s:f, s:f, s:s, s:i}", "ms", 1e3 * seconds, p->rate, rate / p->unit,
                                      "counts", one->counts, "samples", one->runs.count));
        json_object_set_new(ratios, one->name, json_real(ours / rate));
    }
    if (p->openblas != NULL)
        json_object_set_new(json_object_get(peers, "openblas"), "core", json_string(blas_core(p->openblas)));
}
