/* SPDX-License-Identifier: Apache-2.0
 * Convolution on the CPU, forward or adjoint.
 *
 * Phase by phase (one if forward), the blocks that reach its positions are packed as weights[in slot][out slot], in the
 * order of the filter's row lists, or tap by tap in that of its column lists. Then workers take tiles: one packs the tile's
 * box and goes through the rows of blocks. The strip kernel adds the terms of a few positions while their sums stay in
 * registers: the rows of its left factor are positions, its columns the slots of a block in the box. So each result is one
 * chain of fused multiply-adds in an order that depends on the filter's layout alone. */
#include "backend/cpu_conv.h"
#include "backend/cpu_conv_finish.h"
#include "core/workspace.h"

#include <string.h>

enum { BOX_REALS = 128 << 10, WEIGHT_BYTES = 16 << 10, GROUPS = 4 };

/* One block that reaches the positions of the phase. */
typedef struct entry {
    int64_t offset; /* in the box: its tap and its input slots */
    int64_t slots;  /* of the input that have channels */
    int64_t id;
} entry;

typedef struct plan {
    const tartan_context *context;
    const tartan_op_conv *op;
    tartan_i_kernels k;
    tartan_i_cpu_image from, to;
    tartan_i_cpu_active windows, map; /* of the output, of the input: one of them without a layout */
    int64_t in_block, out_block, in_grid, out_grid; /* blocks of one tap */
    int64_t width;                                  /* of packed weights */
    int64_t groups;                                 /* of block rows, each a task */
    bool together; /* output channels repeat: all rows of blocks are added up before results are stored */
    tartan_i_cpu_finish finish;

    tartan_i_cpu_line lines[TARTAN_I_DIMS]; /* of the phase at work */
    tartan_i_cpu_tiling tiling;
    int64_t *pointers; /* [out_grid + 1] */
    entry *entries;
    char *weights;
    tartan_i_cpu_piece *pieces;
    int64_t npieces, *taken, longest; /* longest: entries of a row of blocks */
    char *own;
    int64_t box_bytes, sums_bytes, all_bytes, own_bytes; /* of a worker */
} plan;

/* ---- Blocks ---- */

/* The blocks that meet output blocks `row`, of tap `tap`: a range of row or column lists. */
static void list_of(const plan *p, int64_t row, int64_t tap, int64_t *begin, int64_t *end) {
    const tartan_layout *l = p->op->filter->layout;
    const int64_t line = p->op->adjoint ? tap * p->out_grid + row : row;
    const int64_t *pointers = p->op->adjoint ? l->col_pointers : l->row_pointers;
    *begin = pointers[line];
    *end = pointers[line + 1];
}

/* Lists the blocks of the phase. */
static void list_blocks(plan *p) {
    const tartan_layout *l = p->op->filter->layout;
    const bool adjoint = p->op->adjoint;
    const int64_t taps = adjoint ? p->op->conv->options.taps : 1;
    int64_t count = 0;
    for (int64_t row = 0; row < p->out_grid; row++) {
        p->pointers[row] = count;
        for (int64_t t = 0; t < taps; t++) {
            int64_t begin, end, offset;
            list_of(p, row, t, &begin, &end);
            for (int64_t i = begin; i < end; i++) {
                const int64_t tap = adjoint ? t : l->block_cols[i] / p->in_grid;
                const int64_t block = adjoint ? l->col_rows[i] : l->block_cols[i] % p->in_grid;
                if (!tartan_i_cpu_tap_offset(p->lines, &p->op->geometry, &p->tiling, tap, &offset)) break;
                entry *e = &p->entries[count];
                e->offset = offset + block * p->in_block;
                e->slots = tartan_i_channels_in(p->from.side, block * p->in_block, p->in_block);
                e->id = adjoint ? l->col_ids[i] : i;
                count += e->slots > 0;
            }
        }
    }
    p->pointers[p->out_grid] = count;
}

