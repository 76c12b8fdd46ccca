/* SPDX-License-Identifier: Apache-2.0
 * Attention on the CPU, forward, where products read pairs of 16-bit numbers: scores^T = K Q^T, then out^T += V^T weights^T.
 *
 * The running maximum may lag behind the largest score by SLACK: weights grow to exp(SLACK) then, which costs no accuracy,
 * and sums are seldom scaled.
 *
 * The pipelined form does a row of blocks in strips of queries, and one stage of its pipeline computes the weights of a chunk, the
 * sums of the chunk before it and the scores of the spans that come next, so only two spans of scores exist at a time. The maximum
 * is then the first span's. It is good enough until the weights of a chunk sum to more than MOST_TOTAL; such a chunk is computed
 * again by steps, as is any whose scores need more than a scale. */
#include "backend/cpu_attention_pairs.h"
#include "core/workspace.h"

#include <math.h>

enum { KEYS, VALUES, FACTORS };
enum { SLACK = 5, MOST_TOTAL = 1 << 20 };
enum { SPAN = TARTAN_I_SPAN, MOST_SPANS = TARTAN_I_ATTENTION_KEYS / SPAN };

typedef struct forward {
    tartan_i_pairs s;
    bool staged;
    const tartan_op_attention_forward *op;
    tartan_i_cpu_factor factors[FACTORS]; /* K, and V^T, both on the left */
    char *scratch;
    int64_t scratch_bytes; /* of a worker */
} forward;

/* The spans of a chunk. */
typedef struct span_list {
    int64_t count;
    const char *keys[MOST_SPANS], *values[MOST_SPANS];
} span_list;

/* A worker's own memory, and the strip at work. */
typedef struct work {
    tartan_i_pairs_work s;
    const forward *f;
    char *panels;                         /* Q^T */
    float *scores;                        /* [rows of the chunk][queries] */
    uint32_t *weights;                    /* [half as many rows][queries] */
    float *sums;                          /* [d][queries] */
    float *most, *shift, *total, *factor; /* [queries] */
    bool first;                           /* sums have nothing yet */

    /* With stages: */
    tartan_i_chunk next;
    span_list now, ahead,
        pending;               /* of s.chunk, of next, and of the chunk before, whose sums are not added */
    uint32_t *pending_weights; /* in turn with `weights` */
    float *span_scores[2], *span_total; /* [SPAN][SPAN]; [queries] */
    int64_t turn;                       /* which of the two has the scores of the next span */
    bool ready;                         /* those scores are there */
} work;

/* Lays out a worker's memory, and returns its size. */
static int64_t lay_out(const forward *f, char *base, work *w) {
    const int64_t rows = tartan_i_pairs_rows(&f->s), line = f->s.queries * 4;
    int64_t at = 0;
    w->f = f;
    tartan_i_pairs_lay_out(&f->s, base, &at, &w->s);
    w->panels = tartan_i_cpu_attention_take(base, &at, tartan_i_pairs_panel_bytes(&f->s, f->s.p.in->q));
    w->scores = tartan_i_cpu_attention_take(base, &at, rows * line);
    w->weights = tartan_i_cpu_attention_take(base, &at, rows / 2 * line);
    for (int i = 0; f->staged && i < 2; i++)
        w->span_scores[i] = tartan_i_cpu_attention_take(base, &at, SPAN * line);
    w->pending_weights = tartan_i_cpu_attention_take(base, &at, f->staged ? rows / 2 * line : 0);
    w->sums = tartan_i_cpu_attention_take(base, &at, f->s.values.rows * line);
    float **lines[] = {&w->most, &w->shift, &w->total, &w->factor, &w->span_total};
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
                if (tartan_i_attention_random(p->in, w->s.entry, w->s.query + q,
                                              c->cols[i] * p->block_cols + j) < p->drop)
                    w->weights[(i * f->rows + j) / 2 * f->queries + q] &= j % 2 == 0 ? 0xffff0000 : 0xffff;
}

/* What exp subtracts. Without a maximum, exp(-infinity) must be 0. */
static void set_shift(work *w) {
    for (int64_t q = 0; q < w->f->s.queries; q++)
        w->factor[q] = q < w->s.count && w->shift[q] > -INFINITY ? w->shift[q] : 0;
}

