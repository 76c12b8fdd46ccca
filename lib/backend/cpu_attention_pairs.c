/* SPDX-License-Identifier: Apache-2.0
 * Attention on the CPU, forward, where products read pairs of 16-bit numbers. Everything is transposed, so that nothing
 * has to be rearranged between products: scores^T = K Q^T has its queries in the lanes of vectors, softmax goes along
 * columns, two rows of weights make a row of pairs, and out^T += V^T weights^T takes them as its right factor.
 *
 * The running maximum may lag behind the largest score by SLACK: weights grow to exp(SLACK) then, which costs no accuracy,
 * and sums are seldom scaled. */
#include "backend/cpu_attention.h"
#include "core/workspace.h"

#include <math.h>

enum { KEYS, VALUES, FACTORS };
enum { SLACK = 5 };

typedef struct forward {
    tartan_i_cpu_attention p;
    const tartan_op_attention_forward *op;
    tartan_i_cpu_factor factors[FACTORS]; /* K, and V^T, both on the left */
    int64_t rows;                         /* of scores for each block: keys */
    int64_t queries;                      /* of a row of blocks, in whole vectors */
    int64_t words;                        /* of a row of masks */
    char *scratch;
    int64_t scratch_bytes; /* of a worker */
} forward;

/* A worker's own memory, and the row of blocks at work. */
typedef struct work {
    const forward *f;
    tartan_i_tiling tiling;
    char *panels;                         /* Q^T, strip after strip */
    float *scores;                        /* [rows of the chunk][queries] */
    uint32_t *weights;                    /* [half as many rows][queries] */
    uint32_t *masks;                      /* [rows of the chunk][words] */
    float *sums;                          /* [d][queries] */
    float *biases;                        /* of a row of scores */
    float *most, *shift, *total, *factor; /* [queries] */

    int64_t entry, head, block_row, count; /* entry: batch * heads + head; count: of queries */
    tartan_i_chunk chunk;
    const uint32_t *mask; /* of the chunk, or NULL */
    bool first;           /* the chunk is the first of its row */
} work;

/* Lays out a worker's memory, and returns its size. */
static int64_t lay_out(const forward *f, char *base, work *w) {
    const tartan_i_cpu_attention *p = &f->p;
    const int64_t blocks = TARTAN_I_ATTENTION_KEYS / p->block_cols;
    const int64_t rows = blocks * f->rows, line = f->queries * 4;
    int64_t at = 0;
    w->f = f;
    w->panels = tartan_i_cpu_attention_take(base, &at, f->factors[KEYS].fit.units * line);
    w->scores = tartan_i_cpu_attention_take(base, &at, rows * line);
    w->weights = tartan_i_cpu_attention_take(base, &at, rows / 2 * line);
    w->masks = tartan_i_cpu_attention_take(base, &at, rows * f->words * 4);
    w->sums = tartan_i_cpu_attention_take(base, &at, f->factors[VALUES].fit.rows * line);
    float **lines[] = {&w->biases, &w->most, &w->shift, &w->total, &w->factor};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        *lines[i] = tartan_i_cpu_attention_take(base, &at, line);
    return at;
}

/* ---- Products ---- */

/* sums (+)= the left blocks of the terms times `right`, [units][queries], or panels of it. */
static void multiply(work *w, const tartan_i_fit *fit, const tartan_i_term *terms, int64_t nterms,
                     const char *right, bool panels, float *sums, bool first) {
    const forward *f = w->f;
    const tartan_i_product *product = &f->p.k.product;
    const int64_t vectors = f->queries / product->lanes;
    tartan_i_cpu_attention_tile(product, &w->tiling, fit);
    for (int64_t i = 0; i < tartan_i_cpu_strips(product, vectors); i++) {
        tartan_i_strip s = {.a_row = fit->units,
                            .a_col = 1,
                            .sums_row = f->queries,
                            .first = first,
                            .tile_rows = fit->tile_rows,
                            .tile_units = fit->tile_units};
        int64_t column;
        tartan_i_cpu_strip(product, vectors, i, &column, &s.width);
        s.b = right + (panels ? column * fit->units : column) * product->bytes;
        s.b_row = panels ? s.width : f->queries;
        const int64_t most =
            fit->tile_rows > 0 ? 2 * fit->tile_rows : product->rows[s.width / product->lanes - 1];
        for (; s.row < fit->rows; s.row += most) {
            s.rows = fit->rows - s.row < most ? fit->rows - s.row : most;
            s.sums = sums + column + s.row * f->queries;
            product->strip(&s, terms, nterms);
        }
    }
}

