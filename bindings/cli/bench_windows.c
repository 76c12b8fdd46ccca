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
};
