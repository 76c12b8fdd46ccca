/* SPDX-License-Identifier: Apache-2.0
 * Depthwise convolutions of images whose channels lie side by side, on the CPU. Each channel has one weight a tap, so a line of
 * channels is the sum of a few lines of the image times lines of weights. Nothing is packed but the weights, and images of 16-bit
 * types. Chains are those of the other forms: taps outside of the image count as zeros. */
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

bool tartan_i_cpu_depthwise_takes(const tartan_i_cpu_forward *p) {
    return p->map.layout == NULL && p->from.channel == 1 && p->to.channel == 1 &&
           tartan_i_cpu_is_depthwise(p->op->filter->layout, p->op->conv->options.taps, &p->from, &p->to);
}

void tartan_i_cpu_depthwise_pack(const tartan_i_cpu_forward *p) {
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

/* The sums of a row from the packed box of the piece. */
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

void tartan_i_cpu_depthwise_row(const tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece,
                                int64_t line) {
    const tartan_i_cpu_forward *p = tile->p;
    if (p->box == TARTAN_I_BOX_SLOTS) {
        add_packed(tile, piece, line);
        return;
    }
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
