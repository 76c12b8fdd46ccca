/* SPDX-License-Identifier: Apache-2.0
 * Convolution on the CPU, forward or adjoint: the plan, its memory, and how the work is shared. */
#include "backend/cpu_conv_forward.h"
#include "core/interrupt.h"
#include "core/workspace.h"

#include <string.h>

/* Reals of a box, which stays in L2; with vectors of slots there are weights and results beside it. A plane stays in L1. */
enum { BOX_REALS = 128 << 10, VECTORS_REALS = 96 << 10, PLANE_REALS = 8 << 10, GROUPS = 4 };

typedef tartan_i_cpu_forward plan;

/* ---- Blocks ---- */

/* The blocks that meet output blocks `row`, of tap `tap`: a range of row or column lists. */
static void list_of(const plan *p, int64_t row, int64_t tap, int64_t *begin, int64_t *end) {
    const tartan_layout *l = p->op->filter->layout;
    const int64_t line = p->op->adjoint ? tap * p->out_grid + row : row;
    const int64_t *pointers = p->op->adjoint ? p->columns->pointers : l->row_pointers;
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
                const int64_t block = adjoint ? p->columns->rows[i] : l->block_cols[i] % p->in_grid;
                if (!tartan_i_cpu_tap_offset(p->lines, &p->op->geometry, &p->tiling, tap, &offset)) break;
                tartan_i_cpu_entry *e = &p->entries[count];
                e->offset = offset;
                e->slot = block * p->in_block;
                e->slots = tartan_i_channels_in(p->from.side, block * p->in_block, p->in_block);
                e->id = adjoint ? p->columns->ids[i] : i;
                count += e->slots > 0;
            }
        }
    }
    p->pointers[p->out_grid] = count;
}

/* ---- Tiles ---- */

tartan_i_cpu_finished tartan_i_cpu_finished_row(const tartan_i_cpu_forward *p,
                                                const tartan_i_cpu_piece *piece, int64_t i) {
    const tartan_i_cpu_line *l = p->lines;
    return (tartan_i_cpu_finished){.n = piece->n,
                                   .d = l[0].first + (piece->origin[0] + i / piece->size[1]) * l[0].step,
                                   .h = l[1].first + (piece->origin[1] + i % piece->size[1]) * l[1].step,
                                   .w = l[2].first + piece->origin[2] * l[2].step,
                                   .w_step = l[2].step,
                                   .count = piece->size[2]};
}

static void run_task(void *data, int32_t worker) {
    const plan *p = data;
    const bool lanes = p->box == TARTAN_I_BOX_LANES;
    char *own = p->own + worker * p->own_bytes;
    tartan_i_cpu_tile w = {.p = p, .box = own};
    w.sums = (tartan_i_cpu_sums){own + p->box_bytes, lanes ? p->most_sums : 1, lanes ? 1 : p->width};
    w.all = (tartan_i_cpu_sums){own + p->box_bytes + p->sums_bytes, lanes ? p->most_sums : 1,
                                lanes ? 1 : p->to.side->count};
    own += p->box_bytes + p->sums_bytes + p->all_bytes;
    w.pairs = (tartan_i_pair *)(void *)own;
    w.spans = (tartan_i_cpu_span *)(void *)(w.pairs + p->longest);
    w.vectors = (int64_t *)(void *)(w.spans + p->most_lines);
    w.computed = w.vectors + p->most_vectors;
    if (p->depthwise) {
        w.sums.slot = 1, w.sums.position = p->to.side->count;
        if (!p->packed) memset(w.box, 0, (size_t)p->box_bytes);
    }
    for (;;) {
        if (tartan_i_stop(p->context)) break;
        const int64_t task = __atomic_fetch_add(p->taken, 1, __ATOMIC_RELAXED);
        const int64_t piece = task / p->groups;
        int64_t begin, end;
        if (piece >= p->npieces) break;
        tartan_i_share(p->out_grid, (int32_t)p->groups, (int32_t)(task % p->groups), &begin, &end);
        p->compute(&w, &p->pieces[piece], begin, end);
    }
}

/* ---- The plan ---- */

