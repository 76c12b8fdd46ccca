/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_pieces.h"

#include <math.h>
#include <string.h>

enum { NOWHERE = INT32_MIN / 2 };

int32_t tartan_cuda_conv_piece(int64_t slots, int32_t bytes) {
    int32_t piece = bytes < 4 ? 4 / bytes : 1;
    while (piece < slots && piece * bytes < 16) piece *= 2;
    return piece;
}

int64_t tartan_cuda_conv_phases(const tartan_cuda_taps *taps, bool adjoint) {
    return adjoint ? taps->stride[0] * taps->stride[1] * taps->stride[2] : 1;
}

/* ---- Taps ---- */

typedef struct tap_place {
    int32_t phase, shift[TARTAN_I_DIMS];
} tap_place;

/* p_in = p_out * stride + t * dilation - before. Adjoint: positions of a phase are p_in = remainder + stride * q. */
static tap_place place_of(const tartan_cuda_taps *taps, bool adjoint, int64_t tap) {
    tap_place place = {0};
    int64_t phase = 0, remainder[TARTAN_I_DIMS];
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const int64_t shift = tap % taps->kernel[d] * taps->dilation[d] - taps->before[d];
        tap /= taps->kernel[d];
        remainder[d] = 0;
        if (adjoint) {
            remainder[d] = (shift % taps->stride[d] + taps->stride[d]) % taps->stride[d];
            place.shift[d] = (int32_t)((remainder[d] - shift) / taps->stride[d]);
        } else {
            place.shift[d] = (int32_t)shift;
        }
    }
    for (int d = 0; d < TARTAN_I_DIMS; d++) phase = phase * (adjoint ? taps->stride[d] : 1) + remainder[d];
    place.phase = (int32_t)phase;
    return place;
}

/* ---- Lists ---- */

typedef struct maker {
    const tartan_cuda_conv_lines *lines;
    int64_t taps, per_tap;  /* pieces of a tap */
    tap_place *places;      /* [taps] */
    int32_t *order, *begin; /* blocks by lines of `to`; where each line begins */
    int32_t *found;         /* [taps * per_tap] the last list that has the piece, and its number there */
} maker;

static void block_at(const maker *m, int64_t id, int64_t *line, int64_t *tap, int64_t *other) {
    const tartan_cuda_conv_lines *l = m->lines;
    const int64_t row = l->layout->block_rows[id], col = l->layout->block_cols[id];
    const int64_t grid = l->adjoint ? l->to->grid : l->from->grid;
    *tap = col / grid;
    *line = l->adjoint ? col % grid : row;
    *other = l->adjoint ? row : col % grid;
}

/* Orders the blocks by lines. */
static void order_blocks(maker *m) {
    const tartan_cuda_conv_lines *l = m->lines;
    const int64_t blocks = l->layout->blocks, grid = l->to->grid;
    int64_t line, tap, other;
    memset(m->begin, 0, (size_t)(grid + 2) * sizeof *m->begin);
    for (int64_t id = 0; id < blocks; id++) {
        block_at(m, id, &line, &tap, &other);
        m->begin[line + 2]++;
    }
    for (int64_t i = 0; i < grid; i++) m->begin[i + 2] += m->begin[i + 1];
    for (int64_t id = 0; id < blocks; id++) {
        block_at(m, id, &line, &tap, &other);
        m->order[m->begin[line + 1]++] = (int32_t)id; /* afterwards begin[line] is where the line begins */
    }
}

static tartan_cuda_conv_piece_form form_of(const tartan_cuda_conv_lines *l, int32_t group) {
    tartan_cuda_conv_piece_form f = {.piece = l->piece, .step = l->step, .group = group};
    const int64_t grid = l->to->grid, edge = l->to->edge;
    int64_t lines = edge < group ? group / edge : 1;
    if (lines > grid) lines = grid;
    f.lines = (int32_t)lines;
    f.width = (int32_t)(lines * edge);
    f.chunks = (f.width + group - 1) / group;
    f.groups = (int32_t)((grid + lines - 1) / lines);
    f.phases = (int32_t)tartan_cuda_conv_phases(l->taps, l->adjoint);
    const int32_t from = l->from->edge;
    f.each = from % l->piece == 0 ? from / l->piece : (from - 1) / l->piece + 2;
    return f;
}

