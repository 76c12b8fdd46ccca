/* SPDX-License-Identifier: Apache-2.0
 * Kernel sources are compiled once for each sum type: TARTAN_I_REAL is 32 or 64, TARTAN_I_ISA a name. */
#ifndef TARTAN_SIMD_REAL_H
#define TARTAN_SIMD_REAL_H

#include <stdint.h>

#if TARTAN_I_REAL == 32
typedef float real;
#define REAL_DTYPE TARTAN_F32
typedef uint32_t real_bits;
#define REAL_FMA __builtin_fmaf
enum { REAL_FRACTION_BITS = 23, REAL_EXPONENT_BIAS = 127 };
#elif TARTAN_I_REAL == 64
typedef double real;
#define REAL_DTYPE TARTAN_F64
typedef uint64_t real_bits;
#define REAL_FMA   __builtin_fma
enum { REAL_FRACTION_BITS = 52, REAL_EXPONENT_BIAS = 1023 };
#else
#error "compile with -DTARTAN_I_REAL=32 or 64"
#endif

/* tartan_i_kernels_avx2_32 and so on. */
#define KERNELS_JOIN(part, isa, bits) tartan_i_##part##_##isa##_##bits
#define KERNELS_NAME(part, isa, bits) KERNELS_JOIN(part, isa, bits)
#define KERNELS_FILL                  KERNELS_NAME(kernels, TARTAN_I_ISA, TARTAN_I_REAL)
#define LEAN_STRIP                    KERNELS_NAME(lean_strip, TARTAN_I_ISA, TARTAN_I_REAL)
#define ROWS_FILL                     KERNELS_NAME(rows, TARTAN_I_ISA, TARTAN_I_REAL)
#define LISTS_FILL                    KERNELS_NAME(lists, TARTAN_I_ISA, TARTAN_I_REAL)
#define POINTS_FILL                   KERNELS_NAME(points, TARTAN_I_ISA, TARTAN_I_REAL)
#define FUSED_FILL                    KERNELS_NAME(fused, TARTAN_I_ISA, TARTAN_I_REAL)
#define NORMALS                       KERNELS_NAME(normals, TARTAN_I_ISA, 64)
#define UPDATES_FILL                  KERNELS_NAME(updates, TARTAN_I_ISA, TARTAN_I_REAL)
#define NORMS_FILL                    KERNELS_NAME(norms, TARTAN_I_ISA, TARTAN_I_REAL)
#define STEPS_FILL                    KERNELS_NAME(steps, TARTAN_I_ISA, TARTAN_I_REAL)

#endif
