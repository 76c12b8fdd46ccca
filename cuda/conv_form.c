/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_steps.h"
#include "dtype.h"

#include <math.h>

/* ---- Forms ---- */

static int64_t up(int64_t x, int64_t unit) {
    return (x + unit - 1) / unit * unit;
}

static int64_t remainder_of(int64_t x, int64_t unit) {
    return (x % unit + unit) % unit;
}

tartan_cuda_conv_shift tartan_cuda_conv_shift_of(const tartan_cuda_conv *p, int32_t dimension, int64_t tap) {
    const int64_t stride = p->taps.stride[dimension],
                  from = tap * p->taps.dilation[dimension] - p->taps.before[dimension],
                  rest = remainder_of(from, stride);
    return p->adjoint ? (tartan_cuda_conv_shift){.phase = rest, .shift = (rest - from) / stride}
                      : (tartan_cuda_conv_shift){.rest = rest, .shift = (from - rest) / stride};
}

/* How far apart the pixels of taps of one phase and rest are along a dimension, at most. */
static int64_t reach_of(const tartan_cuda_conv *p, int32_t dimension) {
    const int64_t kernel = p->taps.kernel[dimension], stride = p->taps.stride[dimension];
    int64_t most = 0;
    /* Taps `stride` apart have equal phases and rests, and others may, too: the first and the last such tap of each. */
    for (int64_t first = 0; first < kernel && first < stride; first++) {
        const tartan_cuda_conv_shift a = tartan_cuda_conv_shift_of(p, dimension, first);
        for (int64_t last = kernel - 1; last > first && last >= kernel - stride; last--) {
            const tartan_cuda_conv_shift b = tartan_cuda_conv_shift_of(p, dimension, last);
            const int64_t apart = p->adjoint ? a.shift - b.shift : b.shift - a.shift;
            if (a.phase == b.phase && a.rest == b.rest && apart > most) most = apart;
        }
    }
    return most;
}

/* Lengths along h and w of what is divided into units. */
static void lengths_of(const tartan_cuda_conv *p, int64_t *h, int64_t *w) {
    const bool windows = p->active.layout != NULL && !p->active_from;
    const int64_t *size = windows ? p->active.size : p->to.size;
    const int64_t over_h = tartan_cuda_conv_spread(p, 1), over_w = tartan_cuda_conv_spread(p, 2);
    *h = (size[1] + over_h - 1) / over_h;
    *w = (size[2] + over_w - 1) / over_w;
}

double tartan_cuda_conv_form_share(const tartan_cuda_conv *p, const tartan_cuda_conv_form *form) {
    int64_t h, w;
    lengths_of(p, &h, &w);
    const int32_t rows = form->lines ? 1 : form->rows, cols = form->lines ? 8 * form->rows : 8;
    return (double)h * (double)w / ((double)up(h, rows) * (double)up(w, cols));
}

/* Divides shared memory. Boxes of results need room for a whole tile; they are not worth fewer than three stages. Sums of f32
 * go from registers to memory. */
static void divide(const tartan_cuda_conv *p, tartan_cuda_conv_form *f) {
    const int32_t whole = 8 * f->rows * f->units * 2 * TARTAN_CUDA_CONV_GROUP;
    const bool windows = p->active.layout != NULL && !p->active_from,
               may_be = !windows && f->element == 2 && tartan_cuda_conv_spreads(p) == 1;
    for (int32_t boxed = may_be; boxed >= 0; boxed--) {
        f->boxed = boxed;
        f->room_bytes = boxed ? whole : f->element == 2 ? TARTAN_CUDA_CONV_ROOM : 0;
        f->stages = (TARTAN_CUDA_CONV_SHARED - TARTAN_CUDA_CONV_FIXED - f->room_bytes) / f->stage_bytes;
        if (f->stages >= 3) break;
    }
    if (f->stages > TARTAN_CUDA_CONV_STAGES) f->stages = TARTAN_CUDA_CONV_STAGES;
}

