/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a depthwise filter on the CPU, for images whose channels lie side by side. For each tap it is the sum over
 * positions of a line of channels of `out` times one of `in`; nothing is packed. Workers share channels, then taps, so each sum is
 * one chain over all positions. Its order is that of the general form, where taps outside of the image count as zeros too. */
#include "backend/cpu_conv_gradient.h"
#include "core/workspace.h"

#include <string.h>

typedef tartan_i_cpu_gradient plan;

/* Channels that one worker takes at least: a cache line of f32. */
enum { GROUP = 16 };

/* Memory for the gradients of depthwise filters. */
typedef struct depthwise {
    const plan *p;
    int64_t channels, taps, pitch;
    char *sums, *zeros;    /* [taps][pitch]; [pitch] */
    tartan_i_line *lines;  /* [threads][taps] */
    int64_t parts, shares; /* of channels; of taps */
} depthwise;

/* What a worker adds: channels [first, first + n) and taps [begin, end). */
typedef struct share {
    const depthwise *d;
    int64_t first, n, begin, end;
    tartan_i_line *lines;
} share;

bool tartan_i_cpu_depthwise_gradient_takes(const tartan_i_cpu_gradient *p) {
    return p->map.layout == NULL &&
           tartan_i_cpu_is_depthwise(p->layout, p->op->conv->options.taps, &p->in, &p->out, p->k.dtype);
}

/* Adds `count` positions of a row of `out`, from q on in the piece. If there is more than one, no tap leaves a row of the image
 * among them. */
static void add_positions(const share *s, const tartan_i_cpu_piece *piece, const int64_t at[TARTAN_I_DIMS],
                          int64_t q, int64_t count) {
    const depthwise *w = s->d;
    const plan *p = w->p;
    const int64_t *kernel = p->op->geometry.kernel, bytes = p->k.bytes;
    const tartan_i_image *in = &p->in, *out = &p->out;
    const int64_t shift = piece->n * out->item + at[0] * out->step[0] + at[1] * out->step[1] +
                          (at[2] + q) * out->step[2] + s->first;
    tartan_i_lines lines = {
        .n = s->n, .count = count, .a = out->data + shift * bytes, .a_step = out->step[2]};
    int64_t inside = 0, outside = s->end - s->begin;
    for (int64_t number = s->begin; number < s->end; number++) {
        const int64_t t[TARTAN_I_DIMS] = {number / kernel[2] / kernel[1], number / kernel[2] % kernel[1],
                                          number % kernel[2]};
        int64_t offset = piece->n * in->item + s->first;
        bool is_inside = true;
        for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
            const tartan_i_cpu_line *l = &p->in_lines[d];
            const int64_t position =
                (at[d] + (d == 2 ? q : 0)) * l->from_step + l->offset + t[d] * l->offset_step;
            is_inside = is_inside && position >= 0 && position < in->size[d];
            offset += position * in->step[d];
        }
        s->lines[is_inside ? inside++ : --outside] =
            (tartan_i_line){.b = is_inside ? in->data + offset * bytes : w->zeros,
                            .sums = w->sums + (number * w->pitch + s->first) * bytes};
    }
    lines.b_step = p->in_lines[2].from_step * in->step[2];
    p->k.add_lines(&lines, s->lines, inside);
    lines.b_step = 0;
    p->k.add_lines(&lines, s->lines + inside, s->end - s->begin - inside);
}

/* Adds a row of a piece: positions where a tap leaves the row of the image one by one, the others together. */
static void add_row(const share *s, const tartan_i_cpu_piece *piece, int64_t row) {
    const plan *p = s->d->p;
    const tartan_i_cpu_line *l = &p->in_lines[2];
    const int64_t at[TARTAN_I_DIMS] = {piece->origin[0] + row / piece->size[1],
                                       piece->origin[1] + row % piece->size[1], piece->origin[2]};
    const int64_t first = at[2] * l->from_step + l->low, count = piece->size[2];
    int64_t low = 0, high = count;
    while (low < count && first + low * l->from_step < 0) low++;
    while (high > low && first + (high - 1) * l->from_step + l->span >= p->in.size[2]) high--;
    for (int64_t q = 0; q < low; q++) add_positions(s, piece, at, q, 1);
    if (high > low) add_positions(s, piece, at, low, high - low);
    for (int64_t q = high; q < count; q++) add_positions(s, piece, at, q, 1);
}

static void add_task(void *data, int32_t worker) {
    const depthwise *w = data;
    const plan *p = w->p;
    share s = {.d = w, .lines = w->lines + worker * w->taps};
    int64_t end;
    if (worker >= w->parts * w->shares) return;
    tartan_i_share(tartan_i_ceil_div(w->channels, GROUP), (int32_t)w->parts, worker % (int32_t)w->parts,
                   &s.first, &end);
    tartan_i_share(w->taps, (int32_t)w->shares, worker / (int32_t)w->parts, &s.begin, &s.end);
    s.first *= GROUP;
    s.n = (end * GROUP < w->channels ? end * GROUP : w->channels) - s.first;
    for (int64_t i = 0; i < p->npieces; i++)
        for (int64_t row = 0; row < p->pieces[i].size[0] * p->pieces[i].size[1]; row++)
            add_row(&s, &p->pieces[i], row);
}

static tartan_status get_memory(plan *p, depthwise *w) {
    const int64_t pieces = tartan_i_cpu_most_pieces(p->in_lines, &p->in_tiling, p->in.count, &p->windows);
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_LISTS, &w->lines, p->context->threads,
                                w->taps * (int64_t)sizeof *w->lines));
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_PIECES, &p->pieces, pieces, sizeof *p->pieces));
    return tartan_i_workspace_get(p->context, TARTAN_I_ROOM_SUMS, &w->sums, w->taps + 1, /* and zeros */
                                  w->pitch * p->k.bytes);
}

tartan_status tartan_i_cpu_depthwise_gradient(tartan_i_cpu_gradient *p) {
    const tartan_context *context = p->context;
    const tartan_matrix *to = p->op->filter_grad;
    depthwise w = {.p = p, .channels = p->out.side->count, .taps = p->op->conv->options.taps};
    const int64_t groups = tartan_i_ceil_div(w.channels, GROUP), workers = context->threads;
    w.pitch = groups * GROUP;
    PASS(get_memory(p, &w));
    w.zeros = w.sums + w.taps * w.pitch * p->k.bytes;
    w.parts = workers < groups ? workers : groups;
    w.shares = workers / w.parts < w.taps ? workers / w.parts : w.taps;
    memset(w.sums, 0, (size_t)((w.taps + 1) * w.pitch * p->k.bytes));
    p->npieces =
        tartan_i_cpu_pieces(p->in_lines, &p->in_tiling, p->in.count, p->out.size, &p->windows, p->pieces);
    const double flops = tartan_i_op_flops(
        &(tartan_op){.kind = TARTAN_OP_CONV_FILTER_GRADIENT, .conv_filter_gradient = *p->op});
    tartan_i_parallel(context, context->threads, flops, add_task, &w);
    tartan_i_commit(&p->k, w.sums, w.pitch, w.taps, w.channels, 1, p->op->beta, to->dtype,
                    tartan_i_block_at(to, 0), 1, w.taps);
    return TARTAN_OK;
}
