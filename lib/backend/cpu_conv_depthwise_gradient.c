/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a depthwise filter on the CPU: for each tap the sum over positions of a line of channels of `out` times one of `in`.
 * Images whose channels lie side by side are read in place, others from packed boxes. Workers share channels, then taps, so each sum
 * is one chain over all positions. Its order is the same as in the general form, where taps outside of the image count as zeros
 * too. */
#include "backend/cpu_conv_gradient.h"
#include "core/interrupt.h"

typedef tartan_i_cpu_gradient plan;

enum { GROUP = TARTAN_I_SUMS_TOGETHER };

/* What a worker adds: channels [first, first + n) and taps [begin, end). */
typedef struct share {
    const plan *p;
    int64_t first, n, begin, end;
} share;

/* Where taps meet a piece: its positions in `out`, the part of `in` that is read, and where the first tap meets its first position. */
typedef struct place {
    const char *out, *in;
    int32_t dtype;
    int64_t out_step[TARTAN_I_DIMS], in_step[TARTAN_I_DIMS];
    int64_t size[TARTAN_I_DIMS], first[TARTAN_I_DIMS]; /* of `in` */
} place;

static void box_steps(const tartan_i_cpu_tiling *t, int64_t out[TARTAN_I_DIMS]) {
    out[2] = t->position;
    out[1] = out[2] * t->box[2];
    out[0] = out[1] * t->box[1];
}

static place place_of(const plan *p, const tartan_i_cpu_piece *piece) {
    place w = {.out = p->out_box, .in = p->in_box, .dtype = p->k.dtype};
    if (p->packed) {
        box_steps(&p->out_tiling, w.out_step);
        box_steps(&p->in_tiling, w.in_step);
        for (int32_t d = 0; d < TARTAN_I_DIMS; d++) w.size[d] = p->in_tiling.box[d];
        return w;
    }
    int64_t shift = piece->n * p->out.item;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        shift += piece->origin[d] * p->out.step[d];
        w.out_step[d] = p->out.step[d];
        w.in_step[d] = p->in.step[d];
        w.size[d] = p->in.size[d];
        w.first[d] = piece->origin[d] * p->in_lines[d].from_step + p->in_lines[d].offset;
    }
    w.out = p->out.data + shift * p->out.bytes;
    w.in = p->in.data + piece->n * p->in.item * p->in.bytes;
    w.dtype = p->in.dtype;
    return w;
}

/* Adds taps [begin, end), whole rows of taps or a part of one, at a plane of positions of the piece. */
static void add_taps(const share *s, const place *w, const tartan_i_cpu_piece *piece, int64_t plane,
                     int64_t begin, int64_t end) {
    const plan *p = s->p;
    const tartan_i_cpu_line *l = p->in_lines;
    const int64_t *kernel = p->op->geometry.kernel, bytes = tartan_dtype_bytes(w->dtype),
                  row = begin / kernel[2], taps = end - begin < kernel[2] ? end - begin : kernel[2];
    const int64_t at = w->first[0] + plane * l[0].from_step + row / kernel[1] * l[0].offset_step;
    const bool inside = at >= 0 && at < w->size[0];
    p->k.tap_gradients(
        &(tartan_i_tap_gradient){.n = s->n,
                                 .rows = piece->size[1],
                                 .cols = piece->size[2],
                                 .tap_rows = (end - begin) / taps,
                                 .taps = taps,
                                 .dtype = w->dtype,
                                 .a = w->out + (plane * w->out_step[0] + s->first) * bytes,
                                 .b = w->in + ((inside ? at : 0) * w->in_step[0] + s->first) * bytes,
                                 .a_row = w->out_step[1],
                                 .a_col = w->out_step[2],
                                 .b_row = w->in_step[1],
                                 .b_col = w->in_step[2],
                                 .height = inside ? w->size[1] : 0,
                                 .width = w->size[2],
                                 .first_row = w->first[1] + row % kernel[1] * l[1].offset_step,
                                 .first_col = w->first[2] + begin % kernel[2] * l[2].offset_step,
                                 .row_step = l[1].from_step,
                                 .col_step = l[2].from_step,
                                 .row_tap = l[1].offset_step,
                                 .tap_step = l[2].offset_step,
                                 .zeros = p->sums + p->pitch * p->taps * p->k.bytes,
                                 .sums = p->sums + (s->first * p->taps + begin * GROUP) * p->k.bytes,
                                 .sums_row = kernel[2] * GROUP,
                                 .sums_group = p->taps * GROUP});
}

/* Adds all positions of a piece. */
static void add_piece(const share *s, const tartan_i_cpu_piece *piece) {
    const int64_t *kernel = s->p->op->geometry.kernel, cols = kernel[2], together = kernel[1] * cols;
    const place w = place_of(s->p, piece);
    for (int64_t plane = 0; plane < piece->size[0]; plane++)
        for (int64_t begin = s->begin, end; begin < s->end; begin = end) {
            const bool whole = begin % cols == 0 && s->end - begin >= cols;
            end = whole ? begin / together * together + together : begin / cols * cols + cols;
            if (end > s->end) end = whole ? s->end / cols * cols : s->end;
            add_taps(s, &w, piece, plane, begin, end);
        }
}

static void add_task(void *data, int32_t worker) {
    const plan *p = data;
    share s = {.p = p};
    int64_t end;
    if (worker >= p->parts * p->shares) return;
    tartan_i_share(p->pitch / GROUP, (int32_t)p->parts, worker % (int32_t)p->parts, &s.first, &end);
    tartan_i_share(p->taps, (int32_t)p->shares, worker / (int32_t)p->parts, &s.begin, &s.end);
    s.first *= GROUP;
    s.n = (end * GROUP < p->channels ? end * GROUP : p->channels) - s.first;
    if (p->packed) {
        add_piece(&s, p->piece);
        return;
    }
    for (int64_t i = 0; i < p->npieces && !tartan_i_stop(p->context); i++) add_piece(&s, &p->pieces[i]);
}

static void store(tartan_i_cpu_gradient *p) {
    const tartan_matrix *to = p->op->filter_grad;
    for (int64_t first = 0; first < p->channels; first += GROUP)
        tartan_i_commit(&p->k, p->sums + first * p->taps * p->k.bytes, GROUP, p->taps,
                        p->channels - first < GROUP ? p->channels - first : GROUP, 1, p->op->beta, to->dtype,
                        tartan_i_block_at(to, first * p->taps), 1, p->taps);
}

/* ---- The rows ---- */

static const char *refuses(const tartan_op_conv_filter_gradient *op, bool in_place) {
    const tartan_layout *l = op->filter_grad->layout;
    const tartan_i_image in = tartan_i_cpu_image_of(op->in, &op->conv->cols),
                         out = tartan_i_cpu_image_of(op->out, &op->conv->rows);
    if (l->shape.block_rows != 1 || l->shape.block_cols != 1)
        return "the filter is not depthwise"; /* the usual answer, before anything that takes time */
    if (in_place && op->active != NULL && op->active_in) return "an image is limited to active windows";
    if (in_place && (in.channel != 1 || out.channel != 1)) return "channels are not contiguous in memory";
    if (in_place && in.dtype != out.dtype) return "images of different types are converted first";
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