/* The first slot of a block's piece, and how many pieces the block meets. */
static int64_t pieces_of(const maker *m, int64_t other, int64_t *count) {
    const int64_t first = other * m->lines->from->edge, last = first + m->lines->from->edge - 1;
    *count = last / m->lines->piece - first / m->lines->piece + 1;
    return first / m->lines->piece;
}

/* Marks what the blocks of a group have. */
static void mark(const maker *m, const tartan_cuda_conv_piece_form *f, int32_t group) {
    const int64_t last = (int64_t)(group + 1) * f->lines, grid = m->lines->to->grid;
    const int32_t end = m->begin[last < grid ? last : grid];
    for (int32_t i = m->begin[(int64_t)group * f->lines]; i < end; i++) {
        int64_t line, tap, other, count;
        block_at(m, m->order[i], &line, &tap, &other);
        int32_t *at = m->found + tap * m->per_tap + pieces_of(m, other, &count);
        for (int64_t p = 0; p < count; p++) at[p] = 0;
    }
}

static int64_t whole_steps(const tartan_cuda_conv_piece_form *f, int64_t pieces) {
    return (pieces + f->step - 1) / f->step * f->step;
}

/* Pieces of all lists of a form. */
static int64_t count_pieces(const maker *m, const tartan_cuda_conv_piece_form *f, int32_t *of_phase) {
    int64_t all = 0;
    for (int32_t group = 0; group < f->groups; group++) {
        memset(m->found, 0xff, (size_t)(m->taps * m->per_tap) * sizeof *m->found);
        memset(of_phase, 0, (size_t)f->phases * sizeof *of_phase);
        mark(m, f, group);
        for (int64_t tap = 0; tap < m->taps; tap++)
            for (int64_t p = 0; p < m->per_tap; p++)
                of_phase[m->places[tap].phase] += m->found[tap * m->per_tap + p] == 0;
        for (int32_t phase = 0; phase < f->phases; phase++) all += whole_steps(f, of_phase[phase]);
    }
    return all;
}

int32_t tartan_cuda_conv_piece_tiles(int64_t tiles, int32_t processors) {
    int32_t about = 1;
    while (about < tiles && about < 4 * processors) about *= 2;
    return about < 4 * processors ? about : 0;
}

/* What an SM has to do: with few CTAs the busiest one, and a CTA alone waits for its own copies. */
static double cost_of(const tartan_cuda_conv_lines *l, const tartan_cuda_conv_piece_form *f, int64_t pieces,
                      const tartan_cuda_conv_piece_costs *costs, int32_t step) {
    const double lists = (double)f->phases * f->groups, steps = (double)pieces / f->step / lists,
                 all = l->tiles * lists * f->chunks;
    if (l->tiles == 0) return f->chunks * lists * (steps * step + costs->start);
    if ((costs->kind & TARTAN_CUDA_PIECE_SPLITS) && f->phases == 1 && all <= l->processors)
        return steps * step / floor(l->processors / all) + costs->start;
    const double ctas = ceil(all / l->processors);
    return (steps * step + costs->start) * (ctas == 1 ? 1.4 : ctas);
}

/* Writes the lists of a group, of which number `phase * groups + group` begins at next[...], and the pieces of its blocks, of
 * which the last ones may not exist (-1). */
static void write_group(const maker *m, const tartan_cuda_conv_piece_form *f, int32_t group, int32_t *next,
                        int32_t *pieces, int32_t *of_block) {
    const int64_t together = m->lines->together;
    memset(m->found, 0xff, (size_t)(m->taps * m->per_tap) * sizeof *m->found);
    mark(m, f, group);
    for (int64_t begin = 0; begin < m->per_tap; begin += together)
        for (int64_t tap = 0; tap < m->taps; tap++) {
            const tap_place *place = &m->places[tap];
            int32_t *list = &next[(int64_t)place->phase * f->groups + group];
            for (int64_t p = begin; p < begin + together && p < m->per_tap; p++) {
                int32_t *found = &m->found[tap * m->per_tap + p];
                if (*found != 0) continue;
                int32_t *to = pieces + 4 * (int64_t)*list;
                *found = (*list)++;
                memcpy(to, place->shift, sizeof place->shift);
                to[3] = (int32_t)p;
            }
        }
    const int64_t last = (int64_t)(group + 1) * f->lines, grid = m->lines->to->grid;
    const int32_t end = m->begin[last < grid ? last : grid];
    for (int32_t i = m->begin[(int64_t)group * f->lines]; i < end; i++) {
        int64_t line, tap, other, count;
        block_at(m, m->order[i], &line, &tap, &other);
        const int64_t first = tap * m->per_tap + pieces_of(m, other, &count);
        for (int64_t p = 0; p < f->each; p++)
            of_block[(int64_t)m->order[i] * f->each + p] = p < count ? m->found[first + p] : -1;
    }
}

