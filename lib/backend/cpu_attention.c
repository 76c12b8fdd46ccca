/* SPDX-License-Identifier: Apache-2.0
 * Attention on the CPU, forward. For each row of blocks of a head, chunk after chunk of its keys: scores = Q K^T, a running
 * maximum for each query, weights = exp(scores - maximum), out = out * exp(old maximum - maximum) + weights V.
 *
 * Source: Dao, "FlashAttention-2" (2023), algorithm 1. */
#include "backend/cpu_attention.h"
#include "core/workspace.h"

#include <math.h>

enum { KEYS, VALUES, FACTORS };

typedef struct forward {
    tartan_i_cpu_attention p;
    const tartan_op_attention_forward *op;
    tartan_i_cpu_factor factors[FACTORS]; /* K^T and V */
    char *scratch;
    int64_t scratch_bytes; /* of a worker */
} forward;

/* A worker's own memory, and the row of blocks at work. */
typedef struct work {
    const forward *f;
    tartan_i_tiling tiling;
    char *scores;    /* [rows][scores_row] */
    char *sums;      /* [rows][sums_row] */
    char *queries;   /* as a left factor, if it is not read in place */
    char *biases;    /* of a row of scores */
    uint32_t *masks; /* [rows][TARTAN_I_ATTENTION_WORDS] of a partial chunk */
    double *most;    /* [rows] the largest score so far */
    double *total;   /* [rows] the sum of weights */

    int64_t entry, head, block_row, rows; /* entry: batch * heads + head */
    tartan_i_chunk chunk;
    bool first; /* the chunk is the first of its row */
} work;

/* Lays out a worker's memory, and returns its size. */
static int64_t lay_out(const forward *f, char *base, work *w) {
    const tartan_i_cpu_attention *p = &f->p;
    const int64_t rows = p->fit.rows;
    int64_t at = 0;
    w->f = f;
    w->scores = tartan_i_cpu_attention_take(base, &at, rows * p->scores_row * p->k.bytes);
    w->sums = tartan_i_cpu_attention_take(base, &at, rows * p->sums_row * p->k.bytes);
    w->queries = tartan_i_cpu_attention_take(base, &at, tartan_i_cpu_attention_left_bytes(p, &p->fit));
    w->biases = tartan_i_cpu_attention_take(base, &at, p->scores_row * p->k.bytes);
    w->masks = tartan_i_cpu_attention_take(base, &at, rows * TARTAN_I_ATTENTION_WORDS * 4);
    w->most = tartan_i_cpu_attention_take(base, &at, rows * (int64_t)sizeof *w->most);
    w->total = tartan_i_cpu_attention_take(base, &at, rows * (int64_t)sizeof *w->total);
    return at;
}

static double rounded(const tartan_i_kernels *k, double x) {
    return k->dtype == TARTAN_F64 ? x : (double)(float)x;
}

/* Takes a chunk's largest score into account. */
static void raise_most(work *w, int64_t row, double most) {
    const tartan_i_kernels *k = &w->f->p.k;
    const double before = w->most[row];
    if (!(most > before)) return;
    w->most[row] = most;
    if (before == -(double)INFINITY) return;
    const double factor = tartan_i_cpu_attention_exp(k, before - most);
    char *sums = w->sums + row * w->f->p.sums_row * k->bytes;
    k->scale(w->f->p.dv, factor, sums, sums);
    w->total[row] *= factor;
}

/* The largest score of each query. Rows go through each step together, since a row's own steps wait for each other. */
static void find_most(work *w) {
    const tartan_i_cpu_attention *p = &w->f->p;
    const tartan_i_kernels *k = &p->k;
    const tartan_i_chunk *c = &w->chunk;
    for (int64_t row = 0; row < w->rows; row++) {
        const int64_t query = w->block_row * p->block_rows + row;
        char *x = w->scores + row * p->scores_row * k->bytes;
        const double scale = tartan_i_cpu_attention_score(p, c, w->entry, query, x, w->biases, NULL);
        const uint32_t *mask =
            tartan_i_cpu_attention_words(p, c, query, w->masks + row * TARTAN_I_ATTENTION_WORDS);
        const double most = k->row_max(c->keys, x, mask);
        raise_most(w, row, most > -(double)INFINITY ? rounded(k, scale * most) : most);
    }
}

