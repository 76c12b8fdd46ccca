/* SPDX-License-Identifier: Apache-2.0
 * The plan of attention on the CPU, and how its work is shared. */
#include "backend/cpu_attention.h"
#include "core/workspace.h"

void tartan_i_cpu_attention_use(tartan_i_cpu_attention *p, tartan_i_kernels kernels) {
    const tartan_i_product *product = &p->k.product;
    p->k = kernels;
    p->pairs = product->group > 1;
    p->fit = tartan_i_cpu_fit(product, p->block_rows, p->d > p->dv ? p->d : p->dv);
}

tartan_i_cpu_attention tartan_i_cpu_attention_plan(const tartan_context *context,
                                                   const tartan_i_attention *in) {
    const tartan_layout *l = tartan_i_cpu_layout_now(in->layout);
    tartan_i_cpu_attention p = {.context = context, .in = in, .layout = l};
    p.heads = in->q->shape[1];
    p.kv_heads = in->k->shape[1];
    p.group = p.kv_heads > 0 ? p.heads / p.kv_heads : 0;
    p.entries = in->q->shape[0] * p.kv_heads;
    p.d = in->q->shape[3];
    p.dv = in->v->shape[3];
    p.block_rows = l->shape.block_rows;
    p.block_cols = l->shape.block_cols;
    p.least_round = 1;
    p.scores_row = tartan_i_cpu_attention_row_of(TARTAN_I_ATTENTION_KEYS);
    p.sums_row = tartan_i_cpu_attention_row_of(p.d > p.dv ? p.d : p.dv);
    p.drop = tartan_i_cpu_attention_drop(in);
    p.work = (double)(in->q->shape[0] * p.heads / l->shape.heads) * (double)l->blocks *
             (double)(p.block_rows * p.block_cols) * (double)(2 * (p.d + p.dv) + 16);
    tartan_i_cpu_attention_use(&p, p.d > 0 ? tartan_i_cpu_product_kernels(in->q->dtype, NULL)
                                           : tartan_i_cpu_kernels(in->q->dtype));
    return p;
}

tartan_status tartan_i_cpu_attention_memory(tartan_i_cpu_attention *p, tartan_i_cpu_factor *factors,
                                            int nfactors) {
    int64_t bytes = 0, all = 0;
    PASS(tartan_i_layout_columns(p->layout, &p->columns));
    for (int i = 0; i < nfactors; i++) {
        int64_t more;
        if (p->kv_heads == 0) continue;
        if (!tartan_i_multiply(factors[i].bytes, factors[i].array->shape[1] / p->kv_heads, &more) ||
            __builtin_add_overflow(bytes, more, &bytes))
            bytes = INT64_MAX;
    }
    p->round = bytes > 0 ? TARTAN_I_ATTENTION_PACKED * p->context->threads / bytes : p->entries;
    if (p->round < p->least_round) p->round = p->least_round;
    if (p->round > p->entries) p->round = p->entries;
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_TEAM, &p->team.taken, tartan_i_cpu_team_bytes(1),
                                1));
    char *packed;
    if (!tartan_i_multiply(bytes, p->round, &all)) all = INT64_MAX;
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_PANEL, &packed, all, 1));
    for (int i = 0; i < nfactors; i++) {
        factors[i].packed = packed;
        packed +=
            factors[i].bytes * p->round * (factors[i].array->shape[1] / (p->kv_heads > 0 ? p->kv_heads : 1));
    }
    return TARTAN_OK;
}

void tartan_i_cpu_attention_share(tartan_i_cpu_attention *p, int64_t tasks, double work, tartan_task task,
                                  void *data) {
    p->team.rows = tasks < p->context->threads ? (int32_t)tasks : p->context->threads;
    p->team.cols = 1;
    p->team.panels = 1;
    p->team.block_rows = tasks;
    p->team.chunk = 1;
    p->team.context = p->context;
    tartan_i_cpu_team_start(&p->team);
    tartan_i_parallel(p->context, p->team.rows, work, task, data);
}
