/* SPDX-License-Identifier: Apache-2.0
 * Dense peers: OpenBLAS and MKL through their C interface. */
#include "bench.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111 };

typedef void (*sgemm_function)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                               const float *b, int ldb, float beta, float *c, int ldc);
typedef void (*dgemm_function)(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                               const double *b, int ldb, double beta, double *c, int ldc);

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

blas *blas_open(const char *name, const char *path, int32_t threads) {
    /* The distribution's OpenBLAS 0.3.21 takes newer CPUs for Haswell or Zen and runs at half speed: tell it
     * what it has, unless the user did. It reads this once, when it is loaded. */
    const char *level = tartan_cpu_level();
    if (strncmp(level, "avx512", 6) == 0 || strcmp(level, "amx") == 0) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
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

bool blas_time(const blas *b, const bench_case *c, const operands *o, double *out_seconds) {
    bool spmm = c->op == BENCH_SPMM;
    int m = (int)c->m, n = (int)(spmm ? c->n : c->k), k = (int)(spmm ? c->k : c->n);
    const void *left = spmm ? o->dense_a : o->b, *right = spmm ? o->b : o->c;
    double start = seconds_now();
    if (c->dtype == TARTAN_F32)
        b->sgemm(CBLAS_ROW_MAJOR, CBLAS_NO_TRANS, CBLAS_NO_TRANS, m, n, k, 1, left, k, right, n, 0, o->dense_c, n);
    else if (c->dtype == TARTAN_F64)
        b->dgemm(CBLAS_ROW_MAJOR, CBLAS_NO_TRANS, CBLAS_NO_TRANS, m, n, k, 1, left, k, right, n, 0, o->dense_c, n);
    else
        return false;
    *out_seconds = seconds_now() - start;
    return true;
}

void blas_close(blas *b) {
    /* Left loaded: unloading a library with a thread pool is not safe. */
    free(b);
}
