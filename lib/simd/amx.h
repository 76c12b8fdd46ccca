/* SPDX-License-Identifier: Apache-2.0
 * AMX: tiles of 16 rows of 64 bytes, and their products of bf16 pairs. Tiles 0 to 3 hold sums, 2 x 2 of them; 4 and 5
 * rows of the left factor, 6 and 7 columns of the right one. A left tile has a row's pairs next to each other; a row
 * of a right tile has one pair for each of 16 columns. */
#ifndef TARTAN_SIMD_AMX_H
#define TARTAN_SIMD_AMX_H

#include "simd/avx512.h"
#include "simd/pairs512.h"

enum { TILE_ROWS = 16, TILE_PAIRS = 16, TILE_COLS = 16, TILE_PRODUCT_FLOPS = 2 * 16 * 16 * 32 };

#define tile_zero(n)                    _tile_zero(n)
#define tile_load(n, p, row_bytes)      _tile_loadd(n, p, row_bytes)
#define tile_load_once(n, p, row_bytes) _tile_stream_loadd(n, p, row_bytes) /* it need not stay in L1 */
#define tile_store(n, p, row_bytes)     _tile_stored(n, p, row_bytes)
#define tile_fma(sums, left, right)     _tile_dpbf16ps(sums, left, right)

/* Forces writes at p before tiles are loaded from it: compilers do not see that tile loads read memory. */
#define tile_memory(p) __asm__ volatile("" : : "r"(p) : "memory")

/* Left tiles of rows x pairs, right ones of `pairs` rows, sums of `rows` rows. */
static inline void tiles_begin(int64_t rows, int64_t pairs) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        const int left = i == 4 || i == 5, right = i > 5;
        config.row_bytes[i] = (uint16_t)(left ? 4 * pairs : 4 * TILE_COLS);
        config.rows[i] = (uint8_t)(right ? pairs : rows);
    }
    tile_memory(&config);
    _tile_loadconfig(&config);
}

#define tiles_end() _tile_release()

/* 2^t with a relative error of 2^-20.9, in instructions that can run beside tile products: 2^(j/16) from a table and a
 * polynomial of what is left. NaN for NaN, 0 for -infinity. */
static inline __m512 power_beside_tiles(__m512 t) {
    static const float powers[16] = {0x1p+0f,        0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
                                     0x1.306fe0p+0f, 0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
                                     0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                                     0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
    const __m512 sixteenths = _mm512_set1_ps(0x1.8p19f);
    const __m512 rest = _mm512_reduce_ps(t, 4 << 4 | _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const __m512 floor = _mm512_add_round_ps(t, sixteenths, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const __m512 power = _mm512_permutexvar_ps(_mm512_castps_si512(floor), _mm512_loadu_ps(powers));
    __m512 p = _mm512_fmadd_ps(rest, _mm512_set1_ps(0x1.f5f7c0p-3f), _mm512_set1_ps(0x1.62d7d8p-1f));
    p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(1));
    return _mm512_scalef_ps(_mm512_mul_ps(p, power), t);
}

/* out[i] = (even[i], odd[i]) rounded to bf16, to nearest, halves up. */
static inline void pairs_round_beside_tiles(__m512 even, __m512 odd, uint32_t *out) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i down =
        _mm512_broadcast_i32x4(_mm_set_epi8(-1, -1, 15, 14, -1, -1, 11, 10, -1, -1, 7, 6, -1, -1, 3, 2));
    const __m512i low = _mm512_shuffle_epi8(_mm512_add_epi32(_mm512_castps_si512(even), half), down);
    const __m512i high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
    _mm512_storeu_si512(out, _mm512_mask_blend_epi16(0xaaaaaaaa, low, high));
}

#endif
