/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of convolution cannot do. */
#include "conv_jobs.h"
#include "conv_steps.h"
#include "dtype.h"
#include "refuse.h"

static bool is_small(const tartan_cuda_image *x) {
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        if (x->size[d] > TARTAN_CUDA_IMAGE_SIDE) return false;
    return true;
}

const char *tartan_cuda_conv_wgmma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_conv *p = problem;
    const tartan_cuda_slots *from = &p->from_slots, *to = &p->to_slots;
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    if (!tartan_cuda_is_half(p->dtype)) return "only for float16 and bfloat16";
    if (p->from.dtype != p->dtype) return "only for images of the filter's dtype";
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        if (p->adjoint && p->taps.stride[d] != 1) return "input gradients only of strides of 1";
        if (d > 0 && p->taps.stride[d] > TARTAN_CUDA_CONV_STRIDE) return "only for strides up to 8";
    }
    if (from->channels->of != NULL || to->channels->of != NULL) return "only for channels without sets";
    if (from->edge % 8 != 0 || to->edge % 8 != 0) return "only for blocks whose edges are multiples of 8";
    if (p->from.channels % 8 != 0) return "only for multiples of 8 channels to read";
    if (p->layout->blocks == 0) return "the layout has no blocks";
    if (p->from.size[0] * p->from.size[1] * p->from.size[2] == 0) return "x has no elements";
    if (!is_small(&p->from) || !is_small(&p->to) || p->entries > INT32_MAX)
        return "only for images of fewer than 2^30 pixels a side";
    if ((uintptr_t)p->values % 16 != 0) return "the filter's address is no multiple of 16 bytes";
    if ((double)p->layout->blocks * from->edge * to->edge / 8 > INT32_MAX)
        return "only for filters of fewer than 2^34 weights";
    const tartan_cuda_conv_form form = tartan_cuda_conv_form_of(p);
    const tartan_layout *active = p->active_from ? NULL : p->active.layout;
    double planes = (double)p->entries * (double)p->to.size[0];
    if (active != NULL) {
        planes = (double)active->blocks * (double)p->active.size[0];
        if ((double)active->shape.heads * (double)active->grid_rows * (double)active->grid_cols > 2e9)
            return "only for fewer than 2e9 windows";
    }
    if (planes * form.row_blocks * form.strips * (double)(to->grid * to->edge / TARTAN_CUDA_CONV_GROUP + 1) >
        2e9)
        return "only for fewer than 2e9 tiles";
    return NULL;
}

const char *tartan_cuda_conv_filter_gradient_mma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_conv_filter_gradient *p = problem;
    if (!tartan_cuda_is_half(p->dtype)) return "only for float16 and bfloat16";
    if (p->in.dtype != p->dtype || p->out.dtype != p->dtype) return "only for images of one dtype";
    if (p->rows.channels->of != NULL || p->cols.channels->of != NULL) return "only for channels without sets";
    if (p->rows.edge % 8 != 0 || p->cols.edge % 8 != 0)
        return "only for blocks whose edges are multiples of 8";
    if (p->in.channels % 8 != 0 || p->out.channels % 8 != 0) return "only for multiples of 8 channels";
    if (p->entries * p->out.size[0] * p->out.size[1] * p->out.size[2] == 0 ||
        p->in.size[0] * p->in.size[1] * p->in.size[2] == 0)
        return "an image has no elements";
    if (!is_small(&p->in) || !is_small(&p->out) || p->entries > INT32_MAX)
        return "only for images of fewer than 2^30 pixels a side";
    if ((double)p->layout->blocks * p->rows.edge * p->cols.edge > INT32_MAX)
        return "only for filters of fewer than 2^31 weights";
    const tartan_layout *active = p->active.layout;
    if (active != NULL &&
        (double)active->shape.heads * (double)active->grid_rows * (double)active->grid_cols > 2e9)
        return "only for fewer than 2e9 windows";
    const tartan_cuda_conv_job_form form = tartan_cuda_conv_job_form_of(p);
    if (form.shared > chip->shared_bytes) return "needs more shared memory than a CTA may have";
    if ((double)p->entries * (double)p->out.size[0] * form.tiles_h * form.tiles_w > 2e9)
        return "only for fewer than 2e9 tiles";
    return NULL;
}
