/* SPDX-License-Identifier: Apache-2.0
 * The bottleneck unit of residual networks, made of other operations:
 *
 *     gather windows with halo, `reduce`, clear what is outside of the image       (x -> a -> b)
 *     `spatial` without padding, `expand`, add to the windows of y                 (b -> c -> sum -> y)
 *
 * A device does each step once, for all windows. The CPU does the first line for a few windows at a time, whose a stays in
 * its caches, and then the second line, so that no window of y is written before all halos have been read: y may be x. */
#include "core/workspace.h"
#include "ops/residual.h"

typedef tartan_i_residual unit;
typedef tartan_i_residual_part part;

enum { ALIGN = 256, CHUNK_BYTES = 2 << 20 /* of a thread: what L2 holds */, MOST_IN_A_ROW = 1 << 29 };

/* A call of it. */
typedef struct run {
    const unit *u;
    tartan_context *context;
    int64_t windows, chunk; /* all, and those at a time */
    char *b, *rest;         /* b of all windows; of a chunk a, or c and the sum */
    void *scratch;          /* on a device */
} run;

/* ---- Steps ---- */

static tartan_status step(const run *r, const tartan_op *op) {
    return tartan_i_explaining() ? tartan_i_explain(r->context, op) : tartan_i_backend_run(r->context, op);
}

/* Stacked windows, channels last. */
static tartan_array stack(const run *r, void *data, int64_t windows, int64_t channels,
                          const tartan_i_windows *of) {
    const tartan_array *x = r->u->x;
    tartan_array a = {.data = data,
                      .dtype = x->dtype,
                      .device_type = x->device_type,
                      .device_id = x->device_id,
                      .ndim = x->ndim,
                      .shape = {windows, channels},
                      .strides = {0, 1}};
    int64_t all = channels;
    for (int32_t d = of->dims - 1; d >= 0; d--) {
        a.shape[2 + d] = of->size[d];
        a.strides[2 + d] = all;
        all *= of->size[d];
    }
    a.strides[0] = all;
    return a;
}

static int64_t positions_of(const tartan_array *stacked) {
    int64_t positions = stacked->shape[0];
    for (int32_t d = 2; d < stacked->ndim; d++) positions *= stacked->shape[d];
    return positions;
}

/* Windows as one row of positions: the same to a convolution with one tap, and without edges that are no whole tiles. */
static tartan_array in_a_row(const tartan_array *stacked) {
    tartan_array row = *stacked;
    const int64_t positions = positions_of(stacked);
    for (int32_t d = 0; d < row.ndim; d++)
        if (d != 1) row.shape[d] = 1, row.strides[d] = positions * stacked->shape[1];
    row.shape[row.ndim - 1] = positions;
    row.strides[row.ndim - 1] = stacked->shape[1];
    return row;
}

/* A convolution of stacked windows, without padding. */
static tartan_status convolve(const run *r, const part *p, const tartan_array *from, const tartan_array *to,
                              bool relu) {
    const tartan_i_conv_options *o = &p->conv->options;
    tartan_array from_row, to_row;
    if (o->taps == 1 && positions_of(from) <= MOST_IN_A_ROW) {
        from_row = in_a_row(from), to_row = in_a_row(to);
        from = &from_row, to = &to_row;
    }
    tartan_op op = {.kind = TARTAN_OP_CONV,
                    .conv = {.function = r->u->function,
                             .conv = p->conv,
                             .filter = p->filter,
                             .from = from,
                             .to = to,
                             .from_name = "windows",
                             .to_name = p->name,
                             .gain = p->gain,
                             .bias = p->bias,
                             .relu = relu}};
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const int32_t own = d - (TARTAN_I_DIMS - o->dims);
        tartan_i_geometry *g = &op.conv.geometry;
        g->kernel[d] = o->kernel[d], g->dilation[d] = o->dilation[d], g->stride[d] = 1;
        g->in[d] = own < 0 ? 1 : from->shape[2 + own];
        g->out[d] = own < 0 ? 1 : to->shape[2 + own];
    }
    return step(r, &op);
}

static tartan_status gather(const run *r, int64_t first, const tartan_array *x, const tartan_array *blocks,
                            bool outside) {
    const tartan_op op = {.kind = TARTAN_OP_WINDOW_GATHER,
                          .window_gather = {.function = r->u->function,
                                            .active = r->u->active,
                                            .windows = r->u->in,
                                            .x = x,
                                            .blocks = blocks,
                                            .first = first,
                                            .outside = outside}};
    return step(r, &op);
}

static tartan_status preactivate(const run *r, const tartan_array *a) {
    const tartan_op op = {.kind = TARTAN_OP_CHANNEL_LINEAR,
                          .channel_linear = {.function = r->u->function,
                                             .x = a,
                                             .gain = r->u->x_gain,
                                             .bias = r->u->x_bias,
                                             .relu = true,
                                             .y = a}};
    return step(r, &op);
}