/* Fills in what follows from units, rows, lines, span and split; false if it does not fit. */
static bool complete(const tartan_cuda_conv *p, tartan_cuda_conv_form *f) {
    int64_t h, w;
    lengths_of(p, &h, &w);
    const int64_t reach_h = f->split < 1 ? reach_of(p, 1) : 0, reach_w = f->split < 2 ? reach_of(p, 2) : 0;
    const int64_t step_h = p->adjoint ? 1 : p->taps.stride[1], step_w = p->adjoint ? 1 : p->taps.stride[2];
    const int64_t cols = (f->lines ? 8 * f->rows : 8) + reach_w, rows = (f->lines ? 1 : f->rows) + reach_h;
    if (cols * step_w > 256 || rows * step_h > 256) return false;
    if (f->lines && reach_h > 0) return false;
    f->box_cols = (int32_t)cols, f->box_rows = (int32_t)rows;
    f->pitch = f->lines ? 8 : (int32_t)cols;
    f->unit_bytes = (int32_t)up(cols * rows * f->span, 8 * f->span);
    f->part_bytes = (int32_t)up((int64_t)f->units * f->unit_bytes, 1024);
    f->stage_bytes = f->parts * f->part_bytes;
    divide(p, f);
    f->strips = (int32_t)((w + (f->lines ? 8 * f->rows : 8) - 1) / (f->lines ? 8 * f->rows : 8));
    f->row_blocks = (int32_t)(f->lines ? h : (h + f->rows - 1) / f->rows);
    return f->stages >= 2;
}

/* The taps that share a stage, on average. */
static double stage_taps(const tartan_cuda_conv *p, int32_t split) {
    double taps = 1;
    for (int32_t d = 1 + split; d < TARTAN_I_DIMS; d++)
        taps *= fmax(1, (double)p->taps.kernel[d] / (double)p->taps.stride[d]);
    return taps;
}

/* Cells of the merged lists of all groups, of which a group has the blocks of all its lines. */
static double merged_blocks(const tartan_cuda_conv *p) {
    int32_t lines = 0;
    while (lines + 1 < TARTAN_CUDA_SHARES && p->to_slots.edge << lines < TARTAN_CUDA_CONV_GROUP) lines++;
    return (double)p->layout->blocks / p->figures.share[p->adjoint][lines] * (1 << lines);
}

/* With rows of 128 bytes, TMA loads half as many, and its time for a row hardly depends on the length; but a group may not need
 * half of the channels. Measured with 1x1 kernels: they pay where they load 1.25 times as many bytes, and lose at 1.56
 * times. */
static int32_t span_of(const tartan_cuda_conv *p, const tartan_cuda_conv_form *f) {
    const tartan_layout *l = p->layout;
    const int32_t edge = p->from_slots.edge;
    const double absent = fmax(0, 1 - merged_blocks(p) / ((double)l->grid_rows * (double)l->grid_cols));
    const double blocks = stage_taps(p, f->split) * 64 / (f->element * edge); /* in 64 bytes of channels */
    const double narrow = 1 - pow(absent, blocks), wide = 1 - pow(absent, 2 * blocks);
    return f->element * edge % 128 != 0 && wide > 1.4 * narrow ? 64 : 128;
}

/* Blocks made of whole boxes of values, 32 or 64 slots in both directions, with every slot inside the channels, since padding
 * may hold anything. With boxes of 64 bytes a line, TMA takes longer than the products if a stage has many taps; with one tap,
 * loading the pixels takes longer still. */
