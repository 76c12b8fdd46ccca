/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a depthwise filter on the CPU: for each tap the sum over positions of a line of channels of `out` times one of `in`.
 * Images whose channels lie side by side are read in place, others from packed boxes. Workers share channels, then taps, so each sum
 * is one chain over all positions. Its order is the same as in the general form, where taps outside of the image count as zeros
 * too. */
#include "backend/cpu_conv_gradient.h"
#include "core/interrupt.h"

typedef tartan_i_cpu_gradient plan;

/* The fewest channels that a worker takes: a cache line of f32. */
enum { GROUP = 16 };

/* What a worker adds: channels [first, first + n) and taps [begin, end). */
typedef struct share {
    const plan *p;
    int64_t first, n, begin, end;
    tartan_i_line *lines;
} share;

static void set_line(const share *s, int64_t i, int64_t tap, const char *b) {
    s->lines[i] =
        (tartan_i_line){.b = b, .sums = s->p->sums + (tap * s->p->pitch + s->first) * s->p->k.bytes};
}

/* Adds the rows of the packed piece. */
static void add_packed(const share *s) {
    const plan *p = s->p;
    for (int64_t row = 0; row < p->npairs; row++) {
        const tartan_i_pair *pair = &p->pairs[row];
        const tartan_i_lines lines = {.n = s->n,
                                      .count = pair->k,
                                      .a = (const char *)pair->a + s->first * p->k.bytes,
                                      .a_step = p->out_tiling.position,
                                      .b_step = p->in_lines[2].from_step * p->in_tiling.position};
        for (int64_t tap = s->begin; tap < s->end; tap++) {
            int64_t offset = 0;
            tartan_i_cpu_tap_offset(p->in_lines, &p->op->geometry, &p->in_tiling, tap, &offset);
            set_line(s, tap - s->begin, tap, (const char *)pair->b + (offset + s->first) * p->k.bytes);
        }
        p->k.add_lines(&lines, s->lines, s->end - s->begin);
    }
}

/* The line of `in` that a tap meets at position `at` of `out`; NULL: outside of the image. */
static const char *line_at(const share *s, int64_t image, const int64_t at[TARTAN_I_DIMS], int64_t tap) {
    const plan *p = s->p;
    const int64_t *kernel = p->op->geometry.kernel;
    const int64_t t[TARTAN_I_DIMS] = {tap / kernel[2] / kernel[1], tap / kernel[2] % kernel[1],
                                      tap % kernel[2]};
    int64_t offset = image * p->in.item + s->first;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const tartan_i_cpu_line *l = &p->in_lines[d];
        const int64_t position = at[d] * l->from_step + l->offset + t[d] * l->offset_step;
        if (position < 0 || position >= p->in.size[d]) return NULL;
        offset += position * p->in.step[d];
    }
    return p->in.data + offset * p->k.bytes;
}

/* Adds `count` positions of a row of `out` from `at` on. If there is more than one, no tap leaves the row of the image at any of them. */
static void add_positions(const share *s, int64_t image, const int64_t at[TARTAN_I_DIMS], int64_t count) {
    const plan *p = s->p;
    const tartan_i_image *out = &p->out;
    const char *zeros = p->sums + p->taps * p->pitch * p->k.bytes;
    const int64_t shift =
        image * out->item + at[0] * out->step[0] + at[1] * out->step[1] + at[2] * out->step[2] + s->first;
    tartan_i_lines lines = {
        .n = s->n, .count = count, .a = out->data + shift * p->k.bytes, .a_step = out->step[2]};
    int64_t inside = 0, outside = s->end - s->begin;
    for (int64_t tap = s->begin; tap < s->end; tap++) {
        const char *line = line_at(s, image, at, tap);
        set_line(s, line != NULL ? inside++ : --outside, tap, line != NULL ? line : zeros);
    }
    lines.b_step = p->in_lines[2].from_step * p->in.step[2];
    p->k.add_lines(&lines, s->lines, inside);
    lines.b_step = 0;
    p->k.add_lines(&lines, s->lines + inside, s->end - s->begin - inside);
}

