/* SPDX-License-Identifier: Apache-2.0
 * vec_add_product(sum, a, b): the variable sum becomes a * b + sum, as vec_fma has it, by the form of the instruction that leaves a
 * and b as they are. Where sums and factors take all 16 registers of AVX2, compilers choose other forms, whose copies and
 * spills are up to a third more instructions. */
#ifndef TARTAN_SIMD_IN_PLACE_H
#define TARTAN_SIMD_IN_PLACE_H

#include "simd/simd.h"

#if TARTAN_I_REAL == 32
#define vec_add_product(sum, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b))
#else
#define vec_add_product(sum, a, b) __asm__("vfmadd231pd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b))
#endif

/* The compiler keeps the integer `x` in a register and does not take it apart. */
#define in_register(x) __asm__("" : "+r"(x))

#endif