static void weigh(work *w) {
    const tartan_i_pairs *f = &w->f->s;
    const tartan_i_product *product = &f->p.k.product;
    const int64_t rows = w->s.chunk.blocks * f->rows, n = f->queries;
    tartan_i_pairs_mask(&w->s);
    const double scale = tartan_i_pairs_prepare(&w->s, w->scores, NULL, NULL);
    product->columns_max(rows, n, w->scores, n, w->s.mask, f->words, w->most);
    raise_shift(w, scale);
    set_shift(w);
    product->columns_weigh(rows, n, scale, w->scores, n, w->s.mask, f->words, w->factor, w->total,
                           w->weights);
    if (f->p.drop > 0) drop_weights(w);
}

/* ---- Rows of blocks ---- */

/* Stores sums times factors. */
static void store_out(work *w) {
    const tartan_i_pairs *f = &w->f->s;
    const tartan_array *out = w->f->op->out;
    const tartan_i_product *product = &f->p.k.product;
    if (w->f->staged && out->dtype == TARTAN_BF16 && out->strides[3] == 1) {
        char *to = tartan_i_cpu_attention_at(out, w->s.entry, w->s.query);
        product->span_store(w->s.count, f->p.d, w->sums, w->factor, (uint16_t *)(void *)to, out->strides[2]);
        return;
    }
    product->columns_scale(f->p.dv, f->queries, w->sums, f->queries, w->factor);
    tartan_i_pairs_store(&w->s, w->sums, 1, out);
}

/* Q^T of the strip. */
static void load_queries(work *w) {
    const tartan_array *q = w->f->s.p.in->q;
    if (!w->f->staged || q->strides[3] != 1) {
        tartan_i_pairs_panels(&w->s, q, w->panels);
        return;
    }
    const char *from = tartan_i_cpu_attention_at(q, w->s.entry, w->s.query);
    w->f->s.p.k.product.span_queries(w->s.count, w->f->s.p.d, (const uint16_t *)(const void *)from,
                                     q->strides[2], (uint32_t *)(void *)w->panels);
}

/* Stores the weighted sums, divided by the sums of weights. */
static void finish(work *w) {
    const tartan_i_pairs *f = &w->f->s;
    const tartan_array *lse = w->f->op->lse;
    const int64_t n = f->queries;
    const double kept = 1 - f->p.in->dropout;
    if (w->first) memset(w->sums, 0, (size_t)(f->p.dv * n) * sizeof *w->sums);
    for (int64_t q = 0; q < w->s.count; q++) {
        double most = w->shift[q], total = w->total[q];
        for (int64_t t = 0; total == 0 && !w->first && t < f->p.dv; t++) w->sums[t * n + q] = 0;
        const double factor = tartan_i_cpu_attention_sink(&f->p.k, w->f->op->sinks, w->s.head, &most, &total);
        w->factor[q] = total == 0 ? 0 : (float)(factor / (total * kept));
        if (lse == NULL) continue;
        const int64_t at = w->s.entry / f->p.heads * lse->strides[0] + w->s.head * lse->strides[1] +
                           (w->s.query + q) * lse->strides[2];
        tartan_i_store(lse->data, lse->dtype, at, total == 0 ? -(double)INFINITY : most + log(total));
    }
    store_out(w);
}

/* Positions of the blocks of the row of blocks. */
static const int64_t *row_of(const work *w) {
    return tartan_i_cpu_attention_rows(&w->f->s.p, w->s.entry) + w->s.block_row;
}

static void compute_by_steps(work *w, int64_t kv_entry) {
    const forward *f = w->f;
    const int64_t end = row_of(w)[1];
    int64_t at = row_of(w)[0];
    while (tartan_i_cpu_attention_chunk(&f->s.p, w->s.block_row, &at, end, &w->s.chunk)) {
        tartan_i_pairs_scores(&w->s, &f->factors[KEYS], kv_entry, w->panels, w->scores);
        weigh(w);
        tartan_i_pairs_add(&w->s, &f->factors[VALUES], kv_entry, w->weights, w->sums, w->first);
        w->first = false;
    }
}

/* ---- Stages ---- */

/* Weights of the chunk are exp of its scaled scores, all of them. */
static bool is_plain(const work *w, const tartan_i_chunk *c) {
    const tartan_i_attention *in = w->f->s.p.in;
    return !c->partial && c->keys == c->blocks * w->f->s.rows && in->bias == NULL && in->scale >= 0 &&
           w->f->s.p.drop == 0;
}

