/* SPDX-License-Identifier: Apache-2.0 */
#include "core/parallel.h"

#include "core/interrupt.h"
#include "core/quota.h"
#include "core/status.h"
#include "tartan/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_THREADS = 4096 };

/* About 20 us of one thread; a team takes from 2 us (idle, spinning) to far more (a busy machine) to start. */
static _Atomic double little_work = 1 << 20;

void tartan_i_parallel_from(double work) {
    atomic_store(&little_work, work);
}

/* Of all calls of the process; 0: none. */
static _Atomic int32_t limit;

tartan_status tartan_set_num_threads(int32_t threads) {
    CHECK(threads >= 0 && threads <= MAX_THREADS, ARGUMENT, "threads is %d, expected 0 (no limit) .. %d",
          threads, MAX_THREADS);
    atomic_store(&limit, threads);
    return TARTAN_OK;
}

int32_t tartan_get_num_threads(void) {
    const int32_t most = atomic_load(&limit), threads = tartan_i_default_threads();
    return most > 0 && most < threads ? most : threads;
}

static void run_serially(int32_t workers, tartan_task task, void *data) {
    for (int32_t w = 0; w < workers; w++) task(data, w);
}

/* ---- In a forked child: libgomp's threads do not survive fork, and libgomp would wait for them forever. So a
 * child starts new threads for each loop. ---- */

static atomic_bool forked;

static void after_fork_in_child(void) {
    atomic_store(&forked, true);
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

enum { MAX_FRESH = 64 };

typedef struct fresh_thread {
    pthread_t thread;
    bool started;
    tartan_task task;
    void *data;
    int32_t first, step, workers; /* runs first, first + step, ... */
} fresh_thread;

static void *run_fresh(void *argument) {
    const fresh_thread *f = argument;
    for (int32_t w = f->first; w < f->workers; w += f->step) f->task(f->data, w);
    return NULL;
}

static void run_by_fresh_threads(int32_t workers, int32_t most, tartan_task task, void *data) {
    fresh_thread threads[MAX_FRESH];
    const int32_t count = most < MAX_FRESH ? most : MAX_FRESH;
    for (int32_t i = 0; i < count; i++)
        threads[i] =
            (fresh_thread){.task = task, .data = data, .first = i, .step = count, .workers = workers};
    for (int32_t i = 1; i < count; i++)
        threads[i].started = pthread_create(&threads[i].thread, NULL, run_fresh, &threads[i]) == 0;
    for (int32_t i = 0; i < count; i++)
        if (!threads[i].started)
            run_fresh(&threads[i]); /* the caller's own share, and those without a thread */
    for (int32_t i = 1; i < count; i++)
        if (threads[i].started) pthread_join(threads[i].thread, NULL);
}

/* At most `most` threads. */
static void run_by_team(int32_t workers, int32_t most, tartan_task task, void *data) {
    if (atomic_load(&forked)) {
        run_by_fresh_threads(workers, most, task, data);
        return;
    }
    /* The runtime may start fewer threads than requested, so workers are iterations of a loop, not members of the
     * team. Without OpenMP the loop is serial. */
#pragma omp parallel for schedule(static, 1) num_threads(most)
    for (int32_t w = 0; w < workers; w++) task(data, w);
}

void tartan_i_parallel(const tartan_context *context, int32_t workers, double work, tartan_task task,
                       void *data) {
    if (tartan_i_stopped(context) || context->rehearses) return;
    int32_t most = atomic_load_explicit(&limit, memory_order_relaxed);
    if (most == 0 || most > workers) most = workers;
    if (most <= 1 || work < atomic_load_explicit(&little_work, memory_order_relaxed))
        run_serially(workers, task, data);
    else if (context->options.hooks.parallel_for != NULL)
        context->options.hooks.parallel_for(context->options.hooks.parallel_user, workers, task, data);
    else
        run_by_team(workers, most, task, data);
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
    /* The set is too small for machines with more than 1024 processors. */
    long count =
        sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    const double quota = tartan_i_processor_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < (double)count) count = (long)(quota + 0.5);
    return count < 1 ? 1 : count > MAX_THREADS ? MAX_THREADS : (int32_t)count;
}

int32_t tartan_i_default_threads(void) {
    int32_t threads = threads_from("TARTAN_NUM_THREADS");
    if (threads == 0) threads = threads_from("OMP_NUM_THREADS");
    if (threads == 0) threads = processors();
    int32_t limit = threads_from("OMP_THREAD_LIMIT");
    return limit != 0 && threads > limit ? limit : threads;
}

uint64_t tartan_i_thread_number(void) {
    static _Atomic uint64_t numbers;
    static _Thread_local uint64_t own;
    if (own == 0) own = atomic_fetch_add(&numbers, 1) + 1;
    return own;
}
