/* SPDX-License-Identifier: Apache-2.0
 * Weight normalisation of filters, and its gradients, on the CPU. A set of weights is a rectangle of slots at each tap; a worker
 * takes a row of its blocks, or a column if outputs are columns. Sums are kept in f64, in the order of taps and blocks. */
#include "backend/cpu.h"
#include "core/workspace.h"

#include <math.h>
#include <string.h>

/* Outputs of a block, and the weights of a set that belong to them. */
typedef struct lanes {
    tartan_i_conv_set set;
    int64_t first; /* output slot */
    int64_t count;
} lanes;

typedef struct normalize {
    const char *function;
    const tartan_conv *conv;
    const tartan_matrix *filter, *out_grad; /* out_grad is NULL forward */
    tartan_matrix *to;                      /* out, or filter_grad, which may be NULL */
    const tartan_array *gain;               /* or NULL */
    double epsilon;
    int64_t items;
    double *gain_sums; /* of the gradient: [items][outputs of a block] */
    int32_t workers;
} normalize;

/* Outputs of a block. */
static int64_t lane_block(const normalize *n) {
    const tartan_shape *s = &n->conv->layout->shape;
    return n->conv->options.transposed ? s->block_cols : s->block_rows;
}

/* Calls compute(n, lanes, item) for all items of a worker. */
static int64_t each_item(const normalize *n, int32_t worker,
                         void (*compute)(const normalize *n, const lanes *l, int64_t item)) {
    const int64_t sets = tartan_i_conv_nsets(n->conv), block = lane_block(n);
    int64_t item = 0;
    for (int64_t i = 0; i < sets; i++) {
        lanes l = {.set = tartan_i_conv_set_at(n->conv, i)};
        const bool turned = n->conv->options.transposed;
        const int64_t begin = turned ? l.set.col : l.set.row, all = turned ? l.set.cols : l.set.rows;
        for (int64_t at = 0; at < all; at += block, item++) {
            if (compute == NULL || item % n->workers != worker) continue;
            l.first = begin + at;
            l.count = all - at < block ? all - at : block;
            compute(n, &l, item);
        }
    }
    return item;
}

/* The part of one stored block that belongs to lanes: `others` weights for each. Strides in elements. */
typedef struct part {
    int64_t at, lane, other, others;
} part;

/* Calls take(data, part) for the stored blocks of lanes: tap by tap, in the order of the other side. */
static void each_part(const normalize *n, const lanes *l, void *data,
                      void (*take)(void *data, const part *p)) {
    const tartan_conv *conv = n->conv;
    const tartan_layout *layout = conv->layout;
    const bool turned = conv->options.transposed;
    const int64_t br = layout->shape.block_rows, bc = layout->shape.block_cols,
                  grid = tartan_i_conv_grid(conv);
    const int64_t begin = turned ? l->set.row : l->set.col, all = turned ? l->set.rows : l->set.cols,
                  edge = turned ? br : bc;
    for (int64_t tap = 0; tap < conv->options.taps; tap++)
        for (int64_t at = 0; at < all; at += edge) {
            const int64_t row = turned ? (begin + at) / br : l->first / br,
                          col = turned ? l->first / bc : (begin + at) / bc;
            const int64_t id = tartan_i_layout_find(layout, 0, row, tap * grid + col);
            const part p = {.at = id * tartan_i_block_elements(n->filter),
                            .others = all - at < edge ? all - at : edge};
            if (id >= 0) take(data, &p);
        }
}

/* ---- Sums and results of lanes ---- */

typedef struct sums {
    const normalize *n;
    const lanes *l;
    double squares[TARTAN_I_MAX_BLOCK], dots[TARTAN_I_MAX_BLOCK]; /* of filter^2, and of out_grad filter */
} sums;

/* Offset of an element of a part in a matrix. */
static int64_t place(const normalize *n, const tartan_matrix *m, const part *p, int64_t lane, int64_t other) {
    const bool turned = n->conv->options.transposed;
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    return p->at + lane * (turned ? col : row) + other * (turned ? row : col);
}

static void add_part(void *data, const part *p) {
    sums *s = data;
    const normalize *n = s->n;
    for (int64_t i = 0; i < s->l->count; i++)
        for (int64_t j = 0; j < p->others; j++) {
            const double f = tartan_i_load(n->filter->values, n->filter->dtype, place(n, n->filter, p, i, j));
            s->squares[i] += f * f;
            if (n->out_grad != NULL)
                s->dots[i] += f * tartan_i_load(n->out_grad->values, n->out_grad->dtype,
                                                place(n, n->out_grad, p, i, j));
        }
}

static double gain_of(const normalize *n, int64_t slot) {
    const tartan_i_channels *side = tartan_i_conv_output(n->conv);
    const int64_t channel = side->of != NULL ? side->of[slot] : slot;
    return n->gain != NULL ? tartan_i_load(n->gain->data, n->gain->dtype, channel * n->gain->strides[0]) : 1;
}

