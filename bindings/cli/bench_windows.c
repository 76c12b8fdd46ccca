/* SPDX-License-Identifier: Apache-2.0
 * The rows of windows and of channel_linear in the table of operations, and makers of their operands: images of m x k with n channels, which are
 * neighbours in memory, and windows of block x block of which `density` are active. */
#include "bench.h"

/* The next array: [count, channels, rows, cols] with channels last in memory. */
static void add_image(bench_maker *m, int64_t count, int64_t channels, int64_t rows, int64_t cols) {
    tartan_array *a = &m->out->arrays[m->out->array_count];
    bench_add_array(m, m->c->dtype, count * rows * cols, channels, 2);
    a->ndim = 4;
    a->shape[0] = count, a->shape[1] = channels, a->shape[2] = rows, a->shape[3] = cols;
    a->strides[0] = rows * cols * channels, a->strides[1] = 1;
    a->strides[2] = cols * channels, a->strides[3] = channels;
}

static const char *windows_text(const bench_case *c, int64_t halo, char text[160]) {
    snprintf(text, 160, "size=%lld stride=%lld offset=%lld count=%lldx%lld", (long long)(c->block + 2 * halo),
             (long long)c->block, (long long)-halo, (long long)((c->m + c->block - 1) / c->block),
             (long long)((c->k + c->block - 1) / c->block));
    return text;
}

/* The layout becomes one of windows. */
static void make_active(bench_maker *m) {
    const bench_case *c = m->c;
    const tartan_shape shape = {(c->m + c->block - 1) / c->block, (c->k + c->block - 1) / c->block, 1, 1, 1};
    char parameters[64];
    snprintf(parameters, sizeof parameters, "density=%.17g", c->density);
    tartan_layout_free(m->out->layout);
    m->out->layout = NULL;
    if (m->status == TARTAN_OK)
        m->status = tartan_layout_from_pattern(&shape, "random", parameters, 1, &m->out->layout);
}

/* ---- window_pool ---- */

static void make_pool(bench_maker *m) {
    make_active(m);
    add_image(m, 1, 1, m->c->m, m->c->k);
}

static tartan_status call_pool(tartan_context *context, const bench_case *c, bench_operands *o) {
    char text[160];
    tartan_layout *made = NULL;
    const tartan_status status =
        tartan_layout_from_windows(context, &o->arrays[0], windows_text(c, 0, text), "pool=average", &made);
    tartan_layout_free(made);
    return status;
}

static double pool_flops(const bench_case *c, const tartan_layout *layout) {
    (void)layout;
    return (double)c->m * (double)c->k;
}

/* ---- window_gather and window_scatter: the windows alone are moved ---- */

static double twice_the_blocks(const bench_operands *o) {
    return 2 * bench_array_bytes(&o->arrays[1]);
}

static void make_move(bench_maker *m, int64_t halo) {
    const bench_case *c = m->c;
    make_active(m);
    add_image(m, 1, c->n, c->m, c->k);
    add_image(m, m->status == TARTAN_OK ? tartan_layout_blocks(m->out->layout) : 0, c->n, c->block + 2 * halo,
              c->block + 2 * halo);
}

static void make_gather(bench_maker *m) {
    make_move(m, 1);
}
static void make_scatter(bench_maker *m) {
    make_move(m, 0);
}

static tartan_status call_gather(tartan_context *context, const bench_case *c, bench_operands *o) {
    char text[160];
    return tartan_window_gather(context, o->layout, windows_text(c, 1, text), &o->arrays[0], &o->arrays[1]);
}

static tartan_status call_scatter(tartan_context *context, const bench_case *c, bench_operands *o) {
    char text[160];
    return tartan_window_scatter(context, o->layout, windows_text(c, 0, text), &o->arrays[1], NULL, NULL,
                                 &o->arrays[0]);
}

/* ---- channel_linear, on the whole image, and its gradients ---- */

enum { X, Y, GAIN, BIAS, Y_GRAD, X_GRAD, GAIN_GRAD, BIAS_GRAD };

static void make_linear(bench_maker *m) {
    const bench_case *c = m->c;
    add_image(m, 1, c->n, c->m, c->k);
    add_image(m, 1, c->n, c->m, c->k);
    bench_add_array(m, bench_sum_dtype(c), c->n, 1, 1);
    bench_add_array(m, bench_sum_dtype(c), c->n, 1, 1);
}

static tartan_status call_linear(tartan_context *context, const bench_case *c, bench_operands *o) {
    tartan_array *a = o->arrays;
    (void)c;
    const tartan_channel_linear_arguments all = {
        .x = &a[X], .gain = &a[GAIN], .bias = &a[BIAS], .options = "relu=1", .y = &a[Y]};
    return tartan_channel_linear(context, &all);
}

static double linear_flops(const bench_case *c, const tartan_layout *layout) {
    (void)layout;
    return 2 * (double)c->m * (double)c->k * (double)c->n;
}

static void make_linear_gradient(bench_maker *m) {
    const bench_case *c = m->c;
    make_linear(m);
    add_image(m, 1, c->n, c->m, c->k);
    add_image(m, 1, c->n, c->m, c->k);
    bench_add_array(m, bench_sum_dtype(c), c->n, 1, 1);
    bench_add_array(m, bench_sum_dtype(c), c->n, 1, 1);
}

static tartan_status call_linear_gradient(tartan_context *context, const bench_case *c, bench_operands *o) {
    tartan_array *a = o->arrays;
    (void)c;
    const tartan_channel_linear_gradient_arguments all = {.x = &a[X],
                                                          .gain = &a[GAIN],
                                                          .bias = &a[BIAS],
                                                          .y_grad = &a[Y_GRAD],
                                                          .options = "relu=1",
                                                          .x_grad = &a[X_GRAD],
                                                          .gain_grad = &a[GAIN_GRAD],
                                                          .bias_grad = &a[BIAS_GRAD]};
    return tartan_channel_linear_gradient(context, &all);
}

static double linear_gradient_flops(const bench_case *c, const tartan_layout *layout) {
    return 2 * linear_flops(c, layout);
}

/* It reads x and y_grad, and writes x_grad. */
static double linear_gradient_bytes(const bench_operands *o) {
    return 3 * bench_array_bytes(&o->arrays[X]) + 4 * bench_array_bytes(&o->arrays[GAIN]);
}

/* ---- The rows ---- */

const bench_op bench_window_ops[BENCH_WINDOW_OPS] = {
    {.name = "window_pool", .make = make_pool, .call = call_pool, .flops = pool_flops},
    {.name = "window_gather",
     .uses_n = true,
     .usual_n = 64,
     .make = make_gather,
     .call = call_gather,
     .bytes = twice_the_blocks},
    {.name = "window_scatter",
     .uses_n = true,
     .usual_n = 64,
     .make = make_scatter,
     .call = call_scatter,
     .bytes = twice_the_blocks},
    {.name = "channel_linear",
     .uses_n = true,
     .usual_n = 64,
     .make = make_linear,
     .call = call_linear,
     .flops = linear_flops},
    {.name = "channel_linear_gradient",
     .uses_n = true,
     .usual_n = 64,
     .make = make_linear_gradient,
     .call = call_linear_gradient,
     .flops = linear_gradient_flops,
     .bytes = linear_gradient_bytes},
};
