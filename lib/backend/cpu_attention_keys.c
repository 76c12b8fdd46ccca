/* SPDX-License-Identifier: Apache-2.0
 * Chunks of keys: which blocks they have, which of their keys a query sees, and what is added to its scores. */
#include "backend/cpu_attention.h"

#include <math.h>

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Adds a block to a chunk. */
static void add_block(const tartan_i_cpu_attention *p, int64_t block_row, int64_t id, tartan_i_chunk *c) {
    const tartan_layout *l = p->layout;
    const int64_t col = l->block_cols[id] * p->block_cols, cols = tartan_i_cols_of(l, l->block_cols[id]);
    const tartan_block_mask *mask = p->in->block_mask;
    if ((mask != NULL && !tartan_i_block_mask_is_full(mask, id)) ||
        tartan_i_attention_limit(p->in, block_row * p->block_rows) < col + cols)
        c->partial = true;
    c->ids[c->blocks] = id;
    c->cols[c->blocks] = l->block_cols[id];
    c->at[c->blocks++] = c->keys;
    c->keys += cols;
    c->at[c->blocks] = c->keys;
}

/* The queries of a row of blocks see no more keys than this. */
static int64_t limit_of(const tartan_i_cpu_attention *p, int64_t block_row) {
    return tartan_i_attention_limit(p->in,
                                    block_row * p->block_rows + tartan_i_rows_of(p->layout, block_row) - 1);
}

bool tartan_i_cpu_attention_chunk(const tartan_i_cpu_attention *p, int64_t block_row, int64_t *at,
                                  int64_t end, tartan_i_chunk *c) {
    const tartan_layout *l = p->layout;
    const int64_t limit = limit_of(p, block_row);
    c->blocks = c->keys = 0;
    c->partial = false;
    for (; *at < end && c->blocks < TARTAN_I_ATTENTION_KEYS / p->block_cols; ++*at)
        if (l->block_cols[*at] * p->block_cols < limit) add_block(p, block_row, *at, c);
    return c->blocks > 0;
}

bool tartan_i_cpu_attention_single(const tartan_i_cpu_attention *p, int64_t block_row, int64_t id,
                                   tartan_i_chunk *c) {
    c->blocks = c->keys = 0;
    c->partial = false;
    if (p->layout->block_cols[id] * p->block_cols < limit_of(p, block_row)) add_block(p, block_row, id, c);
    return c->blocks > 0;
}

int64_t tartan_i_cpu_attention_first(const tartan_i_cpu_attention *p, int64_t block_row, int64_t key) {
    if (!p->in->causal || key < p->in->causal_from) return 0;
    const int64_t query = key - p->in->query_offset - block_row * p->block_rows;
    return query > 0 ? query : 0;
}

/* ---- Masks ---- */

void tartan_i_cpu_set_bits(uint32_t *words, int64_t at, int64_t n, const uint32_t *from) {
    for (int64_t i = 0; i < n; i += 32) {
        const int64_t count = smaller(32, n - i);
        const uint64_t bits = (from != NULL ? from[i / 32] : UINT32_MAX) & (UINT32_MAX >> (32 - count));
        const uint64_t shifted = bits << (at + i) % 32;
        words[(at + i) / 32] |= (uint32_t)shifted;
        if (shifted >> 32 != 0) words[(at + i) / 32 + 1] |= (uint32_t)(shifted >> 32);
    }
}

const uint32_t *tartan_i_cpu_attention_words(const tartan_i_cpu_attention *p, const tartan_i_chunk *c,
                                             int64_t query, uint32_t words[TARTAN_I_ATTENTION_WORDS]) {
    const tartan_block_mask *mask = p->in->block_mask;
    if (!c->partial) return NULL;
    const int64_t limit = tartan_i_attention_limit(p->in, query);
    memset(words, 0, TARTAN_I_ATTENTION_WORDS * sizeof *words);
    for (int64_t i = 0; i < c->blocks; i++) {
        const int64_t seen = smaller(limit - c->cols[i] * p->block_cols, c->at[i + 1] - c->at[i]);
        if (seen > 0)
            tartan_i_cpu_set_bits(
                words, c->at[i], seen,
                mask != NULL ? tartan_i_block_mask_row(mask, c->ids[i], query % p->block_rows) : NULL);
    }
    return words;
}

void tartan_i_cpu_attention_clear(const tartan_i_cpu_attention *p, const uint32_t *words, int64_t n,
                                  void *row) {
    for (int64_t i = 0; i < n; i++) {
        if (words[i / 32] >> (i % 32) & 1) continue;
        if (p->k.dtype == TARTAN_F64)
            ((double *)row)[i] = 0;
        else
            ((float *)row)[i] = 0;
    }
}

/* ---- Scores ---- */