/* What the weights of a lane are multiplied by: out = scale filter, or filter_grad = scale out_grad - pull filter. */
typedef struct factors {
    const normalize *n;
    const lanes *l;
    double scale[TARTAN_I_MAX_BLOCK], pull[TARTAN_I_MAX_BLOCK];
} factors;

static void store_part(void *data, const part *p) {
    const factors *f = data;
    const normalize *n = f->n;
    for (int64_t i = 0; i < f->l->count; i++)
        for (int64_t j = 0; j < p->others; j++) {
            const double w = tartan_i_load(n->filter->values, n->filter->dtype, place(n, n->filter, p, i, j));
            double value = f->scale[i] * w;
            if (n->out_grad != NULL)
                value = f->scale[i] * tartan_i_load(n->out_grad->values, n->out_grad->dtype,
                                                    place(n, n->out_grad, p, i, j)) -
                        f->pull[i] * w;
            tartan_i_store(n->to->values, n->to->dtype, place(n, n->to, p, i, j), value);
        }
}

static void normalize_lanes(const normalize *n, const lanes *l, int64_t item) {
    sums s = {.n = n, .l = l};
    factors f = {.n = n, .l = l};
    each_part(n, l, &s, add_part);
    for (int64_t i = 0; i < l->count; i++) {
        const bool above = !(s.squares[i] < n->epsilon);
        const double most = above ? s.squares[i] : n->epsilon, root = sqrt(most),
                     gain = gain_of(n, l->first + i);
        f.scale[i] = gain / root;
        f.pull[i] = above ? gain * s.dots[i] / most / root : 0;
        if (n->gain_sums != NULL) n->gain_sums[item * lane_block(n) + i] = s.dots[i] / root;
    }
    if (n->to != NULL) each_part(n, l, &f, store_part);
}

static void normalize_task(void *data, int32_t worker) {
    (void)each_item(data, worker, normalize_lanes);
}

/* Weights of slots without channels become 0. */
static void run(const tartan_context *context, normalize *n) {
    const tartan_layout *l = n->conv->layout;
    if (n->to != NULL && n->to->values != n->filter->values && l->blocks > 0)
        memset(n->to->values, 0,
               (size_t)(l->blocks * tartan_i_block_elements(n->to) * tartan_dtype_bytes(n->to->dtype)));
    tartan_i_parallel(context, n->workers, 8 * tartan_i_stored_elements(n->filter), normalize_task, n);
}

tartan_status tartan_i_cpu_conv_normalize(const tartan_context *context, const tartan_op *any) {
    const tartan_op_conv_normalize *op = &any->conv_normalize;
    normalize n = {.conv = op->conv,
                   .filter = op->filter,
                   .to = op->out,
                   .gain = op->gain,
                   .epsilon = op->epsilon,
                   .workers = context->threads};
    run(context, &n);
    return TARTAN_OK;
}

/* ---- The gradient of gain: sums of the sets that share an output, in the order of sets ---- */

typedef struct gain_adder {
    normalize n;
    const tartan_array *to;
} gain_adder;

static void add_lanes(const normalize *n, const lanes *l, int64_t item) {
    const gain_adder *a = (const gain_adder *)(const void *)n; /* n is its first member */
    const tartan_i_channels *side = tartan_i_conv_output(n->conv);
    for (int64_t i = 0; i < l->count; i++) {
        const int64_t slot = l->first + i, channel = side->of != NULL ? side->of[slot] : slot;
        const int64_t at = channel * a->to->strides[0];
        tartan_i_store(a->to->data, a->to->dtype, at,
                       tartan_i_load(a->to->data, a->to->dtype, at) + n->gain_sums[item * lane_block(n) + i]);
    }
}

tartan_status tartan_i_cpu_conv_normalize_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_conv_normalize_gradient *op = &any->conv_normalize_gradient;
    gain_adder a = {.n = {.conv = op->conv,
                          .filter = op->filter,
                          .out_grad = op->out_grad,
                          .to = op->filter_grad,
                          .gain = op->gain,
                          .epsilon = op->epsilon,
                          .workers = context->threads},
                    .to = op->gain_grad};
    if (op->gain_grad != NULL)
        PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &a.n.gain_sums,
                                    each_item(&a.n, 0, NULL) * lane_block(&a.n), sizeof *a.n.gain_sums));
    run(context, &a.n);
    if (op->gain_grad == NULL) return TARTAN_OK;
    for (int64_t c = 0; c < op->gain_grad->shape[0]; c++)
        tartan_i_store(op->gain_grad->data, op->gain_grad->dtype, c * op->gain_grad->strides[0], 0);
    a.n.workers = 1;
    (void)each_item(&a.n, 0, add_lanes);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
