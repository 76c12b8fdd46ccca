/* SPDX-License-Identifier: Apache-2.0 */
#include "core/parallel.h"

#include "core/clock.h"
#include "core/interrupt.h"
#include "core/quota.h"
#include "core/status.h"
#include "tartan/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 4096 };

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};

/* Operations of f32: about 40 us of one thread. Other threads take from 2 us (they still look for work) to 50 us (they sleep) to
 * start, and far longer on a busy machine. */
static _Atomic double little_work = 4 << 20;

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

/* ---- Threads of the library. A loop is offered to them, and its caller begins at once, with the first worker, since only the caller
 * asks whether the call is to stop; whoever is free takes the next one. So the only thread to wait for is one that has begun; a
 * thread that the system does not let run delays nobody. A thread with nothing to do looks for work for some microseconds, which
 * covers the time between two loops of an operation, and then sleeps. ---- */

static const double PATIENCE = 20e-6; /* seconds */
static const double QUESTIONS = 0.05; /* between two of them, while helpers are waited for */

typedef struct loop {
    tartan_task task;
    void *data;
    int32_t workers;
    atomic_int next;    /* the first worker that nobody has taken */
    atomic_int helpers; /* threads at work on it besides the caller's */
    int32_t room;       /* for more of them */
    struct loop *after;
} loop;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t offered = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static loop *loops;          /* those that have room */
static int32_t started;      /* threads */
static int32_t free_threads; /* of them, without a loop */
static atomic_uint offers;   /* loops offered so far */
static pthread_once_t watching = PTHREAD_ONCE_INIT;

static void before_fork(void) {
    pthread_mutex_lock(&lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&lock);
}

/* A child has none of the threads, and starts its own. */
static void after_fork_in_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    offered = finished = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    loops = NULL;
    started = free_threads = 0;
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void work_on(loop *l) {
    for (int32_t w; (w = atomic_fetch_add(&l->next, 1)) < l->workers;) l->task(l->data, w);
}

/* Waits a little for another loop than the first `seen` ones. */
static void look_for_work(unsigned seen) {
    const double end = tartan_i_seconds() + PATIENCE;
    while (atomic_load_explicit(&offers, memory_order_relaxed) == seen && tartan_i_seconds() < end) relax();
}

/* Takes a place in a loop; the lock is held. */
static loop *join_loop(void) {
    loop *l = loops;
    if (l == NULL) return NULL;
    atomic_fetch_add(&l->helpers, 1);
    if (--l->room == 0) loops = l->after;
    free_threads--;
    return l;
}

static void leave_loop(loop *l) {
    free_threads++;
    if (atomic_fetch_sub(&l->helpers, 1) == 1) pthread_cond_broadcast(&finished);
}

