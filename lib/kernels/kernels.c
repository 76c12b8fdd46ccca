/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <time.h>

void tartan_i_kernels_fill(tartan_i_cpu_level level, int32_t dtype, tartan_i_kernels *out) {
    const bool wide = dtype == TARTAN_F64;
    (wide ? tartan_i_kernels_c_64 : tartan_i_kernels_c_32)(out);
#if defined(__x86_64__)
    if (level >= TARTAN_I_CPU_AVX2) (wide ? tartan_i_kernels_avx2_64 : tartan_i_kernels_avx2_32)(out);
    if (level >= TARTAN_I_CPU_AVX512) (wide ? tartan_i_kernels_avx512_64 : tartan_i_kernels_avx512_32)(out);
#else
    (void)level;
#endif
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
