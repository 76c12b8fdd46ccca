/* SPDX-License-Identifier: Apache-2.0
 * The rows of convolutions in the table of operations, and the maker of their operands: 3 x 3 with padding, from k to m
 * channels, of one image of n x n whose channels are neighbours in memory. */
#include "bench.h"

/* The next array: [1, channels, n, n], channels last in memory. */
static void add_image(bench_maker *m, int64_t channels) {
    const int64_t n = m->c->n;
    tartan_array *a = &m->out->arrays[m->out->array_count];
    bench_add_array(m, m->c->dtype, n * n, channels, 2);
    a->ndim = 4;
    a->shape[0] = 1, a->shape[1] = channels, a->shape[2] = a->shape[3] = n;
    a->strides[0] = n * n * channels, a->strides[1] = 1, a->strides[2] = n * channels,
    a->strides[3] = channels;
}

/* The layout of channels becomes that of filters. */
static void make_layout(bench_maker *m) {
    bench_operands *o = m->out;
    tartan_layout *filters = NULL;
    if (m->status == TARTAN_OK)
        m->status = tartan_conv_create(o->layout, "kernel=3x3 padding=same", &o->conv);
    if (m->status == TARTAN_OK) m->status = tartan_conv_get_layout(o->conv, &filters);
    if (m->status == TARTAN_OK) {
        tartan_layout_free(o->layout);
        o->layout = filters;
    }
}

static void make_conv(bench_maker *m) {
    make_layout(m);
    m->out->matrix_count = 1;
    add_image(m, m->c->k);
    add_image(m, m->c->m);
}

static tartan_status call_conv(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    const tartan_conv_forward_arguments given = {
        .conv = o->conv, .filter = o->matrices[0], .x = &o->arrays[0], .y = &o->arrays[1]};
    return tartan_conv_forward(context, &given);
}

static tartan_status call_filter_gradient(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_conv_filter_gradient(context, o->conv, &o->arrays[0], &o->arrays[1], NULL, NULL, 0,
                                       o->matrices[0]);
}

/* Each weight meets each position. */
static double conv_flops(const bench_case *c, const tartan_layout *layout) {
    return 2 * elements_of(layout) * (double)c->n * (double)c->n;
}

/* ---- conv_normalize: of such a filter, and its gradients ---- */

static void make_filters(bench_maker *m, int matrices) {
    make_layout(m);
    m->out->matrix_count = matrices;
    bench_add_array(m, bench_sum_dtype(m->c), m->c->m, 1, 1);
}

static void make_normalize(bench_maker *m) {
    make_filters(m, 2);
}

static tartan_status call_normalize(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_conv_normalize(context, o->conv, o->matrices[0], &o->arrays[0], 1e-12, o->matrices[1]);
}

static double normalize_flops(const bench_case *c, const tartan_layout *layout) {
    (void)c;
    return 3 * elements_of(layout);
}

static void make_normalize_gradient(bench_maker *m) {
    make_filters(m, 3);
    bench_add_array(m, bench_sum_dtype(m->c), m->c->m, 1, 1);
}

static tartan_status call_normalize_gradient(tartan_context *context, const bench_case *c,
                                             bench_operands *o) {
    (void)c;
    return tartan_conv_normalize_gradient(context, o->conv, o->matrices[0], &o->arrays[0], 1e-12,
                                          o->matrices[1], o->matrices[2], &o->arrays[1]);
}

static double normalize_gradient_flops(const bench_case *c, const tartan_layout *layout) {
    (void)c;
    return 7 * elements_of(layout);
}

const bench_op bench_conv_ops[BENCH_CONV_OPS] = {
    {.name = "conv",
     .uses_n = true,
     .usual_n = 64,
     .make = make_conv,
     .call = call_conv,
     .flops = conv_flops,
     .products = true,
     .no_scipy = "scipy has no block-sparse convolution"},
    {.name = "conv_filter_gradient",
     .uses_n = true,
     .usual_n = 64,
     .make = make_conv,
     .call = call_filter_gradient,
     .flops = conv_flops,
     .products = true,
     .no_scipy = "scipy has no block-sparse convolution"},
    {.name = "conv_normalize", .make = make_normalize, .call = call_normalize, .flops = normalize_flops},
    {.name = "conv_normalize_gradient",
     .make = make_normalize_gradient,
     .call = call_normalize_gradient,
     .flops = normalize_gradient_flops},
};
