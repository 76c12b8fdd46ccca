/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a convolution's filter on the CPU.
 *
 * Tile after tile, in the order of images and positions, the workers pack the tile's part of `out` and its box of `in` together.
 * Then each worker adds the products of its blocks. Rows of the left factor are slots of `out`, vectors of the right one slots of
 * `in`; a strip takes vectors of several taps and blocks. Sums continue from tile to tile, so a result is one chain over all
 * positions, in an order that depends on the shapes alone. */
#include "backend/cpu_conv_gradient.h"
#include "core/interrupt.h"
#include "core/workspace.h"

#include <string.h>

/* Reals of a box of `in`. The box of `out` and some sums share L2 with it. */
enum { BOX_REALS = 96 << 10 };

typedef tartan_i_cpu_gradient plan;

/* Positions of `out` as they are: the box of a tile is the tile. */
static tartan_i_cpu_line plain_line(int64_t count) {
    return (tartan_i_cpu_line){
        .count = count, .step = 1, .from_step = 1, .taps = 1, .tap_step = 1, .offset_step = 1};
}

/* ---- What the rows share ---- */

static void pack_task(void *data, int32_t worker) {
    const plan *p = data;
    const tartan_i_cpu_active none = {.layout = NULL};
    int64_t begin, end;
    tartan_i_share(tartan_i_cpu_box_rows(p->in_lines, p->piece), p->context->threads, worker, &begin, &end);
    tartan_i_cpu_pack_box(&p->k, p->in_lines, &p->in_tiling, &p->in, &p->map, p->piece, begin, end,
                          p->in_box);
    tartan_i_share(tartan_i_cpu_box_rows(p->out_lines, p->piece), p->context->threads, worker, &begin, &end);
    tartan_i_cpu_pack_box(&p->k, p->out_lines, &p->out_tiling, &p->out, &none, p->piece, begin, end,
                          p->out_box);
}

tartan_i_cpu_gradient tartan_i_cpu_conv_gradient_plan(const tartan_context *context,
                                                      const tartan_op_conv_filter_gradient *op) {
    const tartan_i_geometry *g = &op->geometry;
    const tartan_layout *l = op->filter_grad->layout;
    plan p = {.context = context,
              .op = op,
              .k = tartan_i_cpu_kernels(op->in->dtype),
              .layout = l,
              .packed = true,
              .in = tartan_i_cpu_image_of(op->in, &op->conv->cols),
              .out = tartan_i_cpu_image_of(op->out, &op->conv->rows)};
    *(op->active_in ? &p.map : &p.windows) = tartan_i_cpu_active_of(op->active, &op->windows);
    int64_t most[TARTAN_I_DIMS];
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        p.in_lines[d] = tartan_i_cpu_line_of(g, false, d, 0);
        p.out_lines[d] = plain_line(g->out[d]);
        most[d] = g->out[d];
        if (p.windows.layout != NULL && p.windows.windows.size[d] < most[d])
            most[d] = p.windows.windows.size[d];
    }
    p.width = tartan_i_ceil_div(l->shape.block_cols, p.k.lanes) * p.k.lanes;
    p.in_tiling = tartan_i_cpu_tiling_of(p.in_lines, most,
                                         tartan_i_cpu_conv_pitch(p.in.side->slots, l->shape.block_cols),
                                         TARTAN_I_BOX_SLOTS, 1, BOX_REALS);
    p.out_tiling = tartan_i_cpu_tiling_of(p.out_lines, p.in_tiling.tile,
                                          tartan_i_cpu_conv_pitch(p.out.side->slots, l->shape.block_rows),
                                          TARTAN_I_BOX_SLOTS, 1, INT64_MAX);
    return p;
}

/* Bytes of all sums, which start as zeros. */
static int64_t sums_bytes(const plan *p) {
    return p->k.bytes * (p->depthwise ? (p->taps + 1) * p->pitch
                                      : p->layout->blocks * p->layout->shape.block_rows * p->width);
}

