/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Taps that share a stage. */
static int64_t taps_of(const tartan_cuda_taps *t, int32_t split) {
    return split == 0 ? t->kernel[1] * t->kernel[2] : split == 1 ? t->kernel[2] : 1;
}

/* Rows of 128 bytes are half as many for TMA, whose time for a row hardly depends on its length; but half of their channels may
 * be of no use to a group. Measured with kernels 1x1: they gain where they are 1.25 times as many bytes, and lose where 1.56
 * times. */
static int32_t span_of(const tartan_cuda_conv *p, int32_t split) {
    const tartan_layout *l = p->layout;
    const int32_t edge = p->from_slots.edge;
    int32_t lines = 0;
    while (lines + 1 < TARTAN_CUDA_SHARES && p->to_slots.edge << lines < TARTAN_CUDA_CONV_GROUP) lines++;
    const double merged = (double)l->blocks / p->figures.share[p->adjoint][lines] * (1 << lines),
                 absent = fmax(0, 1 - merged / ((double)l->grid_rows * (double)l->grid_cols));
    const double blocks = (double)taps_of(&p->taps, split) * 32 / edge; /* of 32 channels */
    const double narrow = 1 - pow(absent, blocks), wide = 1 - pow(absent, 2 * blocks);
    return edge % 64 != 0 && wide > 1.4 * narrow ? 64 : 128;
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
    return out;
}

/* ---- Order ---- */

int64_t tartan_cuda_conv_panel(const tartan_cuda_conv_form *f, int64_t tiles, int32_t groups, int64_t steps,
                               int64_t stages, int32_t spans) {
    const double most = 20e6;  /* bytes of a panel */
    const double memory = 12;  /* bytes of a cycle and SM */
    const double product = .5; /* cycles of a pixel and item */
    const double share = 1.25; /* of products in the time of memory: measured, between 1.17 and 1.43 */
    const double pixels = 8.0 * f->rows * f->units, results = 2 * TARTAN_CUDA_CONV_GROUP,
                 once = pixels * ((double)spans / groups * f->span + results),
                 bytes = pixels * ((double)stages / groups * f->span + results),
                 cycles = pixels * product * TARTAN_CUDA_CONV_ITEMS * (double)steps / groups;
    if (cycles < share * once / memory) return 1;
    const int64_t panels = (int64_t)ceil((double)tiles * bytes / most);
    return panels > 1 ? (tiles + panels - 1) / panels : tiles;
}

/* ---- Tables ---- */

enum { PIECE = TARTAN_CUDA_CONV_CHANNELS };

/* Growing lists; the first failure is kept. */
typedef struct list {
    int32_t *values;
    int64_t count, room;
} list;

typedef struct maker {
    const tartan_host *host;
    const tartan_cuda_conv *p;
    const tartan_cuda_conv_form *form;
    tartan_status status;
    int64_t grid;                       /* block lines of `from` at one tap */
    int64_t pieces;                     /* of 16 slots, at one tap */
    int32_t *ids;                       /* [8][taps * grid] block of each 8 slots of the group, or -1 */
    uint8_t *used;                      /* [taps * pieces] whether the group has weights there */
    list stages, steps, sources, items; /* items of the group */
} maker;

static int32_t *add(maker *m, list *l, int64_t count) {
    if (m->status != TARTAN_OK) return NULL;
    if (l->count + count > l->room) {
        const int64_t room = 2 * l->room + count + 1024;
        int32_t *values;
        m->status = m->host->allocate(&values, room, sizeof *values);
        if (m->status != TARTAN_OK) return NULL;
        if (l->count > 0) memcpy(values, l->values, (size_t)l->count * sizeof *values);
        m->host->free(l->values);
        l->values = values;
        l->room = room;
    }
    l->count += count;
    return l->values + l->count - count;
}

/* Notes a block of the group's line that holds its 8 slots number `eight`. */
static void note_block(maker *m, int32_t eight, int64_t tap, int64_t block, int64_t id) {
    const int64_t edge = m->p->from_slots.edge, first = block * edge;
    m->ids[eight * m->p->taps.taps * m->grid + tap * m->grid + block] = (int32_t)id;
    for (int64_t piece = first / PIECE; piece * PIECE < first + edge; piece++)
        m->used[tap * m->pieces + piece] = 1;
}