static char *weights_of(const plan *p, int64_t i) {
    return p->weights + i * p->in_block * p->width * p->k.bytes;
}

/* Packs the weights of a share of the rows of blocks. */
static void pack_task(void *data, int32_t worker) {
    const plan *p = data;
    const tartan_matrix *f = p->op->filter;
    const bool adjoint = p->op->adjoint;
    const int64_t row_stride = tartan_i_block_row_stride(f), col_stride = tartan_i_block_col_stride(f);
    int64_t begin, end;
    tartan_i_cpu_share_rows(p->pointers, p->out_grid, p->context->threads, worker, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        const int64_t valid = tartan_i_channels_in(p->to.side, row * p->out_block, p->out_block);
        for (int64_t i = p->pointers[row]; i < p->pointers[row + 1]; i++) {
            const entry *e = &p->entries[i];
            char *to = weights_of(p, i);
            if (valid < p->width) memset(to, 0, (size_t)(p->in_block * p->width * p->k.bytes));
            tartan_i_pack(&p->k, f->dtype, tartan_i_block_at(f, e->id), adjoint ? row_stride : col_stride,
                          adjoint ? col_stride : row_stride, e->slots, valid, to, p->width);
        }
    }
}

/* ---- Tiles ---- */

/* The positions [begin, end) of a row of a piece that depend on active windows of the input. */
typedef struct span {
    int64_t begin, end;
} span;

typedef struct work {
    const plan *p;
    char *box, *sums, *all; /* sums of a row of blocks; with `together` of all channels */
    tartan_i_term *terms;
    span *spans; /* of the rows of a piece */
} work;

/* Adds some terms to the sums of a piece, row after row of its positions. */
static void add_terms(const work *w, const tartan_i_cpu_piece *piece, const tartan_i_term *terms,
                      int64_t count, bool first) {
    const plan *p = w->p;
    const tartan_i_product *product = &p->k.product;
    const tartan_i_cpu_tiling *t = &p->tiling;
    const int64_t vectors = p->width / product->lanes, strips = tartan_i_cpu_strips(product, vectors);
    const int64_t steps = t->box[2] / p->lines[2].from_step; /* of a row of the box */
    for (int64_t i = 0; i < piece->size[0] * piece->size[1]; i++) {
        const int64_t d = i / piece->size[1] * p->lines[0].from_step,
                      h = i % piece->size[1] * p->lines[1].from_step;
        const int64_t begin = w->spans[i].begin, line = w->spans[i].end - begin;
        for (int64_t j = 0; line > 0 && j < strips; j++) {
            int64_t from, width;
            tartan_i_cpu_strip(product, vectors, j, &from, &width);
            const tartan_i_strip strip = {.row = (d * t->box[1] + h) * steps + begin,
                                          .width = width,
                                          .a_row = p->lines[2].from_step * t->pitch,
                                          .a_col = 1,
                                          .b = p->weights + from * p->k.bytes,
                                          .b_row = p->width,
                                          .sums = w->sums + ((i * piece->size[2] + begin) * p->width + from) *
                                                                p->k.bytes,
                                          .sums_row = p->width,
                                          .first = first};
            tartan_i_cpu_strip_rows(&p->k, &strip, line, terms, count);
        }
    }
}

/* The sums of one row of blocks at all positions of a piece. As many weights as stay in L1 are used for all positions before
 * the next ones. */
static void add_row(const work *w, const tartan_i_cpu_piece *piece, int64_t row) {
    const plan *p = w->p;
    const int64_t begin = p->pointers[row], terms = p->pointers[row + 1] - begin;
    int64_t step = WEIGHT_BYTES / (p->in_block * p->width * p->k.bytes);
    if (step < 1) step = 1;
    for (int64_t i = 0; i < terms; i++) {
        const entry *e = &p->entries[begin + i];
        w->terms[i] = (tartan_i_term){
            .a = w->box + e->offset * p->k.bytes, .b = (begin + i) * p->in_block, .k = e->slots};
    }
    add_terms(w, piece, w->terms, terms < step ? terms : step, true);
    for (int64_t i = step; i < terms; i += step)
        add_terms(w, piece, w->terms + i, terms - i < step ? terms - i : step, false);
}

