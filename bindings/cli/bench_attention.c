/* SPDX-License-Identifier: Apache-2.0
 * The rows of attention and its unfused parts in the table of operations, and makers of their operands. */
#include "bench.h"

/* ---- attention: one head of m queries, k keys and n elements ---- */

enum { Q, K, V, OUT, LSE, OUT_GRAD, Q_GRAD, K_GRAD, V_GRAD };

/* The next array, of [1, 1, rows] or, with cols > 0, [1, 1, rows, cols]. */
static void add_head(bench_maker *m, int32_t dtype, int64_t rows, int64_t cols) {
    tartan_array *a = &m->out->arrays[m->out->array_count];
    bench_add_array(m, dtype, rows, cols > 0 ? cols : 1, cols > 0 ? 2 : 1);
    const int64_t step = cols > 0 ? cols : 1;
    a->ndim = cols > 0 ? 4 : 3;
    a->shape[0] = a->shape[1] = 1, a->shape[2] = rows, a->shape[3] = cols;
    a->strides[0] = a->strides[1] = rows * step, a->strides[2] = step, a->strides[3] = 1;
}

static void make_attention(bench_maker *m) {
    const int32_t dtype = m->c->dtype;
    add_head(m, dtype, m->c->m, m->c->n);
    add_head(m, dtype, m->c->k, m->c->n);
    add_head(m, dtype, m->c->k, m->c->n);
    add_head(m, dtype, m->c->m, m->c->n);
    add_head(m, bench_sum_dtype(m->c), m->c->m, 0);
}

static tartan_status call_attention(tartan_context *context, const bench_case *c, bench_operands *o) {
    tartan_array *a = o->arrays;
    (void)c;
    return tartan_attention_forward(
        context,
        &(tartan_attention_forward_arguments){
            .layout = o->layout, .q = &a[Q], .k = &a[K], .v = &a[V], .out = &a[OUT], .lse = &a[LSE]});
}

static void make_attention_backward(bench_maker *m) {
    make_attention(m);
    for (int i = OUT_GRAD; i <= V_GRAD; i++)
        add_head(m, m->c->dtype, i == K_GRAD || i == V_GRAD ? m->c->k : m->c->m, m->c->n);
    if (m->status == TARTAN_OK) m->status = call_attention(m->context, m->c, m->out); /* for out and lse */
}

static tartan_status call_attention_backward(tartan_context *context, const bench_case *c,
                                             bench_operands *o) {
    tartan_array *a = o->arrays;
    (void)c;
    return tartan_attention_backward(context, &(tartan_attention_backward_arguments){.layout = o->layout,
                                                                                     .q = &a[Q],
                                                                                     .k = &a[K],
                                                                                     .v = &a[V],
                                                                                     .out = &a[OUT],
                                                                                     .lse = &a[LSE],
                                                                                     .out_grad = &a[OUT_GRAD],
                                                                                     .q_grad = &a[Q_GRAD],
                                                                                     .k_grad = &a[K_GRAD],
                                                                                     .v_grad = &a[V_GRAD]});
}

static double attention_flops(const bench_case *c, const tartan_layout *layout) {
    return 4 * elements_of(layout) * (double)c->n;
}
static double attention_backward_flops(const bench_case *c, const tartan_layout *layout) {
    return 10 * elements_of(layout) * (double)c->n;
}

/* ---- attention_bias_gradient: of a bias of distances and a sink ---- */

enum { BIAS = OUT_GRAD + 1, SINKS, BIAS_GRAD, SINKS_GRAD, DISTANCES = 257 };

static tartan_status run_with_bias(tartan_context *context, bench_operands *o) {
    tartan_array *a = o->arrays;
    return tartan_attention_forward(context,
                                    &(tartan_attention_forward_arguments){.layout = o->layout,
                                                                          .q = &a[Q],
                                                                          .k = &a[K],
                                                                          .v = &a[V],
                                                                          .options = "bias_kind=distance",
                                                                          .bias = &a[BIAS],
                                                                          .sinks = &a[SINKS],
                                                                          .out = &a[OUT],
                                                                          .lse = &a[LSE]});
}

