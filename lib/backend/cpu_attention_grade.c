/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu_attention_grade.h"

#include <math.h>

/* ---- Delta ---- */

typedef struct delta_work {
    const tartan_i_cpu_attention *p;
    const tartan_array *out, *grad;
    char *scratch;
    int64_t scratch_bytes;
    double *delta;
} delta_work;

static void delta_task(void *data, int32_t worker) {
    const delta_work *w = data;
    const tartan_i_cpu_attention *p = w->p;
    const tartan_array *out = w->out, *grad = w->grad;
    const int64_t tokens = out->shape[2];
    char *x = w->scratch + worker * w->scratch_bytes, *y = x + p->dv * p->k.bytes;
    int64_t begin, end;
    tartan_i_share(p->entries * p->group * tokens, p->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        tartan_i_line_load(&p->k, out->dtype, tartan_i_cpu_attention_at(out, i / tokens, i % tokens),
                           out->strides[3], p->dv, x);
        tartan_i_line_load(&p->k, grad->dtype, tartan_i_cpu_attention_at(grad, i / tokens, i % tokens),
                           grad->strides[3], p->dv, y);
        w->delta[i] = p->k.dot(p->dv, x, y);
    }
}

void tartan_i_cpu_attention_delta(const tartan_i_cpu_attention *p, const tartan_array *out,
                                  const tartan_array *out_grad, char *scratch, int64_t scratch_bytes,
                                  double *delta) {
    delta_work w = {p, out, out_grad, scratch, scratch_bytes, delta};
    tartan_i_parallel(p->context, p->context->threads,
                      (double)tartan_i_array_elements(out) * TARTAN_I_CPU_MOVE, delta_task, &w);
}

/* ---- Rows of blocks ---- */

void tartan_i_grader_lay_out(const tartan_i_cpu_attention *p, const tartan_array *out_grad, char *base,
                             int64_t *at, tartan_i_grader *g) {
    const int64_t reals = p->block_rows * p->scores_row * p->k.bytes;
    const bool copies = p->in->q->dtype != p->k.dtype || out_grad->dtype != p->k.dtype;
    const int64_t left = copies ? tartan_i_cpu_attention_left_bytes(p, &p->fit) : 0;
    g->weights = tartan_i_cpu_attention_take(base, at, reals);
    g->ds = tartan_i_cpu_attention_take(base, at, reals);
    g->queries = tartan_i_cpu_attention_take(base, at, left);
    g->out_grads = tartan_i_cpu_attention_take(base, at, left);
    g->biases = tartan_i_cpu_attention_take(base, at, p->scores_row * p->k.bytes);
    g->caps = tartan_i_cpu_attention_take(base, at, p->in->softcap > 0 ? p->scores_row * p->k.bytes : 0);
}

void tartan_i_grader_take(const tartan_i_grading *f, tartan_i_grader *g, int64_t entry, int64_t block_row) {
    const tartan_i_cpu_attention *p = f->p;
    const int64_t query = block_row * p->block_rows;
    g->entry = entry;
    g->block_row = block_row;
    g->count = tartan_i_rows_of(p->layout, block_row);
    g->left_queries = tartan_i_cpu_attention_left(p, p->in->q, entry, query, g->count, g->queries);
    g->left_out_grads = tartan_i_cpu_attention_left(p, f->out_grad, entry, query, g->count, g->out_grads);
}

static double lse_of(const tartan_i_grading *f, int64_t entry, int64_t query) {
    const tartan_array *lse = f->lse;
    const int64_t heads = f->p->heads;
    return tartan_i_load(lse->data, lse->dtype,
                         entry / heads * lse->strides[0] + entry % heads * lse->strides[1] +
                             query * lse->strides[2]);
}

/* Products become weights and ds. */
static void grade_row(const tartan_i_grading *f, tartan_i_grader *g, const tartan_i_chunk *c, int64_t row) {
    const tartan_i_cpu_attention *p = f->p;
    const tartan_i_kernels *k = &p->k;
    const int64_t query = g->block_row * p->block_rows + row, at = row * p->scores_row * k->bytes;
    char *weights = g->weights + at, *ds = g->ds + at;
    const double lse = lse_of(f, g->entry, query), kept = 1 - p->in->dropout;
    uint32_t seen[TARTAN_I_ATTENTION_WORDS], words[TARTAN_I_ATTENTION_WORDS] = {0};
    const uint32_t *mask = tartan_i_cpu_attention_words(p, c, query, seen);
    if (lse == -(double)INFINITY) mask = words; /* it has no weights */
    if (p->drop > 0) {
        uint32_t keep[TARTAN_I_ATTENTION_WORDS];
        tartan_i_cpu_attention_kept(p, c, g->entry, query, keep);
        k->scale(c->keys, 1 / kept, ds, ds);
        tartan_i_cpu_attention_clear(p, keep, c->keys, ds);
    }
    const double scale = tartan_i_cpu_attention_score(p, c, g->entry, query, weights, g->biases, g->caps);
    k->row_exp_sum(c->keys, scale, weights, lse, mask, weights);
    k->row_gradient(c->keys, weights, ds, f->delta[g->entry * p->in->q->shape[2] + query], mask, ds);
    if (p->in->softcap > 0 && f->of_products)
        k->point1[TARTAN_I_POINT1_tanh].gradient(c->keys, tartan_i_no_parameters, g->caps, g->caps, ds, ds);
    if (p->drop > 0) {
        tartan_i_cpu_attention_kept(p, c, g->entry, query, words);
        tartan_i_cpu_attention_clear(p, words, c->keys, weights);
    }
}

void tartan_i_grader_grade(const tartan_i_grading *f, tartan_i_grader *g, tartan_i_tiling *tiling,
                           const tartan_i_chunk *c) {
    const tartan_i_cpu_attention *p = f->p;
    const int64_t kv_entry = g->entry / p->group;
    tartan_i_cpu_attention_across(p, tiling, &g->left_queries, g->count, f->keys, kv_entry, c, g->weights);
    tartan_i_cpu_attention_across(p, tiling, &g->left_out_grads, g->count, f->values, kv_entry, c, g->ds);
    for (int64_t row = 0; row < g->count; row++) grade_row(f, g, c, row);
}
