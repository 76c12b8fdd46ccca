/* SPDX-License-Identifier: Apache-2.0
 * A context is one ordered queue of work: a team of CPU threads or a CUDA stream. Its options are fixed at
 * creation. One thread at a time may use it: a call fails with ARGUMENT while another thread is in a call on the
 * same context. Make one context for each queue you need.
 *
 * A CUDA graph that captured work of a context uses that context's memory. Replay it on the context's stream, never
 * while other work of the context or another replay runs, and never after the context was freed. Tartan does not see
 * replays. Before one, call tartan_context_wait(context, other) for each other context whose work it needs; after it,
 * tartan_context_wait(other, context) for each one that needs its results. */
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

/* What a host language supplies. Fields beyond `struct_size` count as 0, so programs compiled with an older,
 * smaller struct still work. A larger struct is accepted if all fields that this library does not know are 0. */
typedef struct tartan_hooks {
    int64_t struct_size;              /* sizeof(tartan_hooks) */
    tartan_parallel_for parallel_for; /* NULL: OpenMP */
    void *parallel_user;              /* its first argument */
} tartan_hooks;

/* Makes a context on `device`: "cpu", "cuda" (the same as "cuda:0"), "cuda:1", ... The caller frees it.
 * `options` is NULL or a list of "name=value" separated by blanks or commas:
 *     threads=4        workers of a CPU context, up to 4096. 0, the default: TARTAN_NUM_THREADS, else OMP_NUM_THREADS,
 *                      else the number of available processors; at most OMP_THREAD_LIMIT
 *     seed=7           the seed for functions that are called with a seed of -1: the first such call takes it, each one
 *                      after it another that follows from it, so numbers differ from call to call and repeat in another
 *                      context of the same seed; 0 or more, default 0
 *     math=tf32        lets a device round f32 factors to the 11 bits of tf32. Default: math=exact, every product in
 *                      the precision of its operands
 *     math=bf16x3      lets a CPU with AMX multiply f32 matrices (tartan_spmm, tartan_sddmm) in three products of bf16, whose
 *                      error is about that of 16 bits of the factors; math=bf16x6: in six, about as precise as f32. Bounds are in
 *                      docs/numerics.md. Where a mode is not available, or not expected to be faster, products are those of
 *                      math=exact; tartan_explain names the kernel
 *     allow_dense=1    lets a device multiply a dense copy of a matrix that has most of its blocks, with the vendor's
 *                      library (cuBLAS), if that is expected to be faster. NaN and infinity in the other factor then
 *                      reach every row, and results may differ in the last bits between versions of the library, which
 *                      decides the order of sums. Default: 0, never
 *     stream=0x7f...   the address of the caller's CUDA stream; 1 and 2 are the default streams of the device and of the
 *                      thread (cudaStreamLegacy, cudaStreamPerThread). With 2 only the thread that made the context
 *                      may use it, but any may free it. Default: 0, the context makes its own stream
 * `hooks` may be NULL. Errors: HANDLE, ARGUMENT (device, options, struct_size), DEVICE (no such device or stream;
 * the text says why), MEMORY. */
TARTAN_API tartan_status tartan_context_create(const char *device, const char *options,
                                               const tartan_hooks *hooks, tartan_context **out);

/* Frees a context from any thread; NULL is allowed. Waits for the context's work. If another thread is in a call on the
 * context, the context ends when that call returns; no call may start with it any more. Not to be called while the
 * context's stream is being captured in a graph, since earlier work of the stream cannot be waited for then. */
TARTAN_API void tartan_context_free(tartan_context *context);

/* Whether to stop: any answer but 0 means yes. */
typedef int32_t (*tartan_interrupt)(void *user);

/* Lets the caller stop long calls of a CPU context, when a user presses Ctrl-C for instance. Products (tartan_spmm,
 * tartan_sddmm, tartan_matrix_multiply, tartan_growth_score), attention and convolutions ask `ask(user)` between pieces
 * of their work: on the thread that made the call and at most every 10 ms. If the answer is yes, the call returns
 * INTERRUPTED within milliseconds, rarely more. The matrices and arrays that it was to write then hold any mix of old
 * numbers, results and partial sums, so that only calls that overwrite them all may follow; a new matrix is not made.
 * The context can be used as before. `ask` may not use the context. With NULL, the default, nobody is asked. Contexts on
 * devices never ask, nor do threads that a host language's parallel_for adds.
 * Errors: HANDLE, ARGUMENT (the context is busy), MEMORY. */
