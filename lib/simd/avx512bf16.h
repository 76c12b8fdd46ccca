/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary of AVX-512, and products of bf16 pairs by AVX512-BF16. See simd/simd.h. */
#ifndef TARTAN_SIMD_AVX512BF16_H
#define TARTAN_SIMD_AVX512BF16_H

#include "simd/avx512.h"
#include "simd/pairs512.h"

typedef __m512bh pairs; /* LANES of them */
#define pairs_fill(p)         ((pairs)_mm512_set1_epi32((int)*(p)))
#define pairs_load(p)         ((pairs)_mm512_loadu_si512(p))
#define pairs_fma(a, b, sums) _mm512_dpbf16_ps(sums, a, b)

#endif
