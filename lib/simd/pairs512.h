/* SPDX-License-Identifier: Apache-2.0
 * Pairs of 16-bit numbers in AVX-512 (F, BW, VL), after simd/avx512.h. */
#ifndef TARTAN_SIMD_PAIRS512_H
#define TARTAN_SIMD_PAIRS512_H

#include <immintrin.h>
#include <stdint.h>

typedef uint32_t pair __attribute__((aligned(2), may_alias));
enum { PAIR_LINE = 32 }; /* numbers of a line that pairs_zip takes */

/* out[i] = (even[i], odd[i]) for i < n <= PAIR_LINE. */
static inline void pairs_zip(int64_t n, const uint16_t *even, const uint16_t *odd, uint32_t *out) {
    const __mmask32 valid = n == PAIR_LINE ? ~0u : (1u << n) - 1;
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,
                                         38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const __m512i a = _mm512_maskz_loadu_epi16(valid, even), b = _mm512_maskz_loadu_epi16(valid, odd);
    _mm512_mask_storeu_epi32(out, (__mmask16)valid, _mm512_permutex2var_epi16(a, low, b));
    if (n > 16)
        _mm512_mask_storeu_epi32(out + 16, (__mmask16)(valid >> 16), _mm512_permutex2var_epi16(a, high, b));
}

/* (even[i], odd[i]) rounded to bf16, to nearest even. NaN stays NaN if it has a bit of the upper half. */
static inline __m512i pairs_rounded(__m512 even, __m512 odd) {
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff);
    __m512i low = _mm512_castps_si512(even), high = _mm512_castps_si512(odd);
    low = _mm512_add_epi32(low, _mm512_add_epi32(half, _mm512_and_si512(_mm512_srli_epi32(low, 16), one)));
    high = _mm512_add_epi32(high, _mm512_add_epi32(half, _mm512_and_si512(_mm512_srli_epi32(high, 16), one)));
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(low, 16), high);
}

static inline void pairs_round(__m512 even, __m512 odd, uint32_t *out) {
    _mm512_storeu_si512(out, pairs_rounded(even, odd));
}

/* 16 pairs. */
static inline __m512i pairs_of(const uint16_t *even, const uint16_t *odd) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)even));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)odd));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

typedef __m512i pair_vec; /* 16 of them */
#define pair_vec_zero()      _mm512_setzero_si512()
#define pair_vec_load(p)     _mm512_loadu_si512(p)
#define pair_vec_store(p, v) _mm512_storeu_si512(p, v)

/* rows[j] lane i = rows[i] lane j. */
static inline void pairs_transpose(pair_vec rows[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) /* 4 x 4 transposes in each lane */
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            rows[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            rows[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* then of the lanes */
        t[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        rows[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        rows[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

enum { WORDS_TILE = 8 }; /* a row is a quarter of a register: 8 x 8 tiles suit blocks from 4 x 4 on */

/* out[j][i] = in[i][j] of `rows` x `cols` 16-bit numbers, at most WORDS_TILE of each; touches no others. */
static inline void words_transpose(int64_t rows, int64_t cols, const uint16_t *in, int64_t in_row,
                                   uint16_t *out, int64_t out_row) {
    const __mmask8 across = (__mmask8)((1u << cols) - 1), down = (__mmask8)((1u << rows) - 1);
    __m128i r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = _mm_maskz_loadu_epi16(i < rows ? across : 0, in + (i < rows ? i : 0) * in_row);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm_unpacklo_epi16(r[i], r[i + 1]);
        t[i + 1] = _mm_unpackhi_epi16(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) { /* columns 4 half and 4 half + 1, then the two after them */
            r[i + 2 * half] = _mm_unpacklo_epi32(t[i + half], t[i + half + 2]);
            r[i + 2 * half + 1] = _mm_unpackhi_epi32(t[i + half], t[i + half + 2]);
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        t[2 * j] = _mm_unpacklo_epi64(r[j], r[j + 4]);
        t[2 * j + 1] = _mm_unpackhi_epi64(r[j], r[j + 4]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        if (j < cols) _mm_mask_storeu_epi16(out + j * out_row, down, t[j]);
}

#endif