static void choose_boxes(const tartan_cuda_conv *p, tartan_cuda_conv_form *f) {
    const tartan_cuda_slots *from = &p->from_slots, *to = &p->to_slots;
    const bool slots_first = from->stride != 1;
    const int64_t lines = p->layout->blocks * (slots_first ? from->edge : to->edge);
    const int32_t span = from->edge * f->element % 128 == 0 && f->span == 128 ? 128 : 64,
                  channels = span / f->element, slots = to->edge % 64 == 0 ? 64 : 32,
                  width = slots_first ? slots : channels;
    if (f->parts > 1 || (f->element == 4 && slots_first)) return; /* wgmma transposes only 16 bits */
    if (from->edge % channels != 0 || to->edge % 32 != 0 || from->grid * from->edge != p->from.channels ||
        to->grid * to->edge != p->to.channels || lines > INT32_MAX / TARTAN_CUDA_CONV_BOX_PARTS ||
        (slots_first ? to->edge : from->edge) > width * TARTAN_CUDA_CONV_BOX_PARTS)
        return;
    if (width * f->element < 128 && stage_taps(p, f->split) > 1) return;
    f->in_place = true;
    f->box_width = width, f->box_lines = slots_first ? channels : slots;
    f->boxes = TARTAN_CUDA_CONV_ITEMS * TARTAN_CUDA_CONV_ITEM_BYTES / (f->element * channels * slots);
}

tartan_cuda_conv_weights tartan_cuda_conv_weights_of(const tartan_cuda_conv *p,
                                                     const tartan_cuda_conv_form *f) {
    tartan_cuda_conv_weights w = {.slots_first = f->in_place && p->from_slots.stride != 1};
    const uint32_t width = (uint32_t)(f->box_width * f->element), line = width / 16,
                   item = TARTAN_CUDA_CONV_ITEM_BYTES / 16;
    if (!f->in_place) /* core matrices of 8 slots x 16 bytes, side by side for the same channels */
        return (tartan_cuda_conv_weights){.leading = item / 2, .stride = 8, .next = item, .second = 2 * item};
    w.swizzle = width;
    w.stride = 8 * line;
    if (w.slots_first) { /* [slots / width][channels][width] */
        w.leading = (uint32_t)f->box_lines * line;
        w.next = TARTAN_CUDA_CONV_ITEM_SPAN / (uint32_t)f->element * line;
        w.second = f->box_lines == 64 ? 2 * w.next : 2 * item;
    } else {           /* [channels / width][slots][width] */
        w.leading = 1; /* ignored */
        w.next = TARTAN_CUDA_CONV_ITEM_SPAN / 16;
        w.second = width == 128 ? 2 * w.next : 2 * item;
    }
    return w;
}

/* Tiles of pixels, lists before they are divided, and the steps of one on average. */
typedef struct work {
    double tiles, lists, steps;
} work;
static work work_of(const tartan_cuda_conv *p, const tartan_cuda_conv_form *f) {
    const bool windows = p->active.layout != NULL && !p->active_from;
    const int64_t over = tartan_cuda_conv_spread(p, 0), depth = (p->to.size[0] + over - 1) / over;
    const double planes = windows ? (double)p->active.layout->blocks * (double)p->active.size[0]
                                  : (double)p->entries * (double)depth,
                 lists = ceil((double)p->to_slots.grid * p->to_slots.edge / TARTAN_CUDA_CONV_GROUP) *
                         (double)tartan_cuda_conv_spreads(p),
                 items = merged_blocks(p) * p->from_slots.edge * f->element / TARTAN_CUDA_CONV_ITEM_SPAN *
                         p->to_slots.edge / TARTAN_CUDA_CONV_GROUP;
    return (work){.tiles = ceil(planes * f->row_blocks * f->strips / f->units),
                  .lists = lists,
                  .steps = items * f->parts / TARTAN_CUDA_CONV_ITEMS / lists};
}

/* An H200: what a step, a tile, a call, packing and adding take. With strides fewer taps share a stage. */
double tartan_cuda_conv_f32_us(const tartan_cuda_conv *p, const tartan_cuda_conv_form *f) {
    const double tile = 1.2, start = 6, packs = 2, adds = 9;
    const bool strides = !p->adjoint && p->taps.stride[1] * p->taps.stride[2] > 1;
    double step = f->parts == 2 ? .6 : .75;
    if (strides) step = f->parts == 2 ? .65 : 1.15;
    const work w = work_of(p, f);
    const double rounds = w.tiles * w.lists * f->splits / TARTAN_CUDA_CONV_PROCESSORS;
    return start + (rounds <= 1 ? 1 : rounds + .3) * (w.steps / f->splits * step + tile) +
           (f->in_place ? 0 : packs) + (f->splits > 1 ? adds : 0);
}

