/* SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"

#include "backend/operation.h"

/* ---- Batches ---- */

static tartan_cuda_block_scalars scalars_of(const tartan_array *array) {
    if (array == NULL) return (tartan_cuda_block_scalars){0};
    return (tartan_cuda_block_scalars){array->data, array->dtype, array->strides[0]};
}

static void batch_drop(tartan_cuda_batch *b, int32_t d) {
    b->ndim--;
    for (; d < b->ndim; d++) {
        b->lengths[d] = b->lengths[d + 1];
        b->first[d] = b->first[d + 1];
        b->second[d] = b->second[d + 1];
    }
}

/* Folds batch dimensions into a matrix dimension of *count elements wherever both operands step evenly on from it. A
 * matrix dimension of one element becomes the batch dimension that is innermost in memory. */
static void batch_fold(tartan_cuda_batch *b, int64_t *count, int64_t *first_stride, int64_t *second_stride) {
    if (*count == 1 && b->ndim > 0) {
        int32_t inner = b->ndim - 1;
        for (int32_t d = inner - 1; d >= 0; d--)
            if (b->first[d] == 1 || b->second[d] == 1) inner = d;
        *count = b->lengths[inner];
        *first_stride = b->first[inner];
        *second_stride = b->second[inner];
        batch_drop(b, inner);
    }
    for (int32_t d = b->ndim - 1; d >= 0; d--) {
        if (b->first[d] != *count * *first_stride || b->second[d] != *count * *second_stride) continue;
        *count *= b->lengths[d];
        batch_drop(b, d);
        d = b->ndim; /* another may continue this one */
    }
}

/* Merges two dimensions wherever one continues the other in both operands. */
static void batch_merge(tartan_cuda_batch *b) {
    for (int32_t d = 0; d < b->ndim; d++) {
        for (int32_t e = 0; e < b->ndim; e++) {
            if (d == e || b->first[d] != b->lengths[e] * b->first[e] ||
                b->second[d] != b->lengths[e] * b->second[e])
                continue;
            b->lengths[e] *= b->lengths[d];
            batch_drop(b, d);
            d = -1; /* again from the start */
            break;
        }
    }
}

/* The batch dimensions of two arrays, without the heads. */
static tartan_cuda_batch batch_of(const tartan_array *first, const tartan_array *second, int64_t heads) {
    tartan_cuda_batch b = {.entries = 1};
    const int32_t dims = first->ndim - 2 - (heads > 1);
    for (int32_t d = 0; d < dims; d++) {
        if (first->shape[d] == 1) continue;
        b.lengths[b.ndim] = first->shape[d];
        b.first[b.ndim] = first->strides[d];
        b.second[b.ndim++] = second->strides[d];
    }
    return b;
}

/* Folds batch dimensions into a matrix dimension, merges the rest, and counts the entries. */
static void batch_finish(tartan_cuda_batch *b, int64_t *count, int64_t *first_stride,
                         int64_t *second_stride) {
    batch_fold(b, count, first_stride, second_stride);
    batch_merge(b);
    b->entries = 1;
    for (int32_t d = 0; d < b->ndim; d++) b->entries *= b->lengths[d];
}

/* ---- Operands ---- */

static tartan_cuda_dense dense_of(const tartan_array *array, bool exchange, int64_t heads) {
    const int32_t n = array->ndim;
    return (tartan_cuda_dense){.data = array->data,
                               .dtype = array->dtype,
                               .head_stride = heads > 1 ? array->strides[n - 3] : 0,
                               .row_stride = array->strides[exchange ? n - 1 : n - 2],
                               .col_stride = array->strides[exchange ? n - 2 : n - 1]};
}

static bool may_use_tf32(const tartan_context *context, int32_t dtype) {
    return dtype == TARTAN_F32 && context->options.tf32;
}

/* ---- Products ---- */

