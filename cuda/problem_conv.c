/* SPDX-License-Identifier: Apache-2.0
 * The problems of convolution. */
#include "problem.h"

#include "backend/operation.h"

static tartan_cuda_image image_of(const tartan_array *a) {
    tartan_cuda_image image = {.data = a->data,
                               .dtype = a->dtype,
                               .entry = a->strides[0],
                               .channel = a->strides[1],
                               .channels = a->shape[1],
                               .size = {1, 1, 1}};
    const int32_t dims = a->ndim - 2;
    for (int32_t d = 0; d < dims; d++) {
        image.size[TARTAN_I_DIMS - dims + d] = a->shape[2 + d];
        image.step[TARTAN_I_DIMS - dims + d] = a->strides[2 + d];
    }
    return image;
}

static tartan_cuda_taps taps_of(const tartan_i_geometry *g) {
    tartan_cuda_taps taps = {.taps = 1};
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        taps.kernel[d] = g->kernel[d];
        taps.stride[d] = g->stride[d];
        taps.dilation[d] = g->dilation[d];
        taps.before[d] = g->before[d];
        taps.taps *= g->kernel[d];
    }
    return taps;
}

static tartan_cuda_slots rows_of(const tartan_conv *conv, const tartan_matrix *filter) {
    const tartan_layout *l = conv->layout;
    return (tartan_cuda_slots){&conv->rows, l->grid_rows, (int32_t)l->shape.block_rows,
                               (int32_t)tartan_i_block_row_stride(filter)};
}

static tartan_cuda_slots cols_of(const tartan_conv *conv, const tartan_matrix *filter) {
    return (tartan_cuda_slots){&conv->cols, tartan_i_conv_grid(conv), (int32_t)conv->layout->shape.block_cols,
                               (int32_t)tartan_i_block_col_stride(filter)};
}

/* Windows of an image. Sizes count only as far as a window can reach inside the image. */
static tartan_cuda_active active_of(const tartan_layout *layout, const tartan_i_windows *w,
                                    const tartan_cuda_image *image) {
    tartan_cuda_active active = {.layout = layout};
    if (layout == NULL) return active;
    active.dynamic = tartan_i_is_dynamic(layout);
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const int32_t from = d - (TARTAN_I_DIMS - w->dims);
        active.count[d] = from < 0 ? 1 : w->count[from];
        active.size[d] = from < 0 ? 1 : w->size[from];
        active.stride[d] = from < 0 ? 1 : w->stride[from];
        active.offset[d] = from < 0 ? 0 : w->offset[from];
        const int64_t inside = image->size[d] - active.offset[d];
        if (active.size[d] > inside) active.size[d] = inside > 1 ? inside : 1;
    }
    return active;
}

static tartan_cuda_channel_scalars scalars_of(const tartan_array *a) {
    if (a == NULL) return (tartan_cuda_channel_scalars){0};
    const bool classes = a->ndim == 2;
    return (tartan_cuda_channel_scalars){a->data, classes && a->shape[0] > 1 ? a->strides[0] : 0,
                                         a->strides[classes]};
}

/* Whether `count` lines at distances of `step` follow each other in memory as one line. */
static bool follows(const tartan_cuda_image *x, int64_t count, int64_t step) {
    return count == 1 || step == x->size[TARTAN_I_DIMS - 1] * x->step[TARTAN_I_DIMS - 1];
}

/* With one tap and no strides, positions are only a list; they are taken as one line if they follow each other in memory. A
 * line divides into tiles without a remainder at the end of each row. */
static void fold_positions(tartan_cuda_conv *p) {
    enum { LAST = TARTAN_I_DIMS - 1 };
    if (p->taps.taps > 1 || p->active.layout != NULL || p->edges != NULL) return;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        if (p->from.size[d] != p->to.size[d] || p->taps.stride[d] > 1 || p->taps.before[d] != 0) return;
    tartan_cuda_image *const images[] = {&p->from, &p->to};
    for (int32_t d = LAST - 1; d >= -1; d--) { /* -1: the images of the batch */
        const int64_t count = d < 0 ? p->entries : p->to.size[d];
        if (count * p->to.size[LAST] > TARTAN_CUDA_IMAGE_SIDE) return;
        for (int i = 0; i < 2; i++)
            if (!follows(images[i], count, d < 0 ? images[i]->entry : images[i]->step[d])) return;
        for (int i = 0; i < 2; i++) {
            images[i]->size[LAST] *= count;
            if (d >= 0) images[i]->size[d] = 1, images[i]->step[d] = 0;
        }
        if (d < 0) p->entries = 1;
    }
}

