/* SPDX-License-Identifier: Apache-2.0
 * Classes of positions at the edges of an image. Along one dimension, the taps that reach a position and the taps among them that
 * are inside of the image are an arithmetic progression and a part of it. Taps of all dimensions together are pairs or
 * triples of these, and one is outside if it is so in any dimension. */
#include "conv/geometry.h"

#include "core/memory.h"

#include <string.h>

/* The taps of one position along one dimension: they are `start` + i * step, and those from `first` to `last` are inside. */
typedef struct kind {
    int64_t start, first, last;
    bool none;           /* no tap reaches the position at all: it lies between strides */
    bool empty, partial; /* no tap is inside; some are not */
} kind;

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

/* Position `p` of y: taps with 0 <= p * stride + t * dilation - before < in. */
static kind forward_kind(const tartan_i_geometry *g, int32_t d, int64_t p) {
    const int64_t at = p * g->stride[d] - g->before[d], last = g->kernel[d] - 1;
    kind k = {.first = -floor_div(at, g->dilation[d]), .last = floor_div(g->in[d] - 1 - at, g->dilation[d])};
    if (k.first < 0) k.first = 0;
    if (k.last > last) k.last = last;
    k.empty = k.first > k.last;
    k.partial = k.empty || k.first > 0 || k.last < last;
    return k;
}

/* Position `q` of x: taps with q + before - t * dilation = p * stride, inside where 0 <= p < out. */
static kind transposed_kind(const tartan_i_geometry *g, int32_t d, int64_t q) {
    const int64_t s = g->stride[d], at = q + g->before[d];
    kind k = {.none = true, .empty = true};
    for (int64_t t = 0; t < g->kernel[d]; t++) {
        const int64_t from = at - t * g->dilation[d];
        if (from % s != 0) continue;
        const bool inside = from >= 0 && from / s < g->out[d];
        if (k.none) k.start = t;
        if (inside && k.empty) k.first = t;
        if (inside) k.last = t;
        k.none = false;
        k.empty = k.empty && !inside;
        k.partial = k.partial || !inside;
    }
    if (k.none) return (kind){.none = true};
    if (k.empty) k.first = k.last = -1;
    return k;
}

static bool same_kind(const kind *a, const kind *b) {
    return a->start == b->start && a->first == b->first && a->last == b->last && a->none == b->none &&
           a->empty == b->empty && a->partial == b->partial;
}

/* Finds the kinds along one dimension, in the order of their first positions. `kinds` has room for one a position. */
static void find_kinds(const tartan_i_geometry *g, bool transposed, int32_t d, kind *kinds,
                       tartan_i_edges *out) {
    const int64_t length = transposed ? g->in[d] : g->out[d];
    int64_t count = 0;
    for (int64_t p = 0; p < length; p++) {
        const kind k = transposed ? transposed_kind(g, d, p) : forward_kind(g, d, p);
        int64_t i = count; /* neighbours are often of one kind, so the latest are looked at first */
        while (i > 0 && !same_kind(&kinds[i - 1], &k)) i--;
        if (i == 0) {
            kinds[count++] = k;
            i = count;
        }
        out->line[d][p] = (int32_t)(i - 1);
    }
    out->lines[d] = count;
}

/* What tells classes apart. */
typedef struct key {
    int64_t start[TARTAN_I_DIMS], first[TARTAN_I_DIMS], last[TARTAN_I_DIMS];
} key;

/* The key of a combination of kinds; false if no tap is outside. */
static bool key_of(const kind *const kinds[TARTAN_I_DIMS], key *out) {
    bool none = false, partial = false, empty = false;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        none = none || kinds[d]->none;
        partial = partial || kinds[d]->partial;
        empty = empty || kinds[d]->empty;
    }
    if (none || !partial) return false;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        out->start[d] = kinds[d]->start;
        out->first[d] =
            empty ? -1 : kinds[d]->first; /* all taps are outside, whichever dimension it comes from */
        out->last[d] = empty ? -1 : kinds[d]->last;
    }
    return true;
}

/* Numbers the combinations of kinds. `known` has room for all of them. */
static void number_classes(const kind *const kinds[TARTAN_I_DIMS], key *known, tartan_i_edges *out) {
    int32_t *to = out->classes_of;
    out->classes = 1;
    for (int64_t i = 0; i < out->lines[0]; i++)
        for (int64_t j = 0; j < out->lines[1]; j++)
            for (int64_t l = 0; l < out->lines[2]; l++) {
                const kind *const here[] = {&kinds[0][i], &kinds[1][j], &kinds[2][l]};
                key k;
                int64_t class = 0;
                if (key_of(here, &k)) {
                    for (class = 1; class < out->classes; class ++)
                        if (memcmp(&known[class], &k, sizeof k) == 0) break;
                    if (class == out->classes) known[out->classes++] = k;
                }
                *to++ = (int32_t) class;
            }
}

tartan_status tartan_i_edges_make(const tartan_i_geometry *g, bool transposed, tartan_i_edges *out) {
    tartan_status status = TARTAN_OK;
    kind *kinds[TARTAN_I_DIMS] = {NULL};
    key *known = NULL;
    int64_t all = 1;
    *out = (tartan_i_edges){.classes = 1};
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const int64_t length = transposed ? g->in[d] : g->out[d];
        NEW(out->line[d], length);
        NEW(kinds[d], length);
        find_kinds(g, transposed, d, kinds[d], out);
        all *= out->lines[d];
    }
    NEW(out->classes_of, all);
    NEW(known, all + 1);
    number_classes((const kind *const *)kinds, known, out);
fail:
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) tartan_i_free(kinds[d]);
    tartan_i_free(known);
    if (status != TARTAN_OK) tartan_i_edges_free(out);
    return status;
}

void tartan_i_edges_free(tartan_i_edges *edges) {
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) tartan_i_free(edges->line[d]);
    tartan_i_free(edges->classes_of);
    *edges = (tartan_i_edges){.classes = 1};
}