static void take_next(work *w, int64_t kv_entry, int64_t *at) {
    const forward *f = w->f;
    const tartan_i_cpu_attention *p = &f->s.p;
    const int64_t spans = p->block_cols / SPAN;
    w->ahead.count = 0;
    if (!tartan_i_cpu_attention_chunk(p, w->s.block_row, at, row_of(w)[1], &w->next)) return;
    for (int64_t i = 0; i < w->next.blocks; i++)
        for (int64_t j = 0; j < spans; j++) {
            const int64_t span = w->next.cols[i] * spans + j, to = w->ahead.count++;
            w->ahead.keys[to] = tartan_i_cpu_factor_left(&f->factors[KEYS], kv_entry, span, &p->k);
            w->ahead.values[to] = tartan_i_cpu_factor_left(&f->factors[VALUES], kv_entry, span, &p->k);
        }
}

/* The next chunk becomes the one at work. */
static void advance(work *w) {
    tartan_i_chunk *to = &w->s.chunk;
    const tartan_i_chunk *from = &w->next;
    const size_t bytes = (size_t)from->blocks * sizeof from->ids[0];
    to->blocks = from->blocks;
    to->keys = from->keys;
    to->partial = from->partial;
    memcpy(to->ids, from->ids, bytes);
    memcpy(to->cols, from->cols, bytes);
    memcpy(to->at, from->at, bytes + sizeof from->at[0]);
    w->now = w->ahead;
}

/* A stage that adds the pending sums, and does what the caller sets. */
static tartan_i_stage stage_of(const work *w) {
    return (tartan_i_stage){.d = w->f->s.p.d,
                            .queries = (const uint32_t *)(const void *)w->panels,
                            .spans_added = w->pending.count,
                            .values = w->pending.values,
                            .pairs = w->pending_weights,
                            .sums = w->sums,
                            .first = w->first};
}

static void run_stage(work *w, const tartan_i_stage *stage) {
    w->f->s.p.k.product.stage(stage);
    if (w->pending.count > 0) w->first = false;
    w->pending.count = 0;
}

/* Finds a maximum for each query in the first span of the chunk, if there was none. False if some have none. */
static bool find_maximum(work *w) {
    const tartan_i_pairs *f = &w->f->s;
    bool found = true;
    for (int64_t q = 0; q < w->s.count; q++) found &= w->shift[q] > -INFINITY;
    if (w->ready && found) return true;
    tartan_i_stage stage = stage_of(w);
    stage.spans_scored = 1;
    stage.keys = w->now.keys;
    stage.scores = &w->span_scores[w->turn];
    run_stage(w, &stage);
    w->ready = true;
    if (found) return true;
    f->p.k.product.columns_max(SPAN, SPAN, w->span_scores[w->turn], SPAN, NULL, 0, w->most);
    raise_shift(w, f->p.in->scale);
    found = true;
    for (int64_t q = 0; q < w->s.count; q++) found &= w->shift[q] > -INFINITY;
    return found;
}

/* Weights of the chunk, and the scores of the first span of the next one, if it is plain. False if some are too large. */
static bool weigh_in_stage(work *w) {
    const int64_t count = w->now.count;
    const bool more = w->ahead.count > 0 && is_plain(w, &w->next);
    const char *keys[MOST_SPANS];
    const float *weighed[MOST_SPANS];
    float *scores[MOST_SPANS];
    for (int64_t i = 0; i < count; i++) {
        keys[i] = i + 1 < count ? w->now.keys[i + 1] : w->ahead.keys[0];
        weighed[i] = w->span_scores[(w->turn + i) % 2];
        scores[i] = w->span_scores[(w->turn + i + 1) % 2];
    }
    tartan_i_stage stage = stage_of(w);
    stage.spans_scored = more ? count : count - 1;
    stage.keys = keys;
    stage.scores = scores;
    stage.spans_weighed = count;
    stage.weighed = weighed;
    stage.scale = w->f->s.p.in->scale;
    stage.shift = w->factor;
    stage.total = w->span_total;
    stage.weights = w->weights;
    set_shift(w);
    memset(w->span_total, 0, SPAN * sizeof *w->span_total);
    run_stage(w, &stage);
    w->turn = (w->turn + count) % 2;
    w->ready = more;
    bool small = true;
    for (int64_t q = 0; q < w->s.count; q++) small &= w->span_total[q] <= MOST_TOTAL; /* not if it is NaN */
    for (int64_t q = 0; small && q < SPAN; q++) w->total[q] += w->span_total[q];
    return small;
}

