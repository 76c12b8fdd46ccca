/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_CORE_CPU_H
#define TARTAN_CORE_CPU_H

#include "tartan/context.h"

#include <stdbool.h>

/* Instruction sets that kernels may use: a set of the bits below. Portable C needs none of them. */
typedef uint32_t tartan_i_cpu_features;
enum {
    TARTAN_I_CPU_AVX2 = 1 << 0,       /* AVX2, FMA, F16C */
    TARTAN_I_CPU_AVX512 = 1 << 1,     /* F, BW, DQ, VL */
    TARTAN_I_CPU_AVX512BF16 = 1 << 2, /* dot products of bf16 pairs */
    TARTAN_I_CPU_AVX512FP16 = 1 << 3,
    TARTAN_I_CPU_AMX = 1 << 4, /* tiles and their bf16 products, allowed by the system */
    TARTAN_I_CPU_NEON = 1 << 5,
    TARTAN_I_CPU_SVE = 1 << 6,

    TARTAN_I_CPU_FEATURES = 7, /* how many there are */
};

/* What the CPU and the system have. */
tartan_i_cpu_features tartan_i_cpu_detect(void);

/* The part of it that multiplies no faster than f32 does: used only if TARTAN_CPU names it. */
tartan_i_cpu_features tartan_i_cpu_slow(void);

/* What TARTAN_CPU allows of all that there is; read once. */
tartan_i_cpu_features tartan_i_cpu_in_use(void);

/* Whether the process may use AMX tiles. The first call asks the system for them, which makes signal frames larger, so
 * only work that would use tiles asks. */
bool tartan_i_cpu_tiles(void);

/* For tests: use only these, as far as the CPU has them, from now on; returns the set in force. */
tartan_i_cpu_features tartan_i_cpu_use(tartan_i_cpu_features features);

/* Name of feature `i`, whose bit is 1 << i. */
const char *tartan_i_cpu_name(int i);

/* The names in a set, "avx2,avx512", or "c" for the empty one. `size` 64 holds all of them. */
void tartan_i_cpu_list(tartan_i_cpu_features features, char *text, int64_t size);

/* The features that a value of TARTAN_CPU allows: "avx512" stands for that and everything before it on the same
 * architecture, "c" for none, "avx2,amx" for exactly these two. Unknown words count for nothing; NULL, or nothing
 * but unknown words, allows all. */
tartan_i_cpu_features tartan_i_cpu_allowed(const char *wish);

#endif
