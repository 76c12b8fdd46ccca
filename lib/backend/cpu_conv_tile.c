/* SPDX-License-Identifier: Apache-2.0
 * The sums of a tile of a convolution on the CPU. */
#include "backend/cpu_conv_forward.h"

#include <string.h>

/* Bytes that strips share before the next strips come: with lanes of positions, bytes of the box, which stay in L1; else of
 * weights, which stay in L2 beside the box. */
enum { SHARED_BYTES = 32 << 10, SHARED_WEIGHTS = 128 << 10 };

/* ---- What is computed ---- */

/* Widens the span to the positions that reach an active window in one row (d, h) of the input. */
static void widen(const tartan_i_cpu_forward *p, const tartan_i_cpu_piece *piece, int64_t d, int64_t h,
                  tartan_i_cpu_span *s) {
    const tartan_i_cpu_line *l = &p->lines[2];
    const tartan_i_cpu_active *map = &p->map;
    if (d < 0 || d >= p->from.size[0] || h < 0 || h >= p->from.size[1]) return;
    const int64_t i = map->window[0][d], j = map->window[1][h];
    if (i < 0 || j < 0) return;
    const uint8_t *on =
        map->on + piece->n * map->windows_all + (i * map->windows.count[1] + j) * map->windows.count[2];
    for (int64_t q = 0; q < piece->size[2]; q++) {
        if (q >= s->begin && q < s->end) continue;
        const int64_t first = (piece->origin[2] + q) * l->from_step + l->low;
        bool any = false;
        for (int64_t w = first < 0 ? 0 : first; w <= first + l->span && w < p->from.size[2]; w++)
            any = any || (map->window[2][w] >= 0 && on[map->window[2][w]]);
        if (!any) continue;
        if (s->begin == s->end) s->begin = q;
        if (q < s->begin) s->begin = q;
        if (q >= s->end) s->end = q + 1;
    }
}

/* Which positions of a row of a piece are computed. */
static void find_span(const tartan_i_cpu_forward *p, const tartan_i_cpu_piece *piece, int64_t i,
                      tartan_i_cpu_span *out) {
    out->begin = 0;
    out->end = p->map.layout == NULL ? piece->size[2] : 0;
    if (p->map.layout == NULL) return;
    const int64_t d = (piece->origin[0] + i / piece->size[1]) * p->lines[0].from_step + p->lines[0].low,
                  h = (piece->origin[1] + i % piece->size[1]) * p->lines[1].from_step + p->lines[1].low;
    for (int64_t a = 0; a <= p->lines[0].span; a++)
        for (int64_t b = 0; b <= p->lines[1].span; b++) widen(p, piece, d + a, h + b, out);
}

/* Covers a row of positions, which begins at `begin` in the box, with vectors. They may go on from the end of one row to
 * positions of the next one; what lies between them is computed and dropped. *n vectors cover the box up to *end. */
static void cover(tartan_i_cpu_tile *w, int64_t begin, int64_t count, tartan_i_cpu_span *s, int64_t *n,
                  int64_t *end) {
    const int64_t lanes = w->p->k.lanes;
    int64_t last = w->ncomputed > 0 ? w->computed[w->ncomputed - 1] : -1;
    if (begin >= *end) *end = begin;
    s->at = begin < *end ? (*n - 1) * lanes + begin - w->vectors[*n - 1] : *n * lanes;
    for (; *end < begin + count; *end += lanes) w->vectors[(*n)++] = *end;
    if (s->begin == s->end) return;
    for (int64_t v = (s->at + s->begin) / lanes; v <= (s->at + s->end - 1) / lanes; v++)
        if (v > last) w->computed[w->ncomputed++] = last = v;
}

/* Where row i of a piece begins in the box. */
static int64_t row_begin(const tartan_i_cpu_forward *p, const tartan_i_cpu_piece *piece, int64_t i) {
    const int64_t d = i / piece->size[1] * p->lines[0].from_step,
                  h = i % piece->size[1] * p->lines[1].from_step;
    return (d * p->tiling.box[1] + h) * p->tiling.box[2];
}

bool tartan_i_cpu_tile_begin(tartan_i_cpu_tile *w, const tartan_i_cpu_piece *piece) {
    const tartan_i_cpu_forward *p = w->p;
    int64_t n = 0, end = 0;
    bool any = false;
    w->ncomputed = 0;
    for (int64_t i = 0; i < piece->size[0] * piece->size[1]; i++) {
        find_span(p, piece, i, &w->spans[i]);
        w->spans[i].at = i * piece->size[2];
        any = any || w->spans[i].begin < w->spans[i].end;
        if (p->box == TARTAN_I_BOX_LANES)
            cover(w, row_begin(p, piece, i), piece->size[2], &w->spans[i], &n, &end);
    }
    return any;
}

