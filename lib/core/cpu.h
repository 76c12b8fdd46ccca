/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_CORE_CPU_H
#define TARTAN_CORE_CPU_H

#include "tartan/context.h"

#include <stdbool.h>

/* Instruction sets that kernels may use, as bits. Portable C needs none. */
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

/* Those of them whose products are no faster than f32; used only if TARTAN_CPU names them. */
tartan_i_cpu_features tartan_i_cpu_slow(void);

/* The detected features that TARTAN_CPU allows; read once. */
tartan_i_cpu_features tartan_i_cpu_in_use(void);

/* Whether the process may use AMX tiles. The first call requests them from the system, which makes signal frames
 * larger, so call it only where kernels with tiles would be chosen: to run them, or to say which kernels run. */
bool tartan_i_cpu_tiles(void);

/* Bytes of a processor's second cache, as the system says, or a common size. */
int64_t tartan_i_cpu_l2_bytes(void);

/* For tests: from now on use only these features, as far as the CPU has them. Returns the set in use. */
tartan_i_cpu_features tartan_i_cpu_use(tartan_i_cpu_features features);

/* Name of feature `i`, whose bit is 1 << i. */
const char *tartan_i_cpu_name(int i);

/* The names in a set, "avx2,avx512", or "c" for the empty one. `size` 64 holds all of them. */
void tartan_i_cpu_list(tartan_i_cpu_features features, char *text, int64_t size);

/* The features that a value of TARTAN_CPU allows: "avx512" means that one and all earlier ones of the architecture,
 * "c" none, "avx2,amx" exactly these two. Unknown words are ignored; NULL, or only unknown words, allows all. */
tartan_i_cpu_features tartan_i_cpu_allowed(const char *wish);

#endif
