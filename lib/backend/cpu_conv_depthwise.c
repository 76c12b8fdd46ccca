/* SPDX-License-Identifier: Apache-2.0
 * Depthwise convolutions of images whose channels lie side by side, on the CPU. Each channel has one weight a tap, so a line of
 * channels is the sum of a few lines of the image times lines of weights. Nothing is packed but the weights, and images whose channels
 * lie apart. Chains are the same as in the other forms: taps outside of the image count as zeros. */
#include "backend/cpu_conv_forward.h"

#include <string.h>

bool tartan_i_cpu_is_depthwise(const tartan_layout *l, int64_t taps, const tartan_i_image *a,
                               const tartan_i_image *b) {
    const int64_t channels = a->side->count;
    if (l->shape.block_rows != 1 || l->shape.block_cols != 1 || l->blocks != taps * channels ||
        b->side->count != channels || a->side->of != NULL || b->side->of != NULL)
        return false;
    for (int64_t channel = 0, id = 0; channel < channels; channel++)
        for (int64_t tap = 0; tap < taps; tap++, id++)
            if (l->block_rows[id] != channel || l->block_cols[id] != tap * channels + channel) return false;
    return true;
}

static void pack_task(void *data, int32_t worker) {
    const tartan_i_cpu_forward *p = data;
    if (worker != 0) return;
    const tartan_matrix *f = p->op->filter;
    const int64_t taps = p->op->conv->options.taps, channels = p->to.side->count;
    tartan_i_pack(&p->k, f->dtype, tartan_i_block_at(f, 0), 1, taps, taps, channels, p->weights, channels);
}

/* What a piece reads: the image itself, or its box. Tap offset 0 meets position 0 of the piece at `first`. */
typedef struct source {
    const char *data;
    int64_t bytes; /* of an element */
    int64_t size[TARTAN_I_DIMS], step[TARTAN_I_DIMS], first[TARTAN_I_DIMS];
} source;

static source source_of(const tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece) {
    const tartan_i_cpu_forward *p = tile->p;
    source s = {.data = p->packed ? tile->box : p->from.data + piece->n * p->from.item * p->from.bytes,
                .bytes = p->packed ? p->k.bytes : p->from.bytes};
    for (int32_t d = TARTAN_I_DIMS - 1, step = 0; d >= 0; d--, step = 1) {
        s.size[d] = p->packed ? p->tiling.box[d] : p->from.size[d];
        s.first[d] = p->packed ? -p->lines[d].low : piece->origin[d] * p->lines[d].from_step;
        s.step[d] = !p->packed  ? p->from.step[d]
                    : step == 0 ? p->tiling.position
                                : s.step[d + 1] * s.size[d + 1];
    }
    return s;
}

/* Lists the rows of taps of the phase, in the order of chains, for row (d, h) of a piece. A row of the list has all taps of a row of
 * the filter if each of them meets the positions that the one before meets one position later, else one tap. */
static int64_t list_rows(const tartan_i_cpu_forward *p, const source *s, int64_t d, int64_t h, bool whole,
                         tartan_i_tap_row *out) {
    const tartan_i_cpu_line *l = p->lines;
    const int64_t *kernel = p->op->geometry.kernel, weights = p->to.side->count * p->k.bytes;
    int64_t count = 0;
    for (int64_t i = 0; i < l[0].taps; i++)
        for (int64_t j = 0; j < l[1].taps; j++) {
            const int64_t at_d = s->first[0] + d * l[0].from_step + l[0].offset + i * l[0].offset_step,
                          at_h = s->first[1] + h * l[1].from_step + l[1].offset + j * l[1].offset_step;
            const bool inside = at_d >= 0 && at_d < s->size[0] && at_h >= 0 && at_h < s->size[1];
            const int64_t row =
                ((l[0].tap + i * l[0].tap_step) * kernel[1] + l[1].tap + j * l[1].tap_step) * kernel[2];
            for (int64_t k = 0; k < (whole ? 1 : l[2].taps); k++)
                out[count++] = (tartan_i_tap_row){
                    .weights = p->weights + (row + l[2].tap + k * l[2].tap_step) * weights,
                    .row = inside ? s->data + (at_d * s->step[0] + at_h * s->step[1]) * s->bytes : s->data,
                    .width = inside ? s->size[2] : 0,
                    .first = s->first[2] + l[2].offset + k * l[2].offset_step,
                    .taps = whole ? l[2].taps : 1};
        }
    return count;
}

/* The same rows and line from right to left, if taps go to the left. */
static void turn(tartan_i_tap_line *line, tartan_i_tap_row *rows, int64_t nrows, int64_t bytes,
                 int64_t out_bytes) {
    for (int64_t i = 0; i < nrows; i++) {
        tartan_i_tap_row *row = &rows[i];
        if (row->width > 0) row->row = (const char *)row->row + (row->width - 1) * line->step * bytes;
        row->first = row->width - 1 - row->first - (line->count - 1) * line->stride;
    }
    line->step = -line->step;
    line->out = (char *)line->out + (line->count - 1) * line->out_row * out_bytes;
    line->out_row = -line->out_row;
}

