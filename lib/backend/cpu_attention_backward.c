/* SPDX-License-Identifier: Apache-2.0
 * Attention on the CPU, backward. Scores and weights of a row of blocks are computed again, chunk after chunk of its keys:
 *
 *     weights = exp(Q K^T - lse),  ds = weights * (dO V^T - delta),  dQ += ds K,  dV += weights^T dO,  dK += ds^T Q
 *
 * The fused form does all of this at once: each worker takes whole kv heads. The other shares rows of blocks for dQ, then
 * columns of blocks for dK and dV, which computes weights and ds twice. Either way each sum takes its terms in the same
 * order: by heads, then rows of blocks. So the choice does not change a bit.
 *
 * Source: Dao, "FlashAttention-2" (2023), algorithm 2. */
#include "backend/cpu_attention_grade.h"
#include "backend/cpu_attention_pairs.h"
#include "core/workspace.h"

/* K^T and V^T for scores and their gradients (with pairs K and V on the left); K for dQ (K^T on the left); Q and dO for dK
 * and dV. */
enum { KEYS_ACROSS, VALUES_ACROSS, KEYS, QUERIES, OUT_GRADS, FACTORS };

static const int64_t most_own = INT64_C(512) << 20; /* bytes of dK and dV of all workers */

typedef struct backward {
    tartan_i_pairs s;
    const tartan_op_attention_backward *op;
    tartan_i_cpu_factor factors[FACTORS];
    tartan_i_grading grading; /* where products do not read pairs */
    tartan_i_fit fit_rows;    /* of a block, transposed, as left factor: its queries are contracted */
    bool fused;               /* a worker takes whole kv heads */
    double *delta;            /* [batch * heads][tq] */
    char *scratch;
    int64_t scratch_bytes; /* of a worker */
} backward;

/* A worker's own memory, and the row of blocks at work. */
typedef struct work {
    tartan_i_pairs_work s;
    tartan_i_pairs_grad pairs; /* where products read them, else: */
    const backward *b;
    tartan_i_grader reals;
    char *q_sums; /* [rows][sums_row] */

    char *k_sums, *v_sums; /* [blocks of a kv head, or 1][fit_rows.rows][sums_row] */
    int64_t kv_entry;
} work;

static int64_t block_sums(const backward *b) {
    return b->fit_rows.rows * b->s.p.sums_row * b->s.p.k.bytes;
}

/* Lays out a worker's memory, and returns its size. */
static int64_t lay_out(const backward *b, char *base, work *w) {
    const tartan_i_cpu_attention *p = &b->s.p;
    const int64_t kept = b->fused ? p->layout->grid_cols : 1;
    int64_t at = 0;
    w->b = b;
    tartan_i_pairs_lay_out(&b->s, base, &at, &w->s);
    if (p->pairs) {
        tartan_i_pairs_grad_lay_out(&b->s, &b->fit_rows, base, &at, &w->pairs);
    } else {
        tartan_i_grader_lay_out(p, b->op->out_grad, base, &at, &w->reals);
        w->q_sums = tartan_i_cpu_attention_take(base, &at, p->block_rows * p->sums_row * p->k.bytes);
    }
    w->k_sums = tartan_i_cpu_attention_take(base, &at, kept * block_sums(b));
    w->v_sums = tartan_i_cpu_attention_take(base, &at, kept * block_sums(b));
    return at;
}

/* Takes up a row of blocks of a head. */
static void take_row(work *w, int64_t entry, int64_t block_row) {
    const backward *b = w->b;
    const tartan_i_cpu_attention *p = &b->s.p;
    tartan_i_pairs_take(&w->s, entry, block_row, 0);
    if (p->pairs)
        tartan_i_pairs_grad_take(&w->s, &w->pairs, b->op, b->delta + entry * p->in->q->shape[2]);
    else
        tartan_i_grader_take(&b->grading, &w->reals, entry, block_row);
}

static void grade_chunk(work *w) {
    const backward *b = w->b;
    if (b->s.p.pairs)
        tartan_i_pairs_grade(&w->s, &w->pairs, &b->factors[KEYS_ACROSS], &b->factors[VALUES_ACROSS],
                             w->kv_entry);
    else
        tartan_i_grader_grade(&b->grading, &w->reals, &w->s.tiling, &w->s.chunk);
}