/* ---- Lanes of positions ---- */

/* The sums of `count` computed vectors from `at` on, in groups of rows, from pairs that stay in L1. */
static void add_vectors(const tartan_i_cpu_tile *w, int64_t at, int64_t count, int64_t rows, int64_t npairs) {
    const tartan_i_cpu_forward *p = w->p;
    const tartan_i_kernels *k = &p->k;
    const int64_t groups = tartan_i_ceil_div(rows, k->spread_rows);
    int64_t step = SHARED_BYTES / (p->in_block * count * k->lanes * k->bytes);
    if (step < 1) step = 1;
    tartan_i_spread s = {
        .vectors = count, .a_col = p->width, .b_row = p->tiling.vector, .sums_row = w->sums.slot};
    for (int64_t i = 0; i < count; i++) {
        s.from[i] = w->vectors[w->computed[at + i]];
        s.to[i] = w->computed[at + i] * k->lanes;
    }
    for (int64_t i = 0; i == 0 || i < npairs; i += step) {
        s.first = i == 0;
        for (int64_t g = 0; g < groups; g++) {
            int64_t end;
            tartan_i_share(rows, (int32_t)groups, (int32_t)g, &s.row, &end);
            s.rows = end - s.row;
            s.sums = w->sums.data + s.row * w->sums.slot * k->bytes;
            k->spread(&s, w->pairs + i, npairs - i < step ? npairs - i : step);
        }
    }
}

static void add_lanes(const tartan_i_cpu_tile *w, int64_t rows, int64_t npairs) {
    const tartan_i_kernels *k = &w->p->k;
    const int64_t group = tartan_i_ceil_div(rows, tartan_i_ceil_div(rows, k->spread_rows)),
                  strips = tartan_i_ceil_div(w->ncomputed, tartan_i_spread_most(k, group));
    for (int64_t i = 0; i < strips; i++) {
        int64_t first, end;
        tartan_i_share(w->ncomputed, (int32_t)strips, (int32_t)i, &first, &end);
        add_vectors(w, first, end - first, rows, npairs);
    }
}

static void list_lanes(const tartan_i_cpu_tile *w, const tartan_i_cpu_entry *e, const char *weights,
                       int64_t *npairs) {
    const int64_t offset = e->offset + tartan_i_cpu_box_slot(&w->p->tiling, e->slot);
    w->pairs[(*npairs)++] =
        (tartan_i_pair){.a = weights, .b = w->box + offset * w->p->k.bytes, .k = e->slots};
}

/* ---- Lanes of slots ---- */

/* Where the results of a row of positions go; data NULL: their slots are not neighbours in memory. */
typedef struct target {
    char *data;
    int64_t step, bytes; /* from one position to the next, and of one */
} target;

static target target_of(const tartan_i_cpu_forward *p, const tartan_i_cpu_piece *piece, int64_t row,
                        int64_t line) {
    const tartan_i_image *to = &p->to;
    if (to->channel != 1 || to->side->of != NULL || p->together) return (target){.data = NULL};
    const tartan_i_cpu_finished f = tartan_i_cpu_finished_row(p, piece, line);
    const tartan_i_cpu_sums place = tartan_i_cpu_finish_place(&p->finish, &f, row * p->out_block);
    return (target){
        .data = place.data, .step = place.position * to->bytes, .bytes = p->out_block * to->bytes};
}

/* Prefetches the cache lines of positions [begin, end), which are written soon. A store to a line that is not in the cache
 * waits for it. */
static void fetch(const target *t, int64_t begin, int64_t end) {
    enum { LINE = 64 };
    for (int64_t i = begin; t->data != NULL && i < end; i++)
        for (int64_t at = 0; at < t->bytes; at += LINE) __builtin_prefetch(t->data + i * t->step + at, 1);
}

/* A row of positions, of which [begin, end) are computed. */
typedef struct positions {
    int64_t row, begin, end; /* row: where it is in the box */
    char *sums;              /* of position 0 */
    int64_t sums_row;        /* from one position to the next */
    const target *to;
    bool first; /* sums start at zero */
} positions;

/* Adds pairs to the sums of a row of positions. */
static void add_positions(const tartan_i_cpu_tile *w, const positions *s, const tartan_i_pair *pairs,
                          int64_t npairs) {
    const tartan_i_kernels *k = &w->p->k;
    const int64_t vectors = w->p->width / k->lanes,
                  across = tartan_i_ceil_div(vectors, TARTAN_I_PACKED_VECTORS);
    for (int64_t i = 0; i < across; i++) {
        int64_t from, to;
        tartan_i_share(vectors, (int32_t)across, (int32_t)i, &from, &to);
        const int64_t count = s->end - s->begin, most = tartan_i_packed_most(k, to - from),
                      groups = tartan_i_ceil_div(count, most);
        for (int64_t g = 0; g < groups; g++) {
            int64_t begin, end;
            tartan_i_share(count, (int32_t)groups, (int32_t)g, &begin, &end);
            begin += s->begin, end += s->begin;
            const tartan_i_packed strip = {.row = s->row + begin,
                                           .rows = end - begin,
                                           .vectors = to - from,
                                           .b_first = from * k->lanes,
                                           .b_row = w->p->width,
                                           .sums =
                                               s->sums + (begin * s->sums_row + from * k->lanes) * k->bytes,
                                           .sums_row = s->sums_row,
                                           .first = s->first};
            if (s->first && i == 0) fetch(s->to, begin, end);
            k->packed(&strip, pairs, npairs);
        }
    }
}

