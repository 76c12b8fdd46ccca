/* SPDX-License-Identifier: Apache-2.0
 * Depthwise convolutions of images whose channels lie side by side, on the CPU. Each channel has one weight a tap, so a line of
 * channels is the sum of a few lines of the image times lines of weights. Nothing is packed but the weights, and images of 16-bit
 * types. Chains are the same as in the other forms: taps outside of the image count as zeros. */
#include "backend/cpu_conv_forward.h"

#include <string.h>

bool tartan_i_cpu_is_depthwise(const tartan_layout *l, int64_t taps, const tartan_i_image *a,
                               const tartan_i_image *b) {
    const int64_t channels = a->side->count;
    if (l->shape.block_rows != 1 || l->shape.block_cols != 1 || l->blocks != taps * channels ||
        b->side->count != channels || a->side->of != NULL || b->side->of != NULL)
        return false;
    for (int64_t id = 0; id < l->blocks; id++)
        if (l->block_rows[id] != id / taps || l->block_cols[id] != id % taps * channels + id / taps)
            return false;
    return true;
}

static void pack_task(void *data, int32_t worker) {
    const tartan_i_cpu_forward *p = data;
    if (worker != 0) return;
    const tartan_matrix *f = p->op->filter;
    const int64_t taps = p->op->conv->options.taps, channels = p->to.side->count;
    tartan_i_pack(&p->k, f->dtype, tartan_i_block_at(f, 0), 1, taps, taps, channels, p->weights, channels);
}

/* The line of channels at position w of a row of the image; zeros outside of it. */
static const char *line_at(const tartan_i_image *image, const char *row, int64_t w, const char *zeros) {
    if (row == NULL || w < 0 || w >= image->size[2]) return zeros;
    return row + w * image->step[2] * image->bytes;
}

/* A tap of the phase at work: its weights, the row of the image that it meets, and its first position there. */
typedef struct tap {
    const char *weights, *row;
    int64_t w;
} tap;

static tap tap_of(const tartan_i_cpu_forward *p, const tartan_i_cpu_piece *piece, int64_t line,
                  int64_t number) {
    const int64_t *kernel = p->op->geometry.kernel;
    const int64_t t[TARTAN_I_DIMS] = {number / kernel[2] / kernel[1], number / kernel[2] % kernel[1],
                                      number % kernel[2]};
    const int64_t in_piece[TARTAN_I_DIMS] = {line / piece->size[1], line % piece->size[1], 0};
    int64_t at[TARTAN_I_DIMS];
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const tartan_i_cpu_line *l = &p->lines[d];
        at[d] = (piece->origin[d] + in_piece[d]) * l->from_step + l->offset +
                (t[d] - l->tap) / l->tap_step * l->offset_step;
    }
    const tartan_i_image *from = &p->from;
    const bool inside = at[0] >= 0 && at[0] < from->size[0] && at[1] >= 0 && at[1] < from->size[1];
    const int64_t offset = piece->n * from->item + at[0] * from->step[0] + at[1] * from->step[1];
    return (tap){.weights = p->weights + number * p->to.side->count * p->k.bytes,
                 .row = inside ? from->data + offset * from->bytes : NULL,
                 .w = at[2]};
}

/* The sums of row `line` of a piece, all channels, from its packed box. */
static void add_packed(const tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, int64_t line) {
    const tartan_i_cpu_forward *p = tile->p;
    const tartan_i_cpu_tiling *t = &p->tiling;
    const int64_t channels = p->to.side->count, ntaps = p->pointers[1] - p->pointers[0];
    const int64_t d = line / piece->size[1] * p->lines[0].from_step,
                  h = line % piece->size[1] * p->lines[1].from_step;
    for (int64_t q = 0; q < piece->size[2]; q++) {
        const int64_t at = ((d * t->box[1] + h) * t->box[2] + q * p->lines[2].from_step) * t->position;
        for (int64_t i = 0; i < ntaps; i++) {
            const tartan_i_cpu_entry *e = &p->entries[i];
            tile->pairs[i].a = p->weights + e->id * channels * p->k.bytes;
            tile->pairs[i].b = tile->box + (at + e->offset) * p->k.bytes;
        }
        p->k.row_products(channels, tile->pairs, ntaps, tile->sums.data + q * channels * p->k.bytes);
    }
}

/* The same from the image itself. */
static void add_in_place(const tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, int64_t line) {
    const tartan_i_cpu_forward *p = tile->p;
    const int64_t channels = p->to.side->count, ntaps = p->pointers[1] - p->pointers[0]; /* of channel 0 */
    tartan_i_pair *pairs = tile->pairs,
                  *rows = pairs + ntaps; /* of the taps: rows of the image, positions there */
    for (int64_t i = 0; i < ntaps; i++) {
        const tap t = tap_of(p, piece, line, p->entries[i].id); /* the blocks of channel 0 are its taps */
        pairs[i].a = t.weights;
        rows[i] = (tartan_i_pair){.b = t.row, .k = t.w};
    }
    for (int64_t q = 0; q < piece->size[2]; q++) {
        for (int64_t i = 0; i < ntaps; i++)
            pairs[i].b = line_at(&p->from, rows[i].b, rows[i].k + q * p->lines[2].from_step, tile->box);
        p->k.row_products(channels, pairs, ntaps, tile->sums.data + q * channels * p->k.bytes);
    }
}

/* ---- Pieces ---- */

static void finish_line(tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, int64_t line) {
    const tartan_i_cpu_forward *p = tile->p;
    const tartan_i_cpu_finished f = tartan_i_cpu_finished_row(p, piece, line);
    tartan_i_cpu_finish_slots(&p->finish, &f, 0, p->to.side->count, tile->sums);
}

static void run_in_place(tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, int64_t begin,
                         int64_t end) {
    (void)begin, (void)end; /* one group of rows of blocks has all channels */
    for (int64_t i = 0; i < piece->size[0] * piece->size[1]; i++) {
        add_in_place(tile, piece, i);
        finish_line(tile, piece, i);
    }
}

static void run_packed(tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, int64_t begin, int64_t end) {
    const tartan_i_cpu_forward *p = tile->p;
    (void)begin, (void)end;
    tartan_i_cpu_pack_box(&p->k, p->lines, &p->tiling, &p->from, &p->map, piece, 0,
                          tartan_i_cpu_box_rows(p->lines, piece), tile->box);
    for (int64_t i = 0; i < piece->size[0] * piece->size[1]; i++) {
        add_packed(tile, piece, i);
        finish_line(tile, piece, i);
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
    if (from.channel != 1 || to.channel != 1) return "channels are not contiguous in memory";
    if (in_place && from.dtype != tartan_i_sum_dtype(op->filter->dtype))
        return "the image is converted first";
    return tartan_i_cpu_is_depthwise(op->filter->layout, conv->options.taps, &from, &to)
               ? NULL
               : "the filter is not depthwise";
}

static tartan_status run(const tartan_context *context, const tartan_op_conv *op, bool packed) {
    tartan_i_cpu_forward p =
        tartan_i_cpu_conv_plan(context, op, packed ? TARTAN_I_BOX_SLOTS : TARTAN_I_BOX_LANES);
    p.depthwise = true;
    p.packed = packed;
    p.pack = pack_task;
    p.compute = packed ? run_packed : run_in_place;
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
