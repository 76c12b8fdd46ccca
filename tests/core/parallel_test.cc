// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

extern "C" {
#include "core/interrupt.h"
#include "core/parallel.h"
}

namespace {

std::atomic<int> threads_left = -1; // threads that can still be started; -1: any number

struct Counts {
    std::atomic<int> calls[64] = {};
};
void count(void *data, int32_t worker) {
    ((Counts *)data)->calls[worker]++;
}

void expect_each_once(const tartan_context *context, int32_t workers) {
    Counts counts;
    tartan_i_parallel(context, workers, 1e9, count, &counts);
    for (int w = 0; w < 64; w++) EXPECT_EQ(w < workers, counts.calls[w]) << w;
}

TEST(Parallel, EachWorkerRunsOnce) {
    tartan_context context = {};
    for (int32_t workers : {0, 1, 2, 3, 7, 33}) {
        context.threads = workers;
        expect_each_once(&context, workers);
    }
}

TEST(Parallel, HostLoopIsUsed) {
    static int calls;
    calls = 0;
    tartan_context context = {};
    int user = 7;
    context.options.hooks.parallel_user = &user;
    context.options.hooks.parallel_for = [](void *host, int32_t workers, tartan_task task, void *data) {
        EXPECT_EQ(7, *(int *)host);
        calls++;
        std::vector<std::thread> threads;
        for (int32_t w = 0; w < workers; w++) threads.emplace_back(task, data, w);
        for (auto &thread : threads) thread.join();
    };
    expect_each_once(&context, 5);
    EXPECT_EQ(1, calls);
}

TEST(Parallel, LittleWorkStaysOnTheCallingThread) {
    tartan_i_parallel_from(1 << 20);
    tartan_context context = {};
    context.options.hooks.parallel_for = [](void *, int32_t, tartan_task, void *) {
        ADD_FAILURE() << "woken for nothing";
    };
    Counts counts;
    tartan_i_parallel(&context, 5, 1000, count, &counts);
    for (int w = 0; w < 5; w++) EXPECT_EQ(1, counts.calls[w]) << w;
    tartan_i_parallel_from(0);
}

// Where the threads that there are have other work, and no more can be started, a caller does all of its own.
TEST(Parallel, NobodyWaitsForAThreadThatHasNotBegun) {
    struct Gate {
        std::atomic<int> inside = 0;
        std::atomic<bool> open = false;
    } gate;
    tartan_context context = {};
    std::thread other([&] {
        tartan_i_parallel(
            &context, 2, 1e9,
            [](void *data, int32_t) {
                Gate *g = (Gate *)data;
                g->inside++;
                while (!g->open) usleep(100);
            },
            &gate);
    });
    while (gate.inside < 2) usleep(100);
    threads_left = 0;
    expect_each_once(&context, 4);
    threads_left = -1;
    EXPECT_EQ(2, gate.inside);
    gate.open = true;
    other.join();
}

// A loop whose caller was not let run for most of the time tells that the machine is busy.
// Whoever works on a long call may be a helper alone: its caller asks all the same, while it waits.
TEST(Parallel, CallersAskWhileTheyWait) {
    int asked = 0;
    tartan_interrupt ask = [](void *user) -> int32_t { return ++*(int *)user >= 3; };
    struct tartan_i_interrupt interrupt = {};
    interrupt.ask = ask, interrupt.user = &asked;
    tartan_context context = {};
    context.interrupt = &interrupt;
    tartan_i_interrupt_begin(&interrupt);
    const auto task = [](void *of, int32_t worker) {
        while (worker == 1 && !tartan_i_stop((const tartan_context *)of)) std::this_thread::yield();
    };
    tartan_i_parallel(&context, 2, 1e9, task, &context);
    EXPECT_EQ(3, asked);
    EXPECT_TRUE(tartan_i_stopped(&context));
}

TEST(Parallel, SmallLoopsStayWithTheirCallersWhileTheMachineIsBusy) {
    struct Seen {
        std::thread::id caller = std::this_thread::get_id();
        std::atomic<int> elsewhere = 0;
    };
    const tartan_task sleeps = [](void *, int32_t) { usleep(20000); };
    const tartan_task look = [](void *data, int32_t) {
        usleep(100);
        ((Seen *)data)->elsewhere += std::this_thread::get_id() != ((Seen *)data)->caller;
    };
    tartan_context context = {};
    tartan_i_parallel_from(1);
    tartan_i_parallel(&context, 2, 1e9, sleeps, nullptr);
    Seen small, large;
    for (int i = 0; i < 20; i++) tartan_i_parallel(&context, 4, 1e5, look, &small);
    EXPECT_EQ(0, small.elsewhere);
    for (int i = 0; i < 3000 && large.elsewhere == 0; i++) tartan_i_parallel(&context, 4, 1e12, look, &large);
    EXPECT_LT(0, large.elsewhere);
    tartan_i_parallel_from(0);
}

// The limit of the process counts whatever a context has; each worker still runs once.
TEST(Parallel, TheProcessHasALimit) {
    tartan_context five = {};
    five.threads = 5;
    std::mutex lock;
    std::set<std::thread::id> threads;
    std::vector<int> runs;
    struct Seen {
        std::mutex &lock;
        std::set<std::thread::id> &threads;
        std::vector<int> &runs;
    } seen = {lock, threads, runs};
    const auto run = [&](int32_t limit) {
        EXPECT_OK(tartan_set_num_threads(limit));
        threads.clear();
        runs.assign(5, 0);
        tartan_i_parallel(
            &five, 5, 1e9,
            [](void *data, int32_t worker) {
                Seen *s = (Seen *)data;
                const std::lock_guard<std::mutex> guard(s->lock);
                s->threads.insert(std::this_thread::get_id());
                s->runs[(size_t)worker]++;
            },
            &seen);
        EXPECT_EQ(std::vector<int>(5, 1), runs);
        return threads.size();
    };
    EXPECT_EQ(1u, run(1));
    EXPECT_EQ(1, tartan_get_num_threads());
    EXPECT_GE(2u, run(2));
    EXPECT_GE(2, tartan_get_num_threads());
    EXPECT_GE(5u, run(4096));
    EXPECT_EQ(tartan_i_default_threads(), tartan_get_num_threads());
    EXPECT_FAILS(ARGUMENT, "threads is -1, expected 0 (no limit) .. 4096", tartan_set_num_threads(-1));
    EXPECT_FAILS(ARGUMENT, "threads is 4097", tartan_set_num_threads(4097));
    run(0);
    EXPECT_EQ(tartan_i_default_threads(), tartan_get_num_threads());
}

TEST(Parallel, WorksInAForkedChild) {
    tartan_context context = {};
    expect_each_once(&context, 4); /* there are threads now, which the child has not */
    const pid_t child = fork();
    if (child == 0) {
        alarm(300); /* a hang would be the failure */
        Counts counts;
        tartan_i_parallel(&context, 60, 1e9, count, &counts);
        int wrong = 0;
        for (int w = 0; w < 64; w++) wrong += counts.calls[w] != (w < 60);
        _exit(wrong != 0);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Shares of threads that cannot be started are computed all the same.
TEST(Parallel, ThreadsThatDoNotStartLoseNoWork) {
    tartan_context context = {};
    for (int start : {0, 1, 2, 5}) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(300);
            threads_left = start;
            Counts counts;
            tartan_i_parallel(&context, 7, 1e9, count, &counts);
            int wrong = 0;
            for (int w = 0; w < 64; w++) wrong += counts.calls[w] != (w < 7);
            _exit(wrong != 0);
        }
        int status = 0;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << start << ": " << status;
    }
}

TEST(Parallel, SharesCoverTheRange) {
    for (int64_t n : {0, 1, 5, 64, 1000})
        for (int32_t workers : {1, 2, 3, 7}) {
            int64_t next = 0;
            for (int32_t w = 0; w < workers; w++) {
                int64_t begin, end;
                tartan_i_share(n, workers, w, &begin, &end);
                EXPECT_EQ(next, begin);
                EXPECT_LE(end - begin, n / workers + 1);
                next = end;
            }
            EXPECT_EQ(n, next);
        }
}

TEST(Parallel, ThreadsComeFromTheEnvironment) {
    setenv("OMP_NUM_THREADS", "5", 1);
    EXPECT_EQ(5, tartan_i_default_threads());
    setenv("TARTAN_NUM_THREADS", "3", 1);
    EXPECT_EQ(3, tartan_i_default_threads());
    setenv("OMP_THREAD_LIMIT", "2", 1);
    EXPECT_EQ(2, tartan_i_default_threads());
    for (const char *nonsense : {"", "x", "-1", "0", "99999999999"}) {
        setenv("TARTAN_NUM_THREADS", nonsense, 1);
        EXPECT_EQ(2, tartan_i_default_threads()) << nonsense;
    }
    unsetenv("OMP_THREAD_LIMIT");
    unsetenv("OMP_NUM_THREADS");
    unsetenv("TARTAN_NUM_THREADS");
    EXPECT_GE(tartan_i_default_threads(), 1);
}

} // namespace

extern "C" {
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

// Stands for pthread_create in the library (--wrap): fails with EAGAIN once threads_left are started.
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument) {
    if (threads_left == 0) {
        memset(thread, 0xff, sizeof *thread);
        return EAGAIN;
    }
    if (threads_left > 0) threads_left--;
    return __real_pthread_create(thread, attributes, run, argument);
}
}
