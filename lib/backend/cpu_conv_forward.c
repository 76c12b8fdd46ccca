/* SPDX-License-Identifier: Apache-2.0
 * Convolution on the CPU, forward or adjoint, by blocks of channels: lanes are slots of the output, or positions. */
#include "backend/cpu_conv_forward.h"
#include "core/interrupt.h"

#include <string.h>

/* Vectors of results that rows of blocks store together. */
enum { GROUPED_VECTORS = 4 };

typedef tartan_i_cpu_forward plan;

/* Packs the weights of a share of the blocks as [in slot][out slot]. */
static void pack_task(void *data, int32_t worker) {
    const plan *p = data;
    const tartan_matrix *f = p->op->filter;
    const int64_t block = p->in_block * p->width * p->k.bytes;
    int64_t begin, end;
    tartan_i_share(f->layout->blocks, p->context->threads, worker, &begin, &end);
    if (p->width > p->out_block) memset(p->weights + begin * block, 0, (size_t)((end - begin) * block));
    for (int64_t id = begin; id < end; id++)
        tartan_i_pack(&p->k, f->dtype, tartan_i_block_at(f, id), p->iitem, p->out_stride, p->in_block,
                      p->out_block, p->weights + id * block, p->width);
}

/* ---- Tiles ---- */

/* The sums from position `at` on. */
static tartan_i_cpu_sums sums_at(const plan *p, tartan_i_cpu_sums sums, int64_t at) {
    sums.data += at * sums.position * p->k.bytes;
    return sums;
}

/* Results of the rows of blocks from `begin` to `end` at all positions of a piece. Where several of them have slots of one
 * channel, they are all added up first. */
static void run_piece(tartan_i_cpu_tile *w, const tartan_i_cpu_piece *piece, int64_t begin, int64_t end) {
    const plan *p = w->p;
    const int64_t lines = piece->size[0] * piece->size[1];
    if (tartan_i_cpu_tile_begin(w, piece))
        tartan_i_cpu_pack_box(&p->k, p->lines, &p->tiling, &p->from, &p->map, piece, 0,
                              tartan_i_cpu_box_rows(p->lines, piece), w->box);
    if (p->together) memset(w->all.data, 0, (size_t)p->all_bytes);
    const tartan_i_cpu_sums first_sums = w->sums;
    for (int64_t row = begin, some; row < end && !tartan_i_stop(p->context); row += some) {
        const int64_t first = row * p->out_block;
        bool in_place = false;
        some = end - row < p->rows ? end - row : p->rows;
        for (int64_t r = 0; r < some; r++) {
            w->sums.data = first_sums.data + r * p->out_block * first_sums.slot * p->k.bytes;
            in_place = tartan_i_cpu_tile_row(w, piece, row + r);
        }
        w->sums = first_sums;
        for (int64_t i = 0; i < lines; i++) {
            const tartan_i_cpu_finished f = tartan_i_cpu_finished_row(p, piece, i);
            const tartan_i_cpu_sums sums = sums_at(p, w->sums, w->spans[i].at);
            if (in_place)
                tartan_i_cpu_finish_in_place(&p->finish, &f, first, p->out_block);
            else if (p->together)
                tartan_i_cpu_finish_add(&p->finish, f.count, first, p->out_block, sums,
                                        sums_at(p, w->all, w->spans[i].at));
            else
                tartan_i_cpu_finish_slots(&p->finish, &f, first, some * p->out_block, sums);
        }
    }
    for (int64_t i = 0; p->together && i < lines; i++) {
        const tartan_i_cpu_finished f = tartan_i_cpu_finished_row(p, piece, i);
        tartan_i_cpu_finish_channels(&p->finish, &f, sums_at(p, w->all, w->spans[i].at));
    }
}

/* ---- The rows ---- */

/* Output slots of a block. */
static int64_t out_block(const tartan_op_conv *op) {
    const tartan_shape *s = &op->filter->layout->shape;
    return op->adjoint ? s->block_cols : s->block_rows;
}

static const char *refuse_channels(const tartan_op_conv *op, int64_t lanes) {
    const int64_t block = out_block(op), width = tartan_i_ceil_div(block, lanes) * lanes;
    return 5 * block >= 4 * width ? NULL : "blocks have too few output channels to fill vectors";
}

const char *tartan_i_cpu_conv_channels_in_place_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    const tartan_op_conv *op = &any->conv;
    const tartan_i_kernels *k = tartan_i_cpu_table_of(tartan_i_sum_dtype(op->filter->dtype));
    const tartan_i_channels *out = op->adjoint ? &op->conv->cols : &op->conv->rows;
    const char *why = refuse_channels(op, k->lanes);
    if (why != NULL) return why;
    if (out_block(op) % k->lanes != 0) return "the output channels of a block are not whole vectors";
    if (out->repeats) return "blocks share output channels, which are summed first";
    if (op->active != NULL && op->active_from) return "the input is limited to active windows";
    if (op->add) return "results are added to old values";
    if (op->to->dtype != k->dtype) return "results are converted when they are stored";
    if (out->of != NULL || tartan_i_cpu_image_of(op->to, out).channel != 1)
        return "output channels are not contiguous in memory";
    return NULL;
}

static tartan_status run(plan *p) {
    p->pack = pack_task;
    p->compute = run_piece;
    return tartan_i_cpu_conv_run(p);
}

tartan_status tartan_i_cpu_conv_channels_in_place(const tartan_context *context, const tartan_op *any) {
    plan p = tartan_i_cpu_conv_plan(context, &any->conv, TARTAN_I_BOX_VECTORS);
    p.in_place = true;
    return run(&p);
}

const char *tartan_i_cpu_conv_channels_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    return refuse_channels(&any->conv,
                           tartan_i_cpu_table_of(tartan_i_sum_dtype(any->conv.filter->dtype))->lanes);
}

tartan_status tartan_i_cpu_conv_channels(const tartan_context *context, const tartan_op *any) {
    plan p = tartan_i_cpu_conv_plan(context, &any->conv, TARTAN_I_BOX_VECTORS);
    return run(&p);
}

tartan_status tartan_i_cpu_conv_positions(const tartan_context *context, const tartan_op *any) {
    plan p = tartan_i_cpu_conv_plan(context, &any->conv, TARTAN_I_BOX_LANES);
    /* Positions that get a few channels each are written line by line of memory, not block by block. */
    const bool scattered = p.to.channel == 1 && p.to.side->of == NULL;
    if (scattered) p.rows = tartan_i_ceil_div(GROUPED_VECTORS * p.k.lanes, p.out_block);
    return run(&p);
}
