/* SPDX-License-Identifier: Apache-2.0
 * Products of bf16 by an instruction on vectors that adds the products of a pair to each f32 sum. */
#include "core/dtype.h"
#include "kernels/kernels.h"
#include "simd/simd.h"

#include "kernels/columns.h"
#include "kernels/pairs.h"

typedef pair strip_unit;
typedef pairs strip_factor;
#define factor_fill(p)         pairs_fill(p)
#define factor_load(p)         pairs_load(p)
#define factor_fma(a, b, sums) pairs_fma(a, b, sums)
#include "kernels/strip.h"

static int64_t peak(int64_t rounds, void *sink) {
    real *p = sink;
    vec sums[PEAK_CHAINS];
    static const uint32_t halves = 0x3f003f00;
    const pairs half = pairs_fill(&halves);
#pragma GCC unroll 32
    for (int i = 0; i < PEAK_CHAINS; i++) sums[i] = vec_load(p + i * LANES);
    for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 32
        for (int i = 0; i < PEAK_CHAINS; i++) sums[i] = pairs_fma(half, half, sums[i]);
    }
#pragma GCC unroll 32
    for (int i = 0; i < PEAK_CHAINS; i++) vec_store(p + i * LANES, sums[i]);
    return rounds * PEAK_CHAINS * LANES * 4;
}

void KERNELS_FILL(tartan_i_kernels *kernels) {
    kernels->product = (tartan_i_product){.factor = TARTAN_BF16,
                                          .parts = 1,
                                          .group = 2,
                                          .bytes = sizeof(strip_unit),
                                          .lanes = LANES,
                                          .vectors = VEC_STRIP_VECTORS,
                                          .rows = VEC_STRIP_ROWS,
                                          .strip = strip_run,
                                          .pair = pair_lines,
                                          .turn = turn_words,
                                          .peak = peak};
    COLUMNS_FILL(&kernels->product);
}