/* Lists of f32 are divided where tiles leave processors idle, if that takes less time. */
static void choose_splits(const tartan_cuda_conv *p, tartan_cuda_conv_form *f) {
    enum { MOST = 16 };
    if (f->element == 2 || (p->active.layout != NULL && !p->active_from)) return;
    const work w = work_of(p, f);
    double best = tartan_cuda_conv_f32_us(p, f);
    tartan_cuda_conv_form g = *f;
    for (g.splits = 2; g.splits <= MOST && w.tiles * w.lists * g.splits <= TARTAN_CUDA_CONV_PROCESSORS;
         g.splits++) {
        const double us = tartan_cuda_conv_f32_us(p, &g);
        if (us < best) best = us, f->splits = g.splits;
    }
}

typedef struct tile_shape {
    int32_t units, rows;
    double rate;
} tile_shape;

tartan_cuda_conv_form tartan_cuda_conv_form_of(const tartan_cuda_conv *p) {
    /* Tiles of narrow units read more of A for each product. Sums of products of two parts take half of the registers. */
    static const tile_shape whole[] = {{1, 32, 1}, {1, 28, 0.99}, {2, 16, 0.95}, {4, 8, 0.8}},
                            half[] = {{1, 16, 1}, {1, 14, 0.99}, {2, 8, 0.95}};
    tartan_cuda_conv_form out = {0};
    double best = 0;
    const int32_t element = (int32_t)tartan_cuda_bytes_of(p->dtype), parts = element == 4 && !p->tf32 ? 2 : 1,
                  shapes = (int32_t)(parts == 1 ? sizeof whole : sizeof half) / (int32_t)sizeof whole[0];
    for (int32_t split = 0; split < 3 && best == 0; split++) {
        tartan_cuda_conv_form f = {.element = element, .parts = parts, .split = split, .splits = 1};
        for (f.span = span_of(p, &f); f.span >= 64 && best == 0; f.span /= 2)
            for (int32_t i = 0; i < shapes; i++) {
                const tile_shape *shape = parts == 1 ? &whole[i] : &half[i];
                f.units = shape->units, f.rows = shape->rows;
                f.lines = p->to.size[1] == 1 && p->taps.kernel[1] == 1;
                if (!complete(p, &f)) continue;
                const double rate = shape->rate * tartan_cuda_conv_form_share(p, &f);
                if (rate <= best) continue;
                best = rate;
                out = f;
            }
    }
    choose_boxes(p, &out);
    choose_splits(p, &out);
    return out;
}

/* ---- Order ---- */

int64_t tartan_cuda_conv_panel(const tartan_cuda_conv_form *f, int64_t tiles, int32_t lists, int64_t steps,
                               int64_t stages, int32_t spans) {
    const double most = 20e6;  /* bytes of a panel */
    const double memory = 12;  /* bytes of a cycle and SM */
    const double product = .5; /* cycles of a pixel and item */
    const double share = 1.25; /* time of products / time of memory that balances: measured, 1.17 to 1.43 */
    const double pixels = 8.0 * f->rows * f->units, results = f->element * TARTAN_CUDA_CONV_GROUP,
                 once = pixels * ((double)spans / lists * f->span + results),
                 bytes = pixels * ((double)stages / lists * f->span + results),
                 cycles = pixels * product * TARTAN_CUDA_CONV_ITEMS * (f->parts == 2 ? 1.5 : 1) *
                          (double)steps / lists;
    if (cycles < share * once / memory) return 1;
    const int64_t panels = (int64_t)ceil((double)tiles * bytes / most);
    return panels > 1 ? (tiles + panels - 1) / panels : tiles;
}
