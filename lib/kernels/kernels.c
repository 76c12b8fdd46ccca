/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <time.h>

/* One line an instruction set, better ones later. */
static const struct {
    tartan_i_cpu_features feature;
    void (*fill_32)(tartan_i_kernels *), (*fill_64)(tartan_i_kernels *);
} sets[] = {
    {0, tartan_i_kernels_c_32, tartan_i_kernels_c_64},
#if defined(__x86_64__)
    {TARTAN_I_CPU_AVX2, tartan_i_kernels_avx2_32, tartan_i_kernels_avx2_64},
    {TARTAN_I_CPU_AVX512, tartan_i_kernels_avx512_32, tartan_i_kernels_avx512_64},
#elif defined(__aarch64__)
    {TARTAN_I_CPU_NEON, tartan_i_kernels_neon_32, tartan_i_kernels_neon_64},
#endif
};
enum { SETS = sizeof sets / sizeof sets[0] };

static const tartan_i_tuning tuning = {
    .panel_bytes = 8 << 20, .strip_bytes = 32 << 10, .direct_reuse = 16, .depth = 512};

void tartan_i_kernels_fill(tartan_i_cpu_features features, int32_t dtype, tartan_i_kernels *out) {
    for (int i = 0; i < SETS; i++) {
        if (sets[i].feature & ~features) continue;
        (dtype == TARTAN_F64 ? sets[i].fill_64 : sets[i].fill_32)(out);
        out->uses = sets[i].feature; /* each overwrites all slots of those before it */
    }
    out->tuning = tuning;
}

tartan_i_cpu_features tartan_i_kernels_known(void) {
    tartan_i_cpu_features known = 0;
    for (int i = 0; i < SETS; i++) known |= sets[i].feature;
    return known;
}

const char *tartan_cpu_kernels(void) {
    static _Thread_local char text[64];
    tartan_i_kernels narrow, wide;
    tartan_i_kernels_fill(tartan_i_cpu_in_use(), TARTAN_F32, &narrow);
    tartan_i_kernels_fill(tartan_i_cpu_in_use(), TARTAN_F64, &wide);
    tartan_i_cpu_list(narrow.uses | wide.uses, text, sizeof text);
    return text;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double tartan_i_kernels_peak(const tartan_i_kernels *kernels) {
    double sink[TARTAN_I_STRIP_ROWS * TARTAN_I_MAX_VECTORS * TARTAN_I_MAX_LANES] = {0};
    const double begin = seconds();
    double best = 0;
    int64_t rounds = 16;
    for (double now = begin; now - begin < 0.05;) {
        const double before = now;
        const int64_t operations = kernels->peak(rounds, sink);
        now = seconds();
        const double took = now - before;
        if (took < 1e-3) { /* too short to time: the clock's own steps would count */
            rounds *= 2;
            continue;
        }
        if ((double)operations / took > best) best = (double)operations / took;
    }
    return best * 1e-9;
}
