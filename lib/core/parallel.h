/* SPDX-License-Identifier: Apache-2.0
 * The one file pair that knows about threads. */
#ifndef TARTAN_CORE_PARALLEL_H
#define TARTAN_CORE_PARALLEL_H

#include "core/context.h"

/* Runs task(data, w) for w in 0 .. workers-1 on the context's threads (its host-supplied loop, else OpenMP, or
 * fresh threads in a forked process, since libgomp's do not survive fork). workers <= context->threads.
 * `work` is about how many arithmetic operations they have in all: with little of it the calling thread does the
 * share of each worker itself, since waking the others would take longer. */
void tartan_i_parallel(const tartan_context *context, int32_t workers, double work, tartan_task task,
                       void *data);

/* For tests: use the team from this much work on; 0 for always. */
void tartan_i_parallel_from(double work);

/* Worker w's share [begin, end) of [0, count) in `workers` nearly equal runs. */
static inline void tartan_i_share(int64_t count, int32_t workers, int32_t w, int64_t *begin, int64_t *end) {
    int64_t size = count / workers, rest = count % workers;
    *begin = w * size + (w < rest ? w : rest);
    *end = *begin + size + (w < rest);
}

/* Threads to use when the caller did not say: TARTAN_NUM_THREADS, OMP_NUM_THREADS, else processors this
 * process may run on. */
int32_t tartan_i_default_threads(void);

#endif