/* Weights of any chunk. */
static void weigh_by_steps(work *w) {
    float *scores[MOST_SPANS];
    tartan_i_stage stage = stage_of(w);
    for (int64_t i = 0; i < w->now.count; i++) scores[i] = w->scores + i * SPAN * SPAN;
    stage.spans_scored = w->now.count;
    stage.keys = w->now.keys;
    stage.scores = scores;
    run_stage(w, &stage);
    weigh(w);
}

static void compute_in_stages(work *w, int64_t kv_entry) {
    const tartan_i_pairs *f = &w->f->s;
    int64_t at = row_of(w)[0];
    tartan_i_cpu_attention_tile(&f->p.k.product, &w->s.tiling, &w->f->factors[KEYS].fit);
    w->ready = false;
    w->pending.count = 0;
    take_next(w, kv_entry, &at);
    while (w->ahead.count > 0) {
        advance(w);
        take_next(w, kv_entry, &at);
        const bool plain = is_plain(w, &w->s.chunk);
        if (!plain) w->ready = false;
        if (!plain || !find_maximum(w) || !weigh_in_stage(w)) weigh_by_steps(w);
        uint32_t *const weights = w->weights;
        w->weights = w->pending_weights;
        w->pending_weights = weights;
        w->pending = w->now;
    }
    if (w->pending.count == 0) return;
    const tartan_i_stage stage = stage_of(w);
    run_stage(w, &stage);
}

static void compute_strip(work *w, int64_t kv_entry) {
    const forward *f = w->f;
    w->first = true;
    for (int64_t q = 0; q < f->s.queries; q++) w->most[q] = w->shift[q] = -INFINITY, w->total[q] = 0;
    load_queries(w);
    if (f->staged)
        compute_in_stages(w, kv_entry);
    else
        compute_by_steps(w, kv_entry);
    finish(w);
}

static void compute_row(work *w, int64_t entry, int64_t block_row) {
    const tartan_i_pairs *f = &w->f->s;
    for (int64_t offset = 0; offset < tartan_i_rows_of(f->p.layout, block_row); offset += f->queries) {
        tartan_i_pairs_take(&w->s, entry, block_row, offset);
        compute_strip(w, entry / f->p.group);
    }
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
        for (int64_t task = begin; task < end; task++)
            compute_row(&w, p->first * p->group + task % entries, rows - 1 - task / entries);
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

static tartan_status run(const tartan_context *context, const tartan_op_attention_forward *given,
                         bool staged) {
    tartan_op_attention_forward tall = *given;
    PASS(tartan_i_cpu_attention_tall(&given->in, &tall.in));
    const tartan_op_attention_forward *op = &tall;
    forward f = {.s = tartan_i_pairs_plan(context, &op->in), .staged = staged, .op = op};
    tartan_i_cpu_attention *p = &f.s.p;
    if (p->entries == 0 || p->layout->grid_rows == 0) return TARTAN_OK;
    if (staged) tartan_i_pairs_use_stages(&f.s);
    f.factors[KEYS] = f.staged ? tartan_i_pairs_spans(&f.s, op->in.k, TARTAN_I_SPAN_KEYS)
                               : tartan_i_cpu_factor_of(p, op->in.k, p->block_cols, TARTAN_I_LEFT);
    f.factors[VALUES] = f.staged ? tartan_i_pairs_spans(&f.s, op->in.v, TARTAN_I_SPAN_VALUES)
                                 : tartan_i_cpu_factor_of(p, op->in.v, p->block_cols, TARTAN_I_LEFT_TURNED);
    const tartan_status status = get_memory(&f);
    for (int64_t first = 0; status == TARTAN_OK && first < p->entries; first += p->round) {
        tartan_i_cpu_attention_pack(p, f.factors, FACTORS, first);
        tartan_i_cpu_attention_share(p, p->count * p->group * p->layout->grid_rows,
                                     p->work * (double)p->count / (double)p->entries, compute_task, &f);
    }
    tartan_i_workspace_end(context);
    return status;
}

const char *tartan_i_cpu_attention_forward_pipelined_refuses(const tartan_context *context,
                                                             const tartan_op *any) {
    (void)context;
    return tartan_i_pairs_stages_refuses(&any->attention_forward.in);
}

tartan_status tartan_i_cpu_attention_forward_pipelined(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->attention_forward, true);
}

const char *tartan_i_cpu_attention_forward_pairs_refuses(const tartan_context *context,
                                                         const tartan_op *any) {
    (void)context;
    return tartan_i_pairs_refuses(&any->attention_forward.in);
}

tartan_status tartan_i_cpu_attention_forward_pairs(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->attention_forward, false);
}
