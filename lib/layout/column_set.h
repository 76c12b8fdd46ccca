/* SPDX-License-Identifier: Apache-2.0
 * A set of block columns that gives them back in ascending order: bits, and above them bits that say which words have
 * some. What it does for a column costs a few steps, however many columns there are. */
#ifndef TARTAN_LAYOUT_COLUMN_SET_H
#define TARTAN_LAYOUT_COLUMN_SET_H

#include "core/memory.h"

enum { TARTAN_I_SET_LEVELS = 6 }; /* 64^6 is more than any number of columns */

typedef struct tartan_i_column_set {
    uint64_t *memory, *words[TARTAN_I_SET_LEVELS];
    int32_t levels;
} tartan_i_column_set;

/* An empty set for columns below `cols`. Errors: MEMORY. */
tartan_status tartan_i_column_set_begin(tartan_i_column_set *set, int64_t cols);
void tartan_i_column_set_end(tartan_i_column_set *set);

/* Whether a word of columns was empty cannot be predicted, so nothing branches on it; words of words mostly are not. */
static inline void tartan_i_column_set_add(tartan_i_column_set *set, int64_t col) {
    set->words[0][col >> 6] |= (uint64_t)1 << (col & 63);
    col >>= 6;
    for (int32_t level = 1; level < set->levels; level++, col >>= 6) {
        uint64_t *word = &set->words[level][col >> 6];
        const uint64_t before = *word;
        *word = before | (uint64_t)1 << (col & 63);
        if (before != 0) return;
    }
}

/* Writes the columns to `to` and empties the set. Returns their number. */
int64_t tartan_i_column_set_take(tartan_i_column_set *set, int32_t *to);

#endif
