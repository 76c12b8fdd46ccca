/* SPDX-License-Identifier: Apache-2.0
 * A context is one ordered queue of work: a team of CPU threads or a CUDA stream. Its options are fixed at creation.
 * Only one thread at a time may use a context: a call fails with ARGUMENT while another thread is in a call on the
 * same context. Create one context for each queue you need.
 *
 * A CUDA graph that captured work of a context uses the context's memory. Replay it on the context's stream. Do not
 * replay it while other work of the context or another replay runs, nor after the context is freed. Tartan does not
 * see replays, so order them yourself: before a replay, call tartan_context_wait(context, other) for each context
 * whose work it needs; after it, call tartan_context_wait(other, context) for each context that needs its results. */
#ifndef TARTAN_CONTEXT_H
#define TARTAN_CONTEXT_H

#include "tartan/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tartan_context tartan_context;

/* One worker's share of a parallel loop; `worker` is 0 .. workers-1. */
typedef void (*tartan_task)(void *data, int32_t worker);

/* A parallel loop supplied by the host language. It must call task(data, w) exactly once for each w in 0 ..
 * workers-1, in any order and on any threads, and return when all these calls have returned. */
typedef void (*tartan_parallel_for)(void *user, int32_t workers, tartan_task task, void *data);

/* Services of the host language. Fields beyond `struct_size` count as 0, so programs compiled with an older, smaller
 * struct still work. A larger struct is accepted if all fields that this library does not know are 0. */
typedef struct tartan_hooks {
    int64_t struct_size;              /* sizeof(tartan_hooks) */
    tartan_parallel_for parallel_for; /* NULL: OpenMP */
    void *parallel_user;              /* its first argument */
} tartan_hooks;

/* Create a context on `device`: "cpu", "cuda" (the same as "cuda:0"), "cuda:1", ... The caller frees it.
 * `options` is NULL or a list of "name=value" separated by blanks or commas:
 *     threads=4        the number of workers of a CPU context, at most 4096. 0, the default: TARTAN_NUM_THREADS, else
 *                      OMP_NUM_THREADS, else the number of available processors; at most OMP_THREAD_LIMIT
 *     seed=7           the seed for functions that are called with a seed of -1, 0 or more, default 0. The first such
 *                      call uses it and each later call a seed derived from it. Numbers thus differ from call to call
 *                      and repeat in another context with the same seed
 *     math=tf32        allows a device to round f32 factors to the 11 bits of tf32. Default: math=exact, every
 *                      product in the precision of its operands
 *     math=bf16x3      allows a CPU with AMX to multiply f32 matrices (tartan_spmm, tartan_sddmm) as three products
 *                      of bf16, with the error of factors rounded to about 16 bits; math=bf16x6: as six products,
 *                      about as precise as f32. docs/numerics.md has the bounds. If a mode is not available, or not
 *                      expected to be faster, products are computed as with math=exact; tartan_explain_end names the
 *                      kernel
 *     allow_dense=1    allows a device to multiply a dense copy of a matrix that stores most of its blocks, with the
 *                      vendor's library (cuBLAS), if that is expected to be faster. NaN and infinity in the other
 *                      factor then reach every row. The vendor's library decides the order of sums, so the last bits
 *                      may differ between its versions. Default: 0
 *     stream=0x7f...   the address of the caller's CUDA stream; 1 and 2 are the default streams of the device and of
 *                      the thread (cudaStreamLegacy, cudaStreamPerThread). A context with stream 2 may be used only
 *                      by the thread that created it, but freed by any thread. Default: 0, the context creates its
 *                      own stream
 * `hooks` may be NULL. Errors: HANDLE, ARGUMENT (device, options, struct_size), DEVICE (no such device or stream; the
 * text says why), MEMORY. */
TARTAN_API tartan_status tartan_context_create(const char *device, const char *options,
                                               const tartan_hooks *hooks, tartan_context **out);

/* Free a context, from any thread; NULL is allowed. The call waits for the context's work. If another thread is in a
 * call on the context, the context ends when that call returns. No new call may start on it. Do not call this while
 * the context's stream is being captured in a graph: earlier work of a stream cannot be waited for during its
 * capture. */
TARTAN_API void tartan_context_free(tartan_context *context);

/* Return whether to stop: any value other than 0 stops. */
typedef int32_t (*tartan_interrupt)(void *user);