static tartan_status get_memory(plan *p) {
    const int64_t pieces = tartan_i_cpu_most_pieces(p->in_lines, &p->in_tiling, p->in.count, &p->windows);
    const int64_t map = tartan_i_cpu_active_bytes(&p->map, &p->in);
    const int64_t rows = p->in_tiling.tile[0] * p->in_tiling.tile[1];
    char *memory;
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_LISTS, &p->pairs, rows, sizeof *p->pairs));
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_PIECES, &p->pieces, pieces, sizeof *p->pieces));
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_SUMS, &p->sums, sums_bytes(p), 1));
    memset(p->sums, 0, (size_t)sums_bytes(p));
    if (!p->packed) return TARTAN_OK;
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_TEAM, &memory, map, 1));
    tartan_i_cpu_active_fill(&p->map, &p->in, memory);
    const int64_t in_bytes = p->in_tiling.box_reals * p->k.bytes,
                  out_bytes = p->out_tiling.box_reals * p->k.bytes;
    PASS(tartan_i_workspace_get(p->context, TARTAN_I_ROOM_PANEL, &p->in_box, in_bytes + out_bytes, 1));
    p->out_box = p->in_box + in_bytes;
    memset(p->in_box, 0, (size_t)(in_bytes + out_bytes)); /* slots without a channel stay 0 */
    return TARTAN_OK;
}

/* The rows of positions of the piece at work. */
static void list_rows(plan *p, const tartan_i_cpu_piece *piece) {
    const tartan_i_cpu_tiling *in = &p->in_tiling, *out = &p->out_tiling;
    p->piece = piece;
    p->npairs = 0;
    for (int64_t i = 0; i < piece->size[0]; i++)
        for (int64_t j = 0; j < piece->size[1]; j++) {
            const int64_t d = i * p->in_lines[0].from_step, h = j * p->in_lines[1].from_step;
            p->pairs[p->npairs++] = (tartan_i_pair){
                .a = p->out_box + (i * out->box[1] + j) * out->box[2] * out->position * p->k.bytes,
                .b = p->in_box + (d * in->box[1] + h) * in->box[2] * in->position * p->k.bytes,
                .k = piece->size[2]};
        }
}

/* Adds the products of all pieces, packed one after the other. */
static void add_packed(plan *p) {
    const int32_t workers = p->context->threads;
    const double elements = tartan_i_stored_elements(p->op->filter_grad);
    for (int64_t i = 0; i < p->npieces && !tartan_i_stop(p->context); i++) {
        const int64_t *size = p->pieces[i].size;
        const double positions = (double)(size[0] * size[1] * size[2]);
        list_rows(p, &p->pieces[i]);
        tartan_i_parallel(p->context, workers, (double)p->in_tiling.box_reals * TARTAN_I_CPU_MOVE, pack_task,
                          p);
        tartan_i_parallel(p->context, workers, 2 * positions * elements, p->add, p);
    }
}

tartan_status tartan_i_cpu_conv_gradient_run(tartan_i_cpu_gradient *p) {
    const tartan_context *context = p->context;
    const tartan_status status = get_memory(p);
    if (status != TARTAN_OK) goto end;
    p->npieces =
        tartan_i_cpu_pieces(p->in_lines, &p->in_tiling, p->in.count, p->out.size, &p->windows, p->pieces);
    if (p->packed) {
        add_packed(p);
    } else {
        const double flops = tartan_i_op_flops(
            &(tartan_op){.kind = TARTAN_OP_CONV_FILTER_GRADIENT, .conv_filter_gradient = *p->op});
        tartan_i_parallel(context, context->threads, flops, p->add, p);
    }
    p->store(p);
end:
    tartan_i_workspace_end(context);
    return status;
}

/* ---- Blocks of channels ---- */

static char *sums_of(const plan *p, int64_t id) {
    return p->sums + id * p->layout->shape.block_rows * p->width * p->k.bytes;
}

/* The products of some vectors of blocks of one row, whose places are in `s`, with all its rows. */
static void add_vectors(const plan *p, int64_t row, tartan_i_spread *s) {
    const tartan_i_kernels *k = &p->k;
    const int64_t block_rows = p->layout->shape.block_rows, first = row * block_rows;
    const int64_t rows = tartan_i_channels_in(p->out.side, first, block_rows),
                  groups = tartan_i_ceil_div(rows, k->spread_rows);
    for (int64_t g = 0; g < groups; g++) {
        int64_t begin, end;
        tartan_i_share(rows, (int32_t)groups, (int32_t)g, &begin, &end);
        s->row = first + begin;
        s->rows = end - begin;
        s->sums = p->sums + begin * p->width * k->bytes;
        k->spread(s, p->pairs, p->npairs);
    }
}