/* Adds a row of a piece: positions where a tap leaves the row of the image one by one, the others together. */
static void add_row(const share *s, const tartan_i_cpu_piece *piece, int64_t row) {
    const plan *p = s->p;
    const int64_t begin = piece->origin[2], end = begin + piece->size[2];
    int64_t at[TARTAN_I_DIMS] = {piece->origin[0] + row / piece->size[1],
                                 piece->origin[1] + row % piece->size[1], begin};
    int64_t low = begin, high = end;
    tartan_i_cpu_line_inside(&p->in_lines[2], 0, p->in.size[2], &low, &high);
    for (; at[2] < low; at[2]++) add_positions(s, piece->n, at, 1);
    if (high > low) add_positions(s, piece->n, at, high - low);
    for (at[2] = high; at[2] < end; at[2]++) add_positions(s, piece->n, at, 1);
}

static void add_task(void *data, int32_t worker) {
    const plan *p = data;
    share s = {.p = p, .lines = p->lines + worker * p->taps};
    int64_t end;
    if (worker >= p->parts * p->shares) return;
    tartan_i_share(p->pitch / GROUP, (int32_t)p->parts, worker % (int32_t)p->parts, &s.first, &end);
    tartan_i_share(p->taps, (int32_t)p->shares, worker / (int32_t)p->parts, &s.begin, &s.end);
    s.first *= GROUP;
    s.n = (end * GROUP < p->channels ? end * GROUP : p->channels) - s.first;
    if (p->packed) {
        add_packed(&s);
        return;
    }
    for (int64_t i = 0; i < p->npieces && !tartan_i_stop(p->context); i++)
        for (int64_t row = 0; row < p->pieces[i].size[0] * p->pieces[i].size[1]; row++)
            add_row(&s, &p->pieces[i], row);
}

static void store(tartan_i_cpu_gradient *p) {
    const tartan_matrix *to = p->op->filter_grad;
    tartan_i_commit(&p->k, p->sums, p->pitch, p->taps, p->channels, 1, p->op->beta, to->dtype,
                    tartan_i_block_at(to, 0), 1, p->taps);
}

/* ---- The rows ---- */

static const char *refuses(const tartan_op_conv_filter_gradient *op, bool in_place) {
    const tartan_layout *l = op->filter_grad->layout;
    const int32_t dtype = tartan_i_sum_dtype(op->in->dtype);
    const tartan_i_image in = tartan_i_cpu_image_of(op->in, &op->conv->cols),
                         out = tartan_i_cpu_image_of(op->out, &op->conv->rows);
    if (l->shape.block_rows != 1 || l->shape.block_cols != 1)
        return "the filter is not depthwise"; /* the usual answer, before anything that takes time */
    if (in_place && op->active != NULL && op->active_in) return "an image is limited to active windows";
    if (in_place && (in.channel != 1 || out.channel != 1)) return "channels are not contiguous in memory";
    if (in_place && (in.dtype != dtype || out.dtype != dtype)) return "an image is converted first";
    return tartan_i_cpu_is_depthwise(l, op->conv->options.taps, &in, &out) ? NULL
                                                                           : "the filter is not depthwise";
}

static tartan_status run(const tartan_context *context, const tartan_op_conv_filter_gradient *op,
                         bool packed) {
    if (op->filter_grad->layout->blocks == 0) return TARTAN_OK;
    plan p = tartan_i_cpu_conv_gradient_plan(context, op);
    const int64_t workers = context->threads;
    p.depthwise = true;
    p.packed = packed;
    p.add = add_task;
    p.store = store;
    p.taps = op->conv->options.taps;
    p.channels = p.out.side->count;
    const int64_t groups = tartan_i_ceil_div(p.channels, GROUP);
    p.pitch = groups * GROUP;
    p.parts = workers < groups ? workers : groups;
    if (p.parts > 0) p.shares = workers / p.parts < p.taps ? workers / p.parts : p.taps;
    return tartan_i_cpu_conv_gradient_run(&p);
}

const char *tartan_i_cpu_conv_filter_gradient_depthwise_refuses(const tartan_context *context,
                                                                const tartan_op *any) {
    (void)context;
    return refuses(&any->conv_filter_gradient, true);
}

tartan_status tartan_i_cpu_conv_filter_gradient_depthwise(const tartan_context *context,
                                                          const tartan_op *any) {
    return run(context, &any->conv_filter_gradient, false);
}

const char *tartan_i_cpu_conv_filter_gradient_depthwise_packed_refuses(const tartan_context *context,
                                                                       const tartan_op *any) {
    (void)context;
    return refuses(&any->conv_filter_gradient, false);
}

tartan_status tartan_i_cpu_conv_filter_gradient_depthwise_packed(const tartan_context *context,
                                                                 const tartan_op *any) {
    return run(context, &any->conv_filter_gradient, true);
}