/* b of windows first, first + 1, ... */
static tartan_status run_first(const run *r, int64_t first, int64_t count) {
    const unit *u = r->u;
    const tartan_context *context = r->context;
    const int64_t bytes = tartan_dtype_bytes(u->x->dtype);
    const tartan_array a = stack(r, r->rest, count, u->x->shape[1], &u->in),
                       b = stack(r, r->b + first * u->b * bytes, count, u->reduce.conv->rows.count, &u->in);
    bool halo = false;
    for (int32_t d = 0; d < u->in.dims; d++) halo = halo || u->in.size[d] > u->out.size[d];
    if (tartan_i_is_dynamic(u->active) && count * u->a > 0 &&
        !tartan_i_explaining()) /* blocks past the last */
        PASS(context->backend->clear(u->function, context->device, a.data, count * u->a * bytes));
    PASS(gather(r, first, u->x, &a, false));
    if (u->preactivate) PASS(preactivate(r, &a));
    PASS(convolve(r, &u->reduce, &a, &b, true));
    if (!halo) return TARTAN_OK;
    tartan_array image = *u->x; /* of the size of x; not read */
    image.data = b.data;
    image.shape[1] = b.shape[1];
    for (int32_t d = 0; d < image.ndim; d++) image.strides[d] = 0;
    return gather(r, first, &image, &b, true);
}

/* Their windows of y. */
static tartan_status run_second(const run *r, int64_t first, int64_t count) {
    const unit *u = r->u;
    const int64_t bytes = tartan_dtype_bytes(u->x->dtype);
    const tartan_array b = stack(r, r->b + first * u->b * bytes, count, u->reduce.conv->rows.count, &u->in),
                       sum = stack(r, r->rest, count, u->x->shape[1], &u->out),
                       c = stack(r, r->rest + r->chunk * u->sum * bytes, count, u->spatial.conv->rows.count,
                                 &u->out);
    if (count > 0) PASS(convolve(r, &u->spatial, &b, &c, true));
    if (count > 0) PASS(convolve(r, &u->expand, &c, &sum, false));
    const tartan_op op = {.kind = TARTAN_OP_WINDOW_SCATTER,
                          .window_scatter = {.function = u->function,
                                             .active = u->active,
                                             .windows = u->out,
                                             .blocks = &sum,
                                             .base = first == 0 && !u->in_place ? u->x : NULL,
                                             .first = first,
                                             .add = true,
                                             .relu = u->relu,
                                             .y = u->y}};
    return step(r, &op);
}

/* ---- The call ---- */

static bool on_host(const run *r) {
    return r->context->options.device_type == TARTAN_CPU;
}

/* Windows that the CPU does at a time. */
static int64_t chunk_of(const run *r) {
    const unit *u = r->u;
    const int64_t bytes = tartan_dtype_bytes(u->x->dtype), second = u->c + u->sum;
    int64_t each = (u->a > second ? u->a : second) * bytes;
    if (each == 0) each = 1;
    const int64_t chunk = r->context->threads * (CHUNK_BYTES > each ? CHUNK_BYTES / each : 1);
    return on_host(r) && !tartan_i_explaining() && chunk < r->windows ? chunk : r->windows;
}

static tartan_status get_memory(run *r) {
    const unit *u = r->u;
    const tartan_context *context = r->context;
    const int64_t bytes = tartan_dtype_bytes(u->x->dtype), second = u->c + u->sum;
    const int64_t b = tartan_i_ceil_div(r->windows * u->b * bytes, ALIGN) * ALIGN,
                  rest = r->chunk * (u->a > second ? u->a : second) * bytes;
    void *memory;
    if (tartan_i_explaining()) return TARTAN_OK;
    if (on_host(r)) {
        PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_CHAIN, &memory, b + rest, 1));
    } else {
        PASS(context->backend->scratch(u->function, context->device, b + rest, &r->scratch));
        memory = r->scratch;
    }
    r->b = memory;
    r->rest = r->b + b;
    return TARTAN_OK;
}

/* Names what the call uses, for the order of work between queues. */
static tartan_status order(tartan_i_call *call, const unit *u) {
    const part *parts[] = {&u->reduce, &u->spatial, &u->expand};
    const tartan_array *read[] = {u->x, u->x_gain, u->x_bias};
    for (int i = 0; i < 3; i++) {
        const tartan_array *more[] = {read[i], parts[i]->gain, parts[i]->bias};
        for (int j = 0; j < 3; j++)
            if (more[j] != NULL) tartan_i_call_uses_array(call, more[j], false);
        tartan_i_call_uses_matrix(call, parts[i]->filter, false);
    }
    tartan_i_call_uses_layout(call, u->active, false);
    tartan_i_call_uses_array(call, u->y, true);
    return tartan_i_call_order(call);
}

static tartan_status run_steps(const run *r) {
    for (int64_t i = 0; i < r->windows; i += r->chunk)
        PASS(run_first(r, i, r->windows - i < r->chunk ? r->windows - i : r->chunk));
    int64_t i = 0;
    do { /* once without windows, too: y becomes x */
        PASS(run_second(r, i, r->windows - i < r->chunk ? r->windows - i : r->chunk));
        i += r->chunk;
    } while (i < r->windows);
    return TARTAN_OK;
}

tartan_status tartan_i_residual_run(tartan_context *context, const tartan_i_residual *u) {
    tartan_i_call call;
    run r = {.u = u, .context = context, .windows = u->active->blocks};
    tartan_status status;
    PASS(tartan_i_call_enter(u->function, context, &call));
    tartan_i_workspace_hold(context);
    r.chunk = chunk_of(&r);
    if (tartan_i_array_is_empty(u->y) || (r.windows == 0 && u->in_place)) {
        status = TARTAN_OK;
        goto fail;
    }
    if (!tartan_i_explaining()) TRY(order(&call, u));
    TRY(get_memory(&r));
    status = run_steps(&r);
    if (r.scratch != NULL) context->backend->scratch_free(context->device, r.scratch);
fail:
    tartan_i_workspace_let_go(context);
    tartan_i_call_leave(&call);
    return status;
}
