/* SPDX-License-Identifier: Apache-2.0
 * Properties of any operation: its name, operands and cost. */
#include "backend/operation.h"

#include "backend/attention.h"
#include "core/array.h"

const char *tartan_i_op_name(tartan_op_kind kind) {
    static const char *const names[] = {
#define NAME_OF(NAME, name) [TARTAN_OP_##NAME] = #name,
        TARTAN_I_OPERATIONS(NAME_OF)
#undef NAME_OF
    };
    return names[kind];
}

/* ---- Operands ---- */

typedef struct operands {
    tartan_i_operand *out;
    int32_t count;
} operands;

static void add_matrix(operands *all, const char *name, const tartan_matrix *matrix, bool written) {
    all->out[all->count++] = (tartan_i_operand){.name = name, .matrix = matrix, .written = written};
}

static void add_array(operands *all, const char *name, const tartan_array *array, bool written) {
    if (array == NULL) return;
    all->out[all->count++] = (tartan_i_operand){.name = name, .array = array, .written = written};
}

static void add_layout(operands *all, const char *name, const tartan_layout *layout) {
    all->out[all->count++] = (tartan_i_operand){.name = name, .layout = layout};
}

static void add_list(operands *all, const char *name, const int64_t *list, const tartan_matrix *of) {
    if (list == NULL) return;
    all->out[all->count++] = (tartan_i_operand){.name = name, .list = list, .length = of->layout->blocks};
}

static void add_pairs(operands *all, const tartan_array *x, const tartan_array *y, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i++) {
        add_array(all, "x", &x[i], false);
        add_array(all, "y", &y[i], false);
    }
}

static void spmm_operands(const tartan_op_spmm *op, operands *all) {
    add_matrix(all, "a", op->a, false);
    add_array(all, "gates", op->gates, false);
    add_array(all, "b", op->b, false);
    add_array(all, "c", op->c, true);
}

static void sddmm_operands(const tartan_op_sddmm *op, operands *all) {
    add_pairs(all, op->x, op->y, op->pairs);
    add_array(all, "gates", op->gates, false);
    add_matrix(all, "s", op->s, true);
}

static void gate_gradient_operands(const tartan_op_gate_gradient *op, operands *all) {
    add_matrix(all, "w", op->w, false);
    add_array(all, "gates", op->gates, false);
    add_matrix(all, "dw", op->dw, true);
    add_array(all, "out_gate_grad", op->gate_grad, true);
}

static void growth_score_operands(const tartan_op_growth_score *op, operands *all) {
    add_pairs(all, op->x, op->y, op->pairs);
    add_array(all, "score", op->score, true);
}

static void block_copy_operands(const tartan_op_block_copy *op, operands *all) {
    add_matrix(all, "from", op->from, false);
    add_list(all, "sources", op->sources, op->to);
    add_list(all, "targets", op->targets, op->from);
    add_matrix(all, "matrix", op->to, true);
}

static void block_norms_operands(const tartan_op_block_norms *op, operands *all) {
    add_matrix(all, "matrix", op->matrix, false);
    add_array(all, "out_norms", op->norms, true);
}

static void add_ids(operands *all, const char *name, const int64_t *list, int64_t length) {
    if (list == NULL) return;
    all->out[all->count++] = (tartan_i_operand){.name = name, .list = list, .length = length};
}

static void elementwise_operands(const tartan_op_elementwise *op, operands *all) {
    add_matrix(all, "a", op->a, false);
    if (op->b != NULL) add_matrix(all, "b", op->b, false);
    add_list(all, "the sources in a", op->a_sources, op->to);
    add_list(all, "the sources in b", op->b_sources, op->to);
    add_array(all, "row_factors", op->row_factors, false);
    add_array(all, "col_factors", op->col_factors, false);
    add_matrix(all, "out", op->to, true);
}

static void elements_operands(const tartan_op_elements *op, operands *all) {
    if (op->from != NULL) add_matrix(all, "matrix", op->from, false);
    add_ids(all, "the sources", op->sources, op->count);
    add_ids(all, "the targets", op->targets, op->count);
    add_array(all, "diagonal", op->numbers, op->to == NULL);
    if (op->to != NULL) add_matrix(all, "matrix", op->to, true);
}

static void reduce_operands(const tartan_op_reduce *op, operands *all) {
    add_matrix(all, "matrix", op->matrix, false);
    add_array(all, "the units", op->units, false);
    add_array(all, "out_results", op->results, true);
}

