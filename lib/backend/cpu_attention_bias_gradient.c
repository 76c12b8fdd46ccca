/* SPDX-License-Identifier: Apache-2.0
 * The gradients of attention's bias and sinks on the CPU. The gradients of scores, ds, are computed again as in the backward pass
 * and added up for each number of the bias over the scores that take it.
 *
 * Batch entries and heads that share a plane of the bias are a group. Its rows of blocks, entry after entry, are dealt to
 * slots in turn, and each slot adds its own up in that order, in f64. How many slots there are depends on the problem
 * alone, and so do the bits of the results. If the bias has a number for each block or each score, a slot has a row of blocks of
 * all entries, so that no two slots add to the same number; else each has sums of its own, which are then added in the order of
 * slots. */
#include "backend/cpu_attention_grade.h"
#include "core/workspace.h"

#include <math.h>

enum { KEYS_ACROSS, VALUES_ACROSS, FACTORS };
enum { MOST_SLOTS = 256 };    /* of all groups together; but each group has one */
enum { MOST_SUMS = 8 << 20 }; /* numbers, with more than one slot for each group */

typedef struct bias_gradient {
    tartan_i_cpu_attention p;
    const tartan_op_attention_bias_gradient *op;
    tartan_i_cpu_factor factors[FACTORS]; /* K^T and V^T */
    tartan_i_grading grading;
    int64_t groups;
    bool by_entry; /* group g has the heads of batch entry g; else it has the entries g, g + groups, ... */
    int64_t slots; /* of a group */
    int64_t planes, width;
    bool by_row;   /* slots are rows of blocks */
    double *delta; /* [batch * heads][tq] */
    double *sums;  /* by_row: [planes][width], else [groups][slots][width] */
    int64_t nsums;
    char *scratch;
    int64_t scratch_bytes; /* of a worker */
} bias_gradient;

/* A worker's own memory, and its tiling. */
typedef struct work {
    const bias_gradient *b;
    tartan_i_grader grader;
    tartan_i_tiling tiling;
    tartan_i_chunk chunk;
} work;

/* Lays out a worker's memory, and returns its size. */
static int64_t lay_out(const bias_gradient *b, char *base, work *w) {
    int64_t at = 0;
    w->b = b;
    tartan_i_grader_lay_out(&b->p, b->op->out_grad, base, &at, &w->grader);
    return at;
}

/* ---- Sums over a row of ds, in 4 chains ---- */

static inline double number_at(const void *row, int32_t dtype, int64_t i) {
    return dtype == TARTAN_F64 ? ((const double *)row)[i] : (double)((const float *)row)[i];
}