double tartan_i_cpu_attention_bias_of(const tartan_i_cpu_attention *p, int64_t entry, int64_t id,
                                      int64_t query, int64_t key) {
    const tartan_i_attention *in = p->in;
    const tartan_array *b = in->bias;
    const int64_t distance = key - query - in->query_offset, head = entry % p->heads;
    if (in->bias_kind == TARTAN_I_BIAS_DENSE)
        return tartan_i_load(b->data, b->dtype,
                             tartan_i_cpu_attention_plane(p, b, entry) + query * b->strides[2] +
                                 key * b->strides[3]);
    if (in->bias_kind == TARTAN_I_BIAS_SLOPES)
        return (double)distance * tartan_i_load(b->data, b->dtype, head * b->strides[0]);
    const int64_t plane = b->shape[0] > 1 ? head * b->strides[0] : 0;
    int64_t at = id;
    if (in->bias_kind == TARTAN_I_BIAS_DISTANCE) {
        const int64_t most = b->shape[1] / 2;
        at = most + (distance < -most ? -most : distance > most ? most : distance);
    }
    return tartan_i_load(b->data, b->dtype, plane + at * b->strides[1]);
}

/* What is added to scores of a chunk. */
static void load_biases(const tartan_i_cpu_attention *p, const tartan_i_chunk *c, int64_t entry,
                        int64_t query, void *room) {
    const tartan_array *b = p->in->bias;
    for (int64_t i = 0; i < c->blocks; i++) {
        const int64_t key = c->cols[i] * p->block_cols, keys = c->at[i + 1] - c->at[i];
        if (p->in->bias_kind == TARTAN_I_BIAS_DENSE) {
            const int64_t at = tartan_i_cpu_attention_plane(p, b, entry) + query * b->strides[2];
            tartan_i_line_load(&p->k, b->dtype, tartan_i_at(b->data, b->dtype, at + key * b->strides[3]),
                               b->strides[3], keys, (char *)room + c->at[i] * p->k.bytes);
            continue;
        }
        for (int64_t j = 0; j < keys; j++) {
            const double bias = tartan_i_cpu_attention_bias_of(p, entry, c->ids[i], query, key + j);
            if (p->k.dtype == TARTAN_F64)
                ((double *)room)[c->at[i] + j] = bias;
            else
                ((float *)room)[c->at[i] + j] = (float)bias;
        }
    }
}

double tartan_i_cpu_attention_scale(const tartan_i_cpu_attention *p) {
    const tartan_i_attention *in = p->in;
    /* With a negative scale the largest score must come from the largest element. */
    return in->bias != NULL || in->scale < 0 || in->softcap > 0 ? 1 : in->scale;
}

double tartan_i_cpu_attention_score(const tartan_i_cpu_attention *p, const tartan_i_chunk *c, int64_t entry,
                                    int64_t query, void *row, void *room, void *caps) {
    const tartan_i_attention *in = p->in;
    double scale = in->scale;
    if (in->softcap > 0) {
        p->k.scale(c->keys, scale / in->softcap, row, row);
        p->k.point1[TARTAN_I_POINT1_tanh].value(c->keys, tartan_i_no_parameters, row, row);
        if (caps != NULL) memcpy(caps, row, (size_t)(c->keys * p->k.bytes));
        scale = in->softcap;
    }
    if (in->bias != NULL) {
        load_biases(p, c, entry, query, room);
        p->k.commit[p->k.dtype](1, c->keys, 1, room, 0, scale, row, 0);
    } else if (in->softcap > 0 || in->scale < 0) {
        p->k.scale(c->keys, scale, row, row);
    }
    return tartan_i_cpu_attention_scale(p);
}

/* ---- Sinks ---- */

double tartan_i_cpu_attention_exp(const tartan_i_kernels *k, double x) {
    double room;
    tartan_i_store(&room, k->dtype, 0, x);
    k->row_exp_sum(1, 1, &room, 0, NULL, &room);
    return tartan_i_load(&room, k->dtype, 0);
}

double tartan_i_cpu_attention_sink(const tartan_i_kernels *k, const tartan_array *sinks, int64_t head,
                                   double *most, double *total) {
    if (sinks == NULL) return 1;
    const double sink = tartan_i_load(sinks->data, sinks->dtype, head * sinks->strides[0]), before = *most;
    if (sink == -(double)INFINITY) return 1;
    if (sink > before) *most = sink;
    const double factor = before == *most ? 1 : tartan_i_cpu_attention_exp(k, before - *most);
    *total = *total * factor + (sink == *most ? 1 : tartan_i_cpu_attention_exp(k, sink - *most));
    return factor;
}

/* ---- Dropout ---- */

void tartan_i_cpu_attention_kept(const tartan_i_cpu_attention *p, const tartan_i_chunk *c, int64_t entry,
                                 int64_t query, uint32_t words[TARTAN_I_ATTENTION_WORDS]) {
    memset(words, 0, TARTAN_I_ATTENTION_WORDS * sizeof *words);
    for (int64_t i = 0; i < c->blocks; i++)
        for (int64_t j = c->at[i]; j < c->at[i + 1]; j++) {
            const int64_t key = c->cols[i] * p->block_cols + j - c->at[i];
            if (tartan_i_attention_random(p->in, entry, query, key) >= p->drop)
                words[j / 32] |= UINT32_C(1) << (j % 32);
        }
}