static void note_group(maker *m, int32_t group) {
    const tartan_cuda_conv *p = m->p;
    const tartan_layout *l = p->layout;
    memset(m->ids, 0xff, (size_t)(8 * p->taps.taps * m->grid) * sizeof *m->ids);
    memset(m->used, 0, (size_t)(p->taps.taps * m->pieces));
    for (int32_t eight = 0; eight < 8; eight++) {
        const int64_t line = ((int64_t)group * TARTAN_CUDA_CONV_GROUP + 8 * eight) / p->to_slots.edge;
        if (line >= p->to_slots.grid) break;
        if (!p->adjoint) {
            for (int64_t i = l->row_pointers[line]; i < l->row_pointers[line + 1]; i++)
                note_block(m, eight, l->block_cols[i] / m->grid, l->block_cols[i] % m->grid, i);
            continue;
        }
        for (int64_t tap = 0; tap < p->taps.taps; tap++) {
            const int64_t col = tap * p->to_slots.grid + line;
            for (int64_t i = l->col_pointers[col]; i < l->col_pointers[col + 1]; i++)
                note_block(m, eight, tap, l->col_rows[i], l->col_ids[i]);
        }
    }
}

/* An item of the group, before it has a step. */
typedef struct item {
    int32_t word, begins, ends, sources[TARTAN_CUDA_CONV_SOURCES];
} item;
enum { ITEM = sizeof(item) / sizeof(int32_t) };

/* Where the 8 x 8 weights of an item at a tap begin, whose channels are 16 slots of `from` from `first` on (-1: none). */
static void find_sources(const maker *m, int32_t group, int64_t tap, int64_t first, int32_t *to) {
    const tartan_cuda_conv *p = m->p;
    const int32_t edge = p->from_slots.edge, edge_to = p->to_slots.edge;
    for (int32_t i = 0; i < TARTAN_CUDA_CONV_SOURCES; i++) {
        const int64_t slot = first + i / 8 * 8, row = (int64_t)group * TARTAN_CUDA_CONV_GROUP + i % 8 * 8;
        to[i] = -1;
        if (slot >= p->from.channels || row >= p->to.channels) continue;
        const int64_t id = m->ids[i % 8 * p->taps.taps * m->grid + tap * m->grid + slot / edge];
        if (id < 0) continue;
        to[i] = (int32_t)((id * edge * edge_to + row % edge_to * p->to_slots.stride +
                           slot % edge * p->from_slots.stride) /
                          8);
    }
}

/* Items of a stage and tap, at most. */
static int32_t pieces_of(const maker *m) {
    return m->form->span / (2 * PIECE);
}

/* The items of a stage whose channels begin with `piece`, at the taps from `first` to `last`. */
static void add_items(maker *m, int32_t group, int64_t piece, int64_t first, int64_t last) {
    const tartan_cuda_conv *p = m->p;
    const tartan_cuda_conv_form *f = m->form;
    bool begins = true;
    for (int64_t tap = first; tap < last; tap++) {
        const int64_t w = tap % p->taps.kernel[2], h = tap / p->taps.kernel[2] % p->taps.kernel[1];
        const int64_t shift = (f->split < 1 ? tartan_cuda_conv_shift(p, 1, h) * f->pitch : 0) +
                              (f->split < 2 ? tartan_cuda_conv_shift(p, 2, w) : 0);
        for (int32_t i = 0; i < pieces_of(m) && piece + i < m->pieces; i++) {
            if (!m->used[tap * m->pieces + piece + i]) continue;
            item *to = (item *)add(m, &m->items, ITEM);
            if (to == NULL) return;
            to->word = (int32_t)((shift * f->span + 2 * PIECE * i) / 16), to->begins = begins, to->ends = 0;
            find_sources(m, group, tap, PIECE * (piece + i), to->sources);
            begins = false;
        }
    }
    if (!begins) ((item *)(m->items.values + m->items.count) - 1)->ends = 1;
}

/* Whether the group has weights for the channels of a stage from `piece` on, at the taps from `first` to `last`. */
static bool is_used(const maker *m, int64_t piece, int64_t first, int64_t last) {
    for (int64_t tap = first; tap < last; tap++)
        for (int32_t i = 0; i < pieces_of(m) && piece + i < m->pieces; i++)
            if (m->used[tap * m->pieces + piece + i]) return true;
    return false;
}

