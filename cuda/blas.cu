/* SPDX-License-Identifier: Apache-2.0
 * The few functions of cuBLAS that are used are declared here after its documentation, so that building needs neither its
 * headers nor its library. */
#include "blas.h"

#include <dlfcn.h>
#include <library_types.h>

namespace {

enum { WORKSPACE = 32 << 20 }; /* cuBLAS's recommendation for Hopper; 4 MB would do on older chips */

/* Values of cuBLAS's enumerations. */
enum { OP_N = 0, OP_T = 1 };                                        /* cublasOperation_t */
enum { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32F_TF32 = 77 }; /* cublasComputeType_t */
enum { SUMS_IN_F32 = 16 }; /* cublasMath_t: no reductions in the 16-bit type of the output */
enum { GEMM_DEFAULT = -1 };
enum { STATUS_SUCCESS = 0, STATUS_ALLOC_FAILED = 3 };

struct functions {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*set_workspace)(void *handle, void *workspace, size_t bytes);
    int (*set_math_mode)(void *handle, int mode);
    const char *(*status_string)(int status);
    int (*gemm)(void *handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a,
                int a_type, int lda, long long a_stride, const void *b, int b_type, int ldb,
                long long b_stride, const void *beta, void *c, int c_type, int ldc, long long c_stride,
                int count, int compute_type, int algorithm);
};

template <typename F> bool find(void *library, const char *name, F *out) {
    *out = (F)dlsym(library, name);
    return *out != nullptr;
}

/* The library stays loaded, since others may use it too. */
bool load(functions *out) {
    void *library = nullptr;
    for (const char *name : {"libcublas.so.13", "libcublas.so.12"})
        if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return library != nullptr && find(library, "cublasCreate_v2", &out->create) &&
           find(library, "cublasDestroy_v2", &out->destroy) &&
           find(library, "cublasSetStream_v2", &out->set_stream) &&
           find(library, "cublasSetWorkspace_v2", &out->set_workspace) &&
           find(library, "cublasSetMathMode", &out->set_math_mode) &&
           find(library, "cublasGetStatusString", &out->status_string) &&
           find(library, "cublasGemmStridedBatchedEx", &out->gemm);
}

int type_of(int32_t dtype) {
    switch (dtype) {
    case TARTAN_F64:
        return CUDA_R_64F;
    case TARTAN_F32:
        return CUDA_R_32F;
    case TARTAN_F16:
        return CUDA_R_16F;
    default:
        return CUDA_R_16BF;
    }
}

tartan_status check(const char *function, const functions *f, int status) {
    if (status == STATUS_SUCCESS) return TARTAN_OK;
    (void)cudaGetLastError();
    return tartan_cuda_host->fail(status == STATUS_ALLOC_FAILED ? TARTAN_ERR_MEMORY : TARTAN_ERR_DEVICE,
                                  function, "cuBLAS: %s", f->status_string(status));
}

} // namespace

struct tartan_cuda_blas {
    functions f;
    void *handle, *workspace;
};

/* With a workspace of its own, the handle can be captured in graphs and gives the same results in every run. */
tartan_status tartan_cuda_blas_open(const char *function, tartan_cuda_queue *queue) {
    tartan_cuda_current current(queue->device_id);
    tartan_cuda_relaxed relaxed;
    functions f;
    queue->chip.no_cublas = "cuBLAS was not found (libcublas.so.13 or .12, where the loader looks)";
    if (!load(&f)) return TARTAN_OK;
    tartan_cuda_blas *blas = nullptr;
    PASS(tartan_cuda_host->allocate(&blas, 1, sizeof *blas));
    *blas = {f, nullptr, nullptr};
    tartan_status status =
        tartan_cuda_check(function, cudaMalloc(&blas->workspace, WORKSPACE), "allocating cuBLAS's workspace");
    if (status == TARTAN_OK && f.create(&blas->handle) != STATUS_SUCCESS) {
        (void)cudaGetLastError();
        blas->handle = nullptr;
        queue->chip.no_cublas = "cuBLAS does not start on this device";
    } else if (status == TARTAN_OK) {
        status = check(function, &f, f.set_stream(blas->handle, queue->stream));
        if (status == TARTAN_OK)
            status = check(function, &f, f.set_workspace(blas->handle, blas->workspace, WORKSPACE));
        if (status == TARTAN_OK) status = check(function, &f, f.set_math_mode(blas->handle, SUMS_IN_F32));
    }
    if (status != TARTAN_OK || blas->handle == nullptr) {
        tartan_cuda_blas_close(blas);
        return status;
    }
    queue->chip.no_cublas = nullptr;
    queue->blas = blas;
    return TARTAN_OK;
}

void tartan_cuda_blas_close(tartan_cuda_blas *blas) {
    if (blas == nullptr) return;
    if (blas->handle != nullptr) (void)blas->f.destroy(blas->handle);
    if (cudaFree(blas->workspace) != cudaSuccess) (void)cudaGetLastError();
    tartan_cuda_host->free(blas);
}

tartan_status tartan_cuda_blas_multiply(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_spmm *p, const tartan_cuda_gemm *g,
                                        const void *copy) {
    const functions *f = &queue->blas->f;
    const bool f64 = p->dtype == TARTAN_F64;
    const float factors[] = {(float)p->alpha, (float)p->beta};
    const void *alpha = f64 ? (const void *)&p->alpha : &factors[0];
    const void *beta = f64 ? (const void *)&p->beta : &factors[1];
    const int type = type_of(p->dtype), out_type = type_of(p->c.dtype);
    const int compute = f64 ? COMPUTE_64F : p->tf32 ? COMPUTE_32F_TF32 : COMPUTE_32F;
    const tartan_cuda_gemm_batch *batch = &g->batch;
    for (int32_t i = 0; i < g->calls.count; i++) {
        const char *a = (const char *)copy + i * g->calls.a * g->bytes;
        const char *b = (const char *)p->b.data + i * g->calls.b * g->bytes;
        char *c = (char *)p->c.data + i * g->calls.c * g->out_bytes;
        const int status = f->gemm(queue->blas->handle, g->transposed_first ? OP_T : OP_N,
                                   g->transposed_second ? OP_T : OP_N, g->rows, g->cols, g->terms, alpha,
                                   g->swapped ? b : a, type, g->swapped ? g->ld_b : g->ld_a,
                                   g->swapped ? batch->b : batch->a, g->swapped ? a : b, type,
                                   g->swapped ? g->ld_a : g->ld_b, g->swapped ? batch->a : batch->b, beta, c,
                                   out_type, g->ld_c, batch->c, batch->count, compute, GEMM_DEFAULT);
        PASS(check(function, f, status));
    }
    return TARTAN_OK;
}