tartan_i_cpu_forward tartan_i_cpu_conv_plan(const tartan_context *context, const tartan_op_conv *op,
                                            tartan_i_cpu_box box) {
    const tartan_conv *conv = op->conv;
    const tartan_layout *l = op->filter->layout;
    const tartan_i_channels *in = op->adjoint ? &conv->rows : &conv->cols,
                            *out = op->adjoint ? &conv->cols : &conv->rows;
    plan p = {.context = context,
              .op = op,
              .k = tartan_i_cpu_kernels(op->filter->dtype),
              .from = tartan_i_cpu_image_of(op->from, in),
              .to = tartan_i_cpu_image_of(op->to, out),
              .box = box,
              .packed = true,
              .rows = 1,
              .together = out->repeats};
    *(op->active_from ? &p.map : &p.windows) = tartan_i_cpu_active_of(op->active, &op->windows);
    p.in_block = op->adjoint ? l->shape.block_rows : l->shape.block_cols;
    p.out_block = op->adjoint ? l->shape.block_cols : l->shape.block_rows;
    p.in_grid = op->adjoint ? l->grid_rows : tartan_i_conv_grid(conv);
    p.out_grid = op->adjoint ? tartan_i_conv_grid(conv) : l->grid_rows;
    const int64_t row = tartan_i_block_row_stride(op->filter), col = tartan_i_block_col_stride(op->filter);
    p.out_stride = op->adjoint ? col : row;
    p.iitem = op->adjoint ? row : col;
    p.width =
        box == TARTAN_I_BOX_VECTORS ? tartan_i_ceil_div(p.out_block, p.k.lanes) * p.k.lanes : p.out_block;
    return p;
}

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
    p->tiling =
        tartan_i_cpu_tiling_of(p->lines, most, p->planes ? 1 : p->from.side->slots, p->box, p->k.lanes,
                               p->planes                        ? PLANE_REALS
                               : p->box == TARTAN_I_BOX_VECTORS ? VECTORS_REALS
                                                                : BOX_REALS);
}

static int64_t aligned(int64_t bytes) {
    return tartan_i_ceil_div(bytes, 64) * 64;
}

/* What a worker needs, with boxes of `reals` reals. */
static void size_own(plan *p, int64_t reals) {
    const int64_t bytes = p->k.bytes, channels = p->to.side->count;
    if (p->depthwise) /* rows of taps take the place of pairs */
        p->longest = tartan_i_ceil_div(p->op->conv->options.taps * (int64_t)sizeof(tartan_i_tap_row),
                                       (int64_t)sizeof(tartan_i_pair));
    for (int64_t r = 0; !p->depthwise && r < p->out_grid; r++) {
        int64_t entries = 0, begin, end;
        for (int64_t t = 0; t < (p->op->adjoint ? p->op->conv->options.taps : 1); t++) {
            list_of(p, r, t, &begin, &end);
            entries += end - begin;
        }
        if (entries > p->longest) p->longest = entries;
    }
    if (p->box == TARTAN_I_BOX_VECTORS) p->longest *= p->in_block / p->k.lanes + 2;
    p->box_bytes = aligned((p->packed ? reals : channels) * bytes);
    p->sums_bytes = aligned(p->most_sums * (p->depthwise ? channels : p->rows * p->width) * bytes);
    p->all_bytes = aligned(p->together ? p->most_sums * channels * bytes : 0);
    p->own_bytes = p->box_bytes + p->sums_bytes + p->all_bytes +
                   aligned(p->longest * (int64_t)sizeof(tartan_i_pair) +
                           p->most_lines * (int64_t)sizeof(tartan_i_cpu_span) +
                           2 * p->most_vectors * (int64_t)sizeof(int64_t));
}