TARTAN_API tartan_status tartan_context_set_interrupt(tartan_context *context, tartan_interrupt ask,
                                                      void *user);

/* Waits for all work of the context. Errors: HANDLE, ARGUMENT (the context is busy in another thread), DEVICE
 * (earlier work failed), UNSUPPORTED (its stream is being captured in a graph). */
TARTAN_API tartan_status tartan_context_sync(tartan_context *context);

/* The number of workers that an operation of this context uses; -1 for a bad handle.
 * Its device, "cpu", "cuda:0", ..., valid as long as the context; NULL for a bad handle.
 * The address of its CUDA stream; 0 on the CPU, -1 for a bad handle. */
TARTAN_API int32_t tartan_context_threads(const tartan_context *context);
TARTAN_API const char *tartan_context_device(const tartan_context *context);
TARTAN_API int64_t tartan_context_stream(const tartan_context *context);

/* ---- Order between contexts, and with other libraries ----
 * Contexts run concurrently. Tartan orders the work on device memory that it allocated itself (buffers, matrices,
 * layouts made from masks): a call starts after the earlier work of other contexts that writes what the call uses
 * or reads what it writes, and memory is released after all work on it. The device waits, the host does not. The
 * caller orders the work on memory of other libraries, with the following functions, which do not block the host
 * either. CUDA graphs are an exception: while work is being captured, it waits on the host for work outside the
 * graph. Work outside cannot wait for a stream that is being captured, nor for what that stream did before unless
 * tartan_context_sync has waited for it (UNSUPPORTED), so synchronise contexts before a capture. Memory that is freed
 * during a capture may be released only after it. A graph uses memory of the context: it must not run beside other work
 * of the context, nor after the context is closed.
 *
 * Common errors: HANDLE, ARGUMENT (the context is busy in another thread; the device or the stream), UNSUPPORTED (a
 * capture), DEVICE. ---- */

/* Later work of `context` starts after the earlier work of `other`, which is on a device of the same kind or on the
 * CPU. For a CPU context, whose calls return when their work is done, the host waits for `other`, even if another
 * thread is in a call on it. */
TARTAN_API tartan_status tartan_context_wait(tartan_context *context, tartan_context *other);

/* tartan_context_wait_stream: later work of `context` starts after the earlier work of another library's stream.
 * tartan_context_signal_stream: later work of that stream starts after the earlier work of `context`. `stream` is
 * the stream's address, 1 or 2 (cudaStreamLegacy, cudaStreamPerThread), `device_id` the number of its device.
 * Errors: also UNSUPPORTED (a CPU context). */
TARTAN_API tartan_status tartan_context_wait_stream(tartan_context *context, int32_t device_id,
                                                    int64_t stream);
TARTAN_API tartan_status tartan_context_signal_stream(tartan_context *context, int32_t device_id,
                                                      int64_t stream);

/* Measures the rate of independent multiply-adds in registers on one thread of this machine, with the instruction
 * that products of `dtype` use, in 1e9 floating-point operations per second (two for each multiply-add). Takes
 * about 50 ms. `dtype` is F64, F32, F16 or BF16. Errors: DTYPE, HANDLE. */
TARTAN_API tartan_status tartan_context_peak(tartan_context *context, int32_t dtype, double *out_gflops);

/* The instruction sets whose kernels run, such as "avx512", or "c" for portable C: the best ones of this CPU that
 * the environment variable TARTAN_CPU allows. TARTAN_CPU=avx512 allows that set and the older ones,
 * TARTAN_CPU=avx2,avx512 exactly those two, TARTAN_CPU=c none. The variable is read once, at first use. The text is
 * valid until the thread's next call of this function. */
TARTAN_API const char *tartan_cpu_kernels(void);

/* What this build and machine offer, as JSON: version, CPU, kernels, backends and, for each backend that is
 * missing, the reason. The caller frees the text with tartan_text_free. Errors: MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_info(char **out_text);

#ifdef __cplusplus
}
#endif
#endif