static void add_slots(const tartan_i_cpu_tile *w, const tartan_i_cpu_piece *piece, int64_t row,
                      int64_t npairs, bool in_place) {
    const tartan_i_cpu_forward *p = w->p;
    int64_t step = SHARED_WEIGHTS / (p->k.lanes * p->width * p->k.bytes);
    if (step < 1) step = 1;
    for (int64_t i = 0; i == 0 || i < npairs; i += step)
        for (int64_t line = 0; line < piece->size[0] * piece->size[1]; line++) {
            const tartan_i_cpu_span *span = &w->spans[line];
            const target t = target_of(p, piece, row, line);
            const positions s = {.row = row_begin(p, piece, line),
                                 .begin = span->begin,
                                 .end = span->end,
                                 .sums = in_place ? t.data
                                                  : w->sums.data + span->at * w->sums.position * p->k.bytes,
                                 .sums_row = in_place ? t.step / p->k.bytes : w->sums.position,
                                 .to = &t,
                                 .first = i == 0};
            add_positions(w, &s, w->pairs + i, npairs - i < step ? npairs - i : step);
        }
}

/* The slots of a block, vector after vector of the box. */
static void list_slots(const tartan_i_cpu_tile *w, const tartan_i_cpu_entry *e, const char *weights,
                       int64_t *npairs) {
    const tartan_i_cpu_forward *p = w->p;
    const tartan_i_cpu_tiling *t = &p->tiling;
    for (int64_t i = 0, n; i < e->slots; i += n) {
        const int64_t slot = e->slot + i;
        n = t->together - slot % t->together;
        if (n > e->slots - i) n = e->slots - i;
        w->pairs[(*npairs)++] =
            (tartan_i_pair){.a = w->box + (e->offset + tartan_i_cpu_box_slot(t, slot)) * p->k.bytes,
                            .b = weights + i * p->width * p->k.bytes,
                            .k = n};
    }
}

/* ---- Rows of blocks ---- */

/* The weights of block `id`. */
static const char *weights_of(const tartan_i_cpu_forward *p, int64_t id) {
    return p->weights == NULL ? tartan_i_block_at(p->op->filter, id)
                              : p->weights + id * p->in_block * p->width * p->k.bytes;
}

/* What depends on no active window is 0. */
static void clear_rest(const tartan_i_cpu_tile *w, const tartan_i_cpu_piece *piece, int64_t rows) {
    const int64_t bytes = w->p->k.bytes, lines = piece->size[0] * piece->size[1];
    const int64_t step = w->sums.slot == 1 ? 1 : w->sums.slot, times = w->sums.slot == 1 ? 1 : rows,
                  size = (w->sums.slot == 1 ? w->sums.position : 1) * bytes;
    for (int64_t i = 0; i < lines; i++)
        for (int64_t r = 0; r < times; r++) {
            const tartan_i_cpu_span *s = &w->spans[i];
            char *sums = w->sums.data + s->at * size + r * step * bytes;
            memset(sums, 0, (size_t)(s->begin * size));
            memset(sums + s->end * size, 0, (size_t)((piece->size[2] - s->end) * size));
        }
}

bool tartan_i_cpu_tile_row(const tartan_i_cpu_tile *w, const tartan_i_cpu_piece *piece, int64_t row) {
    const tartan_i_cpu_forward *p = w->p;
    const int64_t rows = tartan_i_channels_in(p->to.side, row * p->out_block, p->out_block);
    const bool lanes = p->box == TARTAN_I_BOX_LANES;
    int64_t npairs = 0;
    if (rows == 0) return false;
    const bool in_place = p->in_place && rows == p->out_block;
    for (int64_t i = p->pointers[row]; i < p->pointers[row + 1]; i++) {
        const tartan_i_cpu_entry *e = &p->entries[i];
        (lanes ? list_lanes : list_slots)(w, e, weights_of(p, e->id), &npairs);
    }
    if (lanes)
        add_lanes(w, rows, npairs);
    else
        add_slots(w, piece, row, npairs, in_place);
    if (p->map.layout != NULL) clear_rest(w, piece, rows);
    return in_place;
}
