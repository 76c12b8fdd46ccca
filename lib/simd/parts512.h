/* SPDX-License-Identifier: Apache-2.0
 * Numbers of f32 split into bf16 (simd/parts.h), in AVX-512 (F, DQ). */
#ifndef TARTAN_SIMD_PARTS512_H
#define TARTAN_SIMD_PARTS512_H

#include "simd/parts.h"

#include <immintrin.h>
#include <stdbool.h>

#define PARTS_INLINE static inline __attribute__((always_inline))
enum { PARTS_LANES = 16 };

PARTS_INLINE __m512i parts_heads(__m512 x) {
    enum { QUIET = 0x01, SIGNALING = 0x80 };
    const __m512i up = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(PARTS_HALF));
    return _mm512_mask_mov_epi32(_mm512_and_si512(up, _mm512_set1_epi32((int)PARTS_HEAD)),
                                 _mm512_fpclass_ps_mask(x, QUIET | SIGNALING), _mm512_set1_epi32(PARTS_NAN));
}

/* The parts of the pairs of `valid`. */
PARTS_INLINE void parts_of_pairs(const int parts, __m512 even, __m512 odd, __mmask16 valid, uint32_t *out,
                                 int64_t step) {
#pragma GCC unroll 3
    for (int p = 0; p < parts; p++) {
        const __m512i low = parts_heads(even), high = parts_heads(odd);
        _mm512_mask_storeu_epi32(out + p * step, valid, _mm512_or_si512(_mm512_srli_epi32(low, 16), high));
        even = _mm512_sub_ps(even, _mm512_castsi512_ps(low));
        odd = _mm512_sub_ps(odd, _mm512_castsi512_ps(high));
    }
}

/* The first n of 16 lanes; n may be any number. */
PARTS_INLINE __mmask16 parts_lanes(int64_t n) {
    return (__mmask16)(n >= PARTS_LANES ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}

PARTS_INLINE void parts_of_rows(const int parts, int64_t n, const float *even, const float *odd,
                                uint32_t *out, int64_t step) {
    for (int64_t i = 0; i < n; i += PARTS_LANES) {
        const __mmask16 valid = parts_lanes(n - i);
        parts_of_pairs(parts, _mm512_maskz_loadu_ps(valid, even + i), _mm512_maskz_loadu_ps(valid, odd + i),
                       valid, out + i, step);
    }
}

PARTS_INLINE void parts_of_row(const int parts, int64_t n, const float *in, uint32_t *out, int64_t step) {
    const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    for (int64_t i = 0; i < n; i += 2 * PARTS_LANES) {
        const __m512 first = _mm512_maskz_loadu_ps(parts_lanes(n - i), in + i),
                     second = _mm512_maskz_loadu_ps(parts_lanes(n - i - PARTS_LANES), in + i + PARTS_LANES);
        parts_of_pairs(parts, _mm512_permutex2var_ps(first, evens, second),
                       _mm512_permutex2var_ps(first, odds, second), parts_lanes((n - i + 1) / 2), out + i / 2,
                       step);
    }
}

static inline bool parts_finite(int64_t rows, int64_t n, const float *sums, int64_t sums_row) {
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j += PARTS_LANES) {
            const __m512i bits =
                _mm512_castps_si512(_mm512_maskz_loadu_ps(parts_lanes(n - j), sums + i * sums_row + j));
            most = _mm512_max_epu32(most, _mm512_and_si512(bits, no_sign));
        }
    return _mm512_cmpge_epu32_mask(most, _mm512_set1_epi32(0x7f800000)) == 0;
}

#endif
