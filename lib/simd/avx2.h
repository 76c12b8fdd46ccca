/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary in AVX2 with FMA and F16C. See simd/simd.h. */
#ifndef TARTAN_SIMD_AVX2_H
#define TARTAN_SIMD_AVX2_H

#include "simd/x86.h"

#define VEC_STRIP_ROWS                                                                                       \
    { 8, 6, 4, 3 }
#define VEC_LEAN 1 /* strips with `next` are those of kernels/lean.c */
enum { PEAK_CHAINS = 12, VEC_STRIP_VECTORS = 3, VEC_REGISTERS = 16, VEC_SPREAD_ROWS = 4 };

#if TARTAN_I_REAL == 32
typedef __m256 vec;
enum { LANES = 8 };
#define vec_zero()       _mm256_setzero_ps()
#define vec_fill(x)      _mm256_set1_ps(x)
#define vec_load(p)      _mm256_loadu_ps(p)
#define vec_store(p, v)  _mm256_storeu_ps(p, v)
#define vec_add(a, b)    _mm256_add_ps(a, b)
#define vec_sub(a, b)    _mm256_sub_ps(a, b)
#define vec_mul(a, b)    _mm256_mul_ps(a, b)
#define vec_div(a, b)    _mm256_div_ps(a, b)
#define vec_sqrt(a)      _mm256_sqrt_ps(a)
#define vec_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vec_max(a, b)    _mm256_max_ps(a, b)
#define vec_min(a, b)    _mm256_min_ps(a, b)
#define vec_sum(v)       x86_sum(v)
#define vec_largest(v)   x86_largest(v)

typedef __m256 vec_mask;
#define vec_greater(a, b)   _mm256_cmp_ps(a, b, _CMP_GT_OQ)
#define vec_bits_of_mask(m) ((uint32_t)_mm256_movemask_ps(m))
#define vec_is_nan(a)       _mm256_cmp_ps(a, a, _CMP_UNORD_Q)
#define vec_select(m, a, b) _mm256_blendv_ps(b, a, m)
static inline vec_mask vec_mask_of(uint32_t bits) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i found = _mm256_and_si256(_mm256_set1_epi32((int)bits), lane);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(found, lane));
}
#define vec_load_first(p, n)     _mm256_maskload_ps(p, _mm256_castps_si256(vec_mask_of((1u << (n)) - 1)))
#define vec_store_first(p, n, v) _mm256_maskstore_ps(p, _mm256_castps_si256(vec_mask_of((1u << (n)) - 1)), v)

static inline vec vec_load_halves(const float *p, const float *q) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
}
static inline void vec_store_halves(float *p, float *q, vec v) {
    _mm_storeu_ps(p, _mm256_castps256_ps128(v));
    _mm_storeu_ps(q, _mm256_extractf128_ps(v, 1));
}

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
#define vec_zero()               _mm256_setzero_pd()
#define vec_fill(x)              _mm256_set1_pd(x)
#define vec_load(p)              _mm256_loadu_pd(p)
#define vec_store(p, v)          _mm256_storeu_pd(p, v)
#define vec_add(a, b)            _mm256_add_pd(a, b)
#define vec_sub(a, b)            _mm256_sub_pd(a, b)
#define vec_mul(a, b)            _mm256_mul_pd(a, b)
#define vec_div(a, b)            _mm256_div_pd(a, b)
#define vec_sqrt(a)              _mm256_sqrt_pd(a)
#define vec_fma(a, b, c)         _mm256_fmadd_pd(a, b, c)
#define vec_max(a, b)            _mm256_max_pd(a, b)
#define vec_min(a, b)            _mm256_min_pd(a, b)
#define vec_sum(v)               x86_sum(v)
#define vec_largest(v)           x86_largest(v)

typedef __m256d vec_mask;
#define vec_greater(a, b)        _mm256_cmp_pd(a, b, _CMP_GT_OQ)
#define vec_bits_of_mask(m)      ((uint32_t)_mm256_movemask_pd(m))
#define vec_is_nan(a)            _mm256_cmp_pd(a, a, _CMP_UNORD_Q)
#define vec_select(m, a, b)      _mm256_blendv_pd(b, a, m)
static inline vec_mask vec_mask_of(uint32_t bits) {
    const __m256i lane = _mm256_setr_epi64x(1, 2, 4, 8);
    const __m256i found = _mm256_and_si256(_mm256_set1_epi64x(bits), lane);
    return _mm256_castsi256_pd(_mm256_cmpeq_epi64(found, lane));
}
#define vec_load_first(p, n)     _mm256_maskload_pd(p, _mm256_castpd_si256(vec_mask_of((1u << (n)) - 1)))
#define vec_store_first(p, n, v) _mm256_maskstore_pd(p, _mm256_castpd_si256(vec_mask_of((1u << (n)) - 1)), v)

static inline vec vec_load_halves(const double *p, const double *q) {
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(p)), _mm_loadu_pd(q), 1);
}
static inline void vec_store_halves(double *p, double *q, vec v) {
    _mm_storeu_pd(p, _mm256_castpd256_pd128(v));
    _mm_storeu_pd(q, _mm256_extractf128_pd(v, 1));
}

#define vec_load_f32(p)     _mm256_cvtps_pd(_mm_loadu_ps(p))
#define vec_store_f32(p, v) _mm_storeu_ps(p, _mm256_cvtpd_ps(v))
#endif

#define vec_prefetch(p)     _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define vec_prefetch_far(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)

typedef uint64_t vec_u64 __attribute__((vector_size(32)));
enum { U64_LANES = 4 };
#define vec_u64_product(a, b) ((vec_u64)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define vec_u64_upper(a)      ((vec_u64)_mm256_shuffle_epi32((__m256i)(a), 0xf5))
static inline void vec_u64_store_pairs(uint64_t *p, vec_u64 a, vec_u64 b) {
    const __m256i even = _mm256_unpacklo_epi64((__m256i)a, (__m256i)b),
                  odd = _mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
    _mm256_storeu_si256((__m256i *)p, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(p + 4), _mm256_permute2x128_si256(even, odd, 0x31));
}

#endif