static double add_up(const void *row, int32_t dtype, int64_t begin, int64_t end) {
    double sums[4] = {0};
    for (int64_t i = begin; i < end; i++) sums[i % 4] += number_at(row, dtype, i);
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

/* Times the distances first, first + 1, ... */
static double add_up_distances(const void *row, int32_t dtype, int64_t n, int64_t first) {
    double sums[4] = {0};
    for (int64_t i = 0; i < n; i++) sums[i % 4] += number_at(row, dtype, i) * (double)(first + i);
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

static int64_t limited(int64_t x, int64_t most) {
    return x < 0 ? 0 : x < most ? x : most;
}

/* Adds elements to the numbers of their distances first, first + 1, ... */
static void add_by_distance(const void *row, int32_t dtype, int64_t n, int64_t first, int64_t reach,
                            double *sums) {
    const int64_t begin = limited(-reach - first, n), end = limited(reach + 1 - first, n);
    sums[0] += add_up(row, dtype, 0, begin);
    for (int64_t i = begin; i < end; i++) sums[first + i + reach] += number_at(row, dtype, i);
    sums[2 * reach] += add_up(row, dtype, end, n);
}

static void add_each(const void *row, int32_t dtype, int64_t n, double *sums) {
    for (int64_t i = 0; i < n; i++) sums[i] += number_at(row, dtype, i);
}

/* ---- Tasks ---- */

/* Adds ds of the chunk at work to the sums of a slot. */
static void add_chunk(work *w, double *sums) {
    const bias_gradient *b = w->b;
    const tartan_i_cpu_attention *p = &b->p;
    const tartan_i_chunk *c = &w->chunk;
    const int32_t dtype = p->k.dtype;
    for (int64_t row = 0; row < w->grader.count; row++) {
        const int64_t query = w->grader.block_row * p->block_rows + row;
        for (int64_t i = 0; i < c->blocks; i++) {
            const char *ds = w->grader.ds + (row * p->scores_row + c->at[i]) * p->k.bytes;
            const int64_t n = c->at[i + 1] - c->at[i],
                          first = c->cols[i] * p->block_cols - query - p->in->query_offset;
            if (p->in->bias_kind == TARTAN_I_BIAS_BLOCK)
                sums[c->ids[i]] += add_up(ds, dtype, 0, n);
            else if (p->in->bias_kind == TARTAN_I_BIAS_DENSE)
                add_each(ds, dtype, n, sums + query * p->layout->shape.cols + c->cols[i] * p->block_cols);
            else if (p->in->bias_kind == TARTAN_I_BIAS_SLOPES)
                sums[0] += add_up_distances(ds, dtype, n, first);
            else
                add_by_distance(ds, dtype, n, first, b->width / 2, sums);
        }
    }
}

static void compute_row(work *w, int64_t entry, int64_t block_row, double *sums) {
    const bias_gradient *b = w->b;
    const tartan_i_cpu_attention *p = &b->p;
    const int64_t *pointers = tartan_i_cpu_attention_rows(p, entry);
    int64_t at = pointers[block_row];
    tartan_i_grader_take(&b->grading, &w->grader, entry, block_row);
    while (tartan_i_cpu_attention_chunk(p, block_row, &at, pointers[block_row + 1], &w->chunk)) {
        tartan_i_grader_grade(&b->grading, &w->grader, &w->tiling, &w->chunk);
        add_chunk(w, sums);
    }
}

/* What a slot has to do in this round. */
static void compute_slot(work *w, int64_t group, int64_t slot) {
    const bias_gradient *b = w->b;
    const tartan_i_cpu_attention *p = &b->p;
    const int64_t rows = p->layout->grid_rows, from = p->first * p->group,
                  to = (p->first + p->count) * p->group;
    const int64_t plane = b->by_row ? group % b->planes : group * b->slots + slot;
    if (b->by_entry) {
        for (int64_t head = 0; head < p->heads; head++) {
            const int64_t entry = group * p->heads + head;
            if (entry >= from && entry < to) compute_row(w, entry, slot, b->sums + plane * b->width);
        }
        return;
    }
    int64_t entry = group + limited(from - group + b->groups - 1, INT64_MAX) / b->groups * b->groups;
    for (; entry < to; entry += b->groups) {
        const int64_t done = entry / b->groups * rows % b->slots; /* rows of blocks of earlier entries */
        for (int64_t row = (slot - done + b->slots) % b->slots; row < rows; row += b->slots)
            compute_row(w, entry, row, b->sums + plane * b->width);
    }
}

static void compute_task(void *data, int32_t worker) {
    const bias_gradient *b = data;
    const tartan_i_cpu_attention *p = &b->p;
    work w = {0};
    int32_t finished = 0, range;
    int64_t begin, end;
    (void)lay_out(b, b->scratch + worker * b->scratch_bytes, &w);
    while (tartan_i_cpu_team_take(&p->team, worker, &finished, &range, &begin, &end))
        for (int64_t task = begin; task < end; task++)
            compute_slot(&w, task % b->groups, b->slots - 1 - task / b->groups);
    tartan_i_cpu_end(&p->k.product);
}

/* ---- Results ---- */

/* The offset of number `n` of a plane. */
static int64_t place_of(const tartan_array *grad, int64_t plane, int64_t n) {
    const int64_t *s = grad->strides;
    if (grad->ndim < 4) return plane * s[0] + (grad->ndim > 1 ? n * s[1] : 0);
    const int64_t heads = grad->shape[1], cols = grad->shape[3];
    return plane / heads * s[0] + plane % heads * s[1] + n / cols * s[2] + n % cols * s[3];
}

static void store_task(void *data, int32_t worker) {
    const bias_gradient *b = data;
    const tartan_array *grad = b->op->bias_grad;
    const int64_t slots = b->by_row ? 1 : b->slots;
    int64_t begin, end;
    tartan_i_share(b->planes * b->width, b->p.context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t plane = i / b->width, n = i % b->width;
        double sum = 0;
        for (int64_t s = 0; s < slots; s++) sum += b->sums[(plane * slots + s) * b->width + n];
        tartan_i_store(grad->data, grad->dtype, place_of(grad, plane, n), sum);
    }
}

/* -sum exp(sink - lse) delta over the queries of an entry. */
static double grade_sink(const bias_gradient *b, int64_t entry, double sink) {
    const tartan_i_cpu_attention *p = &b->p;
    const tartan_array *lse = b->op->lse;
    const int64_t queries = lse->shape[2], most = TARTAN_I_ATTENTION_KEYS;
    const int64_t at = entry / p->heads * lse->strides[0] + entry % p->heads * lse->strides[1];
    double room[TARTAN_I_ATTENTION_KEYS], sum = 0;
    for (int64_t first = 0; first < queries; first += most) {
        const int64_t n = limited(queries - first, most);
        tartan_i_line_load(&p->k, lse->dtype,
                           tartan_i_at(lse->data, lse->dtype, at + first * lse->strides[2]), lse->strides[2],
                           n, room);
        p->k.row_exp_sum(n, -1, room, -sink, NULL, room);
        for (int64_t i = 0; i < n; i++)
            sum -= number_at(room, p->k.dtype, i) * b->delta[entry * queries + first + i];
    }
    return sum;
}

static void sinks_task(void *data, int32_t worker) {
    const bias_gradient *b = data;
    const tartan_i_cpu_attention *p = &b->p;
    const tartan_array *sinks = b->op->sinks, *grad = b->op->sinks_grad;
    int64_t begin, end;
    tartan_i_share(p->heads, p->context->threads, worker, &begin, &end);
    for (int64_t head = begin; head < end; head++) {
        const double sink = tartan_i_load(sinks->data, sinks->dtype, head * sinks->strides[0]);
        double sum = 0;
        if (!isinf(sink)) /* -infinity has no weight, and infinity leaves none to the keys: out is 0 */
            for (int64_t entry = head; entry < p->entries * p->group; entry += p->heads)
                sum += grade_sink(b, entry, sink);
        tartan_i_store(grad->data, grad->dtype, head * grad->strides[0], sum);
    }
}

/* ---- The operation ---- */

/* How sums are divided. */
static void divide(bias_gradient *b) {
    const tartan_i_cpu_attention *p = &b->p;
    const tartan_array *grad = b->op->bias_grad;
    if (grad == NULL) return;
    const int64_t layout_heads = p->layout->shape.heads, rows = p->layout->grid_rows;
    const bool dense = p->in->bias_kind == TARTAN_I_BIAS_DENSE,
               by_block = p->in->bias_kind == TARTAN_I_BIAS_BLOCK;
    b->planes = dense ? grad->shape[0] * grad->shape[1] : grad->shape[0];
    b->width = dense ? grad->shape[2] * grad->shape[3] : grad->ndim > 1 ? grad->shape[1] : 1;
    b->by_row = dense || by_block;
    b->groups = by_block && layout_heads > 1 ? layout_heads : b->planes;
    b->by_entry = (by_block && layout_heads > 1 && p->in->by_batch) ||
                  (dense && grad->shape[0] > 1 && grad->shape[1] == 1);
    if (b->groups < 1) b->groups = 1;                             /* there are no heads */
    const int64_t all = p->entries * p->group / b->groups * rows; /* of a group */
    b->slots = b->by_row ? rows : tartan_i_ceil_div(MOST_SLOTS, b->groups);
    if (!b->by_row && b->groups * b->slots * b->width > MOST_SUMS)
        b->slots = MOST_SUMS / (b->groups * b->width);
    if (b->slots > all) b->slots = all;
    if (b->slots < 1) b->slots = 1;
    b->nsums = (b->by_row ? b->planes : b->groups * b->slots) * b->width;
}

static tartan_status get_memory(bias_gradient *b) {
    tartan_i_cpu_attention *p = &b->p;
    const tartan_context *context = p->context;
    work w;
    PASS(tartan_i_cpu_attention_memory(p, b->factors, b->op->bias_grad != NULL ? FACTORS : 0));
    const int64_t bytes = lay_out(b, NULL, &w), lines = 2 * p->dv * p->k.bytes;
    b->scratch_bytes = tartan_i_ceil_div(bytes > lines ? bytes : lines, 4096) * 4096;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &b->scratch, b->scratch_bytes, context->threads));
    const int64_t queries = p->entries * p->group * p->in->q->shape[2];
    PASS(
        tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &b->delta, queries + b->nsums, sizeof *b->delta));
    b->sums = b->delta + queries;
    return TARTAN_OK;
}

