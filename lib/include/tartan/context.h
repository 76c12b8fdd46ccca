/* SPDX-License-Identifier: Apache-2.0
 * A context is one ordered queue of work: a CPU thread team or a CUDA stream. Its options are frozen at
 * creation. One context serves one thread at a time: a call that finds it at work in another thread fails with
 * ARGUMENT. Make as many contexts as there are queues.
 *
 * A CUDA graph into which work of a context was captured uses memory of that context: replay it in the order of the
 * context's stream, never beside other work of the context or another replay, and not after the context was freed. */
#ifndef TARTAN_CONTEXT_H
#define TARTAN_CONTEXT_H

#include "tartan/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tartan_context tartan_context;

/* One worker's share of a parallel loop; `worker` is 0 .. workers-1. */
typedef void (*tartan_task)(void *data, int32_t worker);

/* A parallel loop supplied by the host language: it must call task(data, w) exactly once for each w in
 * 0 .. workers-1, in any order, on any threads, and return when all have returned. */
typedef void (*tartan_parallel_for)(void *user, int32_t workers, tartan_task task, void *data);

typedef enum tartan_determinism {
    TARTAN_RUN_TO_RUN = 0,        /* same inputs, same bits, whatever the number of threads */
    TARTAN_NOT_DETERMINISTIC = 1, /* a device may use faster sums of varying order */
} tartan_determinism;

typedef enum tartan_math_mode {
    TARTAN_MATH_EXACT = 0, /* every product in the operands' own precision */
    TARTAN_MATH_TF32 = 1,  /* a device may round or cut f32 factors to the 11 bits of tf32 */
} tartan_math_mode;

typedef struct tartan_context_options {
    int64_t struct_size; /* set by tartan_context_options_init */
    int32_t device_type; /* tartan_device */
    int32_t device_id;
    int32_t threads; /* 0: TARTAN_NUM_THREADS, else OMP_NUM_THREADS, else the processors available; not more
                      * than OMP_THREAD_LIMIT */
    int32_t determinism;
    int32_t math_mode;
    int32_t
        allow_dense; /* 1: where that is expected to be faster, a device may multiply a sparse factor that has most
                          * of its blocks as a dense copy, by its maker's library (cuBLAS). NaN and infinity in the
                          * other factor then reach every row, the order of sums is the library's, and the bits may
                          * differ between its versions. 0: never */
    int64_t seed;                     /* used where a function is asked for a seed of -1 */
    void *stream;                     /* the caller's CUDA stream, or NULL for one of the context's own */
    tartan_parallel_for parallel_for; /* NULL: OpenMP */
    void *parallel_user;
} tartan_context_options;

/* Sets every field to its default: CPU, all threads, RUN_TO_RUN, EXACT, nothing dense, seed 0. NULL is ignored. */
TARTAN_API void tartan_context_options_init(tartan_context_options *options);

/* Makes a context; `options` NULL means defaults. The caller frees it.
 * Errors: ARGUMENT (a field out of range), DEVICE (no such device; the text says why), MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_context_create(const tartan_context_options *options, tartan_context **out);

/* The short form: `device` is "cpu", "cuda" or "cuda:1"; the rest as in the options. */
TARTAN_API tartan_status tartan_context_open(const char *device, int32_t threads, int64_t seed,
                                             tartan_context **out);

/* The same with every option of a plain type, for languages that cannot fill the structure. `stream` is the address
 * of the caller's CUDA stream, or 0 for one of the context's own; 1 and 2 stand for the device's default stream and
 * the thread's (cudaStreamLegacy, cudaStreamPerThread). Errors: also ARGUMENT (a stream for "cpu"). */
TARTAN_API tartan_status tartan_context_open_stream(const char *device, int32_t threads, int64_t seed,
                                                    int32_t math_mode, int32_t determinism,
                                                    int32_t allow_dense, int64_t stream,
                                                    tartan_context **out);

/* Frees a context from any thread; NULL is allowed. No work of it may be running. */
TARTAN_API void tartan_context_free(tartan_context *context);

/* Waits for all work of the context. Errors: DEVICE (a fault found meanwhile), HANDLE. */
TARTAN_API tartan_status tartan_context_sync(tartan_context *context);

/* The number of workers that an operation of this context uses; -1 for a bad handle. */
TARTAN_API int32_t tartan_context_threads(const tartan_context *context);

/* Rate of dependent-free fused multiply-adds held in registers, measured now on one thread of this machine
 * with the kernels in use, in 1e9 floating-point operations a second (two for each multiply-add). Takes
 * about 50 ms. `dtype` F64 or F32. Errors: DTYPE, HANDLE. */
TARTAN_API tartan_status tartan_context_peak(tartan_context *context, int32_t dtype, double *out_gflops);

/* The instruction sets whose kernels run, such as "avx512", or "c" for portable C: the best for this CPU that the
 * environment variable TARTAN_CPU allows. TARTAN_CPU=avx512 allows that set and the older ones, TARTAN_CPU=avx2,avx512
 * exactly those two, TARTAN_CPU=c none. It is read once, at first use. The text is the thread's own, until its next
 * call. */
TARTAN_API const char *tartan_cpu_kernels(void);

/* What this build and machine offer, as JSON: version, CPU, kernels, backends and, for each backend that
 * is not there, why. The caller frees the text with tartan_text_free. Errors: MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_info(char **out_text);

#ifdef __cplusplus
}
#endif
#endif
