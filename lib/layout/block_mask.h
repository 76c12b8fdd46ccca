/* SPDX-License-Identifier: Apache-2.0
 * The internals of an in-block mask. Blocks whose elements all count have no words, and equal words are stored once. */
#ifndef TARTAN_LAYOUT_BLOCK_MASK_H
#define TARTAN_LAYOUT_BLOCK_MASK_H

#include "layout/layout.h"
#include "tartan/block_mask.h"

struct tartan_block_mask {
    uint32_t magic; /* TARTAN_I_BLOCK_MASK */
    tartan_layout *layout;
    int64_t row_words; /* words per row of a block */
    int64_t kept;      /* elements that count */
    int32_t *words_of; /* [blocks]: position of a block's words in `bits`, or -1: all its elements count */
    int64_t stored;    /* blocks in `bits` */
    uint32_t *bits;    /* [stored][block_rows][row_words], 0 for padding */
    tartan_i_plans plans;
};

static inline bool tartan_i_block_mask_is_full(const tartan_block_mask *m, int64_t id) {
    return m->words_of[id] < 0;
}

/* The first word of row `i` of block `id`, a row inside the matrix. Bits of columns outside the matrix may be 1. */
static inline const uint32_t *tartan_i_block_mask_row(const tartan_block_mask *m, int64_t id, int64_t i) {
    static const uint32_t ones[TARTAN_I_MAX_BLOCK / 32] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
                                                           UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    if (tartan_i_block_mask_is_full(m, id)) return ones;
    return m->bits + (m->words_of[id] * m->layout->shape.block_rows + i) * m->row_words;
}

/* The bits of a word for the columns from `first` on, of `cols` columns. */
static inline uint32_t tartan_i_block_mask_inside(int64_t cols, int64_t first) {
    const int64_t left = cols - first;
    return left >= 32 ? UINT32_MAX : left <= 0 ? 0 : (UINT32_C(1) << left) - 1;
}

/* Word `w` of row `i` of block `id`, with 0 for padding. */
static inline uint32_t tartan_i_block_mask_word(const tartan_block_mask *m, int64_t id, int64_t i,
                                                int64_t w) {
    const tartan_layout *l = m->layout;
    if (i >= tartan_i_rows_of(l, l->block_rows[id])) return 0;
    return tartan_i_block_mask_row(m, id, i)[w] &
           tartan_i_block_mask_inside(tartan_i_cols_of(l, l->block_cols[id]), 32 * w);
}

static inline bool tartan_i_block_mask_keeps(const tartan_block_mask *m, int64_t id, int64_t i, int64_t j) {
    return tartan_i_block_mask_word(m, id, i, j / 32) >> (j % 32) & 1;
}

#endif