static tartan_status make_depthwise(const tartan_layout *l, void *user, void **out) {
    const tartan_host *host = user;
    bool *depthwise = NULL;
    PASS(host->allocate(&depthwise, 1, sizeof *depthwise));
    *depthwise = l->blocks > 0;
    for (int64_t id = 0; *depthwise && id < l->blocks; id++)
        *depthwise = l->block_rows[id] % 8 == l->block_cols[id] % 8;
    *out = depthwise;
    return TARTAN_OK;
}

/* Whether blocks are single elements whose rows and columns are equal modulo 8, as in depthwise filters; found on first use and
 * kept in the layout as a plan. */
static tartan_status find_depthwise(const tartan_host *host, const tartan_layout *layout, bool *out) {
    static const char maker = 0; /* names this function among the makers of plans */
    const tartan_i_plan_key key = {&maker, -1, 0};
    void *plan = NULL;
    *out = false;
    if (layout->shape.block_rows != 1 || layout->shape.block_cols != 1 || tartan_i_is_dynamic(layout))
        return TARTAN_OK;
    PASS(host->plan(layout, &key, make_depthwise, (void *)host, host->free, &plan));
    *out = *(const bool *)plan;
    return TARTAN_OK;
}

tartan_status tartan_cuda_conv_of(const tartan_host *host, const tartan_context *context, const void *of,
                                  void *to) {
    const tartan_op_conv *op = of;
    tartan_cuda_conv *out = to;
    const tartan_cuda_slots rows = rows_of(op->conv, op->filter), cols = cols_of(op->conv, op->filter);
    tartan_cuda_conv p = {.dtype = op->filter->dtype,
                          .entries = op->to->shape[0],
                          .taps = taps_of(&op->geometry),
                          .tf32 = context->options.tf32,
                          .adjoint = op->adjoint,
                          .per_tap = op->conv->options.per_tap,
                          .from = image_of(op->from),
                          .to = image_of(op->to),
                          .from_slots = op->adjoint ? rows : cols,
                          .to_slots = op->adjoint ? cols : rows,
                          .values = op->filter->values,
                          .layout = op->conv->layout,
                          .gain = scalars_of(op->gain),
                          .bias = scalars_of(op->bias),
                          .geometry = &op->geometry,
                          .edges = op->edges,
                          .relu = op->relu,
                          .bias_first = op->bias_first,
                          .add = op->add,
                          .active_from = op->active != NULL && op->active_from};
    p.active = active_of(op->active, &op->windows, p.active_from ? &p.from : &p.to);
    p.nothing = tartan_i_array_is_empty(op->to) ||
                (op->active != NULL && !op->active_from && op->active->blocks == 0);
    if (!p.nothing) fold_positions(&p);
    PASS(find_depthwise(host, p.layout, &p.depthwise));
    PASS(tartan_cuda_figures_get(host, p.layout, &p.figures));
    *out = p;
    return TARTAN_OK;
}

tartan_status tartan_cuda_conv_filter_gradient_of(const tartan_host *host, const tartan_context *context,
                                                  const void *of, void *to) {
    const tartan_op_conv_filter_gradient *op = of;
    tartan_cuda_conv_filter_gradient *out = to;
    /* x of 16 bits may have a y_grad of f32. */
    const int32_t dtype = op->in->dtype == TARTAN_F32 ? op->out->dtype : op->in->dtype;
    *out = (tartan_cuda_conv_filter_gradient){.dtype = dtype,
                                              .tf32 = context->options.tf32,
                                              .per_tap = op->conv->options.per_tap,
                                              .s_dtype = op->filter_grad->dtype,
                                              .entries = op->in->shape[0],
                                              .taps = taps_of(&op->geometry),
                                              .in = image_of(op->in),
                                              .out = image_of(op->out),
                                              .cols = cols_of(op->conv, op->filter_grad),
                                              .rows = rows_of(op->conv, op->filter_grad),
                                              .values = op->filter_grad->values,
                                              .layout = op->conv->layout,
                                              .beta = op->beta,
                                              .active_in = op->active != NULL && op->active_in,
                                              .nothing = op->conv->layout->blocks == 0};
    out->active = active_of(op->active, &op->windows, out->active_in ? &out->in : &out->out);
    PASS(find_depthwise(host, out->layout, &out->depthwise));
    return tartan_cuda_figures_get(host, out->layout, &out->figures);
}
