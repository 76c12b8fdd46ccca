/* SPDX-License-Identifier: Apache-2.0
 * What product kernels on pairs of 16-bit numbers share, after a vocabulary that has pairs_zip and
 * words_transpose. */
#ifndef TARTAN_KERNELS_PAIRS_H
#define TARTAN_KERNELS_PAIRS_H

#include <stdint.h>

static void pair_lines(int64_t n, const void *even, const void *odd, void *out) {
    for (int64_t i = 0; i < n; i += PAIR_LINE)
        pairs_zip(n - i < PAIR_LINE ? n - i : PAIR_LINE, (const uint16_t *)even + i,
                  (const uint16_t *)odd + i, (uint32_t *)out + i);
}

static void turn_words(int64_t rows, int64_t cols, const void *in, int64_t in_row, void *out,
                       int64_t out_row) {
    const uint16_t *p = in;
    uint16_t *q = out;
    for (int64_t j = 0; j < cols; j += WORDS_TILE) {
        const int64_t n = cols - j < WORDS_TILE ? cols - j : WORDS_TILE;
        int64_t i = 0;
        for (; i + WORDS_TILE <= rows && n == WORDS_TILE;
             i += WORDS_TILE) /* a copy of the loop without masks */
            words_transpose(WORDS_TILE, WORDS_TILE, p + i * in_row + j, in_row, q + j * out_row + i, out_row);
        for (; i < rows; i += WORDS_TILE) {
            const int64_t m = rows - i < WORDS_TILE ? rows - i : WORDS_TILE;
            words_transpose(m, n, p + i * in_row + j, in_row, q + j * out_row + i, out_row);
        }
    }
}

#endif