/* Adds the piece's products to the sums of blocks [begin, end). Blocks of one row share its factors. */
static void add_blocks(const plan *p, int64_t begin, int64_t end) {
    const tartan_layout *l = p->layout;
    const tartan_i_kernels *k = &p->k;
    const int64_t grid = tartan_i_conv_grid(p->op->conv), block_rows = l->shape.block_rows,
                  most = tartan_i_spread_most(k, block_rows < k->spread_rows ? block_rows : k->spread_rows);
    tartan_i_spread s = {.a_col = p->out_tiling.position,
                         .b_row = p->in_lines[2].from_step * p->in_tiling.position,
                         .sums_row = p->width};
    for (int64_t id = begin; id < end; id++) {
        const int64_t tap = l->block_cols[id] / grid, col = l->block_cols[id] % grid * l->shape.block_cols;
        int64_t offset = 0;
        tartan_i_cpu_tap_offset(p->in_lines, &p->op->geometry, &p->in_tiling, tap, &offset);
        for (int64_t at = 0; at < p->width; at += k->lanes) {
            s.from[s.vectors] = offset + col + at;
            s.to[s.vectors++] = id * block_rows * p->width + at;
            const bool last =
                at + k->lanes == p->width && (id + 1 == end || l->block_rows[id + 1] != l->block_rows[id]);
            if (s.vectors < most && !last) continue;
            add_vectors(p, l->block_rows[id], &s);
            s.vectors = 0;
        }
    }
}

static void add_task(void *data, int32_t worker) {
    const plan *p = data;
    int64_t begin, end;
    tartan_i_share(p->layout->blocks, p->context->threads, worker, &begin, &end);
    add_blocks(p, begin, end);
}

/* Stores the sums of a share of the blocks. Slots without a channel have gradient 0. */
static void store_task(void *data, int32_t worker) {
    const plan *p = data;
    const tartan_layout *l = p->layout;
    const tartan_matrix *to = p->op->filter_grad;
    const int64_t block_rows = l->shape.block_rows, block_cols = l->shape.block_cols,
                  grid = tartan_i_conv_grid(p->op->conv);
    int64_t begin, end;
    tartan_i_share(l->blocks, p->context->threads, worker, &begin, &end);
    for (int64_t id = begin; id < end; id++) {
        const int64_t row = l->block_rows[id] * block_rows, col = l->block_cols[id] % grid * block_cols;
        const int64_t rows = tartan_i_channels_in(p->out.side, row, block_rows),
                      cols = tartan_i_channels_in(p->in.side, col, block_cols);
        char *sums = sums_of(p, id);
        for (int64_t i = 0; i < block_rows; i++) {
            const int64_t valid = i < rows ? cols : 0;
            memset(sums + (i * p->width + valid) * p->k.bytes, 0,
                   (size_t)((block_cols - valid) * p->k.bytes));
        }
        tartan_i_commit(&p->k, sums, p->width, tartan_i_rows_of(l, l->block_rows[id]), block_cols, 1,
                        p->op->beta, to->dtype, tartan_i_block_at(to, id), tartan_i_block_row_stride(to),
                        tartan_i_block_col_stride(to));
    }
}

static void store(tartan_i_cpu_gradient *p) {
    tartan_i_parallel(p->context, p->context->threads,
                      tartan_i_stored_elements(p->op->filter_grad) * TARTAN_I_CPU_MOVE, store_task, p);
}

tartan_status tartan_i_cpu_conv_filter_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_conv_filter_gradient *op = &any->conv_filter_gradient;
    if (op->filter_grad->layout->blocks == 0) return TARTAN_OK;
    plan p = tartan_i_cpu_conv_gradient_plan(context, op);
    p.add = add_task;
    p.store = store;
    return tartan_i_cpu_conv_gradient_run(&p);
}
