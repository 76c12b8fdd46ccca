/* SPDX-License-Identifier: Apache-2.0
 * Packing the boxes of convolutions on the CPU. */
#include "backend/cpu_conv.h"

#include <string.h>

/* A row of a box, which begins at position `origin` of a row of an image. */
typedef struct box_row {
    const tartan_i_kernels *k;
    const tartan_i_cpu_tiling *tiling;
    const tartan_i_image *image;
    int64_t step, origin; /* step: of positions that are together in the box */
    const char *from;     /* the row of the image */
    char *out;
} box_row;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Packs `count` positions, `step` apart, of `run` channels from `from` on. */
static void pack_slots(const box_row *row, const char *from, int64_t slot, int64_t run, int64_t count,
                       char *out) {
    const tartan_i_image *image = row->image;
    const tartan_i_cpu_tiling *t = row->tiling;
    const int64_t step = row->step * image->step[2], bytes = row->k->bytes;
    if (t->kind == TARTAN_I_BOX_LANES) {
        tartan_i_pack(row->k, image->dtype, from, image->channel, step, run, count,
                      out + slot * t->vector * bytes, t->vector);
        return;
    }
    int64_t part = 0;
    if (slot % t->together == 0 && image->channel == 1 && image->dtype == row->k->dtype) { /* whole vectors */
        const int64_t lanes = row->k->lanes;
        part = run / lanes * lanes;
        row->k->copy_rows(count, run / lanes, from, step, out + tartan_i_cpu_box_slot(t, slot) * bytes,
                          t->position, t->kind == TARTAN_I_BOX_VECTORS ? t->vector : lanes);
    }
    for (int64_t end; part < run; part = end) {
        end = smaller(run, part + t->together - (slot + part) % t->together);
        tartan_i_pack(row->k, image->dtype, from + part * image->channel * image->bytes, step, image->channel,
                      count, end - part, out + tartan_i_cpu_box_slot(t, slot + part) * bytes, t->position);
    }
}

/* Packs all slots of `count` positions, `step` apart, from position w of the image on. */
static void pack_positions(const box_row *row, int64_t w, int64_t count, char *out) {
    const tartan_i_image *image = row->image;
    const tartan_i_channels *side = image->side;
    const char *from = row->from + w * image->step[2] * image->bytes;
    if (side->of == NULL) {
        pack_slots(row, from, 0, side->count, count, out);
        return;
    }
    for (int64_t slot = 0, run; slot < side->slots; slot += run) {
        const int32_t channel = side->of[slot];
        run = 1;
        if (channel < 0) continue;
        while (slot + run < side->slots && side->of[slot + run] == channel + run) run++;
        pack_slots(row, from + channel * image->channel * image->bytes, slot, run, count, out);
    }
}

static void clear_positions(const box_row *row, int64_t count, char *out) {
    const tartan_i_cpu_tiling *t = row->tiling;
    const int64_t bytes = row->k->bytes;
    for (int64_t i = 0; i < t->slots; i += t->together)
        memset(out + i / t->together * t->vector * bytes, 0, (size_t)(count * t->position * bytes));
}

/* Packs positions [begin, end) of the row of the box, or clears them. */
static void fill(const box_row *row, bool on, int64_t begin, int64_t end) {
    const tartan_i_cpu_tiling *t = row->tiling;
    for (int64_t w = begin; w < end && w < begin + row->step; w++) {
        const int64_t count = (end - w - 1) / row->step + 1;
        const int64_t at = w % row->step * (t->box[2] / row->step) + w / row->step;
        char *out = row->out + at * t->position * row->k->bytes;
        if (on)
            pack_positions(row, row->origin + w, count, out);
        else
            clear_positions(row, count, out);
    }
}

/* Whether position w is in an active window; `windows`: the row's in the image. */
static bool is_on(const tartan_i_cpu_active *map, const uint8_t *windows, int64_t w) {
    return map->window[2][w] >= 0 && windows[map->window[2][w]];
}

/* Packs positions [begin, end) of the row, which are inside of row (d, h) of image n, where they are active. */
static void pack_active(const box_row *row, const tartan_i_cpu_active *map, int64_t n, int64_t d, int64_t h,
                        int64_t begin, int64_t end) {
    const int64_t i = map->window[0][d], j = map->window[1][h];
    if (i < 0 || j < 0) {
        fill(row, false, begin, end);
        return;
    }
    const uint8_t *windows =
        map->on + n * map->windows_all + (i * map->windows.count[1] + j) * map->windows.count[2];
    for (int64_t w = begin, run; w < end; w += run) {
        const bool on = is_on(map, windows, row->origin + w);
        for (run = 1; w + run < end && is_on(map, windows, row->origin + w + run) == on;) run++;
        fill(row, on, w, w + run);
    }
}

/* Positions of a piece's box along one dimension. */
static int64_t box_length(const tartan_i_cpu_line *l, int64_t size) {
    return (size - 1) * l->from_step + l->span + 1;
}

int64_t tartan_i_cpu_box_rows(const tartan_i_cpu_line lines[TARTAN_I_DIMS], const tartan_i_cpu_piece *piece) {
    return box_length(&lines[0], piece->size[0]) * box_length(&lines[1], piece->size[1]);
}

void tartan_i_cpu_pack_box(const tartan_i_kernels *k, const tartan_i_cpu_line lines[TARTAN_I_DIMS],
                           const tartan_i_cpu_tiling *t, const tartan_i_image *image,
                           const tartan_i_cpu_active *map, const tartan_i_cpu_piece *piece, int64_t begin,
                           int64_t end, char *box) {
    int64_t origin[TARTAN_I_DIMS], length[TARTAN_I_DIMS];
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        origin[d] = piece->origin[d] * lines[d].from_step + lines[d].low;
        length[d] = box_length(&lines[d], piece->size[d]);
    }
    box_row row = {.k = k,
                   .tiling = t,
                   .image = image,
                   .step = t->kind == TARTAN_I_BOX_SLOTS ? 1 : lines[2].from_step,
                   .origin = origin[2]};
    /* The part of a row that is inside of the image. */
    int64_t low = -origin[2], high = image->size[2] - origin[2];
    low = low < 0 ? 0 : smaller(low, length[2]);
    high = high < low ? low : smaller(high, length[2]);
    for (int64_t i = begin; i < end; i++) {
        const int64_t a = i / length[1], b = i % length[1], d = origin[0] + a, h = origin[1] + b;
        const bool inside = d >= 0 && d < image->size[0] && h >= 0 && h < image->size[1] && low < high;
        row.out = box + (a * t->box[1] + b) * t->box[2] * t->position * k->bytes;
        fill(&row, false, 0, inside ? low : length[2]);
        if (!inside) continue;
        row.from =
            image->data + (piece->n * image->item + d * image->step[0] + h * image->step[1]) * image->bytes;
        if (map->layout == NULL)
            fill(&row, true, low, high);
        else
            pack_active(&row, map, piece->n, d, h, low, high);
        fill(&row, false, high, length[2]);
    }
}