/* Let the caller stop long calls of a CPU context, for instance when a user presses Ctrl-C. Products (tartan_spmm,
 * tartan_sddmm, tartan_matrix_multiply, tartan_growth_score), attention and convolutions call `ask(user)` between
 * pieces of their work, on the thread that made the call and at most every 10 ms. If it returns a value other than 0,
 * the call returns INTERRUPTED, usually within milliseconds. Its outputs then hold any mix of old values, results and
 * partial sums, so use them only after calls that overwrite them entirely. No new matrix is created. The context
 * stays usable. `ask` must not use the context. With NULL, the default, calls never stop. Contexts on devices never
 * call `ask`, nor do threads that a host language's parallel_for adds.
 * Errors: HANDLE, ARGUMENT (the context is busy), MEMORY. */
TARTAN_API tartan_status tartan_context_set_interrupt(tartan_context *context, tartan_interrupt ask,
                                                      void *user);

/* Wait for all work of the context. Errors: HANDLE, ARGUMENT (the context is busy in another thread), DEVICE
 * (earlier work failed), UNSUPPORTED (its stream is being captured in a graph). */
TARTAN_API tartan_status tartan_context_sync(tartan_context *context);

/* tartan_context_threads: the number of workers of this context; -1 for a bad handle.
 * tartan_context_device: its device, "cpu", "cuda:0", ..., valid as long as the context; NULL for a bad handle.
 * tartan_context_stream: the address of its CUDA stream; 0 on the CPU, -1 for a bad handle. */
TARTAN_API int32_t tartan_context_threads(const tartan_context *context);
TARTAN_API const char *tartan_context_device(const tartan_context *context);
TARTAN_API int64_t tartan_context_stream(const tartan_context *context);

/* ---- Order between contexts, and with other libraries ----
 * Contexts run concurrently. Tartan orders the work on device memory that it allocated itself (buffers, matrices,
 * layouts made from masks): a call starts after the earlier work of other contexts that writes what the call reads or
 * writes, or reads what it writes, and memory is released after all work on it. The device waits; the host does not.
 *
 * Order the work on memory of other libraries with the functions below, which do not block the host either.
 *
 * CUDA graphs are an exception. While a stream is being captured, the host waits for work outside the graph. Work
 * outside the graph cannot wait for a stream that is being captured, nor for earlier work of that stream, unless
 * tartan_context_sync has waited for it (UNSUPPORTED); so synchronise contexts before a capture. Memory that is freed
 * during a capture may be released only after the capture. A graph uses memory of the context: do not run it beside
 * other work of the context, nor after the context is closed.
 *
 * Common errors: HANDLE, ARGUMENT (the context is busy in another thread; the device or the stream), UNSUPPORTED (a
 * capture), DEVICE. ---- */

/* Make later work of `context` start after the earlier work of `other`, which is on a device of the same kind or on
 * the CPU. For a CPU context, whose calls return when their work is done, the host waits for `other`, even if another
 * thread is in a call on it. */
TARTAN_API tartan_status tartan_context_wait(tartan_context *context, tartan_context *other);

/* tartan_context_wait_stream makes later work of `context` start after the earlier work of another library's stream.
 * tartan_context_signal_stream makes later work of that stream start after the earlier work of `context`. `stream` is
 * the stream's address, or 1 or 2 (cudaStreamLegacy, cudaStreamPerThread); `device_id` is the number of its device.
 * Errors: also UNSUPPORTED (a CPU context). */
TARTAN_API tartan_status tartan_context_wait_stream(tartan_context *context, int32_t device_id,
                                                    int64_t stream);
TARTAN_API tartan_status tartan_context_signal_stream(tartan_context *context, int32_t device_id,
                                                      int64_t stream);

/* Measure the peak rate of independent multiply-adds in registers on one thread of this machine, with the
 * instruction that products of `dtype` use, in 1e9 floating-point operations per second (two per multiply-add). This
 * takes about 50 ms. `dtype` is F64, F32, F16 or BF16. Errors: DTYPE, HANDLE. */
TARTAN_API tartan_status tartan_context_peak(tartan_context *context, int32_t dtype, double *out_gflops);

/* The instruction sets of the kernels in use, for instance "avx512", or "c" for portable C: the best ones of this CPU
 * that the environment variable TARTAN_CPU allows. TARTAN_CPU=avx512 allows that set and older ones,
 * TARTAN_CPU=avx2,avx512 exactly those two, TARTAN_CPU=c none. The variable is read once, at first use. The text is
 * valid until the thread's next call of this function. */
TARTAN_API const char *tartan_cpu_kernels(void);

/* Describe this build and machine as JSON: version, CPU, kernels, backends and, for each backend that is missing,
 * the reason. Free the text with tartan_text_free. Errors: MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_info(char **out_text);

#ifdef __cplusplus
}
#endif
#endif
