/* SPDX-License-Identifier: Apache-2.0
 * Shared by AVX2 and AVX-512: 256-bit and 128-bit steps that no wider ones beat. */
#ifndef TARTAN_SIMD_X86_H
#define TARTAN_SIMD_X86_H

#include <immintrin.h>
#include <stdint.h>

#if TARTAN_I_REAL == 32
/* Eight lanes to one by halves. */
#define X86_FOLD(name, op)                                                                                   \
    static inline float name(__m256 v) {                                                                     \
        __m128 half = op(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));                            \
        half = op(half, _mm_movehl_ps(half, half));                                                          \
        return _mm_cvtss_f32(op(half, _mm_movehdup_ps(half)));                                               \
    }
X86_FOLD(x86_sum, _mm_add_ps)
X86_FOLD(x86_largest, _mm_max_ps)

enum { TILE = 8 };
typedef __m256 part_vec;
#define part_zero()       _mm256_setzero_ps()
#define part_fill(x)      _mm256_set1_ps(x)
#define part_load(p)      _mm256_loadu_ps(p)
#define part_store(p, v)  _mm256_storeu_ps(p, v)
#define part_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
static inline void part_transpose(const float *in, int64_t in_row, part_vec *out) {
    __m256 r[8], t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* rows i and i + 4 side by side */
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const float *p = in + i * in_row + 4 * half;
            r[i + 4 * half] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                                   _mm_loadu_ps(p + 4 * in_row), 1);
        }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 8; half += 4) { /* 4 x 4 transposes in each lane */
        t[0] = _mm256_unpacklo_ps(r[half + 0], r[half + 1]);
        t[1] = _mm256_unpackhi_ps(r[half + 0], r[half + 1]);
        t[2] = _mm256_unpacklo_ps(r[half + 2], r[half + 3]);
        t[3] = _mm256_unpackhi_ps(r[half + 2], r[half + 3]);
        out[half + 0] = _mm256_shuffle_ps(t[0], t[2], 0x44);
        out[half + 1] = _mm256_shuffle_ps(t[0], t[2], 0xee);
        out[half + 2] = _mm256_shuffle_ps(t[1], t[3], 0x44);
        out[half + 3] = _mm256_shuffle_ps(t[1], t[3], 0xee);
    }
}
#else
/* Four lanes to one by halves. */
#define X86_FOLD(name, op)                                                                                   \
    static inline double name(__m256d v) {                                                                   \
        const __m128d half = op(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));                     \
        return _mm_cvtsd_f64(op(half, _mm_unpackhi_pd(half, half)));                                         \
    }
X86_FOLD(x86_sum, _mm_add_pd)
X86_FOLD(x86_largest, _mm_max_pd)

enum { TILE = 4 };
typedef __m256d part_vec;
#define part_zero()       _mm256_setzero_pd()
#define part_fill(x)      _mm256_set1_pd(x)
#define part_load(p)      _mm256_loadu_pd(p)
#define part_store(p, v)  _mm256_storeu_pd(p, v)
#define part_fma(a, b, c) _mm256_fmadd_pd(a, b, c)
static inline void part_transpose(const double *in, int64_t in_row, part_vec *out) {
    __m256d r[4];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* rows i and i + 2 side by side */
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const double *p = in + i * in_row + 2 * half;
            r[i + 2 * half] = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(p)),
                                                   _mm_loadu_pd(p + 2 * in_row), 1);
        }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 4; half += 2) {
        out[half + 0] = _mm256_unpacklo_pd(r[half], r[half + 1]);
        out[half + 1] = _mm256_unpackhi_pd(r[half], r[half + 1]);
    }
}
#endif

#endif
