/* SPDX-License-Identifier: Apache-2.0
 * A context is one ordered queue of work: a team of CPU threads or a CUDA stream. Its options do not change.
 * It serves one thread at a time: a call that finds it busy in another thread fails with ARGUMENT. Make one context for
 * each queue you need.
 *
 * A CUDA graph that captured work of a context uses that context's memory. Replay it on the context's stream, not while
 * other work of the context or another replay is running, and not after the context was freed. */
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

/* What a host language supplies, if anything. A field beyond `struct_size` counts as 0, so programs compiled with an
 * older, smaller struct go on working; a larger one is accepted if what this library does not know in it is 0. */
typedef struct tartan_hooks {
    int64_t struct_size;              /* sizeof(tartan_hooks) */
    tartan_parallel_for parallel_for; /* NULL: OpenMP */
    void *parallel_user;              /* its first argument */
} tartan_hooks;

/* Makes a context on `device`: "cpu", "cuda" (the same as "cuda:0"), "cuda:1", ... The caller frees it.
 * `options` is NULL or words "name=value" separated by blanks or commas:
 *     threads=4        workers of a CPU context, up to 4096. 0, the default: TARTAN_NUM_THREADS, else OMP_NUM_THREADS,
 *                      else the processors available; not more than OMP_THREAD_LIMIT
 *     seed=7           used where a function is given a seed of -1; 0 or more, by default 0
 *     math=tf32        lets a device round f32 factors to the 11 bits of tf32; by default math=exact, every product in
 *                      the operands' own precision
 *     allow_dense=1    lets a device multiply a matrix that has most of its blocks as a dense copy, by its maker's
 *                      library (cuBLAS), where that is expected to be faster. NaN and infinity in the other factor then
 *                      reach every row, the library decides the order of sums, and its versions may differ in the last
 *                      bits. By default 0: never
 *     stream=0x7f...   the caller's CUDA stream, by its address; 1 and 2 are the device's default stream and the
 *                      thread's (cudaStreamLegacy, cudaStreamPerThread). By default 0: a stream of the context's own
 * `hooks` may be NULL. Errors: HANDLE, ARGUMENT (device, options, struct_size), DEVICE (no such device, or not such a
 * stream; the text says why), MEMORY. */
TARTAN_API tartan_status tartan_context_create(const char *device, const char *options,
                                               const tartan_hooks *hooks, tartan_context **out);

/* Frees a context from any thread at any time, after its work; NULL is allowed. Freed while another thread's call works
 * with it, it ends when that call returns. */
TARTAN_API void tartan_context_free(tartan_context *context);

/* Waits for all work of the context. Errors: HANDLE, ARGUMENT (the context is busy in another thread), DEVICE (a fault
 * found meanwhile), UNSUPPORTED (its stream is being captured in a graph). */
TARTAN_API tartan_status tartan_context_sync(tartan_context *context);

/* The number of workers that an operation of this context uses; -1 for a bad handle. Its device, "cpu", "cuda:0", ...,
 * valid as long as the context; NULL for a bad handle. And the address of its CUDA stream: 0 on the CPU, -1 for a bad
 * handle. */
TARTAN_API int32_t tartan_context_threads(const tartan_context *context);
TARTAN_API const char *tartan_context_device(const tartan_context *context);
TARTAN_API int64_t tartan_context_stream(const tartan_context *context);

/* ---- Order between contexts, and with other libraries ----
 * Contexts work side by side. Memory that Tartan allocated on a device (buffers, matrices, layouts made from masks) keeps
 * the order of its own: a call begins after what other contexts were asked to do before with the memory that it uses.
 * Reading does not wait for reading. The device waits, the host does not. The same holds for freeing it. Memory of other
 * libraries is the caller's to order, by the following functions, which do not make the host wait either. An exception
 * are CUDA graphs: work that is captured waits for work that is not on the host, and work outside cannot wait for
 * captured work (UNSUPPORTED).
 *
 * Common errors: HANDLE, ARGUMENT (the context is busy in another thread; the device or the stream), UNSUPPORTED,
 * DEVICE. ---- */

/* The later work of `context` begins after the earlier work of `other`, which is on a device of the same kind or on the
 * CPU. On a CPU context, which works while it is called, this is tartan_context_sync(other). */
TARTAN_API tartan_status tartan_context_wait(tartan_context *context, tartan_context *other);

/* The later work of `context` begins after the earlier work of a stream of another library; and the later work of that
 * stream after the earlier work of `context`. `stream` is its address, 1 or 2 (cudaStreamLegacy, cudaStreamPerThread),
 * and `device_id` the number of its device. Errors: also UNSUPPORTED (a CPU context). */
TARTAN_API tartan_status tartan_context_wait_stream(tartan_context *context, int32_t device_id,
                                                    int64_t stream);
TARTAN_API tartan_status tartan_context_signal_stream(tartan_context *context, int32_t device_id,
                                                      int64_t stream);

/* Rate of independent multiply-adds held in registers, measured now on one thread of this machine with the instruction
 * that products of `dtype` use, in 1e9 floating-point operations a second (two for each multiply-add). Takes about
 * 50 ms. `dtype` F64, F32, F16 or BF16. Errors: DTYPE, HANDLE. */
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
