/* SPDX-License-Identifier: Apache-2.0
 * Depthwise convolutions on the CPU of images whose rows are contiguous, channel by channel: lanes are neighbours in a row. A channel of
 * a tile is packed with zeros around it, so that it has no edges. Chains are the same as in the other forms. */
#include "backend/cpu_conv_forward.h"

static void pack_task(void *data, int32_t worker) {
    const tartan_i_cpu_forward *p = data;
    const tartan_matrix *f = p->op->filter;
    if (worker == 0) p->k.load[f->dtype](f->layout->blocks, tartan_i_block_at(f, 0), p->weights);
}

/* Positions [*begin, *end) of a box of `length`, which begins at `origin`, that are in an image of this size. */
static void clip(int64_t origin, int64_t length, int64_t size, int64_t *begin, int64_t *end) {
    *begin = origin < 0 ? -origin : 0;
    *end = size - origin < length ? size - origin : length;
    if (*end < *begin) *begin = *end = 0;
}

/* What all channels of a piece have in common; those of the first. */
static tartan_i_plane plane_of(const tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece) {
    const tartan_i_cpu_forward *p = tile->p;
    const tartan_i_cpu_line *high = &p->lines[1], *wide = &p->lines[2];
    const tartan_i_cpu_finished f = tartan_i_cpu_finished_row(p, piece, 0);
    tartan_i_plane s = {.in_dtype = p->from.dtype,
                        .out_dtype = p->to.dtype,
                        .x_row = p->from.step[1],
                        .box = tile->box,
                        .box_rows = piece->size[1] + high->span,
                        .box_cols = piece->size[2] + wide->span,
                        .rows = piece->size[1],
                        .cols = piece->size[2],
                        .tap_rows = high->taps,
                        .tap_cols = wide->taps,
                        .col_step = wide->offset_step,
                        .out = tartan_i_cpu_finish_place(&p->finish, &f, 0).data,
                        .out_row = p->to.step[1],
                        .scaled = p->finish.gain != NULL,
                        .bias_first = p->op->bias_first,
                        .relu = p->op->relu};
    const int64_t d = piece->origin[1] + high->low, w = piece->origin[2] + wide->low;
    int64_t first = (high->offset - high->low) * s.box_cols + wide->offset - wide->low;
    clip(d, s.box_rows, p->from.size[1], &s.row_begin, &s.row_end);
    clip(w, s.box_cols, p->from.size[2], &s.col_begin, &s.col_end);
    s.x = p->from.data +
          (piece->n * p->from.item + (d + s.row_begin) * p->from.step[1] + w + s.col_begin) * p->from.bytes;
    s.step = s.box_cols;
    if (high->offset_step < 0) { /* from the last row to the first, taps go on in the direction of rows */
        first += (s.rows - 1) * s.step;
        s.out = (char *)s.out + (s.rows - 1) * s.out_row * p->to.bytes;
        s.step = -s.step;
        s.out_row = -s.out_row;
    }
    s.first = tile->box + first * p->k.bytes;
    return s;
}

static void run_piece(tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, int64_t begin, int64_t end) {
    const tartan_i_cpu_forward *p = tile->p;
    const tartan_i_plane all = plane_of(tile, piece);
    for (int64_t channel = begin; channel < end; channel++) {
        tartan_i_plane s = all;
        s.x = (const char *)s.x + channel * p->from.channel * p->from.bytes;
        s.out = (char *)s.out + channel * p->to.channel * p->to.bytes;
        s.weights = p->weights + channel * s.tap_rows * s.tap_cols * p->k.bytes;
        if (s.scaled) {
            s.gain = tartan_i_load(p->finish.gain, p->k.dtype, channel);
            s.bias = tartan_i_load(p->finish.bias, p->k.dtype, channel);
        }
        p->k.plane_pack(&s);
        p->k.plane_products(&s);
    }
}

const char *tartan_i_cpu_conv_depthwise_planes_refuses(const tartan_context *context, const tartan_op *any) {
    const tartan_op_conv *op = &any->conv;
    const tartan_i_geometry *g = &op->geometry;
    const tartan_i_image from =
                             tartan_i_cpu_image_of(op->from, op->adjoint ? &op->conv->rows : &op->conv->cols),
                         to = tartan_i_cpu_image_of(op->to, op->adjoint ? &op->conv->cols : &op->conv->rows);
    const tartan_i_kernels k = tartan_i_cpu_kernels(op->filter->dtype);
    (void)context;
    if (op->filter->layout->shape.block_rows != 1 || op->filter->layout->shape.block_cols != 1)
        return "the filter is not depthwise"; /* the usual answer, before anything that takes time */
    if (op->active != NULL && op->active_from) return "the input is limited to active windows";
    if (from.step[2] != 1 || to.step[2] != 1) return "rows are not contiguous in memory";
    if (op->add) return "results are added to old values";
    if (op->edges != NULL) return "positions have gains and biases of their own";
    if (g->kernel[0] != 1 || from.size[0] != 1 || g->before[0] != 0) return "images have three dimensions";
    for (int32_t d = 1; d < TARTAN_I_DIMS; d++)
        if (g->stride[d] != 1 || (g->dilation[d] != 1 && g->kernel[d] > 1))
            return "the taps of neighbours are not neighbours";
    if (2 * to.size[2] < k.lanes) return "rows are too short to fill vectors";
    return tartan_i_cpu_is_depthwise(op->filter->layout, op->conv->options.taps, &from, &to)
               ? NULL
               : "the filter is not depthwise";
}

tartan_status tartan_i_cpu_conv_depthwise_planes(const tartan_context *context, const tartan_op *any) {
    tartan_i_cpu_forward p = tartan_i_cpu_conv_plan(context, &any->conv, TARTAN_I_BOX_SLOTS);
    p.depthwise = true;
    p.planes = true;
    p.pack = pack_task;
    p.compute = run_piece;
    return tartan_i_cpu_conv_run(&p);
}
