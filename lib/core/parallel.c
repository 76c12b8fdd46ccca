/* SPDX-License-Identifier: Apache-2.0 */
#include "core/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum { MAX_THREADS = 4096 };

/* About 20 us of one thread; a team takes from 2 us (idle, spinning) to far more (a busy machine) to start. */
static _Atomic double little_work = 1 << 20;

void tartan_i_parallel_from(double work) {
    atomic_store(&little_work, work);
}

/* libgomp's threads do not survive fork: a child of a process that used them runs serially. */
static atomic_bool team_started;
static atomic_bool team_lost;

static void after_fork_in_child(void) {
    if (atomic_load(&team_started)) atomic_store(&team_lost, true);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

static void run_serially(int32_t workers, tartan_task task, void *data) {
    for (int32_t w = 0; w < workers; w++) task(data, w);
}

static void run_by_openmp(int32_t workers, tartan_task task, void *data) {
#ifdef _OPENMP
    static pthread_once_t watching = PTHREAD_ONCE_INIT;
    pthread_once(&watching, watch_forks);
    if (!atomic_load(&team_lost)) {
        atomic_store(&team_started, true);
        /* The runtime may give fewer threads than asked for, so the loop, not the team, counts workers. */
#pragma omp parallel for schedule(static, 1) num_threads(workers)
        for (int32_t w = 0; w < workers; w++) task(data, w);
        return;
    }
#endif
    run_serially(workers, task, data);
}

void tartan_i_parallel(const tartan_context *context, int32_t workers, double work, tartan_task task,
                       void *data) {
    if (workers <= 1 || work < atomic_load_explicit(&little_work, memory_order_relaxed))
        run_serially(workers, task, data);
    else if (context->options.parallel_for != NULL)
        context->options.parallel_for(context->options.parallel_user, workers, task, data);
    else
        run_by_openmp(workers, task, data);
}

static int32_t threads_from(const char *name) {
    const char *text = getenv(name);
    if (text == NULL) return 0;
    char *end;
    long threads = strtol(text, &end, 10);
    return end != text && threads >= 1 && threads <= MAX_THREADS ? (int32_t)threads : 0;
}

static int32_t processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int count = CPU_COUNT(&set);
    return count >= 1 ? count : 1;
}

int32_t tartan_i_default_threads(void) {
    int32_t threads = threads_from("TARTAN_NUM_THREADS");
    if (threads == 0) threads = threads_from("OMP_NUM_THREADS");
    if (threads == 0) threads = processors();
    int32_t limit = threads_from("OMP_THREAD_LIMIT");
    return limit != 0 && threads > limit ? limit : threads;
}
