/* SPDX-License-Identifier: Apache-2.0
 * Makes an in-block mask, block by block in any order. */
#ifndef TARTAN_LAYOUT_MASK_BUILDER_H
#define TARTAN_LAYOUT_MASK_BUILDER_H

#include "layout/block_mask.h"

typedef struct tartan_i_mask_builder {
    tartan_block_mask *mask;
    int64_t block_words; /* words of a block */
    uint32_t *words;     /* [block_words] of the block that comes next: set them, then add it */
    int64_t room;        /* for this many blocks in mask->bits; a power of two */
    uint64_t *hashes;    /* [room] of their words */
    int32_t *slots;      /* [2 * room] hash table of their positions, -1: empty */
} tartan_i_mask_builder;

/* `builder` may be dropped at any time. Errors name `function`: OVERFLOW (2^31 blocks or more), MEMORY. */
tartan_status tartan_i_mask_builder_begin(const char *function, tartan_layout *layout,
                                          tartan_i_mask_builder *builder);

/* Takes builder->words as the words of block `id`, and sets them to 0 again. Bits of padding must be 0. Errors: MEMORY. */
tartan_status tartan_i_mask_builder_add(tartan_i_mask_builder *builder, int64_t id);

/* All elements of block `id` count. */
void tartan_i_mask_builder_add_full(tartan_i_mask_builder *builder, int64_t id);

/* Every block has been added. Errors: MEMORY. */
tartan_status tartan_i_mask_builder_finish(tartan_i_mask_builder *builder, tartan_block_mask **out);

void tartan_i_mask_builder_drop(tartan_i_mask_builder *builder);

#endif