tartan_status tartan_cuda_spmm_of(const tartan_host *host, const tartan_context *context, const void *of,
                                  void *to) {
    const tartan_op_spmm *op = of;
    tartan_cuda_spmm *out = to;
    const tartan_matrix *a = op->a;
    const tartan_layout *l = a->layout;
    /* C = B op(A) is the transpose of C' = op(A)' B'. */
    const bool right = op->side == TARTAN_I_SPMM_SIDE_RIGHT, transposed = op->transpose != right;
    const int32_t row = (int32_t)tartan_i_block_row_stride(a), col = (int32_t)tartan_i_block_col_stride(a);
    tartan_cuda_spmm p = {.dtype = a->dtype, .heads = l->shape.heads, .blocks = l->blocks, .layout = l};
    p.m = transposed ? l->shape.cols : l->shape.rows;
    p.k = transposed ? l->shape.rows : l->shape.cols;
    p.n = op->b->shape[op->b->ndim - (right ? 2 : 1)];
    p.grid_m = transposed ? l->grid_cols : l->grid_rows;
    p.grid_k = transposed ? l->grid_rows : l->grid_cols;
    p.block_m = (int32_t)(transposed ? l->shape.block_cols : l->shape.block_rows);
    p.block_k = (int32_t)(transposed ? l->shape.block_rows : l->shape.block_cols);
    p.values = a->values;
    p.a_m = transposed ? col : row;
    p.a_k = transposed ? row : col;
    p.by_columns = transposed;
    p.gates = scalars_of(op->gates);
    p.alpha = op->alpha;
    p.beta = op->beta;
    p.batch = batch_of(op->b, op->c, p.heads);
    p.b = dense_of(op->b, right, p.heads);
    p.c = dense_of(op->c, right, p.heads);
    batch_finish(&p.batch, &p.n, &p.b.col_stride, &p.c.col_stride);
    p.tf32 = may_use_tf32(context, p.dtype);
    p.allow_dense = context->options.allow_dense;
    p.nothing = tartan_i_array_is_empty(op->c);
    p.dynamic = tartan_i_is_dynamic(l);
    p.variable = tartan_i_is_variable(l);
    PASS(tartan_cuda_figures_get(host, l, &p.figures));
    *out = p;
    return TARTAN_OK;
}

tartan_status tartan_cuda_sddmm_of(const tartan_host *host, const tartan_context *context, const void *of,
                                   void *to) {
    const tartan_op_sddmm *op = of;
    tartan_cuda_sddmm *out = to;
    const tartan_matrix *s = op->s;
    const tartan_layout *l = s->layout;
    tartan_cuda_sddmm p = {
        .dtype = op->x[0].dtype, .s_dtype = s->dtype, .heads = l->shape.heads, .layout = l};
    p.m = l->shape.rows;
    p.n = l->shape.cols;
    p.blocks = l->blocks;
    p.grid_m = l->grid_rows;
    p.grid_n = l->grid_cols;
    p.block_m = (int32_t)l->shape.block_rows;
    p.block_n = (int32_t)l->shape.block_cols;
    p.values = s->values;
    p.s_m = (int32_t)tartan_i_block_row_stride(s);
    p.s_n = (int32_t)tartan_i_block_col_stride(s);
    p.gates = scalars_of(op->gates);
    p.alpha = op->alpha;
    p.beta = op->beta;
    p.pairs = (int32_t)op->pairs;
    for (int32_t i = 0; i < p.pairs; i++) {
        const tartan_array *x = &op->x[i], *y = &op->y[i];
        p.pair[i].k = x->shape[x->ndim - 1];
        p.pair[i].batch = batch_of(x, y, p.heads);
        p.pair[i].x = dense_of(x, false, p.heads);
        p.pair[i].y = dense_of(y, false, p.heads);
        batch_finish(&p.pair[i].batch, &p.pair[i].k, &p.pair[i].x.col_stride, &p.pair[i].y.row_stride);
    }
    p.tf32 = may_use_tf32(context, p.dtype);
    p.nothing = p.blocks == 0;
    p.dynamic = tartan_i_is_dynamic(l);
    p.variable = tartan_i_is_variable(l);
    PASS(tartan_cuda_figures_get(host, l, &p.figures));
    *out = p;
    return TARTAN_OK;
}

/* ---- Sub-blocks ---- */

/* Blocks per entry of the merged list of `rows` block rows, at least 1, between the numbers that were counted. */
static double share_of_rows(const double *share, double rows) {
    int32_t i = 0;
    while (i < TARTAN_CUDA_SHARES - 2 && 2 << i <= rows) i++;
    const double part = rows / (1 << i) - 1;
    return share[i] + (share[i + 1] - share[i]) * (part < 1 ? part : 1);
}

int32_t tartan_cuda_spmm_edge(const tartan_cuda_spmm *p) {
    return p->variable ? p->figures.edge : tartan_cuda_sub_edge(p->block_m, p->block_k);
}

int32_t tartan_cuda_sddmm_edge(const tartan_cuda_sddmm *p) {
    return p->variable ? p->figures.edge : tartan_cuda_sub_edge(p->block_m, p->block_n);
}