/* dQ (+)= ds K. */
static void add_queries(work *w, bool first) {
    const backward *b = w->b;
    const tartan_i_cpu_factor *keys = &b->factors[KEYS];
    if (b->s.p.pairs)
        tartan_i_pairs_add(&w->s, keys, w->kv_entry, w->pairs.ds_pairs, w->pairs.q_sums, first);
    else
        tartan_i_cpu_attention_along(&b->s.p, &w->s.tiling, &w->s.chunk, w->s.count, w->reals.ds, keys,
                                     w->kv_entry, w->q_sums, first);
}

/* sums += a block of weights or ds, transposed, times the queries' rows of `right`. `halves` is given where products read
 * pairs, else `reals`; the other is NULL. */
static void add_transposed(work *w, int64_t block, const char *reals, const uint16_t *halves,
                           const tartan_i_cpu_factor *right, char *sums) {
    const tartan_i_cpu_attention *p = &w->b->s.p;
    const tartan_i_fit *fit = &w->b->fit_rows;
    const int64_t keys = w->s.chunk.at[block + 1] - w->s.chunk.at[block];
    const tartan_i_left left =
        p->pairs
            ? (tartan_i_left){halves + block * w->b->s.rows * w->pairs.half_row, w->pairs.half_row / 2, 1}
            : (tartan_i_left){reals + w->s.chunk.at[block] * p->k.bytes, 1, p->scores_row};
    tartan_i_term term = {.a = left.a, .b = w->s.block_row, .k = p->pairs ? fit->units : w->s.count};
    tartan_i_cpu_factor_product(p, &w->s.tiling, fit, &left, keys, right, w->s.entry, &term, 1, sums,
                                p->sums_row, false);
}

/* Adds block `i` of a chunk to the sums of dK and dV of block column `place`. */
static void add_block(work *w, int64_t i, int64_t place) {
    const backward *b = w->b;
    add_transposed(w, i, w->reals.weights, w->pairs.weights, &b->factors[OUT_GRADS],
                   w->v_sums + place * block_sums(b));
    add_transposed(w, i, w->reals.ds, w->pairs.ds, &b->factors[QUERIES], w->k_sums + place * block_sums(b));
}

/* ---- Results ---- */

static void store(const tartan_i_cpu_attention *p, const char *sums, int64_t rows, double alpha,
                  const tartan_array *out, int64_t entry, int64_t token) {
    tartan_i_commit(&p->k, sums, p->sums_row, rows, out->shape[3], alpha, 0, out->dtype,
                    tartan_i_cpu_attention_at(out, entry, token), out->strides[2], out->strides[3]);
}

static void store_block(work *w, int64_t block_col, int64_t place) {
    const backward *b = w->b;
    const tartan_i_cpu_attention *p = &b->s.p;
    const int64_t keys = tartan_i_cols_of(p->layout, block_col), token = block_col * p->block_cols;
    store(p, w->k_sums + place * block_sums(b), keys, p->in->scale, b->op->k_grad, w->kv_entry, token);
    store(p, w->v_sums + place * block_sums(b), keys, 1 / (1 - p->in->dropout), b->op->v_grad, w->kv_entry,
          token);
}

/* ---- Tasks ---- */

/* dQ of a row of blocks and, with whole kv heads, its part of dK and dV. */
static void compute_row(work *w, int64_t entry, int64_t block_row) {
    const backward *b = w->b;
    const tartan_i_cpu_attention *p = &b->s.p;
    bool first = true;
    take_row(w, entry, block_row);
    const int64_t *pointers = tartan_i_cpu_attention_rows(p, entry);
    int64_t at = pointers[block_row];
    while (tartan_i_cpu_attention_chunk(p, block_row, &at, pointers[block_row + 1], &w->s.chunk)) {
        grade_chunk(w);
        add_queries(w, first);
        for (int64_t i = 0; b->fused && i < w->s.chunk.blocks; i++) add_block(w, i, w->s.chunk.cols[i]);
        first = false;
    }
    if (p->pairs) {
        if (first) memset(w->pairs.q_sums, 0, (size_t)(p->d * b->s.queries) * sizeof(float));
        tartan_i_pairs_store(&w->s, w->pairs.q_sums, p->in->scale, b->op->q_grad);
    } else {
        if (first) memset(w->q_sums, 0, (size_t)(w->s.count * p->sums_row * p->k.bytes));
        store(p, w->q_sums, w->s.count, p->in->scale, b->op->q_grad, entry, block_row * p->block_rows);
    }
}

