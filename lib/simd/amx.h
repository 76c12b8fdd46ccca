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

#endif
