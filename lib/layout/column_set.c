/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/column_set.h"

tartan_status tartan_i_column_set_begin(tartan_i_column_set *set, int64_t cols) {
    int64_t counts[TARTAN_I_SET_LEVELS], all = 0, words = cols;
    set->levels = 0;
    do {
        words = words / 64 + 1;
        counts[set->levels++] = words;
        all += words;
    } while (words > 1);
    PASS(tartan_i_allocate_zeroed(&set->memory, all, sizeof *set->memory));
    uint64_t *next = set->memory;
    for (int32_t level = 0; level < set->levels; level++) {
        set->words[level] = next;
        next += counts[level];
    }
    return TARTAN_OK;
}

void tartan_i_column_set_end(tartan_i_column_set *set) {
    tartan_i_free(set->memory);
}

static inline int32_t *take_word(uint64_t *word, int64_t first, int32_t *to) {
    uint64_t bits = *word;
    *word = 0;
    for (; bits != 0; bits &= bits - 1) *to++ = (int32_t)(first + __builtin_ctzll(bits));
    return to;
}

/* Words of the first two levels are where the time goes: no calls there. */
static int32_t *take(tartan_i_column_set *set, int32_t level, int64_t word, int32_t *to) {
    if (level == 0) return take_word(&set->words[0][word], 64 * word, to);
    uint64_t bits = set->words[level][word];
    set->words[level][word] = 0;
    for (; bits != 0; bits &= bits - 1) {
        const int64_t at = 64 * word + __builtin_ctzll(bits);
        to = level == 1 ? take_word(&set->words[0][at], 64 * at, to) : take(set, level - 1, at, to);
    }
    return to;
}

int64_t tartan_i_column_set_take(tartan_i_column_set *set, int32_t *to) {
    return take(set, set->levels - 1, 0, to) - to;
}
