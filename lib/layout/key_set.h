/* SPDX-License-Identifier: Apache-2.0
 * A set of numbers >= 0: open addressing with linear probing. */
#ifndef TARTAN_LAYOUT_KEY_SET_H
#define TARTAN_LAYOUT_KEY_SET_H

#include "core/memory.h"

#include <string.h>

typedef struct key_set {
    int64_t *slots; /* -1: empty */
    uint64_t mask;
    int shift;
} key_set;

/* An empty set with room for `count` keys, at most half full. */
static inline tartan_status key_set_make(key_set *set, int64_t count) {
    int bits = 4;
    while (bits < 62 && (int64_t)1 << bits < 2 * count) bits++;
    PASS(tartan_i_allocate(&set->slots, (int64_t)1 << bits, sizeof *set->slots));
    memset(set->slots, 0xff, ((size_t)1 << bits) * sizeof *set->slots);
    set->mask = ((uint64_t)1 << bits) - 1;
    set->shift = 64 - bits;
    return TARTAN_OK;
}

static inline uint64_t key_set_home(const key_set *set, int64_t key) {
    return (uint64_t)key * 0x9e3779b97f4a7c15u >> set->shift;
}

/* The slot of the key, or the empty one where it belongs. */
static inline uint64_t key_set_slot(const key_set *set, int64_t key) {
    uint64_t slot = key_set_home(set, key);
    while (set->slots[slot] >= 0 && set->slots[slot] != key) slot = (slot + 1) & set->mask;
    return slot;
}

static inline bool key_set_has(const key_set *set, int64_t key) {
    return set->slots[key_set_slot(set, key)] == key;
}

/* Adds the key; false if the set already has it. */
static inline bool key_set_add(key_set *set, int64_t key) {
    uint64_t slot = key_set_slot(set, key);
    if (set->slots[slot] == key) return false;
    set->slots[slot] = key;
    return true;
}

/* Removes a key of the set and moves up the keys behind it that the gap would hide. */
static inline void key_set_remove(key_set *set, int64_t key) {
    uint64_t gap = key_set_slot(set, key);
    for (uint64_t next = (gap + 1) & set->mask; set->slots[next] >= 0; next = (next + 1) & set->mask) {
        uint64_t home = key_set_home(set, set->slots[next]);
        if (((next - home) & set->mask) < ((next - gap) & set->mask)) continue; /* home lies behind the gap */
        set->slots[gap] = set->slots[next];
        gap = next;
    }
    set->slots[gap] = -1;
}

#endif