/* The stages of a group at the taps from `first` to `last`, which share one. */
static void add_stages(maker *m, int32_t group, int64_t first, int64_t last) {
    const tartan_cuda_conv *p = m->p;
    const tartan_cuda_conv_form *f = m->form;
    const int64_t w = first % p->taps.kernel[2], h = first / p->taps.kernel[2] % p->taps.kernel[1],
                  d = first / p->taps.kernel[2] / p->taps.kernel[1];
    for (int64_t piece = 0; piece < m->pieces; piece += pieces_of(m)) {
        if (!is_used(m, piece, first, last)) continue;
        int32_t *to = add(m, &m->stages, TARTAN_CUDA_CONV_STAGE);
        if (to == NULL) return;
        to[0] = (int32_t)(PIECE * piece);
        to[1] = (int32_t)tartan_cuda_conv_shift(p, 0, d);
        to[2] = (int32_t)(f->split < 1 ? 0 : tartan_cuda_conv_shift(p, 1, h));
        to[3] = (int32_t)(f->split < 2 ? 0 : tartan_cuda_conv_shift(p, 2, w));
        add_items(m, group, piece, first, last);
    }
}

static void put_word(int32_t *to, int32_t i, int32_t word) {
    to[i / 2] |= (int32_t)((uint32_t)word << 16 * (i % 2));
}

/* Whether the second half of a step may join the first: the stages of both and of the step before fit in shared memory. */
static bool joins(const maker *m, const item *at, const item *end, int32_t stages) {
    for (int32_t i = 0; i < TARTAN_CUDA_CONV_ITEMS / 2 && at + i < end; i++) stages += at[i].begins;
    return stages <= m->form->stages;
}

/* Packs the items of the group into steps. The kernel waits for the stages of a step before it releases those of the step
 * before, so together these must not be more than there are in shared memory: else the step is a short one, and if that
 * is not enough, drains the one before first. */
static void add_steps(maker *m) {
    if (m->status != TARTAN_OK) return;
    const item *at = (const item *)m->items.values, *end = (const item *)(m->items.values + m->items.count);
    int32_t before = 0, open = 0; /* stages of the step before; 1 if its last one goes on */
    while (at < end) {
        int32_t *to = add(m, &m->steps, TARTAN_CUDA_CONV_STEP);
        int32_t *sources = add(m, &m->sources, TARTAN_CUDA_CONV_ITEMS * TARTAN_CUDA_CONV_SOURCES);
        if (to == NULL || sources == NULL) return;
        memset(to, 0, TARTAN_CUDA_CONV_STEP * sizeof *to);
        memset(sources, 0xff, TARTAN_CUDA_CONV_ITEMS * sizeof at->sources);
        int32_t *marks = to + TARTAN_CUDA_CONV_MARKS;
        const int32_t shared = open;
        int32_t count = 0, stages = open, word = 0;
        for (; count < TARTAN_CUDA_CONV_ITEMS && at < end; count++, at++) {
            if (stages + at->begins > m->form->stages) break;
            if (count == TARTAN_CUDA_CONV_ITEMS / 2 && !joins(m, at, end, before + stages - shared)) break;
            stages += at->begins;
            word = at->word;
            put_word(to, count, word);
            *marks |= at->begins << count;
            *marks += at->ends << TARTAN_CUDA_CONV_ENDS;
            open = !at->ends;
            memcpy(sources + count * TARTAN_CUDA_CONV_SOURCES, at->sources, sizeof at->sources);
        }
        *marks |= (count <= TARTAN_CUDA_CONV_ITEMS / 2) << TARTAN_CUDA_CONV_SHORT;
        for (; count < TARTAN_CUDA_CONV_ITEMS; count++) put_word(to, count, word);
        *marks |= (before + stages - shared > m->form->stages) << TARTAN_CUDA_CONV_DRAINS;
        before = stages;
    }
    m->items.count = 0;
}

static void add_group(maker *m, int32_t group) {
    const int64_t step = taps_of(&m->p->taps, m->form->split);
    note_group(m, group);
    for (int64_t tap = 0; tap < m->p->taps.taps; tap += step) add_stages(m, group, tap, tap + step);
    add_steps(m);
}

