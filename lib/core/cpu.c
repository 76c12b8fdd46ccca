/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cpu.h"

#include "core/status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[] = {"c", "avx2", "avx512", "avx512bf16", "amx"};
enum { LEVELS = sizeof names / sizeof names[0], UNKNOWN = -1 };

static atomic_int in_use = UNKNOWN;

#if defined(__x86_64__)
/* Whether the system can give the process tile registers (Linux 5.16 and later). Kernels that use them must
 * ask for them first; nothing is asked for here. */
static bool system_has_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_GET_XCOMP_SUPP = 0x1021, XFEATURE_XTILEDATA = 18 };
    uint64_t features = 0;
    return syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &features) == 0 &&
           (features >> XFEATURE_XTILEDATA & 1);
#else
    return false;
#endif
}

tartan_i_cpu_level tartan_i_cpu_detect(void) {
    __builtin_cpu_init(); /* checks the system's part (XGETBV) too */
    unsigned eax, ebx, ecx, edx;
    bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c)) return TARTAN_I_CPU_C;
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
        return TARTAN_I_CPU_AVX2;
    if (!__builtin_cpu_supports("avx512bf16")) return TARTAN_I_CPU_AVX512;
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 }; /* CPUID leaf 7, EDX */
    bool amx = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & AMX_BF16) && (edx & AMX_TILE);
    return amx && system_has_tiles() ? TARTAN_I_CPU_AMX : TARTAN_I_CPU_AVX512BF16;
}
#else
tartan_i_cpu_level tartan_i_cpu_detect(void) {
    return TARTAN_I_CPU_C;
}
#endif

const char *tartan_i_cpu_level_name(tartan_i_cpu_level level) {
    return names[level];
}

static tartan_i_cpu_level lowered_by(const char *wish, tartan_i_cpu_level level) {
    for (int i = 0; wish != NULL && i < LEVELS; i++)
        if (strcmp(wish, names[i]) == 0 && (tartan_i_cpu_level)i < level) return (tartan_i_cpu_level)i;
    return level;
}

tartan_i_cpu_level tartan_i_cpu_level_in_use(void) {
    int level = atomic_load_explicit(&in_use, memory_order_relaxed);
    if (level == UNKNOWN) { /* every thread that races here finds the same */
        level = (int)lowered_by(getenv("TARTAN_CPU"), tartan_i_cpu_detect());
        atomic_store_explicit(&in_use, level, memory_order_relaxed);
    }
    return (tartan_i_cpu_level)level;
}

tartan_i_cpu_level tartan_i_cpu_lower(tartan_i_cpu_level level) {
    tartan_i_cpu_level best = tartan_i_cpu_detect();
    tartan_i_cpu_level now = level < best ? level : best;
    atomic_store_explicit(&in_use, (int)now, memory_order_relaxed);
    return now;
}

const char *tartan_cpu_level(void) {
    return tartan_i_cpu_level_name(tartan_i_cpu_level_in_use());
}
