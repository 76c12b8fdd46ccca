/* SPDX-License-Identifier: Apache-2.0
 * Kernel sources are compiled once for each sum type: TARTAN_I_REAL is 32 or 64, TARTAN_I_ISA a name. */
#ifndef TARTAN_SIMD_REAL_H
#define TARTAN_SIMD_REAL_H

#if TARTAN_I_REAL == 32
typedef float real;
#define REAL_DTYPE TARTAN_F32
#define REAL_FMA   __builtin_fmaf
#elif TARTAN_I_REAL == 64
typedef double real;
#define REAL_DTYPE TARTAN_F64
#define REAL_FMA   __builtin_fma
#else
#error "compile with -DTARTAN_I_REAL=32 or 64"
#endif

/* tartan_i_kernels_avx2_32 and so on. */
#define KERNELS_JOIN(isa, bits) tartan_i_kernels_##isa##_##bits
#define KERNELS_NAME(isa, bits) KERNELS_JOIN(isa, bits)
#define KERNELS_FILL            KERNELS_NAME(TARTAN_I_ISA, TARTAN_I_REAL)

#endif