/* The sums of row `i` of a piece, all channels. */
static void add_line(const tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, const source *s,
                     int64_t i, int32_t out_dtype, tartan_i_cpu_sums sums) {
    const tartan_i_cpu_forward *p = tile->p;
    const tartan_i_cpu_line *l = &p->lines[2];
    const bool left = l->taps > 1 && l->offset_step == -l->from_step,
               whole = left || l->offset_step == l->from_step;
    tartan_i_tap_row *rows = (tartan_i_tap_row *)(void *)tile->pairs;
    tartan_i_tap_line line = {.n = p->to.side->count,
                              .count = piece->size[2],
                              .weights_step = l->tap_step * p->to.side->count,
                              .step = s->step[2],
                              .stride = l->from_step,
                              .zeros = tile->box,
                              .in_dtype = p->packed ? p->k.dtype : p->from.dtype,
                              .out_dtype = out_dtype,
                              .out = sums.data,
                              .out_row = sums.position};
    const int64_t nrows = list_rows(p, s, i / piece->size[1], i % piece->size[1], whole, rows);
    if (left) turn(&line, rows, nrows, s->bytes, tartan_dtype_bytes(out_dtype));
    p->k.tap_products(&line, rows, nrows);
}

/* Sums are made where the results belong, if these are as sums are. */
static void run_piece(tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, int64_t begin, int64_t end) {
    const tartan_i_cpu_forward *p = tile->p;
    const source s = source_of(tile, piece);
    (void)begin, (void)end; /* one group of rows of blocks has all channels */
    if (p->packed)
        tartan_i_cpu_pack_box(&p->k, p->lines, &p->tiling, &p->from, &p->map, piece, 0,
                              tartan_i_cpu_box_rows(p->lines, piece), tile->box);
    for (int64_t i = 0; i < piece->size[0] * piece->size[1]; i++) {
        const tartan_i_cpu_finished f = tartan_i_cpu_finished_row(p, piece, i);
        if (p->in_place) {
            add_line(tile, piece, &s, i, p->to.dtype, tartan_i_cpu_finish_place(&p->finish, &f, 0));
            tartan_i_cpu_finish_in_place(&p->finish, &f, 0, p->to.side->count);
        } else {
            add_line(tile, piece, &s, i, p->k.dtype, tile->sums);
            tartan_i_cpu_finish_slots(&p->finish, &f, 0, p->to.side->count, tile->sums);
        }
    }
}

/* ---- The rows ---- */

static const char *refuses(const tartan_op_conv *op, bool in_place) {
    const tartan_conv *conv = op->conv;
    const tartan_i_image from = tartan_i_cpu_image_of(op->from, op->adjoint ? &conv->rows : &conv->cols),
                         to = tartan_i_cpu_image_of(op->to, op->adjoint ? &conv->cols : &conv->rows);
    if (op->filter->layout->shape.block_rows != 1 || op->filter->layout->shape.block_cols != 1)
        return "the filter is not depthwise"; /* the usual answer, before anything that takes time */
    if (op->active != NULL && op->active_from) return "the input is limited to active windows";
    if (in_place && from.channel != 1) return "channels are not contiguous in memory";
    if (from.channel != 1 && 2 * from.side->count < tartan_i_cpu_kernels(op->filter->dtype).lanes)
        return "channels are not contiguous in memory, and too few to fill vectors";
    return tartan_i_cpu_is_depthwise(op->filter->layout, conv->options.taps, &from, &to)
               ? NULL
               : "the filter is not depthwise";
}

static tartan_status run(const tartan_context *context, const tartan_op_conv *op, bool packed) {
    tartan_i_cpu_forward p =
        tartan_i_cpu_conv_plan(context, op, packed ? TARTAN_I_BOX_SLOTS : TARTAN_I_BOX_LANES);
    p.depthwise = true;
    p.packed = packed;
    p.in_place = p.to.channel == 1 && !op->add &&
                 (p.to.dtype == p.k.dtype || (op->gain == NULL && op->bias == NULL && !op->relu));
    p.pack = pack_task;
    p.compute = run_piece;
    return tartan_i_cpu_conv_run(&p);
}

const char *tartan_i_cpu_conv_depthwise_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    return refuses(&any->conv, true);
}

tartan_status tartan_i_cpu_conv_depthwise(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->conv, false);
}

const char *tartan_i_cpu_conv_depthwise_packed_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    return refuses(&any->conv, false);
}

tartan_status tartan_i_cpu_conv_depthwise_packed(const tartan_context *context, const tartan_op *any) {
    return run(context, &any->conv, true);
}
