/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/mask_builder.h"

#include "layout/plans.h"

#include <string.h>

/* Inlined, as in identity.c. */
#define XXH_INLINE_ALL
#include <xxhash.h>

static size_t block_bytes(const tartan_i_mask_builder *b) {
    return (size_t)b->block_words * sizeof *b->words;
}

/* The slot of these words, or the empty one where they belong. */
static uint64_t slot_of(const tartan_i_mask_builder *b, const uint32_t *words, uint64_t hash) {
    const uint64_t last = 2 * (uint64_t)b->room - 1;
    uint64_t slot = hash & last;
    for (; b->slots[slot] >= 0; slot = (slot + 1) & last) {
        const int32_t at = b->slots[slot];
        if (b->hashes[at] == hash && memcmp(b->mask->bits + at * b->block_words, words, block_bytes(b)) == 0)
            break;
    }
    return slot;
}

/* Moves what is stored to room for `room` blocks. */
static tartan_status make_room(tartan_i_mask_builder *b, int64_t room) {
    tartan_status status;
    uint32_t *bits = NULL;
    uint64_t *hashes = NULL;
    int32_t *slots = NULL;
    TRY(tartan_i_allocate(&bits, room, (int64_t)block_bytes(b)));
    NEW(hashes, room);
    NEW(slots, 2 * room);
    const int64_t stored = b->mask->stored;
    if (stored > 0) {
        memcpy(bits, b->mask->bits, (size_t)stored * block_bytes(b));
        memcpy(hashes, b->hashes, (size_t)stored * sizeof *hashes);
    }
    memset(slots, 0xff, 2 * (size_t)room * sizeof *slots);
    tartan_i_free(b->mask->bits);
    tartan_i_free(b->hashes);
    tartan_i_free(b->slots);
    b->mask->bits = bits;
    b->hashes = hashes;
    b->slots = slots;
    b->room = room;
    for (int64_t i = 0; i < stored; i++) { /* all different */
        uint64_t slot = hashes[i] & (2 * (uint64_t)room - 1);
        while (slots[slot] >= 0) slot = (slot + 1) & (2 * (uint64_t)room - 1);
        slots[slot] = (int32_t)i;
    }
    return TARTAN_OK;
fail:
    tartan_i_free(bits);
    tartan_i_free(hashes);
    tartan_i_free(slots);
    return status;
}

tartan_status tartan_i_mask_builder_begin(const char *function, tartan_layout *layout,
                                          tartan_i_mask_builder *builder) {
    tartan_status status;
    const tartan_shape *s = &layout->shape;
    tartan_block_mask *mask = NULL;
    *builder = (tartan_i_mask_builder){0};
    CHECK_IN(function, layout->blocks <= INT32_MAX, OVERFLOW,
             "layout has %" PRId64 " blocks, expected fewer than 2^31 under a mask", layout->blocks);
    NEW_ZEROED(mask, 1);
    tartan_i_plans_begin(&mask->plans);
    mask->magic = TARTAN_I_BLOCK_MASK;
    mask->row_words = tartan_i_ceil_div(s->block_cols, 32);
    mask->layout = tartan_layout_retain(layout);
    builder->mask = mask;
    builder->block_words = s->block_rows * mask->row_words;
    NEW(mask->words_of, layout->blocks);
    NEW_ZEROED(builder->words, builder->block_words);
    TRY(make_room(builder, 4));
    return TARTAN_OK;
fail:
    tartan_i_mask_builder_drop(builder);
    return status;
}

void tartan_i_mask_builder_add_full(tartan_i_mask_builder *b, int64_t id) {
    const tartan_layout *l = b->mask->layout;
    b->mask->words_of[id] = -1;
    b->mask->kept += tartan_i_rows_of(l, l->block_rows[id]) * tartan_i_cols_of(l, l->block_cols[id]);
}

tartan_status tartan_i_mask_builder_add(tartan_i_mask_builder *b, int64_t id) {
    tartan_block_mask *mask = b->mask;
    const tartan_layout *l = mask->layout;
    int64_t kept = 0;
    for (int64_t i = 0; i < b->block_words; i++) kept += __builtin_popcount(b->words[i]);
    if (kept == tartan_i_rows_of(l, l->block_rows[id]) * tartan_i_cols_of(l, l->block_cols[id])) {
        tartan_i_mask_builder_add_full(b, id);
    } else {
        const uint64_t hash = XXH3_64bits(b->words, block_bytes(b));
        if (mask->stored == b->room) PASS(make_room(b, 2 * b->room));
        const uint64_t slot = slot_of(b, b->words, hash);
        if (b->slots[slot] < 0) {
            b->slots[slot] = (int32_t)mask->stored;
            b->hashes[mask->stored] = hash;
            memcpy(mask->bits + mask->stored++ * b->block_words, b->words, block_bytes(b));
        }
        mask->words_of[id] = b->slots[slot];
        mask->kept += kept;
    }
    memset(b->words, 0, block_bytes(b));
    return TARTAN_OK;
}

tartan_status tartan_i_mask_builder_finish(tartan_i_mask_builder *b, tartan_block_mask **out) {
    tartan_block_mask *mask = b->mask;
    uint32_t *bits = NULL;
    PASS(tartan_i_allocate(&bits, mask->stored, (int64_t)block_bytes(b)));
    if (mask->stored > 0) memcpy(bits, mask->bits, (size_t)mask->stored * block_bytes(b));
    tartan_i_free(mask->bits);
    mask->bits = bits;
    *out = mask;
    b->mask = NULL;
    tartan_i_mask_builder_drop(b);
    return TARTAN_OK;
}

void tartan_i_mask_builder_drop(tartan_i_mask_builder *b) {
    tartan_block_mask_free(b->mask);
    tartan_i_free(b->words);
    tartan_i_free(b->hashes);
    tartan_i_free(b->slots);
    *b = (tartan_i_mask_builder){0};
}
