/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_steps.h"

#include <math.h>

/* ---- Forms ---- */

static int64_t up(int64_t x, int64_t unit) {
    return (x + unit - 1) / unit * unit;
}

/* Lengths along h and w of what is divided into units. */
static void lengths_of(const tartan_cuda_conv *p, int64_t *h, int64_t *w) {
    const bool windows = p->active.layout != NULL && !p->active_from;
    *h = windows ? p->active.size[1] : p->to.size[1];
    *w = windows ? p->active.size[2] : p->to.size[2];
}

double tartan_cuda_conv_form_share(const tartan_cuda_conv *p, const tartan_cuda_conv_form *form) {
    int64_t h, w;
    lengths_of(p, &h, &w);
    const int32_t rows = form->lines ? 1 : form->rows, cols = form->lines ? 8 * form->rows : 8;
    return (double)h * (double)w / ((double)up(h, rows) * (double)up(w, cols));
}

/* Divides shared memory. Boxes of results need room for a whole tile; they are not worth fewer than three stages. */
static void divide(const tartan_cuda_conv *p, tartan_cuda_conv_form *f) {
    const int32_t whole = 8 * f->rows * f->units * 2 * TARTAN_CUDA_CONV_GROUP;
    const bool windows = p->active.layout != NULL && !p->active_from;
    for (int32_t boxed = !windows; boxed >= 0; boxed--) {
        f->boxed = boxed;
        f->room_bytes = boxed ? whole : TARTAN_CUDA_CONV_ROOM;
        f->stages = (TARTAN_CUDA_CONV_SHARED - TARTAN_CUDA_CONV_FIXED - f->room_bytes) / f->stage_bytes;
        if (f->stages >= 3) break;
    }
    if (f->stages > TARTAN_CUDA_CONV_STAGES) f->stages = TARTAN_CUDA_CONV_STAGES;
}

/* Fills in what follows from units, rows, lines, span and split; false if it does not fit. */
static bool complete(const tartan_cuda_conv *p, tartan_cuda_conv_form *f) {
    int64_t h, w;
    lengths_of(p, &h, &w);
    const int64_t reach_h = f->split < 1 ? (p->taps.kernel[1] - 1) * p->taps.dilation[1] : 0;
    const int64_t reach_w = f->split < 2 ? (p->taps.kernel[2] - 1) * p->taps.dilation[2] : 0;
    const int64_t cols = (f->lines ? 8 * f->rows : 8) + reach_w, rows = (f->lines ? 1 : f->rows) + reach_h;
    if (cols * p->taps.stride[2] > 256 || rows * p->taps.stride[1] > 256) return false;
    if (f->lines && reach_h > 0) return false;
    f->box_cols = (int32_t)cols, f->box_rows = (int32_t)rows;
    f->pitch = f->lines ? 8 : (int32_t)cols;
    f->unit_bytes = (int32_t)up(cols * rows * f->span, 8 * f->span);
    f->stage_bytes = (int32_t)up((int64_t)f->units * f->unit_bytes, 1024);
    divide(p, f);
    f->strips = (int32_t)((w + (f->lines ? 8 * f->rows : 8) - 1) / (f->lines ? 8 * f->rows : 8));
    f->row_blocks = (int32_t)(f->lines ? h : (h + f->rows - 1) / f->rows);
    return f->stages >= 2;
}

/* With rows of 128 bytes, TMA loads half as many, and its time for a row hardly depends on the length; but a group may not need
 * half of the channels. Measured with 1x1 kernels: they pay where they load 1.25 times as many bytes, and lose at 1.56
 * times. */
static int32_t span_of(const tartan_cuda_conv *p, int32_t split) {
    const tartan_layout *l = p->layout;
    const int32_t edge = p->from_slots.edge;
    int32_t lines = 0;
    while (lines + 1 < TARTAN_CUDA_SHARES && p->to_slots.edge << lines < TARTAN_CUDA_CONV_GROUP) lines++;
    const double merged = (double)l->blocks / p->figures.share[p->adjoint][lines] * (1 << lines),
                 absent = fmax(0, 1 - merged / ((double)l->grid_rows * (double)l->grid_cols));
    const double blocks =
        (double)tartan_cuda_conv_stage_taps(&p->taps, split) * 32 / edge; /* of 32 channels */
    const double narrow = 1 - pow(absent, blocks), wide = 1 - pow(absent, 2 * blocks);
    return edge % 64 != 0 && wide > 1.4 * narrow ? 64 : 128;
}

/* Blocks made of whole boxes of values, 32 or 64 slots in both directions, with every slot inside the channels, since padding
 * may hold anything. With boxes of 64 bytes a line, TMA takes longer than the products if a stage has many taps; with one tap,
 * loading the pixels takes longer still. */