static void compare_operands(const tartan_op_compare *op, operands *all) {
    add_matrix(all, "a", op->a, false);
    add_matrix(all, "b", op->b, false);
    add_ids(all, "the blocks of a", op->a_ids, op->pairs);
    add_ids(all, "the blocks of b", op->b_ids, op->pairs);
    add_array(all, "out_value", op->count, true);
}

static void add_attention(operands *all, const tartan_i_attention *in) {
    add_layout(all, "layout", in->layout);
    add_array(all, "q", in->q, false);
    add_array(all, "k", in->k, false);
    add_array(all, "v", in->v, false);
    add_array(all, "bias", in->bias, false);
}

static void attention_forward_operands(const tartan_op_attention_forward *op, operands *all) {
    add_attention(all, &op->in);
    add_array(all, "sinks", op->sinks, false);
    add_array(all, "out", op->out, true);
    add_array(all, "lse", op->lse, true);
}

static void attention_backward_operands(const tartan_op_attention_backward *op, operands *all) {
    add_attention(all, &op->in);
    add_array(all, "out", op->out, false);
    add_array(all, "lse", op->lse, false);
    add_array(all, "out_grad", op->out_grad, false);
    add_array(all, "q_grad", op->q_grad, true);
    add_array(all, "k_grad", op->k_grad, true);
    add_array(all, "v_grad", op->v_grad, true);
}

static void attention_bias_gradient_operands(const tartan_op_attention_bias_gradient *op, operands *all) {
    add_attention(all, &op->in);
    add_array(all, "sinks", op->sinks, false);
    add_array(all, "out", op->out, false);
    add_array(all, "lse", op->lse, false);
    add_array(all, "out_grad", op->out_grad, false);
    add_array(all, "bias_grad", op->bias_grad, true);
    add_array(all, "sinks_grad", op->sinks_grad, true);
}

static void attention_merge_operands(const tartan_op_attention_merge *op, operands *all) {
    add_array(all, "out_a", op->out_a, false);
    add_array(all, "lse_a", op->lse_a, false);
    add_array(all, "out_b", op->out_b, false);
    add_array(all, "lse_b", op->lse_b, false);
    add_array(all, "out", op->out, true);
    add_array(all, "lse", op->lse, true);
}

static void block_softmax_operands(const tartan_op_block_softmax *op, operands *all) {
    add_matrix(all, "x", op->x, false);
    add_matrix(all, "y", op->y, true);
    add_array(all, "lse", op->lse, true);
}

static void block_softmax_gradient_operands(const tartan_op_block_softmax_gradient *op, operands *all) {
    add_matrix(all, "y", op->y, false);
    add_matrix(all, "dy", op->dy, false);
    add_matrix(all, "dx", op->dx, true);
}

static void window_pool_operands(const tartan_op_window_pool *op, operands *all) {
    add_array(all, "mask", op->mask, false);
    add_array(all, "active", op->active, true);
}

static void window_gather_operands(const tartan_op_window_gather *op, operands *all) {
    add_layout(all, "active", op->active);
    add_array(all, "x", op->x, false);
    add_array(all, "blocks", op->blocks, true);
}

static void window_scatter_operands(const tartan_op_window_scatter *op, operands *all) {
    add_layout(all, "active", op->active);
    add_array(all, "blocks", op->blocks, false);
    add_array(all, "base", op->base, false);
    add_array(all, "y", op->y, true);
}

static void conv_operands(const tartan_op_conv *op, operands *all) {
    add_matrix(all, "filter", op->filter, false);
    add_array(all, op->from_name, op->from, false);
    add_array(all, "gain", op->gain, false);
    add_array(all, "bias", op->bias, false);
    if (op->active != NULL) add_layout(all, "active", op->active);
    add_array(all, op->to_name, op->to, true);
}

static void conv_filter_gradient_operands(const tartan_op_conv_filter_gradient *op, operands *all) {
    add_matrix(all, "filter_grad", op->filter_grad, true);
    add_array(all, op->in_name, op->in, false);
    add_array(all, op->out_name, op->out, false);
    if (op->active != NULL) add_layout(all, "active", op->active);
}