static void pack_queries(work *w) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_i_product *product = &p->k.product;
    const tartan_array *q = p->in->q;
    const int64_t units = f->factors[KEYS].fit.units, vectors = f->queries / product->lanes;
    const char *from = tartan_i_cpu_attention_at(q, w->entry, w->block_row * p->block_rows);
    memset(w->panels, 0, (size_t)(units * f->queries * product->bytes));
    for (int64_t i = 0; i < tartan_i_cpu_strips(product, vectors); i++) {
        int64_t first, width;
        tartan_i_cpu_strip(product, vectors, i, &first, &width);
        const int64_t count = w->count - first < width ? w->count - first : width;
        if (count > 0)
            tartan_i_pack_right(&p->k, q->dtype, from + first * q->strides[2] * 2, q->strides[3],
                                q->strides[2], p->d, count, w->panels + first * units * product->bytes,
                                width);
    }
}

static void compute_scores(work *w, int64_t kv_entry) {
    const forward *f = w->f;
    const tartan_i_cpu_factor *keys = &f->factors[KEYS];
    for (int64_t i = 0; i < w->chunk.blocks; i++) {
        const tartan_i_term term = {.a = tartan_i_cpu_factor_left(keys, kv_entry, w->chunk.cols[i], &f->p.k),
                                    .k = keys->fit.units};
        multiply(w, &keys->fit, &term, 1, w->panels, true, w->scores + i * f->rows * f->queries, true);
    }
}

static void add_values(work *w, int64_t kv_entry) {
    const forward *f = w->f;
    const tartan_i_cpu_factor *values = &f->factors[VALUES];
    tartan_i_term terms[TARTAN_I_ATTENTION_KEYS];
    for (int64_t i = 0; i < w->chunk.blocks; i++)
        terms[i] = (tartan_i_term){.a = tartan_i_cpu_factor_left(values, kv_entry, w->chunk.cols[i], &f->p.k),
                                   .b = i * (f->rows / 2),
                                   .k = values->fit.units};
    multiply(w, &values->fit, terms, w->chunk.blocks, (const char *)w->weights, false, w->sums, w->first);
}

/* ---- Masks: a row for each key, a bit for each query ---- */

static void transpose_bits(uint32_t a[32]) {
    for (uint32_t j = 16, m = 0xffff; j != 0; j >>= 1, m ^= m << j)
        for (uint32_t k = 0; k < 32; k = ((k | j) + 1) & ~j) {
            const uint32_t t = (a[k] >> j ^ a[k | j]) & m;
            a[k] ^= t << j;
            a[k | j] ^= t;
        }
}

/* Clears the bits that the block mask does not keep, 32 x 32 at a time. */
static void apply_block_mask(work *w, int64_t id, int64_t keys, uint32_t *masks) {
    const tartan_block_mask *mask = w->f->p.in->block_mask;
    for (int64_t i = 0; i < w->count; i += 32)
        for (int64_t j = 0; j < keys; j += 32) {
            uint32_t bits[32] = {0};
            for (int64_t k = 0; k < 32 && i + k < w->count; k++)
                bits[k] = tartan_i_block_mask_row(mask, id, i + k)[j / 32];
            transpose_bits(bits);
            for (int64_t k = 0; k < 32 && j + k < keys; k++) masks[(j + k) * w->f->words + i / 32] &= bits[k];
        }
}

static void mask_chunk(work *w) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_i_chunk *c = &w->chunk;
    w->mask = NULL;
    if (!c->partial && c->keys == c->blocks * f->rows) return;
    w->mask = w->masks;
    memset(w->masks, 0, (size_t)(c->blocks * f->rows * f->words * 4));
    for (int64_t i = 0; i < c->blocks; i++) {
        const int64_t keys = c->at[i + 1] - c->at[i], key = c->cols[i] * p->block_cols;
        uint32_t *masks = w->masks + i * f->rows * f->words;
        for (int64_t j = 0; j < keys; j++)
            for (int64_t q = tartan_i_cpu_attention_first(p, w->block_row, key + j); q < w->count; q++)
                masks[j * f->words + q / 32] |= UINT32_C(1) << q % 32;
        if (p->in->block_mask != NULL) apply_block_mask(w, c->ids[i], keys, masks);
    }
}