static void make_bias_gradient(bench_maker *m) {
    const int32_t dtype = bench_sum_dtype(m->c);
    make_attention(m);
    add_head(m, m->c->dtype, m->c->m, m->c->n);
    for (int i = 0; i < 2; i++) { /* the inputs, then their gradients */
        bench_add_array(m, dtype, 1, DISTANCES, 2);
        bench_add_array(m, dtype, 1, 1, 1);
    }
    if (m->status == TARTAN_OK) m->status = run_with_bias(m->context, m->out); /* for out and lse */
}

static tartan_status call_bias_gradient(tartan_context *context, const bench_case *c, bench_operands *o) {
    tartan_array *a = o->arrays;
    (void)c;
    return tartan_attention_bias_gradient(
        context, &(tartan_attention_bias_gradient_arguments){.layout = o->layout,
                                                             .q = &a[Q],
                                                             .k = &a[K],
                                                             .v = &a[V],
                                                             .options = "bias_kind=distance",
                                                             .bias = &a[BIAS],
                                                             .sinks = &a[SINKS],
                                                             .out = &a[OUT],
                                                             .lse = &a[LSE],
                                                             .out_grad = &a[OUT_GRAD],
                                                             .bias_grad = &a[BIAS_GRAD],
                                                             .sinks_grad = &a[SINKS_GRAD]});
}

/* ---- attention_merge: of two results for m queries of n elements ---- */

enum { OUT_A, LSE_A, OUT_B, LSE_B, MERGED, MERGED_LSE };

static void make_merge(bench_maker *m) {
    for (int i = OUT_A; i <= MERGED_LSE; i += 2) {
        add_head(m, m->c->dtype, m->c->m, m->c->n);
        add_head(m, bench_sum_dtype(m->c), m->c->m, 0);
    }
}

static tartan_status call_merge(tartan_context *context, const bench_case *c, bench_operands *o) {
    tartan_array *a = o->arrays;
    (void)c;
    return tartan_attention_merge(context, &a[OUT_A], &a[LSE_A], &a[OUT_B], &a[LSE_B], &a[MERGED],
                                  &a[MERGED_LSE]);
}

static double merge_flops(const bench_case *c, const tartan_layout *layout) {
    (void)layout;
    return 3 * (double)c->m * (double)c->n;
}

/* ---- block_softmax and its gradient: along the rows of a matrix ---- */

static void make_softmax(bench_maker *m) {
    m->out->matrix_count = 2;
}

static tartan_status call_softmax(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_block_softmax(context, o->matrices[0], NULL, NULL, o->matrices[1], NULL);
}

static void make_softmax_gradient(bench_maker *m) {
    m->out->matrix_count = 3;
}

static tartan_status call_softmax_gradient(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_block_softmax_gradient(context, o->matrices[0], o->matrices[1], 1, o->matrices[2]);
}

static double softmax_flops(const bench_case *c, const tartan_layout *layout) {
    (void)c;
    return 4 * elements_of(layout);
}

/* ---- The rows ---- */

const bench_op bench_attention_ops[BENCH_ATTENTION_OPS] = {
    {.name = "attention_forward",
     .uses_n = true,
     .usual_n = 64,
     .make = make_attention,
     .call = call_attention,
     .flops = attention_flops,
     .products = true},
    {.name = "attention_backward",
     .uses_n = true,
     .usual_n = 64,
     .make = make_attention_backward,
     .call = call_attention_backward,
     .flops = attention_backward_flops,
     .products = true},
    {.name = "attention_bias_gradient",
     .uses_n = true,
     .usual_n = 64,
     .make = make_bias_gradient,
     .call = call_bias_gradient,
     .flops = attention_flops,
     .products = true},
    {.name = "attention_merge",
     .uses_n = true,
     .usual_n = 64,
     .make = make_merge,
     .call = call_merge,
     .flops = merge_flops},
    {.name = "block_softmax", .make = make_softmax, .call = call_softmax, .flops = softmax_flops},
    {.name = "block_softmax_gradient",
     .make = make_softmax_gradient,
     .call = call_softmax_gradient,
     .flops = softmax_flops},
};