/* lists[i + 1] is the number of pieces of list i, in whole steps. */
static void count_lists(const maker *m, tartan_cuda_conv_piece_form *f, int32_t *lists) {
    for (int32_t group = 0; group < f->groups; group++) {
        memset(m->found, 0xff, (size_t)(m->taps * m->per_tap) * sizeof *m->found);
        mark(m, f, group);
        for (int64_t tap = 0; tap < m->taps; tap++)
            for (int64_t p = 0; p < m->per_tap; p++)
                if (m->found[tap * m->per_tap + p] == 0)
                    lists[(int64_t)m->places[tap].phase * f->groups + group + 1]++;
    }
    for (int64_t i = 0; i < (int64_t)f->phases * f->groups; i++) {
        const int32_t length = (int32_t)whole_steps(f, lists[i + 1]);
        f->empty += length == 0;
        if (length > f->longest) f->longest = length;
        lists[i + 1] = lists[i] + length;
    }
}

/* The entries of each step, in the order of lines, from the pieces of blocks. */
static void write_entries(const maker *m, const tartan_cuda_conv_piece_form *f, int64_t count,
                          const int32_t *of_block, int32_t *steps, tartan_cuda_conv_piece_entry *entries) {
    const int64_t blocks = m->lines->layout->blocks, edge = m->lines->to->edge;
    memset(steps, 0, (size_t)(count + 2) * sizeof *steps);
    for (int64_t i = 0; i < blocks * f->each; i++)
        if (of_block[i] >= 0) steps[of_block[i] / f->step + 2]++;
    for (int64_t i = 0; i < count; i++) steps[i + 2] += steps[i + 1];
    for (int64_t i = 0; i < blocks; i++) {
        int64_t line, tap, other;
        block_at(m, m->order[i], &line, &tap, &other);
        for (int32_t p = 0; p < f->each; p++) {
            const int32_t at = of_block[(int64_t)m->order[i] * f->each + p];
            if (at < 0) continue;
            entries[steps[at / f->step + 1]++] =
                (tartan_cuda_conv_piece_entry){.block = m->order[i],
                                               .begin = (uint8_t)(other * m->lines->from->edge % f->piece),
                                               .place = (uint8_t)(at % f->step),
                                               .row = (uint8_t)(line % f->lines * edge),
                                               .piece = (uint8_t)p};
        }
    }
}

/* The blocks of each step, where blocks have whole steps. */
static void write_blocks(const maker *m, const tartan_cuda_conv_piece_form *f, int64_t steps,
                         const int32_t *of_block, int32_t *blocks) {
    const int32_t each = 1 + f->lines;
    for (int64_t i = 0; i < steps * each; i++) blocks[i] = i % each == 0 ? 0 : -1;
    for (int64_t i = 0; i < m->lines->layout->blocks; i++) {
        int64_t line, tap, other;
        block_at(m, m->order[i], &line, &tap, &other);
        for (int32_t p = 0; p < f->each; p += f->step) {
            int32_t *of_step =
                blocks + of_block[(int64_t)m->order[i] * f->each + p] / f->step * (int64_t)each;
            of_step[0] = p * f->piece;
            of_step[1 + line % f->lines] = m->order[i];
        }
    }
}