/* Widens the span to the positions that reach an active window in one row (d, h) of the input. */
static void widen(const plan *p, const tartan_i_cpu_piece *piece, int64_t d, int64_t h, span *s) {
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

/* Which positions of a piece are computed; the sums of the others become 0. */
static void find_spans(const work *w, const tartan_i_cpu_piece *piece) {
    const plan *p = w->p;
    const int64_t rows = piece->size[0] * piece->size[1];
    for (int64_t i = 0; i < rows; i++) {
        w->spans[i] = (span){0, piece->size[2]};
        if (p->map.layout == NULL) continue;
        const int64_t d = (piece->origin[0] + i / piece->size[1]) * p->lines[0].from_step + p->lines[0].low,
                      h = (piece->origin[1] + i % piece->size[1]) * p->lines[1].from_step + p->lines[1].low;
        w->spans[i] = (span){0, 0};
        for (int64_t a = 0; a <= p->lines[0].span; a++)
            for (int64_t b = 0; b <= p->lines[1].span; b++) widen(p, piece, d + a, h + b, &w->spans[i]);
    }
    if (p->map.layout != NULL) memset(w->sums, 0, (size_t)(rows * piece->size[2] * p->width * p->k.bytes));
}

/* The i-th row of a piece's positions in the output. */
static tartan_i_cpu_finished finished_row(const plan *p, const tartan_i_cpu_piece *piece, int64_t i) {
    const tartan_i_cpu_line *l = p->lines;
    return (tartan_i_cpu_finished){.n = piece->n,
                                   .d = l[0].first + (piece->origin[0] + i / piece->size[1]) * l[0].step,
                                   .h = l[1].first + (piece->origin[1] + i % piece->size[1]) * l[1].step,
                                   .w = l[2].first + piece->origin[2] * l[2].step,
                                   .w_step = l[2].step,
                                   .count = piece->size[2]};
}

/* Results of the rows of blocks from `begin` to `end` at all positions of a piece. Where several of them have slots of one
 * channel, they are all added up first. */
static void run_piece(const work *w, const tartan_i_cpu_piece *piece, int64_t begin, int64_t end) {
    const plan *p = w->p;
    const int64_t lines = piece->size[0] * piece->size[1], count = piece->size[2],
                  channels = p->to.side->count;
    tartan_i_cpu_pack_box(&p->k, p->lines, &p->tiling, &p->from, &p->map, piece, 0,
                          tartan_i_cpu_box_rows(p->lines, piece), w->box);
    find_spans(w, piece);
    if (p->together) memset(w->all, 0, (size_t)(lines * count * channels * p->k.bytes));
    for (int64_t row = begin; row < end; row++) {
        add_row(w, piece, row);
        if (p->together)
            tartan_i_cpu_finish_add(&p->finish, lines * count, row * p->out_block, p->out_block, p->width,
                                    w->sums, w->all);
        for (int64_t i = 0; !p->together && i < lines; i++) {
            const tartan_i_cpu_finished f = finished_row(p, piece, i);
            tartan_i_cpu_finish_slots(&p->finish, &f, row * p->out_block, p->out_block, p->width,
                                      w->sums + i * count * p->width * p->k.bytes);
        }
    }
    for (int64_t i = 0; p->together && i < lines; i++) {
        const tartan_i_cpu_finished f = finished_row(p, piece, i);
        tartan_i_cpu_finish_channels(&p->finish, &f, w->all + i * count * channels * p->k.bytes);
    }
}

static void run_task(void *data, int32_t worker) {
    const plan *p = data;
    char *own = p->own + worker * p->own_bytes;
    const work w = {
        .p = p,
        .box = own,
        .sums = own + p->box_bytes,
        .all = own + p->box_bytes + p->sums_bytes,
        .terms = (tartan_i_term *)(void *)(own + p->own_bytes - p->longest * (int64_t)sizeof(tartan_i_term)),
        .spans = (span *)(void *)(own + p->box_bytes + p->sums_bytes + p->all_bytes)};
    memset(w.box, 0, (size_t)p->box_bytes); /* slots without a channel stay 0 */
    for (;;) {
        const int64_t task = __atomic_fetch_add(p->taken, 1, __ATOMIC_RELAXED);
        const int64_t piece = task / p->groups;
        int64_t begin, end;
        if (piece >= p->npieces) break;
        tartan_i_share(p->out_grid, (int32_t)p->groups, (int32_t)(task % p->groups), &begin, &end);
        run_piece(&w, &p->pieces[piece], begin, end);
    }
}

/* ---- The operation ---- */

/* Takes a phase by its number. */
static void take_phase(plan *p, int64_t phase) {
    const tartan_i_geometry *g = &p->op->geometry;
    int64_t most[TARTAN_I_DIMS];
    for (int32_t d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const int64_t phases = tartan_i_cpu_line_phases(g, p->op->adjoint, d);
        p->lines[d] = tartan_i_cpu_line_of(g, p->op->adjoint, d, phase % phases);
        phase /= phases;
        most[d] = p->lines[d].count;
        const tartan_i_cpu_active *active = p->windows.layout != NULL ? &p->windows : &p->map;
        if (active->layout != NULL) { /* tiles as small as windows, so that more of them are all zeros */
            const int64_t window = tartan_i_ceil_div(active->windows.size[d], p->lines[d].step);
            if (window < most[d]) most[d] = window;
        }
    }
    p->tiling = tartan_i_cpu_tiling_of(p->lines, most,
                                       tartan_i_cpu_conv_pitch(p->from.side->slots, p->in_block), BOX_REALS);
}

static int64_t aligned(int64_t bytes) {
    return tartan_i_ceil_div(bytes, 64) * 64;
}

/* Gets room for the greediest phase. */
static tartan_status get_memory(plan *p, int64_t phases) {
    const tartan_layout *l = p->op->filter->layout;
    const int64_t map = tartan_i_cpu_active_bytes(&p->map, &p->from);
    int64_t pieces = 0, reals = 0, positions = 0, lines = 0;
    char *memory;
    for (int64_t phase = 0; phase < phases; phase++) {
        take_phase(p, phase);
        const int64_t here = tartan_i_cpu_most_pieces(p->lines, &p->tiling, p->from.n, &p->windows);
        if (here > pieces) pieces = here;
        if (p->tiling.box_reals > reals) reals = p->tiling.box_reals;
        const int64_t tile = p->tiling.tile[0] * p->tiling.tile[1] * p->tiling.tile[2];
        if (tile > positions) positions = tile;
        if (tile / p->tiling.tile[2] > lines) lines = tile / p->tiling.tile[2];
    }
    for (int64_t r = 0; r < p->out_grid; r++) {
        int64_t entries = 0, begin, end;
        for (int64_t t = 0; t < (p->op->adjoint ? p->op->conv->options.taps : 1); t++) {
            list_of(p, r, t, &begin, &end);
            entries += end - begin;
        }
        if (entries > p->longest) p->longest = entries;
    }
    p->box_bytes = aligned(reals * p->k.bytes);
    p->sums_bytes = aligned(positions * p->width * p->k.bytes);
    p->all_bytes = aligned(p->together ? positions * p->to.side->count * p->k.bytes : 0);
    p->own_bytes = p->box_bytes + p->sums_bytes + p->all_bytes + aligned(lines * (int64_t)sizeof(span)) +
                   aligned(p->longest * (int64_t)sizeof(tartan_i_term));
    const int64_t finish = tartan_i_cpu_finish_bytes(&p->finish);
    PASS(tartan_i_workspace_get(
        p->context, TARTAN_I_ROOM_LISTS, &memory,
        (p->out_grid + 1) * (int64_t)sizeof *p->pointers + (l->blocks + 1) * (int64_t)sizeof *p->entries, 1));
    p->pointers = (int64_t *)(void *)memory;
    p->entries = (entry *)(void *)(memory + (p->out_grid + 1) * (int64_t)sizeof *p->pointers);
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_TEAM, &p->taken, 1, 64));
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_PIECES, &p->pieces, pieces, sizeof *p->pieces));
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_PANEL, &p->weights, l->blocks,
                                p->in_block * p->width * p->k.bytes));
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_SUMS, &memory, aligned(finish) + map, 1));
    tartan_i_cpu_finish_fill(&p->finish, memory);
    tartan_i_cpu_active_fill(&p->map, &p->from, memory + aligned(finish));
    return tartan_i_workspace_get(p->context, TARTAN_I_ROOM_OWN, &p->own, p->own_bytes, p->context->threads);
}

