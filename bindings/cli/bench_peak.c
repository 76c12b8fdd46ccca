/* SPDX-License-Identifier: Apache-2.0
 * `tartan bench peak`: what this machine can do at most, which the other benchmarks are held against. */
#include "bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ENOUGH = 8 }; /* passes, lest another program had the processor for the whole time */
enum { KIB = 1 << 10, MIB = 1 << 20, FIRST_CACHE = 16 * KIB, ALIGNMENT = 2 * MIB };

/* ---- Reading ---- */

enum { WIDEST = 64 }; /* bytes of a vector */

/* Compiled for each width of vectors, since loads of 16 bytes do not reach the rate of the first cache; and with vectors as wide as
 * registers, since GCC takes wider ones apart into scalars. */
typedef void read_function(const void *from, int64_t bytes, void *out);
#define READ(name, width, attributes)                                                                        \
    attributes static void name(const void *from, int64_t bytes, void *out) {                                \
        typedef uint64_t vec __attribute__((vector_size(width), aligned(width)));                            \
        const vec *p = from;                                                                                 \
        vec a = {0}, b = a, c = a, d = a;                                                                    \
        for (const vec *end = p + bytes / width; p + 4 <= end; p += 4) {                                     \
            a |= p[0];                                                                                       \
            b |= p[1];                                                                                       \
            c |= p[2];                                                                                       \
            d |= p[3];                                                                                       \
        }                                                                                                    \
        *(vec *)out = a | b | c | d;                                                                         \
    }
READ(read_plain, 16, )
#if defined(__x86_64__)
READ(read_avx2, 32, __attribute__((target("avx2"))))
READ(read_avx512, 64, __attribute__((target("avx512f"))))
#endif

static read_function *best_reader(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return read_avx512;
    if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
    return read_plain;
}

/* The highest rate, in bytes a second, of passes of a millisecond or more within about 50 ms. */
static double reading_rate(const void *from, int64_t bytes) {
    const double shortest = 1e-3, all = 0.05, begin = seconds_now();
    read_function *const read_once = best_reader();
    _Alignas(WIDEST) char sink[WIDEST];
    double best = 0;
    int64_t passes = 1;
    int count = 0;
    for (double now = begin; now - begin < all || count < ENOUGH;) {
        const double before = now;
        for (int64_t i = 0; i < passes; i++) read_once(from, bytes, sink);
        now = seconds_now();
        if (now - before < shortest) {
            passes *= 2;
            continue;
        }
        count++;
        if ((double)(passes * bytes) / (now - before) > best)
            best = (double)(passes * bytes) / (now - before);
    }
    return best;
}

/* ---- One measurement on several threads at once ---- */

typedef struct job {
    int32_t dtype; /* of multiply-adds; 0: reading */
    int64_t bytes; /* that each thread reads */
    pthread_barrier_t *ready;
    double rate; /* of this thread: GFLOP/s or bytes a second; 0: failed */
} job;