/* ---- Softmax ---- */

/* Adds biases, or scales by a negative number. */
static void prepare_scores(work *w) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_i_chunk *c = &w->chunk;
    for (int64_t i = 0; i < c->blocks; i++)
        for (int64_t j = 0; j < c->at[i + 1] - c->at[i]; j++) {
            float *row = w->scores + (i * f->rows + j) * f->queries;
            if (p->in->bias == NULL) {
                p->k.scale(w->count, p->in->scale, row, row);
                continue;
            }
            for (int64_t q = 0; q < w->count; q++)
                w->biases[q] = (float)tartan_i_cpu_attention_bias_of(
                    p, w->head, c->ids[i], w->block_row * p->block_rows + q, c->cols[i] * p->block_cols + j);
            p->k.commit[TARTAN_F32](1, w->count, 1, w->biases, 0, p->in->scale, row, 0);
        }
}

/* Raises the running maximum where it lags too far behind, and scales sums for it. */
static void raise_shift(work *w, double scale) {
    const forward *f = w->f;
    bool rose = false;
    for (int64_t q = 0; q < w->count; q++) {
        const float most = w->most[q] > -INFINITY ? (float)(scale * w->most[q]) : -INFINITY;
        const float before = w->shift[q];
        w->factor[q] = 1;
        if (!(most > before + SLACK) && !(before == -INFINITY && most > before)) continue;
        w->shift[q] = most;
        if (before == -INFINITY) continue;
        w->factor[q] = expf(before - most);
        w->total[q] *= w->factor[q];
        rose = true;
    }
    if (rose)
        f->p.k.product.columns_scale(f->factors[VALUES].fit.rows, f->queries, w->sums, f->queries, w->factor);
}

static void drop_weights(work *w) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_i_chunk *c = &w->chunk;
    for (int64_t i = 0; i < c->blocks; i++)
        for (int64_t j = 0; j < c->at[i + 1] - c->at[i]; j++)
            for (int64_t q = 0; q < w->count; q++)
                if (tartan_i_attention_random(p->in, w->entry, w->block_row * p->block_rows + q,
                                              c->cols[i] * p->block_cols + j) < p->drop)
                    w->weights[(i * f->rows + j) / 2 * f->queries + q] &= j % 2 == 0 ? 0xffff0000 : 0xffff;
}

static void weigh(work *w) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_i_product *product = &p->k.product;
    const int64_t rows = w->chunk.blocks * f->rows, n = f->queries;
    double scale = p->in->scale;
    mask_chunk(w);
    if (p->in->bias != NULL || scale < 0) {
        prepare_scores(w);
        scale = 1;
    }
    product->columns_max(rows, n, w->scores, n, w->mask, f->words, w->most);
    raise_shift(w, scale);
    for (int64_t q = 0; q < n; q++) /* without a maximum, exp(-infinity) must be 0 */
        w->factor[q] = q < w->count && w->shift[q] > -INFINITY ? w->shift[q] : 0;
    product->columns_weigh(rows, n, scale, w->scores, n, w->mask, f->words, w->factor, w->total, w->weights);
    if (p->drop > 0) drop_weights(w);
}

/* ---- Rows of blocks ---- */

/* Stores what the weights and their sums make. */
static void finish(work *w) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_array *out = f->op->out, *lse = f->op->lse;
    const int64_t query = w->block_row * p->block_rows, n = f->queries;
    const double kept = 1 - p->in->dropout;
    bool none = w->first;
    if (w->first) memset(w->sums, 0, (size_t)(p->d * n) * sizeof *w->sums);
    for (int64_t q = 0; q < w->count; q++) {
        const bool empty = w->total[q] == 0;
        w->factor[q] = empty ? 0 : (float)(1 / (w->total[q] * kept));
        for (int64_t t = 0; empty && !none && t < p->d; t++) w->sums[t * n + q] = 0;
        if (lse == NULL) continue;
        const int64_t at =
            w->entry / p->heads * lse->strides[0] + w->head * lse->strides[1] + (query + q) * lse->strides[2];
        tartan_i_store(lse->data, lse->dtype, at,
                       empty ? -(double)INFINITY : (double)w->shift[q] + log((double)w->total[q]));
    }
    if (!none) p->k.product.columns_scale(p->d, n, w->sums, n, w->factor);
    tartan_i_commit(&p->k, (const char *)w->sums, n, p->d, w->count, 1, 0, out->dtype,
                    tartan_i_cpu_attention_at(out, w->entry, query), out->strides[3], out->strides[2]);
}

