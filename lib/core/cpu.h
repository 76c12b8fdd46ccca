/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_CORE_CPU_H
#define TARTAN_CORE_CPU_H

#include "tartan/context.h"

/* Kernel levels, each including those below it. */
typedef enum tartan_i_cpu_level {
    TARTAN_I_CPU_C,
    TARTAN_I_CPU_AVX2,       /* AVX2, FMA, F16C */
    TARTAN_I_CPU_AVX512,     /* F, BW, DQ, VL */
    TARTAN_I_CPU_AVX512BF16, /* + BF16 */
    TARTAN_I_CPU_AMX,        /* + AMX tile and bf16, allowed by the system */
} tartan_i_cpu_level;

/* What the CPU and the system allow. */
tartan_i_cpu_level tartan_i_cpu_detect(void);

/* That, lowered by TARTAN_CPU; read once. */
tartan_i_cpu_level tartan_i_cpu_level_in_use(void);

const char *tartan_i_cpu_level_name(tartan_i_cpu_level level);

/* For tests: use a lower level from now on (not above what the CPU has); returns the one in force. */
tartan_i_cpu_level tartan_i_cpu_lower(tartan_i_cpu_level level);

#endif