static void *run_thread(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        loop *l = join_loop();
        if (l == NULL) {
            pthread_cond_wait(&offered, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        work_on(l);
        pthread_mutex_lock(&lock);
        leave_loop(l);
        if (loops != NULL) continue;
        const unsigned seen = atomic_load(&offers);
        pthread_mutex_unlock(&lock);
        look_for_work(seen);
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

/* The host language's signals stay on its own threads. */
static bool start_thread(void) {
    pthread_t thread;
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const bool runs = pthread_create(&thread, NULL, run_thread, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (runs) pthread_detach(thread);
    return runs;
}

static void offer(loop *l) {
    pthread_mutex_lock(&lock);
    l->after = loops;
    loops = l;
    for (; free_threads < l->room && started < MAX_THREADS && start_thread(); started++) free_threads++;
    const int32_t room = l->room;
    atomic_fetch_add(&offers, 1);
    pthread_mutex_unlock(&lock);
    for (int32_t i = 0; i < room; i++) pthread_cond_signal(&offered);
}

static void withdraw(loop *l) {
    loop **at = &loops;
    while (*at != NULL && *at != l) at = &(*at)->after;
    if (*at != NULL) *at = l->after;
}

/* On a busy machine a second thread takes time from the first, or makes it wait while the system does not let the second one
 * run. If a loop's caller lost a good part of the time in this way, loops that would take less than what was lost are left to
 * their callers for a while, so that all such losses stay a small part of the time. */
static _Atomic double lost, busy_until; /* seconds */
static const double PAUSES = 32;        /* of the time that was lost */
static const double WORK_RATE = 1e11;   /* operations a second, about */

static bool machine_is_busy(double work) {
    return work < WORK_RATE * atomic_load_explicit(&lost, memory_order_relaxed) &&
           tartan_i_seconds() < atomic_load_explicit(&busy_until, memory_order_relaxed);
}

/* `took`: seconds of a loop, of which its caller ran for `ran`. */
static void note_time(double took, double ran) {
    const double away = took - ran;
    if (away < 2 * PATIENCE || away < took / 4) return;
    atomic_store_explicit(&lost, away, memory_order_relaxed);
    atomic_store_explicit(&busy_until, tartan_i_seconds() + PAUSES * away, memory_order_relaxed);
}

static double seconds_run(void) {
    struct timespec ran;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return (double)ran.tv_sec + 1e-9 * (double)ran.tv_nsec;
}

/* The time in `seconds` from now. */
static struct timespec time_after(double seconds) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    const double end = (double)at.tv_nsec + 1e9 * seconds;
    at.tv_sec += (time_t)(end / 1e9), at.tv_nsec = (long)end % 1000000000;
    return at;
}

/* Also asks whether the call is to stop, which ends the helpers' work. */
static void wait_for_helpers(const tartan_context *context, loop *l) {
    const double end = tartan_i_seconds() + PATIENCE;
    while (atomic_load(&l->helpers) > 0 && tartan_i_seconds() < end) relax();
    pthread_mutex_lock(&lock);
    while (atomic_load(&l->helpers) > 0) {
        if (context->interrupt == NULL) {
            pthread_cond_wait(&finished, &lock);
            continue;
        }
        const struct timespec at = time_after(QUESTIONS);
        if (pthread_cond_timedwait(&finished, &lock, &at) == 0) continue;
        pthread_mutex_unlock(&lock); /* the question may take long, and call this library */
        (void)tartan_i_stop(context);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
}

/* At most `helpers` other threads take part. */
static void run_with_others(const tartan_context *context, int32_t workers, int32_t helpers, tartan_task task,
                            void *data) {
    loop l = {.task = task, .data = data, .workers = workers, .next = 1, .room = helpers};
    const double begin = tartan_i_seconds(), ran = seconds_run();
    pthread_once(&watching, watch_forks);
    offer(&l);
    task(data, 0);
    work_on(&l);
    pthread_mutex_lock(&lock);
    withdraw(&l);
    pthread_mutex_unlock(&lock);
    wait_for_helpers(context, &l);
    note_time(tartan_i_seconds() - begin, seconds_run() - ran);
}

/* At most `threads`, but only as many as get enough to do: half of the work that makes a second thread worthwhile. */
static int32_t helpers_for(int32_t threads, double work, double little) {
    const double shares = little > 0 ? 2 * work / little : threads;
    return shares < threads ? (int32_t)shares - 1 : threads - 1;
}

void tartan_i_parallel(const tartan_context *context, int32_t workers, double work, tartan_task task,
                       void *data) {
    if (tartan_i_stopped(context) || context->rehearses) return;
    const double little = atomic_load_explicit(&little_work, memory_order_relaxed);
    const int32_t most = atomic_load_explicit(&limit, memory_order_relaxed);
    if (workers <= 1 || most == 1 || work < little || (little > 0 && machine_is_busy(work)))
        run_serially(workers, task, data);
    else if (context->options.hooks.parallel_for != NULL)
        context->options.hooks.parallel_for(context->options.hooks.parallel_user, workers, task, data);
    else
        run_with_others(context, workers,
                        helpers_for(most > 0 && most < workers ? most : workers, work, little), task, data);
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
    const int32_t most = threads_from("OMP_THREAD_LIMIT");
    return most != 0 && threads > most ? most : threads;
}

uint64_t tartan_i_thread_number(void) {
    static _Atomic uint64_t numbers;
    static _Thread_local uint64_t own;
    if (own == 0) own = atomic_fetch_add(&numbers, 1) + 1;
    return own;
}