static void compute_row(work *w, int64_t kv_entry) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const int64_t *pointers =
        p->layout->row_pointers + (p->layout->shape.heads > 1 ? w->head : 0) * p->layout->grid_rows;
    int64_t at = pointers[w->block_row];
    w->count = tartan_i_rows_of(p->layout, w->block_row);
    w->first = true;
    for (int64_t q = 0; q < f->queries; q++) w->most[q] = w->shift[q] = -INFINITY, w->total[q] = 0;
    pack_queries(w);
    while (tartan_i_cpu_attention_chunk(p, w->block_row, &at, pointers[w->block_row + 1], &w->chunk)) {
        compute_scores(w, kv_entry);
        weigh(w);
        add_values(w, kv_entry);
        w->first = false;
    }
    finish(w);
}

/* The last rows of blocks come first: with causal=1 they have the most work. */
static void compute_task(void *data, int32_t worker) {
    const forward *f = data;
    const tartan_i_cpu_attention *p = &f->p;
    const int64_t rows = p->layout->grid_rows, entries = p->count * p->group;
    work w = {0};
    int32_t finished = 0, range;
    int64_t begin, end;
    (void)lay_out(f, f->scratch + worker * f->scratch_bytes, &w);
    while (tartan_i_cpu_team_take(&p->team, worker, &finished, &range, &begin, &end))
        for (int64_t task = begin; task < end; task++) {
            w.entry = p->first * p->group + task % entries;
            w.head = w.entry % p->heads;
            w.block_row = rows - 1 - task / entries;
            compute_row(&w, w.entry / p->group);
        }
    tartan_i_cpu_end(&p->k.product);
}

static tartan_status get_memory(forward *f) {
    work w;
    PASS(tartan_i_cpu_attention_memory(&f->p, f->factors, FACTORS));
    f->scratch_bytes = tartan_i_ceil_div(lay_out(f, NULL, &w), 4096) * 4096;
    return tartan_i_workspace_get(f->p.context, TARTAN_I_ROOM_OWN, &f->scratch, f->scratch_bytes,
                                  f->p.context->threads);
}

tartan_status tartan_i_cpu_attention_forward_pairs(const tartan_context *context,
                                                   const tartan_op_attention_forward *op) {
    forward f = {.p = tartan_i_cpu_attention_plan(context, &op->in), .op = op};
    tartan_i_cpu_attention *p = &f.p;
    f.factors[KEYS] = tartan_i_cpu_factor_of(p, op->in.k, p->block_cols, TARTAN_I_LEFT);
    f.factors[VALUES] = tartan_i_cpu_factor_of(p, op->in.v, p->block_cols, TARTAN_I_LEFT_TURNED);
    const int64_t keys = f.factors[KEYS].fit.rows, pairs = f.factors[VALUES].fit.units;
    f.rows = (keys > 2 * pairs ? keys : 2 * pairs);
    f.rows += f.rows % 2;
    f.queries = tartan_i_ceil_div(p->block_rows, p->k.product.lanes) * p->k.product.lanes;
    f.words = tartan_i_ceil_div(f.queries, 32);
    const tartan_status status = get_memory(&f);
    for (int64_t first = 0; status == TARTAN_OK && first < p->entries; first += p->round) {
        tartan_i_cpu_attention_pack(p, f.factors, FACTORS, first);
        tartan_i_cpu_attention_share(p, p->count * p->group * p->layout->grid_rows,
                                     p->work * (double)p->count / (double)p->entries, compute_task, &f);
    }
    tartan_i_workspace_end(context);
    return status;
}
