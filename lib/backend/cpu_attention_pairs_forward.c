/* SPDX-License-Identifier: Apache-2.0
 * Attention on the CPU, forward, where products read pairs of 16-bit numbers: scores^T = K Q^T, then out^T += V^T weights^T.
 *
 * The running maximum may lag behind the largest score by SLACK: weights grow to exp(SLACK) then, which costs no accuracy,
 * and sums are seldom scaled. */
#include "backend/cpu_attention_pairs.h"
#include "core/workspace.h"

#include <math.h>

enum { KEYS, VALUES, FACTORS };
enum { SLACK = 5 };

typedef struct forward {
    tartan_i_pairs s;
    const tartan_op_attention_forward *op;
    tartan_i_cpu_factor factors[FACTORS]; /* K, and V^T, both on the left */
    char *scratch;
    int64_t scratch_bytes; /* of a worker */
} forward;

/* A worker's own memory, and the row of blocks at work. */
typedef struct work {
    tartan_i_pairs_work s;
    const forward *f;
    char *panels;                         /* Q^T */
    float *scores;                        /* [rows of the chunk][queries] */
    uint32_t *weights;                    /* [half as many rows][queries] */
    float *sums;                          /* [d][queries] */
    float *most, *shift, *total, *factor; /* [queries] */
    bool first;                           /* the chunk is the first of its row */
} work;

/* Lays out a worker's memory, and returns its size. */
static int64_t lay_out(const forward *f, char *base, work *w) {
    const int64_t rows = tartan_i_pairs_rows(&f->s), line = f->s.queries * 4;
    int64_t at = 0;
    w->f = f;
    tartan_i_pairs_lay_out(&f->s, base, &at, &w->s);
    w->panels = tartan_i_cpu_attention_take(base, &at, tartan_i_pairs_panel_bytes(&f->s));
    w->scores = tartan_i_cpu_attention_take(base, &at, rows * line);
    w->weights = tartan_i_cpu_attention_take(base, &at, rows / 2 * line);
    w->sums = tartan_i_cpu_attention_take(base, &at, f->s.values.rows * line);
    float **lines[] = {&w->most, &w->shift, &w->total, &w->factor};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        *lines[i] = tartan_i_cpu_attention_take(base, &at, line);
    return at;
}

/* ---- Softmax ---- */

