/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary in AVX2 with FMA and F16C. See simd/simd.h. */
#ifndef TARTAN_SIMD_AVX2_H
#define TARTAN_SIMD_AVX2_H

#include <immintrin.h>

#define VEC_STRIP_ROWS                                                                                       \
    { 8, 6, 4 }
enum { PEAK_CHAINS = 12 };

#if TARTAN_I_REAL == 32
typedef __m256 vec;
enum { LANES = 8 };
#define vec_zero()       _mm256_setzero_ps()
#define vec_fill(x)      _mm256_set1_ps(x)
#define vec_load(p)      _mm256_loadu_ps(p)
#define vec_store(p, v)  _mm256_storeu_ps(p, v)
#define vec_add(a, b)    _mm256_add_ps(a, b)
#define vec_mul(a, b)    _mm256_mul_ps(a, b)
#define vec_fma(a, b, c) _mm256_fmadd_ps(a, b, c)

static inline vec vec_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline void vec_store_f16(uint16_t *p, vec v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vec vec_load_bf16(const uint16_t *p) {
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
static inline void vec_store_bf16(uint16_t *p, vec v) {
    __m256i bits = _mm256_castps_si256(v), upper = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i round = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i result = _mm256_blendv_epi8(_mm256_srli_epi32(round, 16), quiet, nan);
    __m256i packed = _mm256_packus_epi32(result, result); /* within each half */
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}
#else
typedef __m256d vec;
enum { LANES = 4 };
#define vec_zero()       _mm256_setzero_pd()
#define vec_fill(x)      _mm256_set1_pd(x)
#define vec_load(p)      _mm256_loadu_pd(p)
#define vec_store(p, v)  _mm256_storeu_pd(p, v)
#define vec_add(a, b)    _mm256_add_pd(a, b)
#define vec_mul(a, b)    _mm256_mul_pd(a, b)
#define vec_fma(a, b, c) _mm256_fmadd_pd(a, b, c)
#endif

#define vec_prefetch(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)

#include "simd/tile256.h"

#endif