/* All of a kv head. */
static void compute_whole(work *w, int64_t kv_entry) {
    const backward *b = w->b;
    const tartan_i_cpu_attention *p = &b->s.p;
    memset(w->k_sums, 0, (size_t)(p->layout->grid_cols * block_sums(b)));
    memset(w->v_sums, 0, (size_t)(p->layout->grid_cols * block_sums(b)));
    w->kv_entry = kv_entry;
    for (int64_t g = 0; g < p->group; g++)
        for (int64_t row = 0; row < p->layout->grid_rows; row++) compute_row(w, kv_entry * p->group + g, row);
    for (int64_t col = 0; col < p->layout->grid_cols; col++) store_block(w, col, col);
}

/* dK and dV of a column of blocks. */
static void compute_column(work *w, int64_t kv_entry, int64_t block_col) {
    const backward *b = w->b;
    const tartan_i_cpu_attention *p = &b->s.p;
    const tartan_layout *l = p->layout;
    memset(w->k_sums, 0, (size_t)block_sums(b));
    memset(w->v_sums, 0, (size_t)block_sums(b));
    w->kv_entry = kv_entry;
    for (int64_t g = 0; g < p->group; g++) {
        const int64_t entry = kv_entry * p->group + g, head = tartan_i_attention_layout_head(p->in, l, entry);
        const int64_t *pointers = p->columns->pointers + head * l->grid_cols;
        for (int64_t at = pointers[block_col]; at < pointers[block_col + 1]; at++) {
            if (!tartan_i_cpu_attention_single(p, p->columns->rows[at], p->columns->ids[at], &w->s.chunk))
                continue;
            take_row(w, entry, p->columns->rows[at]);
            grade_chunk(w);
            add_block(w, 0, 0);
        }
    }
    store_block(w, block_col, 0);
}

static void compute_task(void *data, int32_t worker) {
    const backward *b = data;
    const tartan_i_cpu_attention *p = &b->s.p;
    const int64_t rows = p->count * p->group * p->layout->grid_rows;
    work w = {0};
    int32_t finished = 0, range;
    int64_t begin, end;
    (void)lay_out(b, b->scratch + worker * b->scratch_bytes, &w);
    if (p->pairs) tartan_i_pairs_grad_begin(&b->s, &w.pairs);
    while (tartan_i_cpu_team_take(&p->team, worker, &finished, &range, &begin, &end))
        for (int64_t task = begin; task < end; task++) {
            if (b->fused) {
                compute_whole(&w, p->first + task);
            } else if (task < rows) {
                const int64_t entry = p->first * p->group + task / p->layout->grid_rows;
                w.kv_entry = entry / p->group;
                compute_row(&w, entry, task % p->layout->grid_rows);
            } else {
                const int64_t cols = p->layout->grid_cols, column = task - rows;
                compute_column(&w, p->first + column / cols, column % cols);
            }
        }
    tartan_i_cpu_end(&p->k.product);
}

/* ---- The pass ---- */

static backward plan(const tartan_context *context, const tartan_op_attention_backward *op, bool pairs,
                     bool fused) {
    backward b = {.s = tartan_i_pairs_plan(context, &op->in), .op = op, .fused = fused};
    tartan_i_cpu_attention *p = &b.s.p;
    if (p->pairs && !pairs) tartan_i_cpu_attention_use(p, tartan_i_cpu_kernels(op->in.q->dtype));
    b.fit_rows = tartan_i_cpu_fit(&p->k.product, p->block_cols, p->block_rows);
    const tartan_i_cpu_side across = p->pairs ? TARTAN_I_LEFT : TARTAN_I_ACROSS,
                            along = p->pairs ? TARTAN_I_LEFT_TURNED : TARTAN_I_ALONG;
    b.factors[KEYS_ACROSS] = tartan_i_cpu_factor_of(p, op->in.k, p->block_cols, across);
    b.factors[VALUES_ACROSS] = tartan_i_cpu_factor_of(p, op->in.v, p->block_cols, across);
    b.factors[KEYS] = tartan_i_cpu_factor_of(p, op->in.k, p->block_cols, along);
    b.factors[QUERIES] = tartan_i_cpu_factor_of(p, op->in.q, p->block_rows, TARTAN_I_ALONG);
    b.factors[OUT_GRADS] = tartan_i_cpu_factor_of(p, op->out_grad, p->block_rows, TARTAN_I_ALONG);
    if (fused) p->least_round = context->threads;
    p->work *= fused ? 2.5 : 3.5;
    return b;
}