static plan plan_of(const tartan_context *context, const tartan_op_conv *op) {
    const tartan_conv *conv = op->conv;
    const tartan_layout *l = op->filter->layout;
    const tartan_i_channels *in = op->adjoint ? &conv->rows : &conv->cols,
                            *out = op->adjoint ? &conv->cols : &conv->rows;
    plan p = {.context = context,
              .op = op,
              .k = tartan_i_cpu_kernels(op->filter->dtype),
              .from = tartan_i_cpu_image_of(op->from, in),
              .to = tartan_i_cpu_image_of(op->to, out),
              .together = out->repeats};
    *(op->active_from ? &p.map : &p.windows) = tartan_i_cpu_active_of(op->active, &op->windows);
    p.in_block = op->adjoint ? l->shape.block_rows : l->shape.block_cols;
    p.out_block = op->adjoint ? l->shape.block_cols : l->shape.block_rows;
    p.in_grid = op->adjoint ? l->grid_rows : tartan_i_conv_grid(conv);
    p.out_grid = op->adjoint ? tartan_i_conv_grid(conv) : l->grid_rows;
    p.width = tartan_i_ceil_div(p.out_block, p.k.product.lanes) * p.k.product.lanes;
    return p;
}

tartan_status tartan_i_cpu_conv(const tartan_context *context, const tartan_op_conv *op) {
    if (tartan_i_array_is_empty(op->to)) return TARTAN_OK;
    plan p = plan_of(context, op);
    p.finish = tartan_i_cpu_finish_of(op, &p.k, &p.to);
    const int32_t workers = context->threads;
    int64_t phases = 1;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        phases *= tartan_i_cpu_line_phases(&op->geometry, op->adjoint, d);
    const tartan_status status = get_memory(&p, phases);
    const double flops = tartan_i_op_flops(&(tartan_op){.kind = TARTAN_OP_CONV, .conv = *op});
    const double moved = (double)tartan_i_array_elements(op->from) + (double)tartan_i_array_elements(op->to);
    for (int64_t phase = 0; status == TARTAN_OK && phase < phases; phase++) {
        take_phase(&p, phase);
        list_blocks(&p);
        p.npieces = tartan_i_cpu_pieces(p.lines, &p.tiling, p.from.n, p.to.size, &p.windows, p.pieces);
        p.groups = p.together || p.npieces >= GROUPS * workers || p.npieces == 0
                       ? 1
                       : tartan_i_ceil_div(GROUPS * workers, p.npieces);
        if (workers == 1) p.groups = 1;
        tartan_i_parallel(context, workers, tartan_i_stored_elements(op->filter) * TARTAN_I_CPU_MOVE,
                          pack_task, &p);
        *p.taken = 0;
        tartan_i_parallel(context, workers, (flops + moved * TARTAN_I_CPU_MOVE) / (double)phases, run_task,
                          &p);
    }
    tartan_i_workspace_end(context);
    return status;
}
