/* SPDX-License-Identifier: Apache-2.0
 * Which keys a query sees. */
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

/* The pairs of a query and a key that it sees, of all batch entries and heads. */
double tartan_i_attention_pairs(const tartan_i_attention *in);

#endif
