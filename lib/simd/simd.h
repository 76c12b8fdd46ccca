/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary, for the type `real` (simd/real.h) and the instruction set TARTAN_I_ISA. Intrinsics
 * live in this folder alone. A header of it defines:
 *   vec, LANES                            a vector and its elements
 *   vec_zero() vec_fill(x)                all lanes 0 or x
 *   vec_load(p) vec_store(p, v)           LANES reals, any alignment
 *   vec_add vec_mul vec_fma(a, b, c)      per lane; a * b + c is rounded once
 *   vec_load_f16 vec_store_f16 ...bf16    LANES 16-bit numbers, rounded to nearest even (f32 only)
 *   vec_transpose_tile, TILE              out[j][i] = in[i][j] of TILE x TILE reals
 *   vec_prefetch(p)                       asks for the cache line of p, which need not be readable
 *   VEC_STRIP_ROWS                        rows of a strip of 1, 2, 3 vectors whose sums fit in registers
 *   PEAK_CHAINS                           sums that fill the register file */
#ifndef TARTAN_SIMD_SIMD_H
#define TARTAN_SIMD_SIMD_H

#include "simd/real.h"

#include <stdint.h>

#define SIMD_TEXT(x)     #x
#define SIMD_HEADER(isa) SIMD_TEXT(isa.h)
#include SIMD_HEADER(TARTAN_I_ISA)

#endif