/* Gets room for the greediest phase. */
static tartan_status get_memory(plan *p, int64_t phases) {
    const tartan_layout *l = p->op->filter->layout;
    const int64_t map = tartan_i_cpu_active_bytes(&p->map, &p->from);
    int64_t pieces = 0, reals = 0;
    char *memory;
    if (p->op->adjoint) PASS(tartan_i_layout_columns(l, &p->columns));
    for (int64_t phase = 0; phase < phases; phase++) {
        take_phase(p, phase);
        const int64_t here = tartan_i_cpu_most_pieces(p->lines, &p->tiling, p->from.count, &p->windows);
        if (here > pieces) pieces = here;
        if (p->tiling.box_reals > reals) reals = p->tiling.box_reals;
        const int64_t lines = p->tiling.tile[0] * p->tiling.tile[1],
                      vectors = lines * tartan_i_ceil_div(p->tiling.tile[2], p->k.lanes);
        if (lines > p->most_lines) p->most_lines = lines;
        if (vectors > p->most_vectors) p->most_vectors = vectors;
        const int64_t sums = p->depthwise                   ? p->tiling.tile[2]
                             : p->box == TARTAN_I_BOX_LANES ? vectors * p->k.lanes
                                                            : lines * p->tiling.tile[2];
        if (sums > p->most_sums) p->most_sums = sums;
    }
    size_own(p, reals);
    const int64_t finish = tartan_i_cpu_finish_bytes(&p->finish);
    PASS(tartan_i_workspace_get(
        p->context, TARTAN_I_ROOM_LISTS, &memory,
        (p->out_grid + 1) * (int64_t)sizeof *p->pointers + (l->blocks + 1) * (int64_t)sizeof *p->entries, 1));
    p->pointers = (int64_t *)(void *)memory;
    p->entries = (tartan_i_cpu_entry *)(void *)(memory + (p->out_grid + 1) * (int64_t)sizeof *p->pointers);
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_TEAM, &p->taken, 1, 64));
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_PIECES, &p->pieces, pieces, sizeof *p->pieces));
    if (p->depthwise || p->op->filter->dtype != p->k.dtype || p->out_stride != 1 || p->width != p->out_block)
        PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_PANEL, &p->weights, l->blocks,
                                    p->in_block * p->width * p->k.bytes));
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_SUMS, &memory, aligned(finish) + map, 1));
    tartan_i_cpu_finish_fill(&p->finish, memory);
    tartan_i_cpu_active_fill(&p->map, &p->from, memory + aligned(finish));
    return tartan_i_workspace_get(p->context, TARTAN_I_ROOM_OWN, &p->own, p->own_bytes, p->context->threads);
}

tartan_status tartan_i_cpu_conv_run(tartan_i_cpu_forward *p) {
    const tartan_context *context = p->context;
    const tartan_op_conv *op = p->op;
    if (tartan_i_array_is_empty(op->to)) return TARTAN_OK;
    p->finish = tartan_i_cpu_finish_of(op, &p->k, &p->to);
    const int32_t workers = context->threads;
    int64_t phases = 1;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        phases *= tartan_i_cpu_line_phases(&op->geometry, op->adjoint, d);
    const tartan_status status = get_memory(p, phases);
    const double flops = tartan_i_op_flops(&(tartan_op){.kind = TARTAN_OP_CONV, .conv = *op});
    const double moved = (double)tartan_i_array_elements(op->from) + (double)tartan_i_array_elements(op->to);
    if (status == TARTAN_OK && p->weights != NULL)
        tartan_i_parallel(context, workers, tartan_i_stored_elements(op->filter) * TARTAN_I_CPU_MOVE, p->pack,
                          p);
    for (int64_t phase = 0; status == TARTAN_OK && phase < phases; phase++) {
        take_phase(p, phase);
        if (!p->depthwise) list_blocks(p);
        p->npieces =
            tartan_i_cpu_pieces(p->lines, &p->tiling, p->from.count, p->to.size, &p->windows, p->pieces);
        p->groups =
            p->together || (p->depthwise && !p->planes) || p->npieces >= GROUPS * workers || p->npieces == 0
                ? 1
                : tartan_i_ceil_div(GROUPS * workers, p->npieces);
        if (workers == 1) p->groups = 1;
        *p->taken = 0;
        tartan_i_parallel(context, workers, (flops + moved * TARTAN_I_CPU_MOVE) / (double)phases, run_task,
                          p);
    }
    tartan_i_workspace_end(context);
    return status;
}