static tartan_status write_tables(const tartan_host *host, const maker *m,
                                  tartan_cuda_conv_piece_lists *out) {
    tartan_cuda_conv_piece_form *f = &out->form;
    const int64_t count = (int64_t)f->phases * f->groups, blocks = m->lines->layout->blocks;
    const int64_t steps = out->pieces / f->step, of_blocks = blocks * f->each;
    const bool packed = m->lines->packed, whole = tartan_cuda_conv_whole_steps(m->lines);
    int32_t *next = NULL;
    out->list_table = 4 * out->pieces;
    out->block_table = out->list_table + count + 1;
    /* Entries are aligned to their 8 bytes; steps have one value more while they are made. */
    out->entry_table = (out->block_table + steps + 3) / 2 * 2;
    out->size = packed ? out->entry_table + 2 * of_blocks : out->block_table + of_blocks;
    const int64_t step_table = out->size;
    if (whole) out->size += steps * (1 + f->lines);
    PASS(host->allocate(&out->values, out->size, sizeof *out->values));
    const tartan_status status = host->allocate(&next, count + 1 + (packed ? of_blocks : 0), sizeof *next);
    if (status != TARTAN_OK) {
        host->free(out->values);
        return status;
    }
    int32_t *lists = out->values + out->list_table, *of_block = out->values + out->block_table;
    if (packed) of_block = next + count + 1;
    memset(lists, 0, (size_t)(count + 1) * sizeof *lists);
    count_lists(m, f, lists);
    for (int64_t i = 0; i < out->pieces; i++) {
        const int32_t none[4] = {NOWHERE, NOWHERE, NOWHERE, 0};
        memcpy(out->values + 4 * i, none, sizeof none);
    }
    memcpy(next, lists, (size_t)(count + 1) * sizeof *next);
    for (int32_t group = 0; group < f->groups; group++) write_group(m, f, group, next, out->values, of_block);
    if (packed) {
        memset(out->values + out->entry_table, 0, (size_t)(2 * of_blocks) * sizeof *out->values);
        write_entries(m, f, steps, of_block, out->values + out->block_table,
                      (tartan_cuda_conv_piece_entry *)(out->values + out->entry_table));
    }
    if (whole) write_blocks(m, f, steps, of_block, out->values + step_table);
    host->free(next);
    return TARTAN_OK;
}

static tartan_status make(const tartan_host *host, maker *m, tartan_cuda_conv_piece_lists *out) {
    const tartan_cuda_conv_lines *l = m->lines;
    const int64_t phases = tartan_cuda_conv_phases(l->taps, l->adjoint);
    int32_t *of_phase = NULL;
    PASS(host->allocate(&m->places, m->taps, sizeof *m->places));
    PASS(host->allocate(&m->order, l->layout->blocks + 1, sizeof *m->order));
    PASS(host->allocate(&m->begin, l->to->grid + 2, sizeof *m->begin));
    PASS(host->allocate(&m->found, m->taps * m->per_tap, sizeof *m->found));
    PASS(host->allocate(&of_phase, phases, sizeof *of_phase));
    for (int64_t tap = 0; tap < m->taps; tap++) m->places[tap] = place_of(l->taps, l->adjoint, tap);
    order_blocks(m);
    double least = INFINITY;
    if (l->costs == NULL) {
        out->form = form_of(l, l->group);
        out->pieces = count_pieces(m, &out->form, of_phase);
    }
    for (int i = 0; l->costs != NULL && i < TARTAN_CUDA_PIECE_GROUPS; i++) {
        if (l->costs->step[i] == 0) continue;
        const tartan_cuda_conv_piece_form form = form_of(l, 16 << i);
        const int64_t pieces = count_pieces(m, &form, of_phase);
        const double cost = cost_of(l, &form, pieces, l->costs, l->costs->step[i]);
        if (cost >= least) continue;
        least = cost;
        out->form = form;
        out->pieces = pieces;
    }
    host->free(of_phase);
    return write_tables(host, m, out);
}

tartan_status tartan_cuda_conv_pieces_make(const tartan_host *host, const tartan_cuda_conv_lines *lines,
                                           tartan_cuda_conv_piece_lists *out) {
    maker m = {.lines = lines,
               .taps = lines->taps->taps,
               .per_tap = (lines->from->grid * lines->from->edge - 1) / lines->piece + 1};
    *out = (tartan_cuda_conv_piece_lists){0};
    const tartan_status status = make(host, &m, out);
    host->free(m.places);
    host->free(m.order);
    host->free(m.begin);
    host->free(m.found);
    return status;
}
