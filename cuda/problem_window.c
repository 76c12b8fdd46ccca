/* SPDX-License-Identifier: Apache-2.0
 * The problems of windows. */
#include "problem.h"

#include "backend/operation.h"

tartan_status tartan_cuda_window_pool_of(const tartan_host *host, const tartan_context *context,
                                         const void *of, void *to) {
    const tartan_op_window_pool *op = of;
    tartan_cuda_window_pool *out = to;
    (void)host;
    (void)context;
    *out = (tartan_cuda_window_pool){.mask = tartan_i_image_of(op->mask, false),
                                     .windows = tartan_i_windows_leading(op->windows),
                                     .average = op->average,
                                     .tolerance = op->tolerance,
                                     .active = op->active->data};
    const int64_t *count = out->windows.count;
    out->all = out->mask.count * count[0] * count[1] * count[2];
    out->nothing = out->all == 0;
    return TARTAN_OK;
}

tartan_status tartan_cuda_window_gather_of(const tartan_host *host, const tartan_context *context,
                                           const void *of, void *to) {
    const tartan_op_window_gather *op = of;
    tartan_cuda_window_gather *out = to;
    (void)host;
    (void)context;
    *out = (tartan_cuda_window_gather){.layout = op->active,
                                       .windows = tartan_i_windows_leading(&op->windows),
                                       .image = tartan_i_image_of(op->x, true),
                                       .blocks = tartan_i_image_of(op->blocks, true),
                                       .outside = op->outside};
    out->nothing = out->blocks.count == 0 || out->blocks.channels == 0;
    return TARTAN_OK;
}

static bool is_empty(const tartan_i_image *image) {
    return image->count * image->channels == 0 || image->size[0] == 0 || image->size[1] == 0 ||
           image->size[2] == 0;
}

tartan_status tartan_cuda_window_scatter_of(const tartan_host *host, const tartan_context *context,
                                            const void *of, void *to) {
    const tartan_op_window_scatter *op = of;
    tartan_cuda_window_scatter *out = to;
    (void)host;
    (void)context;
    *out = (tartan_cuda_window_scatter){.layout = op->active,
                                        .windows = tartan_i_windows_leading(&op->windows),
                                        .image = tartan_i_image_of(op->y, true),
                                        .add = op->add,
                                        .relu = op->relu,
                                        .overlap = tartan_i_windows_overlap(&op->windows),
                                        .zeros = op->blocks == NULL,
                                        .based = op->base != NULL};
    if (op->blocks != NULL) out->blocks = tartan_i_image_of(op->blocks, true);
    if (op->base != NULL) out->base = tartan_i_image_of(op->base, true);
    out->nothing = is_empty(&out->image) || (!out->based && op->active->blocks == 0);
    return TARTAN_OK;
}