tartan_cuda_sddmm tartan_cuda_sddmm_in_sub_blocks(const tartan_cuda_sddmm *p, int32_t edge) {
    tartan_cuda_sddmm q = *p;
    const double of_block = (double)(p->block_m / edge) * (p->block_n / edge);
    q.blocks = p->variable ? (int64_t)((double)p->blocks * of_block * p->figures.filled)
                           : p->blocks * (int64_t)of_block;
    q.block_m = q.block_n = edge;
    return q;
}

/* Lines of sub-blocks of a block row have the same columns. A group of them covers (1 + (group - g) / lines) block rows on
 * average, g being the greatest common divisor of group and lines. */
tartan_cuda_spmm tartan_cuda_spmm_in_sub_blocks(const tartan_cuda_spmm *p, int32_t edge) {
    tartan_cuda_spmm q = *p;
    if (edge == p->block_m && edge == p->block_k) return q;
    const int32_t lines = p->block_m / edge;
    q.block_m = q.block_k = edge;
    q.blocks = p->blocks * lines * (p->block_k / edge);
    q.grid_m = p->grid_m * lines;
    q.grid_k = p->grid_k * (p->block_k / edge);
    if (p->variable) {
        q.blocks = (int64_t)((double)q.blocks * p->figures.filled);
        q.grid_m = tartan_i_ceil_div(p->m, edge);
        q.grid_k = tartan_i_ceil_div(p->k, edge);
    }
    for (int32_t i = 0; i < TARTAN_CUDA_SHARES; i++) {
        const int32_t group = 1 << i, power = lines & -lines, common = power < group ? power : group;
        const double rows = 1 + (double)(group - common) / lines;
        q.figures.share[p->by_columns][i] =
            group * share_of_rows(p->figures.share[p->by_columns], rows) / rows;
    }
    return q;
}

/* ---- Gates and growth ---- */

tartan_status tartan_cuda_gate_gradient_of(const tartan_host *host, const tartan_context *context,
                                           const void *of, void *to) {
    const tartan_op_gate_gradient *op = of;
    tartan_cuda_gate_gradient *out = to;
    (void)host;
    (void)context;
    const tartan_layout *l = op->w->layout;
    tartan_cuda_gate_gradient p = {
        .w = op->w->values, .dw = op->dw->values, .dtype = op->w->dtype, .layout = l};
    p.blocks = l->blocks;
    p.block_rows = (int32_t)l->shape.block_rows;
    p.block_cols = (int32_t)l->shape.block_cols;
    p.by_row = op->w->block_order == TARTAN_ROW_MAJOR;
    p.same_order = op->dw->block_order == op->w->block_order;
    p.ragged = tartan_i_is_ragged(l);
    p.rows = l->shape.rows;
    p.cols = l->shape.cols;
    p.grid_rows = l->grid_rows;
    p.heads = l->shape.heads;
    p.gates = scalars_of(op->gates);
    p.out = op->gate_grad->data;
    p.out_stride = op->gate_grad->strides[0];
    p.nothing = l->blocks == 0;
    *out = p;
    return TARTAN_OK;
}

tartan_status tartan_cuda_growth_score_of(const tartan_host *host, const tartan_context *context,
                                          const void *of, void *to) {
    const tartan_op_growth_score *op = of;
    tartan_cuda_growth_score *out = to;
    (void)host;
    (void)context;
    tartan_cuda_growth_score p = {.dtype = op->x[0].dtype, .norm = op->norm};
    p.rows = op->shape.rows;
    p.cols = op->shape.cols;
    p.block_rows = (int32_t)op->shape.block_rows;
    p.block_cols = (int32_t)op->shape.block_cols;
    p.grid_rows = op->score->shape[0];
    p.grid_cols = op->score->shape[1];
    p.scale = op->scale;
    p.beta = op->beta;
    p.pairs = (int32_t)op->pairs;
    for (int32_t i = 0; i < p.pairs; i++) {
        const tartan_array *x = &op->x[i], *y = &op->y[i];
        p.pair[i].k = x->shape[1];
        p.pair[i].x = x->data;
        p.pair[i].y = y->data;
        p.pair[i].x_row = x->strides[0];
        p.pair[i].x_k = x->strides[1];
        p.pair[i].y_k = y->strides[0];
        p.pair[i].y_col = y->strides[1];
    }
    p.score = op->score->data;
    p.score_row = op->score->strides[0];
    p.score_col = op->score->strides[1];
    p.nothing = tartan_i_array_is_empty(op->score);
    *out = p;
    return TARTAN_OK;
}