/* Scores become weights. */
static void weigh(work *w) {
    const tartan_i_cpu_attention *p = &w->f->p;
    const tartan_i_chunk *c = &w->chunk;
    const double scale = tartan_i_cpu_attention_scale(p);
    for (int64_t row = 0; row < w->rows; row++) {
        char *x = w->scores + row * p->scores_row * p->k.bytes;
        const uint32_t *mask = c->partial ? w->masks + row * TARTAN_I_ATTENTION_WORDS : NULL;
        const double most = w->most[row];
        const double shift = most > -(double)INFINITY ? most : 0; /* without any, exp(-infinity) must be 0 */
        w->total[row] += p->k.row_exp_sum(c->keys, scale, x, shift, mask, x);
        if (p->drop > 0) {
            uint32_t kept[TARTAN_I_ATTENTION_WORDS];
            tartan_i_cpu_attention_kept(p, c, w->entry, w->block_row * p->block_rows + row, kept);
            tartan_i_cpu_attention_clear(p, kept, c->keys, x);
        }
        if (p->in->q->dtype != p->k.dtype) { /* as weights that products of 16 bits read */
            uint16_t room[TARTAN_I_ATTENTION_KEYS];
            p->k.store[p->in->q->dtype](c->keys, x, room);
            p->k.load[p->in->q->dtype](c->keys, room, x);
        }
    }
}

static void compute_chunk(work *w, const tartan_i_left *queries, int64_t kv_entry) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    tartan_i_cpu_attention_across(p, &w->tiling, queries, w->rows, &f->factors[KEYS], kv_entry, &w->chunk,
                                  w->scores);
    find_most(w);
    weigh(w);
    tartan_i_cpu_attention_along(p, &w->tiling, &w->chunk, w->rows, w->scores, &f->factors[VALUES], kv_entry,
                                 w->sums, w->first);
    w->first = false;
}

/* Stores the weighted sums, divided by the sums of weights. */
static void finish(work *w) {
    const tartan_i_cpu_attention *p = &w->f->p;
    const tartan_array *out = w->f->op->out, *lse = w->f->op->lse;
    const int64_t query = w->block_row * p->block_rows;
    const double kept = 1 - p->in->dropout;
    for (int64_t i = 0; i < w->rows; i++) {
        char *sums = w->sums + i * p->sums_row * p->k.bytes;
        if (w->total[i] == 0) memset(sums, 0, (size_t)(p->dv * p->k.bytes));
        const double factor =
            tartan_i_cpu_attention_sink(&p->k, w->f->op->sinks, w->head, &w->most[i], &w->total[i]);
        const bool none = w->total[i] == 0;
        if (!none) p->k.scale(p->dv, factor / (w->total[i] * kept), sums, sums);
        if (lse == NULL) continue;
        const int64_t at =
            w->entry / p->heads * lse->strides[0] + w->head * lse->strides[1] + (query + i) * lse->strides[2];
        tartan_i_store(lse->data, lse->dtype, at, none ? -(double)INFINITY : w->most[i] + log(w->total[i]));
    }
    if (p->dv > 0)
        tartan_i_commit(&p->k, w->sums, p->sums_row, w->rows, p->dv, 1, 0, out->dtype,
                        tartan_i_cpu_attention_at(out, w->entry, query), out->strides[2], out->strides[3]);
}

static void compute_row(work *w, int64_t kv_entry) {
    const tartan_i_cpu_attention *p = &w->f->p;
    const int64_t *pointers = tartan_i_cpu_attention_rows(p, w->entry);
    int64_t at = pointers[w->block_row];
    w->rows = tartan_i_rows_of(p->layout, w->block_row);
    w->first = true;
    for (int64_t i = 0; i < w->rows; i++) w->most[i] = -(double)INFINITY, w->total[i] = 0;
    const tartan_i_left queries =
        tartan_i_cpu_attention_left(p, p->in->q, w->entry, w->block_row * p->block_rows, w->rows, w->queries);
    while (tartan_i_cpu_attention_chunk(p, w->block_row, &at, pointers[w->block_row + 1], &w->chunk))
        compute_chunk(w, &queries, kv_entry);
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

tartan_status tartan_i_cpu_attention_forward(const tartan_context *context, const tartan_op *any) {
    tartan_op_attention_forward tall = any->attention_forward;
    PASS(tartan_i_cpu_attention_tall(&any->attention_forward.in, &tall.in));
    const tartan_op_attention_forward *op = &tall;
    forward f = {.p = tartan_i_cpu_attention_plan(context, &op->in), .op = op};
    tartan_i_cpu_attention *p = &f.p;
    if (p->pairs) tartan_i_cpu_attention_use(p, tartan_i_cpu_kernels(op->in.q->dtype));
    if (p->entries == 0 || p->layout->grid_rows == 0) return TARTAN_OK;
    f.factors[KEYS] = tartan_i_cpu_factor_of(p, op->in.k, p->block_cols, TARTAN_I_ACROSS);
    f.factors[VALUES] = tartan_i_cpu_factor_of(p, op->in.v, p->block_cols, TARTAN_I_ALONG);
    const tartan_status status = get_memory(&f);
    for (int64_t first = 0; status == TARTAN_OK && first < p->entries; first += p->round) {
        tartan_i_cpu_attention_pack(p, f.factors, FACTORS, first);
        tartan_i_cpu_attention_share(p, p->count * p->group * p->layout->grid_rows,
                                     p->work * (double)p->count / (double)p->entries, compute_task, &f);
    }
    tartan_i_workspace_end(context);
    return status;
}
