/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cpu.h"

#include "core/status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

enum { UNKNOWN = -1, ALL = (1 << TARTAN_I_CPU_FEATURES) - 1 };

static const struct {
    const char *name;
    tartan_i_cpu_features with; /* what the name alone stands for */
} features[TARTAN_I_CPU_FEATURES] = {
    {"avx2", TARTAN_I_CPU_AVX2},
    {"avx512", TARTAN_I_CPU_AVX512 | TARTAN_I_CPU_AVX2},
    {"avx512bf16", TARTAN_I_CPU_AVX512BF16 | TARTAN_I_CPU_AVX512 | TARTAN_I_CPU_AVX2},
    {"avx512fp16",
     TARTAN_I_CPU_AVX512FP16 | TARTAN_I_CPU_AVX512BF16 | TARTAN_I_CPU_AVX512 | TARTAN_I_CPU_AVX2},
    {"amx", TARTAN_I_CPU_AMX | TARTAN_I_CPU_AVX512FP16 | TARTAN_I_CPU_AVX512BF16 | TARTAN_I_CPU_AVX512 |
                TARTAN_I_CPU_AVX2},
    {"neon", TARTAN_I_CPU_NEON},
    {"sve", TARTAN_I_CPU_SVE | TARTAN_I_CPU_NEON},
};

static _Atomic int64_t in_use = UNKNOWN;

#if defined(__x86_64__)
enum { ARCH_GET_XCOMP_SUPP = 0x1021, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

/* Whether the system can give the process tile registers (Linux 5.16 and later). */
static bool system_has_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
    uint64_t states = 0;
    return syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &states) == 0 && (states >> XFEATURE_XTILEDATA & 1);
#else
    return false;
#endif
}

tartan_i_cpu_features tartan_i_cpu_detect(void) {
    __builtin_cpu_init(); /* checks the system's part (XGETBV) too */
    unsigned eax, ebx, ecx, edx;
    const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c)) return 0;
    tartan_i_cpu_features found = TARTAN_I_CPU_AVX2;
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
        return found;
    found |= TARTAN_I_CPU_AVX512;
    if (__builtin_cpu_supports("avx512bf16")) found |= TARTAN_I_CPU_AVX512BF16;
    enum { AMX_BF16 = 1 << 22, AVX512_FP16 = 1 << 23, AMX_TILE = 1 << 24 }; /* CPUID leaf 7, EDX */
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return found;
    if (edx & AVX512_FP16) found |= TARTAN_I_CPU_AVX512FP16;
    if ((edx & AMX_BF16) && (edx & AMX_TILE) && system_has_tiles()) found |= TARTAN_I_CPU_AMX;
    return found;
}

/* With vector instructions, Intel's cores multiply bf16 at half the rate of f32, AMD's at twice the rate. */
tartan_i_cpu_features tartan_i_cpu_slow(void) {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") ? TARTAN_I_CPU_AVX512BF16 : 0;
}

bool tartan_i_cpu_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
    static atomic_int answer; /* 0: not known yet; racing threads get the same answer */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        known = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 ? 1 : -1;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known > 0;
#else
    return false;
#endif
}
#else
tartan_i_cpu_features tartan_i_cpu_slow(void) {
    return 0;
}

bool tartan_i_cpu_tiles(void) {
    return false;
}

#if defined(__aarch64__)
tartan_i_cpu_features tartan_i_cpu_detect(void) {
    tartan_i_cpu_features found = TARTAN_I_CPU_NEON; /* part of the architecture */
#if defined(__linux__)
    enum { HAS_SVE = 1 << 22 };
    if (getauxval(AT_HWCAP) & HAS_SVE) found |= TARTAN_I_CPU_SVE;
#endif
    return found;
}
#else
tartan_i_cpu_features tartan_i_cpu_detect(void) {
    return 0;
}
#endif
#endif

int64_t tartan_i_cpu_l2_bytes(void) {
    enum { COMMON = 1 << 20 };
    static _Atomic int64_t kept;
    int64_t bytes = atomic_load_explicit(&kept, memory_order_relaxed);
    if (bytes != 0) return bytes;
#ifdef _SC_LEVEL2_CACHE_SIZE
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    if (bytes <= 0) bytes = COMMON;
    atomic_store_explicit(&kept, bytes, memory_order_relaxed);
    return bytes;
}

const char *tartan_i_cpu_name(int i) {
    return features[i].name;
}

void tartan_i_cpu_list(tartan_i_cpu_features set, char *text, int64_t size) {
    int64_t used = 0;
    snprintf(text, (size_t)size, "c");
    for (int i = 0; i < TARTAN_I_CPU_FEATURES; i++)
        if ((set >> i & 1) && used < size)
            used +=
                snprintf(text + used, (size_t)(size - used), "%s%s", used > 0 ? "," : "", features[i].name);
}

/* The index of the feature that `length` characters name; UNKNOWN for none. */
static int find(const char *name, size_t length) {
    for (int i = 0; i < TARTAN_I_CPU_FEATURES; i++)
        if (strlen(features[i].name) == length && strncmp(features[i].name, name, length) == 0) return i;
    return UNKNOWN;
}

tartan_i_cpu_features tartan_i_cpu_allowed(const char *wish) {
    if (wish == NULL) return ALL;
    if (strcmp(wish, "c") == 0) return 0;
    if (strchr(wish, ',') == NULL) {
        const int i = find(wish, strlen(wish));
        return i == UNKNOWN ? ALL : features[i].with;
    }
    tartan_i_cpu_features set = 0;
    for (const char *word = wish; *word != '\0';) {
        const size_t length = strcspn(word, ",");
        const int i = find(word, length);
        if (i != UNKNOWN) set |= (tartan_i_cpu_features)1 << i;
        word += length + (word[length] == ',');
    }
    return set != 0 ? set : ALL;
}

tartan_i_cpu_features tartan_i_cpu_in_use(void) {
    int64_t set = atomic_load_explicit(&in_use, memory_order_relaxed);
    if (set == UNKNOWN) { /* racing threads get the same answer */
        const tartan_i_cpu_features allowed = tartan_i_cpu_allowed(getenv("TARTAN_CPU"));
        set = tartan_i_cpu_detect() & allowed;
        if (allowed == ALL) set &= ~(int64_t)tartan_i_cpu_slow(); /* nobody asked for it */
        atomic_store_explicit(&in_use, set, memory_order_relaxed);
    }
    return (tartan_i_cpu_features)set;
}

tartan_i_cpu_features tartan_i_cpu_use(tartan_i_cpu_features set) {
    set &= tartan_i_cpu_detect();
    atomic_store_explicit(&in_use, (int64_t)set, memory_order_relaxed);
    return set;
}
