/* SPDX-License-Identifier: Apache-2.0
 * Parallel loops. Only this file and parallel.c know about threads. */
#ifndef TARTAN_CORE_PARALLEL_H
#define TARTAN_CORE_PARALLEL_H

#include "core/context.h"

/* Runs task(data, w) for w in 0 .. workers-1 on the context's threads: the loop of the host language, else
 * threads of the library. A free thread takes the next worker, so one thread may run several of them, and on a busy machine the caller may
 * run them all. workers <= context->threads. `work` is the approximate number of arithmetic operations in all: if it is small, the calling
 * thread runs all workers itself, since waking other threads would take longer. Nothing runs in a call that was stopped
 * (core/interrupt.h). */
void tartan_i_parallel(const tartan_context *context, int32_t workers, double work, tartan_task task,
                       void *data);

/* For tests: use threads from this much work on; 0 for always. */
void tartan_i_parallel_from(double work);

/* Worker w's share [begin, end) if [0, count) is divided into `workers` nearly equal ranges. */
static inline void tartan_i_share(int64_t count, int32_t workers, int32_t w, int64_t *begin, int64_t *end) {
    int64_t size = count / workers, rest = count % workers;
    *begin = w * size + (w < rest ? w : rest);
    *end = *begin + size + (w < rest);
}

/* A number of the calling thread that no other thread of the process ever has; never 0. */
uint64_t tartan_i_thread_number(void);

/* The default number of threads: TARTAN_NUM_THREADS, OMP_NUM_THREADS, else the processors that this process may
 * use, by its mask and by the quota of its container. */
int32_t tartan_i_default_threads(void);

#endif
