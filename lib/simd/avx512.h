/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary in AVX-512 (F, BW, DQ, VL). See simd/simd.h. */
#ifndef TARTAN_SIMD_AVX512_H
#define TARTAN_SIMD_AVX512_H

#include "simd/x86.h"

#define VEC_STRIP_ROWS                                                                                       \
    { 8, 8, 8, 6 }
enum { PEAK_CHAINS = 24, VEC_STRIP_VECTORS = 4, VEC_REGISTERS = 32, VEC_SPREAD_ROWS = 8 };

#if TARTAN_I_REAL == 32
typedef __m512 vec;
enum { LANES = 16 };
#define vec_zero()       _mm512_setzero_ps()
#define vec_fill(x)      _mm512_set1_ps(x)
#define vec_load(p)      _mm512_loadu_ps(p)
#define vec_store(p, v)  _mm512_storeu_ps(p, v)
#define vec_add(a, b)    _mm512_add_ps(a, b)
#define vec_sub(a, b)    _mm512_sub_ps(a, b)
#define vec_mul(a, b)    _mm512_mul_ps(a, b)
#define vec_div(a, b)    _mm512_div_ps(a, b)
#define vec_sqrt(a)      _mm512_sqrt_ps(a)
#define vec_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define vec_max(a, b)    _mm512_max_ps(a, b)
#define vec_min(a, b)    _mm512_min_ps(a, b)
static inline float vec_sum(vec v) {
    return x86_sum(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}
static inline float vec_largest(vec v) {
    return x86_largest(_mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}

typedef __mmask16 vec_mask;
#define vec_bits_of_mask(m)      ((uint32_t)(m))
#define vec_greater(a, b)        _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)
#define vec_is_nan(a)            _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q)
#define vec_select(m, a, b)      _mm512_mask_mov_ps(b, m, a)
#define vec_mask_of(bits)        ((vec_mask)(bits))
#define vec_load_first(p, n)     _mm512_maskz_loadu_ps(vec_mask_of((1u << (n)) - 1), p)
#define vec_store_first(p, n, v) _mm512_mask_storeu_ps(p, vec_mask_of((1u << (n)) - 1), v)

#define vec_scale(v, k) _mm512_scalef_ps(v, k)

static inline vec vec_load_halves(const float *p, const float *q) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(q), 1);
}
static inline void vec_store_halves(float *p, float *q, vec v) {
    _mm256_storeu_ps(p, _mm512_castps512_ps256(v));
    _mm256_storeu_ps(q, _mm512_extractf32x8_ps(v, 1));
}
static inline vec vec_load_twice(const float *p) {
    return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
}
static inline vec vec_fill_halves(float lower, float upper) {
    return _mm512_mask_mov_ps(_mm512_set1_ps(lower), 0xff00, _mm512_set1_ps(upper));
}
typedef __m512i vec_place;
static inline vec_place vec_place_of(int i) {
    return _mm512_mask_mov_epi32(_mm512_set1_epi32(i), 0xff00, _mm512_set1_epi32(8 + i));
}
#define vec_spread_halves(v, place) _mm512_permutexvar_ps(place, v)

static inline vec vec_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void vec_store_f16(uint16_t *p, vec v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vec vec_load_bf16(const uint16_t *p) {
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
static inline void vec_store_bf16(uint16_t *p, vec v) {
    __m512i bits = _mm512_castps_si512(v), upper = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i round = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
    __m512i result = _mm512_mask_mov_epi32(_mm512_srli_epi32(round, 16), nan, quiet);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(result));
}
#else
typedef __m512d vec;
enum { LANES = 8 };
#define vec_zero()               _mm512_setzero_pd()
#define vec_fill(x)              _mm512_set1_pd(x)
#define vec_load(p)              _mm512_loadu_pd(p)
#define vec_store(p, v)          _mm512_storeu_pd(p, v)
#define vec_add(a, b)            _mm512_add_pd(a, b)
#define vec_sub(a, b)            _mm512_sub_pd(a, b)
#define vec_mul(a, b)            _mm512_mul_pd(a, b)
#define vec_div(a, b)            _mm512_div_pd(a, b)
#define vec_sqrt(a)              _mm512_sqrt_pd(a)
#define vec_fma(a, b, c)         _mm512_fmadd_pd(a, b, c)
#define vec_max(a, b)            _mm512_max_pd(a, b)
#define vec_min(a, b)            _mm512_min_pd(a, b)
static inline double vec_sum(vec v) {
    return x86_sum(_mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1)));
}
static inline double vec_largest(vec v) {
    return x86_largest(_mm256_max_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1)));
}

typedef __mmask8 vec_mask;
#define vec_bits_of_mask(m)      ((uint32_t)(m))
#define vec_greater(a, b)        _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ)
#define vec_is_nan(a)            _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q)
#define vec_select(m, a, b)      _mm512_mask_mov_pd(b, m, a)
#define vec_mask_of(bits)        ((vec_mask)(bits))
#define vec_load_first(p, n)     _mm512_maskz_loadu_pd(vec_mask_of((1u << (n)) - 1), p)
#define vec_store_first(p, n, v) _mm512_mask_storeu_pd(p, vec_mask_of((1u << (n)) - 1), v)

#define vec_scale(v, k)             _mm512_scalef_pd(v, k)

static inline vec vec_load_halves(const double *p, const double *q) {
    return _mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd(p)), _mm256_loadu_pd(q), 1);
}
static inline void vec_store_halves(double *p, double *q, vec v) {
    _mm256_storeu_pd(p, _mm512_castpd512_pd256(v));
    _mm256_storeu_pd(q, _mm512_extractf64x4_pd(v, 1));
}
static inline vec vec_load_twice(const double *p) {
    return _mm512_broadcast_f64x4(_mm256_loadu_pd(p));
}
static inline vec vec_fill_halves(double lower, double upper) {
    return _mm512_mask_mov_pd(_mm512_set1_pd(lower), 0xf0, _mm512_set1_pd(upper));
}
typedef __m512i vec_place;
static inline vec_place vec_place_of(int i) {
    return _mm512_mask_mov_epi64(_mm512_set1_epi64(i), 0xf0, _mm512_set1_epi64(4 + i));
}
#define vec_spread_halves(v, place) _mm512_permutexvar_pd(place, v)

#define vec_load_f32(p)     _mm512_cvtps_pd(_mm256_loadu_ps(p))
#define vec_store_f32(p, v) _mm256_storeu_ps(p, _mm512_cvtpd_ps(v))
#endif

#define vec_prefetch(p)     _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define vec_prefetch_far(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)

typedef uint64_t vec_u64 __attribute__((vector_size(64)));
enum { U64_LANES = 8 };
#define vec_u64_product(a, b) ((vec_u64)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define vec_u64_upper(a)      ((vec_u64)_mm512_shuffle_epi32((__m512i)(a), (_MM_PERM_ENUM)0xf5))
static inline void vec_u64_store_pairs(uint64_t *p, vec_u64 a, vec_u64 b) {
    const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0),
                  last = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
    _mm512_storeu_si512(p, _mm512_permutex2var_epi64((__m512i)a, first, (__m512i)b));
    _mm512_storeu_si512(p + 8, _mm512_permutex2var_epi64((__m512i)a, last, (__m512i)b));
}

#endif
