/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_steps.h"

#include <stdlib.h>
#include <string.h>

/* ---- Tables ---- */

/* Growing lists; the first failure is kept. */
typedef struct list {
    int32_t *values;
    int64_t count, room;
} list;

/* A tap, and what tells the sets of taps apart that share a stage: their phase, and the rest or, where rows or columns are
 * divided, the tap itself, along d, h, w. */
typedef struct place {
    int64_t set[1 + TARTAN_I_DIMS], number;
    tartan_cuda_conv_shift at[TARTAN_I_DIMS];
} place;

typedef struct maker {
    const tartan_host *host;
    const tartan_cuda_conv *p;
    const tartan_cuda_conv_form *form;
    const tartan_i_columns *columns; /* of the layout, if adjoint */
    tartan_status status;
    int64_t grid;                       /* block lines of `from` at one tap */
    int32_t piece;                      /* slots of an item */
    int64_t pieces;                     /* of these, at one tap */
    int32_t *ids;                       /* [8][taps * grid] block of each 8 slots of the group, or -1 */
    uint8_t *used;                      /* [taps * pieces] whether the group has weights there */
    place *taps;                        /* set after set, in ascending order of phases */
    list stages, steps, sources, items; /* items of the group and phase, */
    list group_stages;                  /* and their stages */
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
    for (int64_t piece = first / m->piece; piece * m->piece < first + edge; piece++)
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

/* Where the weights of an item at a tap begin, whose channels are slots of `from` from `first` on (-1: none). */
static void find_sources(const maker *m, int32_t group, int64_t tap, int64_t first, int32_t *to) {
    const tartan_cuda_conv *p = m->p;
    const int32_t edge = p->from_slots.edge, edge_to = p->to_slots.edge, unit = 16 / m->form->element;
    for (int32_t i = 0; i < TARTAN_CUDA_CONV_SOURCES; i++) {
        const int64_t slot = first + i / 8 * unit, row = (int64_t)group * TARTAN_CUDA_CONV_GROUP + i % 8 * 8;
        to[i] = -1;
        if (slot >= p->from.channels || row >= p->to.channels) continue;
        const int64_t id = m->ids[i % 8 * p->taps.taps * m->grid + tap * m->grid + slot / edge];
        if (id < 0) continue;
        to[i] = (int32_t)((id * edge * edge_to + row % edge_to * p->to_slots.stride +
                           slot % edge * p->from_slots.stride) /
                          unit);
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
    return m->form->span / TARTAN_CUDA_CONV_ITEM_SPAN;
}

/* The first pixel of a set along a dimension. */
static int64_t first_shift(const place *set, int64_t count, int32_t d) {
    int64_t first = set[0].at[d].shift;
    for (int64_t i = 1; i < count; i++)
        if (set[i].at[d].shift < first) first = set[i].at[d].shift;
    return first;
}

/* The items of a stage whose channels begin with `piece`, at the taps of a set. */
static void add_items(maker *m, int32_t group, int64_t piece, const place *set, int64_t count) {
    const tartan_cuda_conv_form *f = m->form;
    const int64_t h = first_shift(set, count, 1), w = first_shift(set, count, 2);
    bool begins = true;
    for (int64_t t = 0; t < count; t++) {
        const int64_t pixel = (set[t].at[1].shift - h) * f->pitch + set[t].at[2].shift - w;
        for (int32_t i = 0; i < pieces_of(m) && piece + i < m->pieces; i++) {
            if (!m->used[set[t].number * m->pieces + piece + i]) continue;
            item *to = (item *)add(m, &m->items, ITEM);
            if (to == NULL) return;
            to->word = (int32_t)((pixel * f->span + TARTAN_CUDA_CONV_ITEM_SPAN * i) / 16);
            to->begins = begins, to->ends = 0;
            (f->in_place ? find_boxes : find_sources)(m, group, set[t].number, m->piece * (piece + i),
                                                      to->sources);
            begins = false;
        }
    }
    if (!begins) ((item *)(m->items.values + m->items.count) - 1)->ends = 1;
}

/* Whether the group has weights for the channels of a stage from `piece` on, at the taps of a set. */
static bool is_used(const maker *m, int64_t piece, const place *set, int64_t count) {
    for (int64_t t = 0; t < count; t++)
        for (int32_t i = 0; i < pieces_of(m) && piece + i < m->pieces; i++)
            if (m->used[set[t].number * m->pieces + piece + i]) return true;
    return false;
}

/* The stages of a group at the taps of a set, which share one. */
static void add_stages(maker *m, int32_t group, const place *set, int64_t count) {
    for (int64_t piece = 0; piece < m->pieces; piece += pieces_of(m)) {
        if (!is_used(m, piece, set, count)) continue;
        int32_t *to = add(m, &m->group_stages, TARTAN_CUDA_CONV_STAGE);
        if (to == NULL) return;
        to[0] = (int32_t)(m->piece * piece);
        for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
            const int64_t step = m->p->adjoint ? 1 : m->p->taps.stride[d];
            to[1 + d] = (int32_t)(first_shift(set, count, d) * step + set[0].at[d].rest);
        }
        add_items(m, group, piece, set, count);
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
    const int32_t items = box_of(m).channels / m->piece,
                  boxes = m->form->boxes * items / TARTAN_CUDA_CONV_ITEMS;
    if (i % items == 0)
        memcpy(step + TARTAN_CUDA_CONV_FIRST_BOX + i / items * boxes, from->sources,
               (size_t)boxes * sizeof *from->sources);
}

/* Packs items into steps. The kernel waits for the stages of a step before it releases the previous step's, so shared memory
 * must have room for both. If it hasn't, the step is a short one; if that is not enough, the previous step is drained
 * first. */
static void add_steps(maker *m, const item *at, const item *end) {
    const int32_t most = TARTAN_CUDA_CONV_ITEMS / m->form->parts;
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
        for (; count < most && at < end; count++, at++) {
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
        *marks |= (m->form->parts == 1 && count <= TARTAN_CUDA_CONV_ITEMS / 2) << TARTAN_CUDA_CONV_SHORT;
        for (; count < TARTAN_CUDA_CONV_ITEMS; count++) put_word(to, count, word);
        *marks |= (before + stages - shared > m->form->stages) << TARTAN_CUDA_CONV_DRAINS;
        before = stages;
    }
}

/* The stages and items of a group in a phase, as lists that share them: each has whole stages, and about as many items. */
static void divide_items(maker *m, list *steps_of, list *stages_of) {
    const item *items = (const item *)m->items.values;
    const int64_t count = m->items.count / ITEM, splits = m->form->splits;
    const int32_t *stage = m->group_stages.values;
    int64_t at = 0;
    for (int64_t split = 0; split < splits; split++) {
        int32_t *first_step = add(m, steps_of, 1), *first_stage = add(m, stages_of, 1);
        if (first_step == NULL || first_stage == NULL) return;
        *first_step = (int32_t)(m->steps.count / TARTAN_CUDA_CONV_STEP);
        *first_stage = (int32_t)(m->stages.count / TARTAN_CUDA_CONV_STAGE);
        const int64_t first = at;
        while (at < count * (split + 1) / splits) {
            int32_t *to = add(m, &m->stages, TARTAN_CUDA_CONV_STAGE);
            if (to == NULL) return;
            memcpy(to, stage, TARTAN_CUDA_CONV_STAGE * sizeof *to);
            stage += TARTAN_CUDA_CONV_STAGE;
            while (!items[at].ends) at++;
            at++;
        }
        if (first < at && m->status == TARTAN_OK) add_steps(m, items + first, items + at);
    }
}

static int compare_taps(const void *a, const void *b) {
    const place *x = a, *y = b;
    for (int i = 0; i < 1 + TARTAN_I_DIMS; i++)
        if (x->set[i] != y->set[i]) return x->set[i] < y->set[i] ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static bool are_together(const place *a, const place *b) {
    return memcmp(a->set, b->set, sizeof a->set) == 0;
}

static tartan_status find_taps(maker *m) {
    const tartan_cuda_conv *p = m->p;
    PASS(m->host->allocate(&m->taps, p->taps.taps, sizeof *m->taps));
    for (int64_t t = 0; t < p->taps.taps; t++) {
        place *to = &m->taps[t];
        int64_t rest = t, phase = 0, at[TARTAN_I_DIMS];
        for (int32_t d = TARTAN_I_DIMS - 1; d >= 0; d--) {
            at[d] = rest % p->taps.kernel[d];
            rest /= p->taps.kernel[d];
        }
        for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
            to->at[d] = tartan_cuda_conv_shift_of(p, d, at[d]);
            to->set[1 + d] = d > m->form->split ? to->at[d].rest : at[d];
            phase = phase * tartan_cuda_conv_spread(p, d) + to->at[d].phase;
        }
        to->set[0] = phase;
        to->number = t;
    }
    qsort(m->taps, (size_t)p->taps.taps, sizeof *m->taps, compare_taps);
    return TARTAN_OK;
}

/* The lists of a phase, whose taps are those from *at on; moves *at behind them. */
static void add_phase(maker *m, int64_t phase, int32_t groups, int64_t *at, list *steps_of, list *stages_of) {
    const int64_t first = *at, all = m->p->taps.taps;
    int64_t end = first;
    while (end < all && m->taps[end].set[0] == phase) end++;
    for (int32_t g = 0; g < groups && m->status == TARTAN_OK; g++) {
        if (first < end) note_group(m, g);
        for (int64_t t = first, next; t < end; t = next) {
            for (next = t + 1; next < end && are_together(&m->taps[t], &m->taps[next]);) next++;
            add_stages(m, g, m->taps + t, next - t);
        }
        if (m->status == TARTAN_OK) divide_items(m, steps_of, stages_of);
        m->items.count = m->group_stages.count = 0;
    }
    *at = end;
}

/* List and steps of each, by descending steps; those with equally many by number. */
static int by_steps(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    if (x[1] != y[1]) return x[1] > y[1] ? -1 : 1;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

static void add_order(maker *m, const list *steps_of, list *order, tartan_cuda_conv_steps *out) {
    int32_t *pairs = add(m, order, 2 * (int64_t)out->lists);
    out->busy = 0;
    if (pairs == NULL) return;
    for (int32_t g = 0; g < out->lists; g++) {
        pairs[2 * g] = g;
        pairs[2 * g + 1] = steps_of->values[g + 1] - steps_of->values[g];
        out->busy += pairs[2 * g + 1] > 0;
    }
    qsort(pairs, (size_t)out->lists, 2 * sizeof *pairs, by_steps);
    for (int32_t g = 0; g < out->lists; g++) pairs[g] = pairs[2 * g];
    order->count = out->lists;
}

/* Spans of channels of which there is a stage. */
static int32_t count_spans(maker *m) {
    const int64_t most = (m->pieces + pieces_of(m) - 1) / pieces_of(m);
    uint8_t *seen = m->used; /* of all taps: not shorter */
    int32_t count = 0;
    if (m->status != TARTAN_OK) return 0;
    memset(seen, 0, (size_t)most);
    for (int64_t i = 0; i < m->stages.count; i += TARTAN_CUDA_CONV_STAGE)
        seen[m->stages.values[i] / (m->piece * pieces_of(m))] = 1;
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
    m.piece = TARTAN_CUDA_CONV_ITEM_SPAN / form->element;
    m.pieces = (m.grid * p->from_slots.edge + m.piece - 1) / m.piece;
    m.status = host->allocate(&m.ids, 8 * p->taps.taps * m.grid + 1, sizeof *m.ids);
    if (m.status == TARTAN_OK)
        m.status = host->allocate(&m.used, p->taps.taps * m.pieces + 1, sizeof *m.used);
    if (m.status == TARTAN_OK) m.status = find_taps(&m);
    const int32_t groups = (int32_t)((slots + TARTAN_CUDA_CONV_GROUP - 1) / TARTAN_CUDA_CONV_GROUP);
    const int64_t phases = tartan_cuda_conv_spreads(p);
    *out = (tartan_cuda_conv_steps){.lists = (int32_t)(phases * groups * form->splits)};
    int64_t at = 0;
    for (int64_t phase = 0; phase < phases && m.status == TARTAN_OK; phase++)
        add_phase(&m, phase, groups, &at, &steps_of, &stages_of);
    int32_t *step = add(&m, &steps_of, 1), *stage = add(&m, &stages_of, 1);
    if (m.status == TARTAN_OK) {
        *step = (int32_t)(m.steps.count / TARTAN_CUDA_CONV_STEP);
        *stage = (int32_t)(m.stages.count / TARTAN_CUDA_CONV_STAGE);
        add_order(&m, &steps_of, &order, out);
    }
    out->spans = count_spans(&m);
    if (m.status == TARTAN_OK) m.status = join(&m, &steps_of, &stages_of, &order, out);
    int32_t *all[] = {steps_of.values, stages_of.values,      order.values,
                      m.stages.values, m.steps.values,        m.sources.values,
                      m.items.values,  m.group_stages.values, m.ids};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) host->free(all[i]);
    host->free(m.used);
    host->free(m.taps);
    return m.status;
}
