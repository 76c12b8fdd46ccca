/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_steps.h"

#include <stdlib.h>
#include <string.h>

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
    const tartan_i_columns *columns; /* of the layout, if adjoint */
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
            for (int64_t i = m->columns->pointers[col]; i < m->columns->pointers[col + 1]; i++)
                note_block(m, eight, tap, m->columns->rows[i], m->columns->ids[i]);
        }
    }
}

/* An item of the group, before it has a step. For weights in place, its sources are the boxes that begin with the item. */
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

/* Channels and slots of a box of values. */
typedef struct box_size {
    int32_t channels, slots;
} box_size;
static box_size box_of(const maker *m) {
    const tartan_cuda_conv_form *f = m->form;
    const bool slots_first = m->p->from_slots.stride != 1;
    return (box_size){slots_first ? f->box_lines : f->box_width, slots_first ? f->box_width : f->box_lines};
}

/* The boxes of the weights of 64 slots and the channels from `first` on, at a tap. */
static void find_boxes(const maker *m, int32_t group, int64_t tap, int64_t first, int32_t *to) {
    const tartan_cuda_slots *from = &m->p->from_slots, *out = &m->p->to_slots;
    const box_size box = box_of(m);
    for (int32_t i = 0; i < TARTAN_CUDA_CONV_GROUP / box.slots; i++) {
        const int64_t row = (int64_t)group * TARTAN_CUDA_CONV_GROUP + i * box.slots;
        const int64_t id =
            m->ids[i * box.slots / 8 * m->p->taps.taps * m->grid + tap * m->grid + first / from->edge];
        const int64_t slot = row % out->edge, channel = first % from->edge;
        to[i] =
            id < 0 ? TARTAN_CUDA_CONV_NO_BOX
            : from->stride != 1
                ? (int32_t)((id * from->edge + channel) * TARTAN_CUDA_CONV_BOX_PARTS + slot / box.slots)
                : (int32_t)((id * out->edge + slot) * TARTAN_CUDA_CONV_BOX_PARTS + channel / box.channels);
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
            (f->in_place ? find_boxes : find_sources)(m, group, tap, PIECE * (piece + i), to->sources);
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

/* Room for the sources of a step. */
static bool add_weights(maker *m) {
    if (m->form->in_place) return true;
    int32_t *to = add(m, &m->sources, TARTAN_CUDA_CONV_ITEMS * TARTAN_CUDA_CONV_SOURCES);
    if (to != NULL) memset(to, 0xff, TARTAN_CUDA_CONV_ITEMS * TARTAN_CUDA_CONV_SOURCES * sizeof *to);
    return to != NULL;
}

/* The weights of an item, number `i` of the last step. Items whose weights are in one line of boxes follow each other, and no step
 * divides them. */
static void put_weights(maker *m, int32_t *step, int32_t i, const item *from) {
    if (!m->form->in_place) {
        memcpy(m->sources.values + m->sources.count - (TARTAN_CUDA_CONV_ITEMS - i) * TARTAN_CUDA_CONV_SOURCES,
               from->sources, sizeof from->sources);
        return;
    }
    const int32_t items = box_of(m).channels / PIECE, boxes = m->form->boxes * items / TARTAN_CUDA_CONV_ITEMS;
    if (i % items == 0)
        memcpy(step + TARTAN_CUDA_CONV_FIRST_BOX + i / items * boxes, from->sources,
               (size_t)boxes * sizeof *from->sources);
}

/* Packs the items of the group into steps. The kernel waits for the stages of a step before it releases the previous
 * step's, so shared memory must have room for both. If it hasn't, the step is a short one; if that is not enough, the
 * previous step is drained first. */
static void add_steps(maker *m) {
    if (m->status != TARTAN_OK) return;
    const item *at = (const item *)m->items.values, *end = (const item *)(m->items.values + m->items.count);
    int32_t before = 0, open = 0; /* stages of the step before; 1 if its last one goes on */
    while (at < end) {
        int32_t *to = add(m, &m->steps, TARTAN_CUDA_CONV_STEP);
        if (to == NULL || !add_weights(m)) return;
        memset(to, 0, TARTAN_CUDA_CONV_STEP * sizeof *to);
        for (int32_t i = 0; i < TARTAN_CUDA_CONV_BOXES; i++)
            to[TARTAN_CUDA_CONV_FIRST_BOX + i] = TARTAN_CUDA_CONV_NO_BOX;
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
            put_weights(m, to, count, at);
        }
        *marks |= (count <= TARTAN_CUDA_CONV_ITEMS / 2) << TARTAN_CUDA_CONV_SHORT;
        for (; count < TARTAN_CUDA_CONV_ITEMS; count++) put_word(to, count, word);
        *marks |= (before + stages - shared > m->form->stages) << TARTAN_CUDA_CONV_DRAINS;
        before = stages;
    }
    m->items.count = 0;
}

static void add_group(maker *m, int32_t group) {
    const int64_t step = tartan_cuda_conv_stage_taps(&m->p->taps, m->form->split);
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
        out->size += (lists[i]->count + 31) / 32 * 32;
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
    if (p->adjoint) PASS(host->columns(p->layout, &m.columns));
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
