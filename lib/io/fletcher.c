/* SPDX-License-Identifier: Apache-2.0
 * For big-endian words w[0 .. n-1] of 16 bits: the sum of all, and the sum of (n - i) w[i], both modulo
 * 65535. Loops over lanes are vectorised by the compiler. */
#include "io/fletcher.h"

#include <string.h>

enum {
    LANES = 32,
    ROWS = 360, /* of LANES words; more would overflow the lanes' second sum */
    BASE = 65535
};

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are added as little-endian numbers"
#endif

typedef struct sums {
    uint64_t first, second;
} sums;

/* Adds `rows` rows of words. Swapping the bytes of a word multiplies it by 256 modulo 65535, which is done at the
 * end. */
static void add_rows(const unsigned char *bytes, int64_t rows, sums *all) {
    uint32_t first[LANES] = {0}, second[LANES] = {0};
    for (int64_t row = 0; row < rows; row++) {
        uint16_t words[LANES];
        memcpy(words, bytes + row * (int64_t)sizeof words, sizeof words);
        for (int lane = 0; lane < LANES; lane++) {
            first[lane] += words[lane];
            second[lane] += first[lane];
        }
    }
    /* The word of a lane in a row has the weight (rows - row) * LANES - lane here. */
    uint64_t sum = 0, weighted = 0;
    for (int lane = 0; lane < LANES; lane++) {
        sum += first[lane];
        weighted += (uint64_t)LANES * second[lane] - (uint64_t)lane * first[lane];
    }
    all->second = (all->second + (uint64_t)(rows * LANES) * all->first + weighted) % BASE;
    all->first = (all->first + sum) % BASE;
}

/* HDF5 folds carries back into the sum, which makes 65535 of a multiple of it other than 0. */
static uint32_t folded(uint64_t sum, int is_zero) {
    const uint64_t swapped = sum * 256 % BASE;
    return is_zero ? 0 : swapped == 0 ? BASE : (uint32_t)swapped;
}

static int all_zero(const unsigned char *bytes, int64_t size) {
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)size - 1) == 0);
}

uint32_t tartan_i_fletcher32(const void *data, int64_t size) {
    const unsigned char *bytes = data;
    const int64_t row_bytes = 2 * LANES, rows = size / row_bytes;
    sums all = {0};
    for (int64_t row = 0; row < rows; row += ROWS)
        add_rows(bytes + row * row_bytes, rows - row < ROWS ? rows - row : ROWS, &all);
    for (int64_t at = rows * row_bytes; at < size; at += 2) {
        all.first += bytes[at] | (uint32_t)(at + 1 < size ? bytes[at + 1] : 0) << 8;
        all.second = (all.second + all.first) % BASE;
    }
    const int is_zero = all.first % BASE == 0 && all_zero(bytes, size);
    return folded(all.second % BASE, is_zero) << 16 | folded(all.first % BASE, is_zero);
}