/* Group and steps of each, by descending steps; those with equally many by number. */
static int by_steps(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    if (x[1] != y[1]) return x[1] > y[1] ? -1 : 1;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

static void add_order(maker *m, const list *steps_of, list *order, tartan_cuda_conv_steps *out) {
    int32_t *pairs = add(m, order, 2 * (int64_t)out->groups);
    out->busy = 0;
    if (pairs == NULL) return;
    for (int32_t g = 0; g < out->groups; g++) {
        pairs[2 * g] = g;
        pairs[2 * g + 1] = steps_of->values[g + 1] - steps_of->values[g];
        out->busy += pairs[2 * g + 1] > 0;
    }
    qsort(pairs, (size_t)out->groups, 2 * sizeof *pairs, by_steps);
    for (int32_t g = 0; g < out->groups; g++) pairs[g] = pairs[2 * g];
    order->count = out->groups;
}

/* Spans of channels of which there is a stage. */
static int32_t count_spans(maker *m) {
    const int64_t most = (m->pieces + pieces_of(m) - 1) / pieces_of(m);
    uint8_t *seen = m->used; /* of all taps: not shorter */
    int32_t count = 0;
    if (m->status != TARTAN_OK) return 0;
    memset(seen, 0, (size_t)most);
    for (int64_t i = 0; i < m->stages.count; i += TARTAN_CUDA_CONV_STAGE)
        seen[m->stages.values[i] / (PIECE * pieces_of(m))] = 1;
    for (int64_t i = 0; i < most; i++) count += seen[i];
    return count;
}

/* All lists in one. */
static tartan_status join(maker *m, const list *steps_of, const list *stages_of, const list *order,
                          tartan_cuda_conv_steps *out) {
    const list *lists[] = {steps_of, stages_of, &m->stages, &m->steps, order, &m->sources};
    int64_t *starts[] = {&out->steps_of,   &out->stages_of, &out->stage_table,
                         &out->step_table, &out->order,     &out->sources};
    enum { LISTS = sizeof lists / sizeof lists[0] };
    out->size = 0;
    for (int i = 0; i < LISTS; i++) {
        *starts[i] = out->size;
        out->size += up(lists[i]->count, 32);
    }
    PASS(m->host->allocate(&out->values, out->size, sizeof *out->values));
    memset(out->values, 0, (size_t)out->size * sizeof *out->values);
    for (int i = 0; i < LISTS; i++)
        if (lists[i]->count > 0)
            memcpy(out->values + *starts[i], lists[i]->values, (size_t)lists[i]->count * sizeof *out->values);
    out->steps = m->steps.count / TARTAN_CUDA_CONV_STEP;
    out->stages = m->stages.count / TARTAN_CUDA_CONV_STAGE;
    return TARTAN_OK;
}

tartan_status tartan_cuda_conv_steps_make(const tartan_host *host, const tartan_cuda_conv *p,
                                          const tartan_cuda_conv_form *form, tartan_cuda_conv_steps *out) {
    maker m = {.host = host, .p = p, .form = form, .grid = p->from_slots.grid};
    list steps_of = {0}, stages_of = {0}, order = {0};
    const int64_t slots = p->to_slots.grid * p->to_slots.edge;
    m.pieces = (m.grid * p->from_slots.edge + PIECE - 1) / PIECE;
    m.status = host->allocate(&m.ids, 8 * p->taps.taps * m.grid + 1, sizeof *m.ids);
    if (m.status == TARTAN_OK)
        m.status = host->allocate(&m.used, p->taps.taps * m.pieces + 1, sizeof *m.used);
    *out = (tartan_cuda_conv_steps){
        .groups = (int32_t)((slots + TARTAN_CUDA_CONV_GROUP - 1) / TARTAN_CUDA_CONV_GROUP)};
    for (int32_t g = 0; g <= out->groups && m.status == TARTAN_OK; g++) {
        int32_t *step = add(&m, &steps_of, 1), *stage = add(&m, &stages_of, 1);
        if (step == NULL || stage == NULL) break;
        *step = (int32_t)(m.steps.count / TARTAN_CUDA_CONV_STEP),
        *stage = (int32_t)(m.stages.count / TARTAN_CUDA_CONV_STAGE);
        if (g < out->groups) add_group(&m, g);
    }
    if (m.status == TARTAN_OK) add_order(&m, &steps_of, &order, out);
    out->spans = count_spans(&m);
    if (m.status == TARTAN_OK) m.status = join(&m, &steps_of, &stages_of, &order, out);
    int32_t *all[] = {steps_of.values, stages_of.values, order.values,   m.stages.values,
                      m.steps.values,  m.sources.values, m.items.values, m.ids};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) host->free(all[i]);
    host->free(m.used);
    return m.status;
}