static tartan_status get_memory(backward *b) {
    tartan_i_cpu_attention *p = &b->s.p;
    const tartan_context *context = p->context;
    work w;
    PASS(tartan_i_cpu_attention_memory(p, b->factors, FACTORS));
    const int64_t bytes = lay_out(b, NULL, &w), lines = 2 * p->dv * p->k.bytes;
    b->scratch_bytes = tartan_i_ceil_div(bytes > lines ? bytes : lines, 4096) * 4096;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &b->scratch, b->scratch_bytes, context->threads));
    return tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &b->delta,
                                  p->entries * p->group * p->in->q->shape[2], sizeof *b->delta);
}

static tartan_status run(const tartan_context *context, const tartan_op_attention_backward *op, bool pairs,
                         bool fused) {
    if (tartan_i_array_elements(op->q_grad) + tartan_i_array_elements(op->k_grad) +
            tartan_i_array_elements(op->v_grad) ==
        0)
        return TARTAN_OK;
    backward b = plan(context, op, pairs, fused);
    tartan_i_cpu_attention *p = &b.s.p;
    const tartan_status status = get_memory(&b);
    b.grading = (tartan_i_grading){
        p, &b.factors[KEYS_ACROSS], &b.factors[VALUES_ACROSS], op->lse, op->out_grad, b.delta, true};
    if (status == TARTAN_OK)
        tartan_i_cpu_attention_delta(p, op->out, op->out_grad, b.scratch, b.scratch_bytes, b.delta);
    for (int64_t first = 0; status == TARTAN_OK && first < p->entries; first += p->round) {
        tartan_i_cpu_attention_pack(p, b.factors, FACTORS, first);
        const int64_t columns = p->count * p->layout->grid_cols,
                      rows = p->count * p->group * p->layout->grid_rows;
        tartan_i_cpu_attention_share(p, b.fused ? p->count : rows + columns,
                                     p->work * (double)p->count / (double)p->entries, compute_task, &b);
    }
    tartan_i_workspace_end(context);
    return status;
}

/* ---- The rows ---- */

static const char *pairs_refuse(const tartan_op_attention_backward *op) {
    const char *why = tartan_i_pairs_refuses(&op->in);
    if (why != NULL) return why;
    if (op->out_grad->dtype != op->in.q->dtype) return "out_grad has another dtype than q";
    return tartan_i_cpu_attention_drop(&op->in) > 0 ? "it has no dropout" : NULL;
}

static const char *fused_refuses(const tartan_context *context, const tartan_i_attention *in, bool pairs) {
    const tartan_shape *shape = &in->layout->shape;
    const int32_t dtype = in->q->dtype;
    const int64_t d = in->q->shape[3], dv = in->v->shape[3];
    const tartan_i_kernels *k = tartan_i_cpu_table_of(pairs ? dtype : tartan_i_sum_dtype(dtype));
    if (in->q->shape[0] * in->k->shape[1] < context->threads)
        return "fewer kv heads in the batch than threads";
    const int64_t rows = tartan_i_cpu_fit(&k->product, shape->block_cols, shape->block_rows).rows;
    const double own = 2 * (double)in->layout->grid_cols * (double)(rows * k->bytes) *
                       (double)tartan_i_cpu_attention_row_of(d > dv ? d : dv) * context->threads;
    return own > (double)most_own ? "the gradients of a kv head for each thread take too much memory" : NULL;
}

const char *tartan_i_cpu_attention_backward_pairs_fused_refuses(const tartan_context *context,
                                                                const tartan_op *any) {
    const char *why = pairs_refuse(&any->attention_backward);
    return why != NULL ? why : fused_refuses(context, &any->attention_backward.in, true);
}

tartan_status tartan_i_cpu_attention_backward_pairs_fused(const tartan_context *context,
                                                          const tartan_op *any) {
    return run(context, &any->attention_backward, true, true);
}

const char *tartan_i_cpu_attention_backward_pairs_refuses(const tartan_context *context,
                                                          const tartan_op *any) {
    (void)context;
    return pairs_refuse(&any->attention_backward);
}

tartan_status tartan_i_cpu_attention_backward_pairs(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->attention_backward, true, false);
}

const char *tartan_i_cpu_attention_backward_fused_refuses(const tartan_context *context,
                                                          const tartan_op *any) {
    return fused_refuses(context, &any->attention_backward.in, false);
}

tartan_status tartan_i_cpu_attention_backward_fused(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->attention_backward, false, true);
}

tartan_status tartan_i_cpu_attention_backward(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->attention_backward, false, false);
}
