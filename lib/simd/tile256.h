/* SPDX-License-Identifier: Apache-2.0
 * Transposing a small square tile with 256-bit registers; for AVX2 and everything above it. */
#ifndef TARTAN_SIMD_TILE256_H
#define TARTAN_SIMD_TILE256_H

#include <immintrin.h>
#include <stdint.h>

#if TARTAN_I_REAL == 32
enum { TILE = 8 };
static inline void vec_transpose_tile(const float *in, int64_t in_row, float *out, int64_t out_row) {
    __m256 r[8], t[8];
    for (int i = 0; i < 4; i++) { /* rows i and i + 4 side by side */
        for (int half = 0; half < 2; half++) {
            const float *p = in + i * in_row + 4 * half;
            r[i + 4 * half] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                                   _mm_loadu_ps(p + 4 * in_row), 1);
        }
    }
    for (int half = 0; half < 8; half += 4) { /* 4 x 4 transposes in each lane */
        t[0] = _mm256_unpacklo_ps(r[half + 0], r[half + 1]);
        t[1] = _mm256_unpackhi_ps(r[half + 0], r[half + 1]);
        t[2] = _mm256_unpacklo_ps(r[half + 2], r[half + 3]);
        t[3] = _mm256_unpackhi_ps(r[half + 2], r[half + 3]);
        _mm256_storeu_ps(out + (half + 0) * out_row, _mm256_shuffle_ps(t[0], t[2], 0x44));
        _mm256_storeu_ps(out + (half + 1) * out_row, _mm256_shuffle_ps(t[0], t[2], 0xee));
        _mm256_storeu_ps(out + (half + 2) * out_row, _mm256_shuffle_ps(t[1], t[3], 0x44));
        _mm256_storeu_ps(out + (half + 3) * out_row, _mm256_shuffle_ps(t[1], t[3], 0xee));
    }
}
#else
enum { TILE = 4 };
static inline void vec_transpose_tile(const double *in, int64_t in_row, double *out, int64_t out_row) {
    __m256d r[4];
    for (int i = 0; i < 2; i++) { /* rows i and i + 2 side by side */
        for (int half = 0; half < 2; half++) {
            const double *p = in + i * in_row + 2 * half;
            r[i + 2 * half] = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(p)),
                                                   _mm_loadu_pd(p + 2 * in_row), 1);
        }
    }
    for (int half = 0; half < 4; half += 2) {
        _mm256_storeu_pd(out + (half + 0) * out_row, _mm256_unpacklo_pd(r[half], r[half + 1]));
        _mm256_storeu_pd(out + (half + 1) * out_row, _mm256_unpackhi_pd(r[half], r[half + 1]));
    }
}
#endif

#endif