static void compute_bias(bias_gradient *b) {
    tartan_i_cpu_attention *p = &b->p;
    const int64_t threads = p->context->threads;
    memset(b->sums, 0, (size_t)b->nsums * sizeof *b->sums);
    for (int64_t first = 0; p->layout->blocks > 0 && first < p->entries; first += p->round) {
        tartan_i_cpu_attention_pack(p, b->factors, FACTORS, first);
        tartan_i_cpu_attention_share(p, b->groups * b->slots, p->work * (double)p->count / (double)p->entries,
                                     compute_task, b);
    }
    tartan_i_parallel(p->context, (int32_t)threads, (double)b->nsums * TARTAN_I_CPU_MOVE, store_task, b);
}

tartan_status tartan_i_cpu_attention_bias_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_attention_bias_gradient *op = &any->attention_bias_gradient;
    bias_gradient b = {.p = tartan_i_cpu_attention_plan(context, &op->in), .op = op};
    tartan_i_cpu_attention *p = &b.p;
    tartan_i_cpu_attention_use(p, tartan_i_cpu_kernels(op->in.q->dtype));
    b.factors[KEYS_ACROSS] = tartan_i_cpu_factor_of(p, op->in.k, p->block_cols, TARTAN_I_ACROSS);
    b.factors[VALUES_ACROSS] = tartan_i_cpu_factor_of(p, op->in.v, p->block_cols, TARTAN_I_ACROSS);
    divide(&b);
    const tartan_status status = get_memory(&b);
    if (status == TARTAN_OK) {
        b.grading = (tartan_i_grading){
            p, &b.factors[KEYS_ACROSS], &b.factors[VALUES_ACROSS], op->lse, op->out_grad, b.delta, false};
        tartan_i_cpu_attention_delta(p, op->out, op->out_grad, b.scratch, b.scratch_bytes, b.delta);
        if (op->bias_grad != NULL) compute_bias(&b);
        if (op->sinks_grad != NULL)
            tartan_i_parallel(context, context->threads,
                              (double)tartan_i_array_elements(op->lse) * TARTAN_I_CPU_MOVE, sinks_task, &b);
    }
    tartan_i_workspace_end(context);
    return status;
}