static void choose_boxes(const tartan_cuda_conv *p, tartan_cuda_conv_form *f) {
    const tartan_cuda_slots *from = &p->from_slots, *to = &p->to_slots;
    const bool slots_first = from->stride != 1;
    const int64_t lines = p->layout->blocks * (slots_first ? from->edge : to->edge);
    if (from->edge % 32 != 0 || to->edge % 32 != 0 || from->grid * from->edge != p->from.channels ||
        to->grid * to->edge != p->to.channels || lines > INT32_MAX / TARTAN_CUDA_CONV_BOX_PARTS)
        return;
    const int32_t channels = from->edge % 64 == 0 && f->span == 128 ? 64 : 32,
                  slots = to->edge % 64 == 0 ? 64 : 32, width = slots_first ? slots : channels;
    if (width < 64 && tartan_cuda_conv_stage_taps(&p->taps, f->split) > 1) return;
    f->in_place = true;
    f->box_width = width, f->box_lines = slots_first ? channels : slots;
    f->boxes = TARTAN_CUDA_CONV_ITEMS * TARTAN_CUDA_CONV_ITEM_BYTES / (2 * channels * slots);
}

tartan_cuda_conv_weights tartan_cuda_conv_weights_of(const tartan_cuda_conv *p,
                                                     const tartan_cuda_conv_form *f) {
    tartan_cuda_conv_weights w = {.slots_first = f->in_place && p->from_slots.stride != 1};
    const uint32_t line = (uint32_t)f->box_width * 2 / 16, item = TARTAN_CUDA_CONV_ITEM_BYTES / 16;
    if (!f->in_place) /* core matrices of 8 slots x 16 bytes, side by side for the same 8 channels */
        return (tartan_cuda_conv_weights){.leading = item / 2, .stride = 8, .next = item, .second = 2 * item};
    w.swizzle = (uint32_t)f->box_width * 2;
    w.stride = 8 * line;
    if (w.slots_first) { /* [slots / width][channels][width] */
        w.leading = (uint32_t)f->box_lines * line;
        w.next = TARTAN_CUDA_CONV_CHANNELS * line;
        w.second = f->box_lines == 64 ? 2 * w.next : 2 * item;
    } else {           /* [channels / width][slots][width] */
        w.leading = 1; /* ignored */
        w.next = TARTAN_CUDA_CONV_CHANNELS * 2 / 16;
        w.second = f->box_width == 64 ? 2 * w.next : 2 * item;
    }
    return w;
}

tartan_cuda_conv_form tartan_cuda_conv_form_of(const tartan_cuda_conv *p) {
    /* Tiles of narrow units read more of A for each product. */
    static const struct {
        int32_t units, rows;
        double rate;
    } shapes[] = {{1, 32, 1}, {1, 28, 0.99}, {2, 16, 0.95}, {4, 8, 0.8}};
    tartan_cuda_conv_form out = {0};
    double best = 0;
    const bool steps = p->taps.stride[1] > 1 || p->taps.stride[2] > 1;
    for (int32_t split = steps ? 2 : 0; split < 3 && best == 0; split++)
        for (int32_t span = span_of(p, split); span >= 64 && best == 0; span /= 2)
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
                tartan_cuda_conv_form f = {
                    .units = shapes[i].units, .rows = shapes[i].rows, .span = span, .split = split};
                f.lines = p->to.size[1] == 1 && p->taps.kernel[1] == 1;
                if (!complete(p, &f)) continue;
                const double rate = shapes[i].rate * tartan_cuda_conv_form_share(p, &f);
                if (rate <= best) continue;
                best = rate;
                out = f;
            }
    choose_boxes(p, &out);
    return out;
}

/* ---- Order ---- */

int64_t tartan_cuda_conv_panel(const tartan_cuda_conv_form *f, int64_t tiles, int32_t groups, int64_t steps,
                               int64_t stages, int32_t spans) {
    const double most = 20e6;  /* bytes of a panel */
    const double memory = 12;  /* bytes of a cycle and SM */
    const double product = .5; /* cycles of a pixel and item */
    const double share = 1.25; /* time of products / time of memory that balances: measured, 1.17 to 1.43 */
    const double pixels = 8.0 * f->rows * f->units, results = 2 * TARTAN_CUDA_CONV_GROUP,
                 once = pixels * ((double)spans / groups * f->span + results),
                 bytes = pixels * ((double)stages / groups * f->span + results),
                 cycles = pixels * product * TARTAN_CUDA_CONV_ITEMS * (double)steps / groups;
    if (cycles < share * once / memory) return 1;
    const int64_t panels = (int64_t)ceil((double)tiles * bytes / most);
    return panels > 1 ? (tiles + panels - 1) / panels : tiles;
}
