/* SPDX-License-Identifier: Apache-2.0
 * Attention on the CPU, backward, where products read pairs of 16-bit numbers: weights and ds of a chunk, transposed. As rows
 * of halves they are left factors, for dV and dK; as rows of pairs ds is a right factor, for dQ^T. */
#include "backend/cpu_attention_pairs.h"

#include <math.h>

void tartan_i_pairs_grad_lay_out(const tartan_i_pairs *f, const tartan_i_fit *fit, char *base, int64_t *at,
                                 tartan_i_pairs_grad *g) {
    const int64_t rows = tartan_i_pairs_rows(f), line = f->queries * 4;
    g->half_row = 2 * fit->units > f->queries ? 2 * fit->units : f->queries;
    g->queries = tartan_i_cpu_attention_take(base, at, tartan_i_pairs_panel_bytes(f, f->p.in->q));
    g->out_grads = tartan_i_cpu_attention_take(base, at, tartan_i_pairs_panel_bytes(f, f->p.in->v));
    g->scores = tartan_i_cpu_attention_take(base, at, rows * line);
    g->dp = tartan_i_cpu_attention_take(base, at, rows * line);
    g->weights = tartan_i_cpu_attention_take(base, at, rows * g->half_row * 2);
    g->ds = tartan_i_cpu_attention_take(base, at, rows * g->half_row * 2);
    g->ds_pairs = tartan_i_cpu_attention_take(base, at, rows / 2 * line);
    g->q_sums = tartan_i_cpu_attention_take(base, at, f->sums * line);
    g->lse = tartan_i_cpu_attention_take(base, at, line);
    g->delta = tartan_i_cpu_attention_take(base, at, line);
}

void tartan_i_pairs_grad_begin(const tartan_i_pairs *f, tartan_i_pairs_grad *g) {
    const size_t bytes = (size_t)(tartan_i_pairs_rows(f) * g->half_row * 2);
    memset(g->weights, 0, bytes); /* units that fill tiles stay zeros */
    memset(g->ds, 0, bytes);
}

void tartan_i_pairs_grad_take(tartan_i_pairs_work *w, tartan_i_pairs_grad *g,
                              const tartan_op_attention_backward *op, const double *delta) {
    const tartan_i_pairs *f = w->f;
    const tartan_array *lse = op->lse;
    const int64_t base = w->entry / f->p.heads * lse->strides[0] + w->head * lse->strides[1];
    tartan_i_pairs_panels(w, op->in.q, g->queries);
    tartan_i_pairs_panels(w, op->out_grad, g->out_grads);
    for (int64_t q = 0; q < f->queries; q++) {
        float x = -INFINITY;
        if (q < w->count)
            x = (float)tartan_i_load(lse->data, lse->dtype, base + (w->query + q) * lse->strides[2]);
        g->lse[q] = x == -INFINITY ? INFINITY : x; /* without weights, exp(scores - lse) must be 0 */
        g->delta[q] = q < w->count ? (float)delta[w->query + q] : 0;
    }
}

void tartan_i_pairs_grade(tartan_i_pairs_work *w, tartan_i_pairs_grad *g, const tartan_i_cpu_factor *keys,
                          const tartan_i_cpu_factor *values, int64_t kv_entry) {
    const tartan_i_pairs *f = w->f;
    tartan_i_pairs_scores(w, keys, kv_entry, g->queries, g->scores);
    tartan_i_pairs_scores(w, values, kv_entry, g->out_grads, g->dp);
    tartan_i_pairs_mask(w);
    const tartan_i_grade grade = {.rows = w->chunk.blocks * f->rows,
                                  .cols = f->queries,
                                  .scale = tartan_i_pairs_prepare(w, g->scores, g->delta, g->dp),
                                  .x = g->scores,
                                  .dp = g->dp,
                                  .x_row = f->queries,
                                  .mask = w->mask,
                                  .mask_row = f->words,
                                  .lse = g->lse,
                                  .delta = g->delta,
                                  .weights = g->weights,
                                  .ds = g->ds,
                                  .half_row = g->half_row,
                                  .pairs = g->ds_pairs};
    f->p.k.product.columns_grade(&grade);
}