static void *work(void *data) {
    job *j = data;
    tartan_context *context = NULL;
    char *memory = NULL;
    if (j->dtype != 0 && tartan_context_create("cpu", "threads=1", NULL, &context) != TARTAN_OK)
        context = NULL;
    if (j->dtype == 0)
        memory = aligned_alloc(ALIGNMENT, (size_t)(j->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
#ifdef MADV_HUGEPAGE
    if (memory != NULL) (void)madvise(memory, (size_t)j->bytes, MADV_HUGEPAGE);
#endif
    if (memory != NULL) memset(memory, 1, (size_t)j->bytes);
    pthread_barrier_wait(j->ready);
    if (context != NULL && tartan_context_peak(context, j->dtype, &j->rate) != TARTAN_OK) j->rate = 0;
    if (memory != NULL) j->rate = reading_rate(memory, j->bytes);
    tartan_context_free(context);
    free(memory);
    return NULL;
}

/* The sum of all threads' rates; 0 after saying what is wrong. */
static double rate_of(int32_t dtype, int64_t bytes, int32_t threads) {
    pthread_t *thread = malloc(sizeof *thread * (size_t)threads);
    job *jobs = calloc((size_t)threads, sizeof *jobs);
    pthread_barrier_t ready;
    double sum = 0;
    bool complete =
        thread != NULL && jobs != NULL && pthread_barrier_init(&ready, NULL, (unsigned)threads) == 0;
    if (complete) {
        for (int32_t i = 0; i < threads; i++) {
            jobs[i] = (job){dtype, bytes, &ready, 0};
            if (i > 0 && pthread_create(&thread[i], NULL, work, &jobs[i]) != 0) {
                complain("only %d of %d threads can be started", i, threads);
                exit(EXIT_FAILED); /* the others wait for one that will not come */
            }
        }
        work(&jobs[0]);
        for (int32_t i = 1; i < threads; i++) pthread_join(thread[i], NULL);
        for (int32_t i = 0; i < threads; i++) {
            complete = complete && jobs[i].rate > 0;
            sum += jobs[i].rate;
        }
        pthread_barrier_destroy(&ready);
    }
    if (!complete) complain("out of memory");
    free(thread);
    free(jobs);
    return complete ? sum : 0;
}

/* ---- Lines ---- */

static int print(bool as_json, json_t *line, const char *text) {
    if (!as_json) {
        puts(text);
    } else {
        char *json = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(6));
        if (json != NULL) puts(json);
        free(json);
    }
    json_decref(line);
    fflush(stdout);
    return EXIT_FINE;
}

/* The instruction set of a dtype's products: the one for 16-bit numbers, or the last one for all. */
static void kernel_of(int32_t dtype, char *out, size_t size) {
    char known[64], item[32];
    snprintf(known, sizeof known, "%s", tartan_cpu_kernels());
    const char *list = known;
    snprintf(out, size, "c");
    while (next_item(&list, item, sizeof item)) {
        const bool of_pairs = strcmp(item, "amx") == 0 || strcmp(item, "avx512bf16") == 0;
        if (!of_pairs || dtype == TARTAN_BF16) snprintf(out, size, "%s", item);
    }
}

static int print_products(bool as_json, int32_t dtype, int32_t threads) {
    const double gflops = rate_of(dtype, 0, threads);
    char kernel[32], text[128];
    if (gflops == 0) return EXIT_FAILED;
    kernel_of(dtype, kernel, sizeof kernel);
    snprintf(text, sizeof text, "multiply-adds  %-8s threads %3d %12.2f GFLOP/s  %s",
             tartan_dtype_name(dtype), threads, gflops, kernel);
    return print(as_json,
                 json_pack("{s:s, s:s, s:s, s:s, s:i, s:f}", "op", "peak", "what", "multiply_adds", "dtype",
                           tartan_dtype_name(dtype), "kernels", kernel, "threads", threads, "gflops", gflops),
                 text);
}

static int print_reading(bool as_json, const char *level, int64_t bytes, int32_t threads) {
    const double rate = rate_of(0, bytes, threads);
    char text[128];
    if (rate == 0) return EXIT_FAILED;
    snprintf(text, sizeof text, "reading        %-8s threads %3d %12.2f GB/s     %lld KiB each", level,
             threads, 1e-9 * rate, (long long)(bytes / KIB));
    return print(as_json,
                 json_pack("{s:s, s:s, s:s, s:I, s:i, s:f}", "op", "peak", "what", "reading", "level", level,
                           "bytes", (json_int_t)bytes, "threads", threads, "gbytes_per_s", 1e-9 * rate),
                 text);
}

static int64_t cache_bytes(int name) {
    const long bytes = sysconf(name);
    return bytes > 0 ? bytes : 0;
}

/* Buffers that fit in one cache and not in the one before it. Caches that the system does not know are left out. */
static int print_levels(bool as_json, int32_t threads) {
    int64_t second = 0, third = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    second = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
    third = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
#endif
    int64_t share = third / 2 / threads;
    if (share > 8 * second) share = 8 * second; /* neighbours of a virtual machine use it too */
    int64_t memory = 512 * MIB / threads;
    if (memory < 64 * MIB) memory = 64 * MIB;
    int code = print_reading(as_json, "L1", FIRST_CACHE, threads);
    if (code == EXIT_FINE && second > 0) code = print_reading(as_json, "L2", second / 2, threads);
    if (code == EXIT_FINE && share >= 2 * second && second > 0)
        code = print_reading(as_json, "L3", share, threads);
    return code == EXIT_FINE ? print_reading(as_json, "memory", memory, threads) : code;
}

int bench_peak(bool as_json, const int32_t *dtype, int dtypes, const int32_t *threads, int counts) {
    int code = EXIT_FINE;
    for (int t = 0; t < counts && code == EXIT_FINE; t++) {
        for (int i = 0; i < dtypes && code == EXIT_FINE; i++)
            code = print_products(as_json, dtype[i], threads[t]);
        if (code == EXIT_FINE) code = print_levels(as_json, threads[t]);
    }
    return code;
}
