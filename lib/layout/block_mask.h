/* SPDX-License-Identifier: Apache-2.0
 * The internals of an in-block mask. */
#ifndef TARTAN_LAYOUT_BLOCK_MASK_H
#define TARTAN_LAYOUT_BLOCK_MASK_H

#include "layout/layout.h"

struct tartan_block_mask {
    uint32_t magic; /* TARTAN_I_BLOCK_MASK */
    tartan_layout *layout;
    int64_t row_words; /* words per row of a block */
    int64_t kept;      /* bits that are 1 */
    uint32_t *bits;    /* [blocks][block_rows][row_words] */
    tartan_i_plans plans;
};

/* The first word of row `i` of block `id`. */
static inline const uint32_t *tartan_i_block_mask_row(const tartan_block_mask *m, int64_t id, int64_t i) {
    return m->bits + (id * m->layout->shape.block_rows + i) * m->row_words;
}

static inline bool tartan_i_block_mask_keeps(const tartan_block_mask *m, int64_t id, int64_t i, int64_t j) {
    return tartan_i_block_mask_row(m, id, i)[j / 32] >> (j % 32) & 1;
}

#endif
