/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include "core/clock.h"

/* Shares of caches: a panel of reals is one of L3, one of pairs for tiles half of L2, since they want data faster than
 * L3 gives it. */
#define PLAIN                                                                                                \
    {                                                                                                        \
        .panel_bytes = 8 << 20, .sampled_bytes = 48 << 20, .strip_bytes = 32 << 10, .direct_reuse = 16,      \
        .depth = 512, .speed = 1                                                                             \
    }
/* With 16 registers a panel that stays in L2 has few columns, and A would come from L3 or memory once for each of them. */
#define SHORT                                                                                                \
    {                                                                                                        \
        .panel_bytes = 8 << 20, .sampled_bytes = 48 << 20, .strip_bytes = 32 << 10, .row_bytes = 256 << 10,  \
        .direct_reuse = 16, .depth = 512, .speed = 1                                                         \
    }
#define PAIRS                                                                                                \
    {                                                                                                        \
        .panel_bytes = 4 << 20, .sampled_bytes = 24 << 20, .strip_bytes = 32 << 10, .direct_reuse = 0,       \
        .depth = 1024, .speed = 2                                                                            \
    }
#define TILES                                                                                                \
    {                                                                                                        \
        .panel_bytes = 1 << 20, .sampled_bytes = 1 << 20, .strip_bytes = 0, .direct_reuse = 0,               \
        .depth = 1024, .speed = 10                                                                           \
    }

/* Products of parts pack twice or three times as many bytes, of which half of L2 has room for a few columns alone. */
#define PARTS(rate)                                                                                          \
    {                                                                                                        \
        .panel_bytes = 3 << 19, .sampled_bytes = 3 << 19, .strip_bytes = 0, .direct_reuse = 0,               \
        .depth = 1024, .speed = rate                                                                         \
    }

/* One line an instruction set and dtype of factors, better ones later. A line for reals fills the whole table; one for
 * other factors gives their product alone. */
static const struct {
    tartan_i_cpu_features feature;
    int32_t factor;
    void (*fill)(tartan_i_kernels *);
    tartan_i_tuning tuning;
} sets[] = {
    {0, TARTAN_F32, tartan_i_kernels_c_32, PLAIN},
    {0, TARTAN_F64, tartan_i_kernels_c_64, PLAIN},
#if defined(__x86_64__)
    {TARTAN_I_CPU_AVX2, TARTAN_F32, tartan_i_kernels_avx2_32, SHORT},
    {TARTAN_I_CPU_AVX2, TARTAN_F64, tartan_i_kernels_avx2_64, SHORT},
    {TARTAN_I_CPU_AVX512, TARTAN_F32, tartan_i_kernels_avx512_32, PLAIN},
    {TARTAN_I_CPU_AVX512, TARTAN_F64, tartan_i_kernels_avx512_64, PLAIN},
#if TARTAN_I_WITH_AVX512BF16
    {TARTAN_I_CPU_AVX512BF16, TARTAN_BF16, tartan_i_kernels_avx512bf16_32, PAIRS},
#endif
#if TARTAN_I_WITH_AMX
    {TARTAN_I_CPU_AMX, TARTAN_BF16, tartan_i_kernels_amx_32, TILES},
#endif
#elif defined(__aarch64__)
    {TARTAN_I_CPU_NEON, TARTAN_F32, tartan_i_kernels_neon_32, PLAIN},
    {TARTAN_I_CPU_NEON, TARTAN_F64, tartan_i_kernels_neon_64, PLAIN},
#endif
    /* After those for reals, which fill in their own products. */
    {0, TARTAN_I_BF16X3, tartan_i_kernels_c_bf16x3, PARTS(0.01)},
    {0, TARTAN_I_BF16X6, tartan_i_kernels_c_bf16x6, PARTS(0.005)},
#if TARTAN_I_WITH_AMX
    {TARTAN_I_CPU_AMX, TARTAN_I_BF16X3, tartan_i_kernels_amx_bf16x3, PARTS(3)},
    {TARTAN_I_CPU_AMX, TARTAN_I_BF16X6, tartan_i_kernels_amx_bf16x6, PARTS(1.8)},
#endif
};
enum { SETS = sizeof sets / sizeof sets[0] };

static bool is_real(int32_t dtype) {
    return dtype == TARTAN_F32 || dtype == TARTAN_F64;
}

void tartan_i_kernels_fill(tartan_i_cpu_features features, int32_t dtype, tartan_i_kernels *out) {
    const int32_t real = dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
    for (int i = 0; i < SETS; i++) {
        const tartan_i_cpu_features feature = sets[i].feature;
        if ((feature & ~features) || (sets[i].factor != real && sets[i].factor != dtype)) continue;
        if (feature == TARTAN_I_CPU_AMX && !tartan_i_cpu_tiles()) continue;
        sets[i].fill(out);
        out->uses = is_real(sets[i].factor) ? feature : out->uses | feature;
        out->product.uses = feature;
        out->product.tuning = sets[i].tuning;
    }
}

tartan_i_cpu_features tartan_i_kernels_known(void) {
    tartan_i_cpu_features known = 0;
    for (int i = 0; i < SETS; i++) known |= sets[i].feature;
    return known;
}

tartan_i_cpu_features tartan_i_kernels_known_for(int32_t dtype) {
    const int32_t real = dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
    tartan_i_cpu_features known = 0;
    for (int i = 0; i < SETS; i++)
        if (sets[i].factor == real || sets[i].factor == dtype) known |= sets[i].feature;
    return known;
}

const char *tartan_cpu_kernels(void) {
    static _Thread_local char text[64];
    tartan_i_cpu_features uses = 0;
    for (int i = 0; i < SETS; i++) {
        tartan_i_kernels kernels;
        tartan_i_kernels_fill(tartan_i_cpu_in_use(), sets[i].factor, &kernels);
        uses |= kernels.uses;
    }
    tartan_i_cpu_list(uses, text, sizeof text);
    return text;
}

enum { ENOUGH = 8 }; /* measurements, lest another program had the processor for the whole time */

double tartan_i_product_peak(const tartan_i_product *product) {
    double sink[TARTAN_I_PEAK_BYTES / sizeof(double)] = {0};
    const double begin = tartan_i_seconds();
    double best = 0;
    int64_t rounds = 16;
    int count = 0;
    for (double now = begin; now - begin < 0.05 || count < ENOUGH;) {
        const double before = now;
        const int64_t operations = product->peak(rounds, sink);
        now = tartan_i_seconds();
        const double took = now - before;
        if (took < 1e-3) { /* too short to time: the clock's own steps would count */
            rounds *= 2;
            continue;
        }
        count++;
        if ((double)operations / took > best) best = (double)operations / took;
    }
    return best * 1e-9;
}
