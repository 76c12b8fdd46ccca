/* SPDX-License-Identifier: Apache-2.0
 * Dense peers: OpenBLAS and MKL through their C interface. */
#include "bench.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char CORE_VARIABLE[] = "OPENBLAS_CORETYPE";
enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111 };

typedef void (*sgemm_function)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                               int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef void (*dgemm_function)(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a,
                               int lda, const double *b, int ldb, double beta, double *c, int ldc);

struct blas {
    void *library;
    sgemm_function sgemm;
    dgemm_function dgemm;
    char core[64];
};

/* dlsym returns an object pointer; POSIX lets it be read as a function. */
static void find(void *library, const char *name, void *out_function) {
    void *symbol = dlsym(library, name);
    memcpy(out_function, &symbol, sizeof symbol);
}

/* Seconds of one small product with the core type that the environment has now; the child's own. */
static double time_sample(void) {
    enum { SIZE = 512, TRIES = 8 };
    blas *b = blas_open("openblas", OPENBLAS_PATH, 1);
    size_t room = sizeof(float) * SIZE * SIZE;
    float *left = malloc(room), *right = malloc(room), *product = malloc(room);
    if (b == NULL || left == NULL || right == NULL || product == NULL) return HUGE_VAL;
    for (int i = 0; i < SIZE * SIZE; i++) left[i] = right[i] = (float)(i % 17) - 8;
    double best = HUGE_VAL;
    for (int i = 0; i < TRIES; i++) {
        double start = seconds_now();
        b->sgemm(CBLAS_ROW_MAJOR, CBLAS_NO_TRANS, CBLAS_NO_TRANS, SIZE, SIZE, SIZE, 1, left, SIZE, right,
                 SIZE, 0, product, SIZE);
        double taken = seconds_now() - start;
        if (taken < best) best = taken;
    }
    return best;
}

static void set_core(const char *core) {
    if (core == NULL)
        unsetenv(CORE_VARIABLE);
    else
        setenv(CORE_VARIABLE, core, 1);
}

/* In a process of its own, as OpenBLAS looks once, when it is loaded, and as a wrong core type may kill it. Where there
 * is too little memory it tries for ever. */
static double try_core(const char *core, bool *out_hangs) {
    enum { PATIENCE = 5 }; /* seconds; a sample takes a tenth of one */
    int ends[2], how = 0;
    double seconds = HUGE_VAL, got;
    if (pipe(ends) != 0) return seconds;
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE);
        set_core(core);
        seconds = time_sample();
        _exit(write(ends[1], &seconds, sizeof seconds) == sizeof seconds ? 0 : 1);
    }
    close(ends[1]);
    if (child > 0 && read(ends[0], &got, sizeof got) == sizeof got) seconds = got;
    close(ends[0]);
    if (child > 0) waitpid(child, &how, 0);
    *out_hangs = WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM;
    return seconds;
}

bool blas_choose_core(void) {
    /* OpenBLAS 0.3.21 takes CPUs that it does not know for lesser ones and then runs at half speed, and so does
     * an environment that names a lesser one: measure what there is to choose from and take the fastest. */
    const char *const cores[] = {getenv(CORE_VARIABLE), NULL, "Haswell", "SkylakeX"};
    char best[64] = "";
    double least = HUGE_VAL;
    bool own = true, hangs = false;
    for (size_t i = cores[0] == NULL; i < sizeof cores / sizeof cores[0] && !hangs; i++) {
        double seconds = try_core(cores[i], &hangs);
        /* A clear gain only, so that noise does not choose. */
        if (seconds >= 0.95 * least) continue;
        least = seconds;
        own = cores[i] == NULL;
        snprintf(best, sizeof best, "%s", own ? "" : cores[i]);
    }
    set_core(own ? NULL : best);
    return least < HUGE_VAL;
}

blas *blas_open(const char *name, const char *path, int32_t threads) {
    blas *b = calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (b->library == NULL) {
        free(b);
        return NULL;
    }
    find(b->library, "cblas_sgemm", &b->sgemm);
    find(b->library, "cblas_dgemm", &b->dgemm);
    void (*set_threads)(int) = NULL;
    char *(*core_name)(void) = NULL;
    bool is_mkl = strcmp(name, "mkl") == 0;
    find(b->library, is_mkl ? "MKL_Set_Num_Threads" : "openblas_set_num_threads", &set_threads);
    find(b->library, "openblas_get_corename", &core_name);
    if (b->sgemm == NULL || b->dgemm == NULL || set_threads == NULL) {
        blas_close(b);
        return NULL;
    }
    set_threads(threads);
    if (core_name != NULL) snprintf(b->core, sizeof b->core, "%s", core_name());
    return b;
}

const char *blas_core(const blas *b) {
    return b->core;
}

double blas_time(const blas *b, int32_t dtype, const bench_gemm *gemm, void *product) {
    const int m = (int)gemm->m, n = (int)gemm->n, k = (int)gemm->k;
    const double start = seconds_now();
    if (dtype == TARTAN_F64)
        b->dgemm(CBLAS_ROW_MAJOR, CBLAS_NO_TRANS, CBLAS_NO_TRANS, m, n, k, 1, gemm->left, k, gemm->right, n,
                 0, product, n);
    else
        b->sgemm(CBLAS_ROW_MAJOR, CBLAS_NO_TRANS, CBLAS_NO_TRANS, m, n, k, 1, gemm->left, k, gemm->right, n,
                 0, product, n);
    return seconds_now() - start;
}

void blas_close(blas *b) {
    /* Left loaded: unloading a library with a thread pool is not safe. */
    free(b);
}