/* Raises the running maximum where it lags too far behind, and scales sums for it. */
static void raise_shift(work *w, double scale) {
    const tartan_i_pairs *f = &w->f->s;
    bool rose = false;
    for (int64_t q = 0; q < w->s.count; q++) {
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
    if (rose) f->p.k.product.columns_scale(f->values.rows, f->queries, w->sums, f->queries, w->factor);
}

static void drop_weights(work *w) {
    const tartan_i_pairs *f = &w->f->s;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_i_chunk *c = &w->s.chunk;
    for (int64_t i = 0; i < c->blocks; i++)
        for (int64_t j = 0; j < c->at[i + 1] - c->at[i]; j++)
            for (int64_t q = 0; q < w->s.count; q++)
                if (tartan_i_attention_random(p->in, w->s.entry, w->s.block_row * p->block_rows + q,
                                              c->cols[i] * p->block_cols + j) < p->drop)
                    w->weights[(i * f->rows + j) / 2 * f->queries + q] &= j % 2 == 0 ? 0xffff0000 : 0xffff;
}

static void weigh(work *w) {
    const tartan_i_pairs *f = &w->f->s;
    const tartan_i_product *product = &f->p.k.product;
    const int64_t rows = w->s.chunk.blocks * f->rows, n = f->queries;
    tartan_i_pairs_mask(&w->s);
    const double scale = tartan_i_pairs_prepare(&w->s, w->scores);
    product->columns_max(rows, n, w->scores, n, w->s.mask, f->words, w->most);
    raise_shift(w, scale);
    for (int64_t q = 0; q < n; q++) /* without a maximum, exp(-infinity) must be 0 */
        w->factor[q] = q < w->s.count && w->shift[q] > -INFINITY ? w->shift[q] : 0;
    product->columns_weigh(rows, n, scale, w->scores, n, w->s.mask, f->words, w->factor, w->total,
                           w->weights);
    if (f->p.drop > 0) drop_weights(w);
}

/* ---- Rows of blocks ---- */

/* Stores what the weights and their sums make. */
static void finish(work *w) {
    const tartan_i_pairs *f = &w->f->s;
    const tartan_array *lse = w->f->op->lse;
    const int64_t query = w->s.block_row * f->p.block_rows, n = f->queries;
    const double kept = 1 - f->p.in->dropout;
    if (w->first) memset(w->sums, 0, (size_t)(f->p.d * n) * sizeof *w->sums);
    for (int64_t q = 0; q < w->s.count; q++) {
        double most = w->shift[q], total = w->total[q];
        for (int64_t t = 0; total == 0 && !w->first && t < f->p.d; t++) w->sums[t * n + q] = 0;
        const double factor = tartan_i_cpu_attention_sink(&f->p.k, w->f->op->sinks, w->s.head, &most, &total);
        w->factor[q] = total == 0 ? 0 : (float)(factor / (total * kept));
        if (lse == NULL) continue;
        const int64_t at = w->s.entry / f->p.heads * lse->strides[0] + w->s.head * lse->strides[1] +
                           (query + q) * lse->strides[2];
        tartan_i_store(lse->data, lse->dtype, at, total == 0 ? -(double)INFINITY : most + log(total));
    }
    f->p.k.product.columns_scale(f->p.d, n, w->sums, n, w->factor);
    tartan_i_pairs_store(&w->s, w->sums, 1, w->f->op->out);
}

static void compute_row(work *w, int64_t kv_entry) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->s.p;
    const int64_t *pointers = tartan_i_cpu_attention_rows(p, w->s.entry);
    const int64_t end = pointers[w->s.block_row + 1];
    int64_t at = pointers[w->s.block_row];
    w->first = true;
    for (int64_t q = 0; q < f->s.queries; q++) w->most[q] = w->shift[q] = -INFINITY, w->total[q] = 0;
    tartan_i_pairs_panels(&w->s, p->in->q, w->panels);
    while (tartan_i_cpu_attention_chunk(p, w->s.block_row, &at, end, &w->s.chunk)) {
        tartan_i_pairs_scores(&w->s, &f->factors[KEYS], kv_entry, w->panels, w->scores);
        weigh(w);
        tartan_i_pairs_add(&w->s, &f->factors[VALUES], kv_entry, w->weights, w->sums, w->first);
        w->first = false;
    }
    finish(w);
}

/* The last rows of blocks come first: with causal=1 they have the most work. */
static void compute_task(void *data, int32_t worker) {
    const forward *f = data;
    const tartan_i_cpu_attention *p = &f->s.p;
    const int64_t rows = p->layout->grid_rows, entries = p->count * p->group;
    work w = {0};
    int32_t finished = 0, range;
    int64_t begin, end;
    (void)lay_out(f, f->scratch + worker * f->scratch_bytes, &w);
    while (tartan_i_cpu_team_take(&p->team, worker, &finished, &range, &begin, &end))
        for (int64_t task = begin; task < end; task++) {
            tartan_i_pairs_take(&w.s, p->first * p->group + task % entries, rows - 1 - task / entries);
            compute_row(&w, w.s.entry / p->group);
        }
    tartan_i_cpu_end(&p->k.product);
}

static tartan_status get_memory(forward *f) {
    const tartan_context *context = f->s.p.context;
    work w;
    PASS(tartan_i_cpu_attention_memory(&f->s.p, f->factors, FACTORS));
    f->scratch_bytes = tartan_i_ceil_div(lay_out(f, NULL, &w), 4096) * 4096;
    return tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &f->scratch, f->scratch_bytes,
                                  context->threads);
}

tartan_status tartan_i_cpu_attention_forward_pairs(const tartan_context *context,
                                                   const tartan_op_attention_forward *op) {
    forward f = {.s = tartan_i_pairs_plan(context, &op->in), .op = op};
    tartan_i_cpu_attention *p = &f.s.p;
    f.factors[KEYS] = tartan_i_cpu_factor_of(p, op->in.k, p->block_cols, TARTAN_I_LEFT);
    f.factors[VALUES] = tartan_i_cpu_factor_of(p, op->in.v, p->block_cols, TARTAN_I_LEFT_TURNED);
    const tartan_status status = get_memory(&f);
    for (int64_t first = 0; status == TARTAN_OK && first < p->entries; first += p->round) {
        tartan_i_cpu_attention_pack(p, f.factors, FACTORS, first);
        tartan_i_cpu_attention_share(p, p->count * p->group * p->layout->grid_rows,
                                     p->work * (double)p->count / (double)p->entries, compute_task, &f);
    }
    tartan_i_workspace_end(context);
    return status;
}