static void channel_linear_operands(const tartan_op_channel_linear *op, operands *all) {
    add_array(all, "x", op->x, false);
    add_array(all, "gain", op->gain, false);
    add_array(all, "bias", op->bias, false);
    add_array(all, "y", op->y, true);
}

static void channel_linear_gradient_operands(const tartan_op_channel_linear_gradient *op, operands *all) {
    add_array(all, "x", op->x, false);
    add_array(all, "gain", op->gain, false);
    add_array(all, "bias", op->bias, false);
    add_array(all, "y_grad", op->y_grad, false);
    add_array(all, "x_grad", op->x_grad, true);
    add_array(all, "gain_grad", op->gain_grad, true);
    add_array(all, "bias_grad", op->bias_grad, true);
}

static void conv_normalize_operands(const tartan_op_conv_normalize *op, operands *all) {
    add_matrix(all, "filter", op->filter, false);
    add_array(all, "gain", op->gain, false);
    add_matrix(all, "out", op->out, true);
}

static void conv_normalize_gradient_operands(const tartan_op_conv_normalize_gradient *op, operands *all) {
    add_matrix(all, "filter", op->filter, false);
    add_array(all, "gain", op->gain, false);
    add_matrix(all, "out_grad", op->out_grad, false);
    add_matrix(all, "filter_grad", op->filter_grad, true);
    add_array(all, "gain_grad", op->gain_grad, true);
}

int32_t tartan_i_op_operands(const tartan_op *op, tartan_i_operand out[TARTAN_I_MAX_OPERANDS]) {
    operands all = {.out = out};
    switch (op->kind) {
#define OPERANDS_OF(NAME, name)                                                                              \
    case TARTAN_OP_##NAME:                                                                                   \
        name##_operands(&op->name, &all);                                                                    \
        break;
        TARTAN_I_OPERATIONS(OPERANDS_OF)
#undef OPERANDS_OF
    case TARTAN_OP_COUNT:
        break;
    }
    return all.count;
}

/* ---- Cost ---- */

double tartan_i_stored_elements(const tartan_matrix *m) {
    if (!tartan_i_is_dynamic(m->layout)) return (double)tartan_layout_elements(m->layout);
    return (double)m->layout->blocks * (double)tartan_i_block_elements(m);
}

/* The length of the sums over k and the batch; the head dimension is not part of the batch. */
static double terms_of(const tartan_array *x, int64_t pairs, int64_t heads) {
    double terms = 0;
    for (int64_t i = 0; i < pairs; i++) {
        double all = (double)x[i].shape[x[i].ndim - 1];
        for (int32_t d = 0; d < x[i].ndim - 2; d++) all *= (double)x[i].shape[d];
        terms += all / (double)heads;
    }
    return terms;
}

/* Positions of an image [n, channels, spatial...]; in windows, those of the active ones, or of all if their number is not
 * known. */
static double positions_of(const tartan_array *image, const tartan_layout *active,
                           const tartan_i_windows *windows) {
    double all = (double)image->shape[0], window = 1;
    for (int32_t d = 2; d < image->ndim; d++) all *= (double)image->shape[d];
    if (active == NULL || tartan_i_is_dynamic(active)) return all;
    for (int32_t d = 0; d < windows->dims; d++) window *= (double)windows->size[d];
    window *= (double)active->blocks;
    return window < all ? window : all;
}

/* Each weight meets each position of `out` once. */
static double conv_flops(const tartan_layout *layout, const tartan_array *out, const tartan_array *windowed,
                         const tartan_layout *active, const tartan_i_windows *windows) {
    const double all = positions_of(windowed, NULL, windows);
    const double share = all > 0 ? positions_of(windowed, active, windows) / all : 0;
    return 2 * (double)tartan_layout_elements(layout) * positions_of(out, NULL, windows) * share;
}

