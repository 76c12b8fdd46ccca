/* SPDX-License-Identifier: Apache-2.0
 * Which keys a query sees, and what dropout drops. */
#ifndef TARTAN_BACKEND_ATTENTION_H
#define TARTAN_BACKEND_ATTENTION_H

#include "backend/operation.h"

/* Only keys before this number are visible to query i: all of them, unless the attention is causal. */
static inline int64_t tartan_i_attention_limit(const tartan_i_attention *in, int64_t query) {
    const int64_t keys = in->layout->shape.cols;
    if (!in->causal) return keys;
    int64_t limit;
    if (__builtin_add_overflow(query + 1, in->query_offset, &limit)) limit = INT64_MAX;
    if (limit < in->causal_from) limit = in->causal_from;
    return limit < 0 ? 0 : limit < keys ? limit : keys;
}

/* The head of a layout whose blocks an entry (batch * heads + head) has: layouts have one head for all, one for each batch
 * entry, one for each head, or one for each entry. */
static inline int64_t tartan_i_attention_layout_head(const tartan_i_attention *in,
                                                     const tartan_layout *layout, int64_t entry) {
    const int64_t heads = in->q->shape[1];
    if (layout->shape.heads == 1) return 0;
    if (in->by_batch) return entry / heads;
    return layout->shape.heads == heads ? entry % heads : entry;
}

/* The random word of a query and a key, which decides about dropout: the weight is dropped if the word is less than
 * dropout * 2^32, rounded down. `entry` is batch * heads + head. Philox makes it with seed `seed`, stream
 * TARTAN_I_STREAM_DROPOUT, index entry * tq + query and counter 4 * (key / 16) + key % 8 / 2; it is word 2 * (key / 8 %
 * 2) + key % 2 of the four. So the words of one counter belong to keys j, j + 1, j + 8 and j + 9, which one thread holds
 * in the fragments of tensor cores. Every backend must do the same. */
uint32_t tartan_i_attention_random(const tartan_i_attention *in, int64_t entry, int64_t query, int64_t key);

/* The pairs of a query and a key that it sees, of all batch entries and heads. */
double tartan_i_attention_pairs(const tartan_i_attention *in);

#endif
