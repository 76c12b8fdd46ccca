/* SPDX-License-Identifier: Apache-2.0
 * Merging two attentions on the CPU: a weight of each part for each query, and the weighted sum of its two results. */
#include "backend/cpu.h"
#include "core/workspace.h"

#include <math.h>

enum { PIECE = 64 }; /* queries whose weights are computed at a time */

typedef struct merge {
    const tartan_context *context;
    const tartan_op_attention_merge *op;
    tartan_i_kernels k;
    int64_t heads, queries, d;
    char *scratch;
    int64_t room; /* of a row of d reals; a worker has two */
} merge;

/* Row (entry, query) of an array of 3 or 4 dimensions, in elements. */
static int64_t offset_of(const merge *p, const tartan_array *a, int64_t row) {
    const int64_t entry = row / p->queries;
    return entry / p->heads * a->strides[0] + entry % p->heads * a->strides[1] +
           row % p->queries * a->strides[2];
}

static double lse_of(const merge *p, const tartan_array *lse, int64_t row) {
    return tartan_i_load(lse->data, lse->dtype, offset_of(p, lse, row));
}

static void fetch(const merge *p, const tartan_array *from, int64_t row, char *room) {
    tartan_i_line_load(&p->k, from->dtype, tartan_i_at(from->data, from->dtype, offset_of(p, from, row)),
                       from->strides[3], p->d, room);
}

/* The larger of two numbers; NaN if one of them is. */
static double larger(double a, double b) {
    return isnan(a) || a > b ? a : b;
}

/* One query, with the weights of its parts before they are divided by their sum. */
static void merge_row(const merge *p, int64_t row, double a, double b, bool has_a, bool has_b, char *room) {
    const tartan_array *out = p->op->out;
    char *other = room + p->room;
    if (p->d == 0) return;
    if (!has_a && !has_b)
        memset(room, 0, (size_t)(p->d * p->k.bytes));
    else
        fetch(p, has_a ? p->op->out_a : p->op->out_b, row, room);
    if (has_a && has_b) {
        fetch(p, p->op->out_b, row, other);
        p->k.scale(p->d, a / (a + b), room, room);
        p->k.scale(p->d, b / (a + b), other, other);
        p->k.commit[p->k.dtype](1, p->d, 1, other, 0, 1, room, 0);
    }
    tartan_i_line_store(&p->k, out->dtype, room, p->d,
                        tartan_i_at(out->data, out->dtype, offset_of(p, out, row)), out->strides[3]);
}

/* Queries begin .. begin + count - 1. All lse of a query are read before anything of it is written. */
static void merge_piece(const merge *p, int64_t begin, int64_t count, char *room) {
    const tartan_array *lse = p->op->lse;
    double a[PIECE], b[PIECE], most[PIECE]; /* a and b hold reals */
    bool has_a[PIECE], has_b[PIECE];
    for (int64_t i = 0; i < count; i++) {
        const double lse_a = lse_of(p, p->op->lse_a, begin + i), lse_b = lse_of(p, p->op->lse_b, begin + i);
        has_a[i] = lse_a != -(double)INFINITY;
        has_b[i] = lse_b != -(double)INFINITY;
        most[i] = larger(lse_a, lse_b);
        tartan_i_store(a, p->k.dtype, i, has_a[i] ? lse_a - most[i] : lse_a);
        tartan_i_store(b, p->k.dtype, i, has_b[i] ? lse_b - most[i] : lse_b);
    }
    (void)p->k.row_exp_sum(count, 1, a, 0, NULL, a);
    (void)p->k.row_exp_sum(count, 1, b, 0, NULL, b);
    for (int64_t i = 0; i < count; i++) {
        const double weight_a = tartan_i_load(a, p->k.dtype, i), weight_b = tartan_i_load(b, p->k.dtype, i);
        merge_row(p, begin + i, weight_a, weight_b, has_a[i], has_b[i], room);
        if (lse != NULL)
            tartan_i_store(lse->data, lse->dtype, offset_of(p, lse, begin + i),
                           has_a[i] && has_b[i] ? most[i] + log(weight_a + weight_b) : most[i]);
    }
}

static void merge_task(void *data, int32_t worker) {
    const merge *p = data;
    const tartan_array *out = p->op->out;
    int64_t begin, end;
    tartan_i_share(out->shape[0] * p->heads * p->queries, p->context->threads, worker, &begin, &end);
    for (; begin < end; begin += PIECE)
        merge_piece(p, begin, end - begin < PIECE ? end - begin : PIECE, p->scratch + 2 * worker * p->room);
}

tartan_status tartan_i_cpu_attention_merge(const tartan_context *context, const tartan_op *any) {
    const tartan_op_attention_merge *op = &any->attention_merge;
    merge p = {.context = context,
               .op = op,
               .k = tartan_i_cpu_kernels(op->out->dtype),
               .heads = op->out->shape[1],
               .queries = op->out->shape[2],
               .d = op->out->shape[3]};
    if (op->out->shape[0] == 0 || p.heads == 0 || p.queries == 0) return TARTAN_OK;
    p.room = tartan_i_ceil_div(p.d * p.k.bytes + 1, 64) * 64;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p.scratch, 2 * p.room, context->threads));
    tartan_i_parallel(context, context->threads,
                      16 * (double)tartan_i_array_elements(op->lse_a) * (double)(p.d + 8), merge_task, &p);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