double tartan_i_op_flops(const tartan_op *op) {
    switch (op->kind) {
    case TARTAN_OP_SPMM: {
        const tartan_op_spmm *p = &op->spmm;
        const tartan_shape *s = &p->a->layout->shape;
        const bool transposed = p->transpose == TARTAN_TRANSPOSE;
        const double rows = (double)((p->side == TARTAN_RIGHT) != transposed ? s->cols : s->rows);
        const double columns = rows > 0 ? (double)tartan_i_array_elements(p->c) / rows : 0;
        return 2 * tartan_i_stored_elements(p->a) * columns / (double)s->heads;
    }
    case TARTAN_OP_SDDMM:
        return 2 * tartan_i_stored_elements(op->sddmm.s) *
               terms_of(op->sddmm.x, op->sddmm.pairs, op->sddmm.s->layout->shape.heads);
    case TARTAN_OP_GATE_GRADIENT:
        return 2 * tartan_i_stored_elements(op->gate_gradient.w);
    case TARTAN_OP_GROWTH_SCORE: {
        const tartan_op_growth_score *p = &op->growth_score;
        const double grid = (double)p->score->shape[0] * (double)p->score->shape[1];
        return 2 * terms_of(p->x, p->pairs, 1) * ((double)(p->shape->rows + p->shape->cols) + grid);
    }
    case TARTAN_OP_BLOCK_NORMS:
        return 2 * tartan_i_stored_elements(op->block_norms.matrix);
    case TARTAN_OP_ELEMENTWISE: /* two products and a sum, two products, or a function */
        return (op->elementwise.b != NULL && op->elementwise.form == TARTAN_I_FORM_SUM ? 3 : 1) *
               tartan_i_stored_elements(op->elementwise.to);
    case TARTAN_OP_REDUCE:
        return tartan_i_stored_elements(op->reduce.matrix);
    case TARTAN_OP_COMPARE:
        return tartan_i_stored_elements(op->compare.a);
    case TARTAN_OP_ATTENTION_FORWARD:
        return 4 * (double)op->attention_forward.in.q->shape[3] *
               tartan_i_attention_pairs(&op->attention_forward.in);
    case TARTAN_OP_ATTENTION_BACKWARD:
        return 10 * (double)op->attention_backward.in.q->shape[3] *
               tartan_i_attention_pairs(&op->attention_backward.in);
    case TARTAN_OP_ATTENTION_BIAS_GRADIENT:
        if (op->attention_bias_gradient.bias_grad == NULL) break;
        return 4 * (double)op->attention_bias_gradient.in.q->shape[3] *
               tartan_i_attention_pairs(&op->attention_bias_gradient.in);
    case TARTAN_OP_ATTENTION_MERGE: /* two products and a sum */
        return 3 * (double)tartan_i_array_elements(op->attention_merge.out);
    case TARTAN_OP_BLOCK_SOFTMAX: /* scale, exp, sum, divide */
        return 4 * tartan_i_stored_elements(op->block_softmax.x);
    case TARTAN_OP_BLOCK_SOFTMAX_GRADIENT: /* product and sum, difference, product */
        return 4 * tartan_i_stored_elements(op->block_softmax_gradient.y);
    case TARTAN_OP_CONV: {
        const tartan_op_conv *p = &op->conv;
        return conv_flops(p->filter->layout, p->adjoint ? p->from : p->to, p->active_from ? p->from : p->to,
                          p->active, &p->windows);
    }
    case TARTAN_OP_CONV_FILTER_GRADIENT: {
        const tartan_op_conv_filter_gradient *p = &op->conv_filter_gradient;
        return conv_flops(p->filter_grad->layout, p->out, p->active_in ? p->in : p->out, p->active,
                          &p->windows);
    }
    case TARTAN_OP_WINDOW_POOL: /* a comparison, or a sum */
        return (double)tartan_i_array_elements(op->window_pool.mask);
    case TARTAN_OP_WINDOW_SCATTER:
        return op->window_scatter.add ? (double)tartan_i_array_elements(op->window_scatter.blocks) : 0;
    case TARTAN_OP_CHANNEL_LINEAR: /* product and sum */
        return 2 * (double)tartan_i_array_elements(op->channel_linear.x);
    case TARTAN_OP_CHANNEL_LINEAR_GRADIENT: /* a product, and two sums of which one is of products */
        return 4 * (double)tartan_i_array_elements(op->channel_linear_gradient.x);
    case TARTAN_OP_CONV_NORMALIZE: /* square and sum, product */
        return 3 * tartan_i_stored_elements(op->conv_normalize.filter);
    case TARTAN_OP_CONV_NORMALIZE_GRADIENT: /* two products and sums; two products and a difference */
        return 7 * tartan_i_stored_elements(op->conv_normalize_gradient.filter);
    case TARTAN_OP_WINDOW_GATHER:
    case TARTAN_OP_BLOCK_COPY:
    case TARTAN_OP_ELEMENTS:
    case TARTAN_OP_COUNT:
        break;
    }
    return 0;
}
