/* SPDX-License-Identifier: Apache-2.0
 * Images of an operation: the library has them as [n, channels, spatial...], Python also without n, or with the channels last. */
#include "operation.h"

#include <string.h>

static bool lacks_batch(const tartan_py_op_call *self, int32_t i) {
    return self->parts[i]->borrow.array.ndim == self->dims + 1;
}

int tartan_py_op_point_image(tartan_py_op_call *self, int32_t i) {
    const int ndim = self->dims + 2;
    const tartan_array *array = &self->parts[i]->borrow.array;
    const int missing = ndim - array->ndim;
    tartan_array *view = &self->views[i];
    if (missing < 0 || missing > 1)
        return tartan_py_fail(TARTAN_ERR_SHAPE,
                              "%s: %s has %d dimensions, expected %d, or %d without a batch", self->of->name,
                              self->of->arguments[i].name, (int)array->ndim, ndim, ndim - 1);
    *view = *array;
    view->ndim = ndim;
    view->shape[0] = view->strides[0] = 1;
    for (int from = 0; from < array->ndim; from++) {
        int to = from + missing;
        if (self->channels_last && to > 0) to = to == ndim - 1 ? 1 : to + 1;
        view->shape[to] = array->shape[from];
        view->strides[to] = array->strides[from];
    }
    if (self->image < 0 && !self->of->arguments[i].output) self->image = i;
    self->pointers[i] = view;
    return 0;
}

/* Whether the channels of [n, channels, spatial...] lie side by side. */
static bool has_channels_last(const tartan_array *view) {
    const int64_t step = view->strides[1];
    bool large = false;
    for (int i = 2; i < view->ndim; i++) {
        if (view->shape[i] == 1) continue;
        if (step > view->strides[i]) return false;
        large = true;
    }
    return large && step == 1;
}

int tartan_py_op_image_shape(const tartan_py_op_call *self, int32_t i, const int64_t *shape, int64_t *out,
                             int *axes) {
    const int missing = self->of->arguments[i].image == TARTAN_PY_IMAGE && lacks_batch(self, self->image),
              ndim = self->dims + 2 - missing, channels = 1 - missing;
    for (int d = 0; d < ndim; d++) {
        out[d] = shape[d + missing];
        axes[d] = d;
    }
    if (self->channels_last) {
        memmove(out + channels, out + channels + 1, (size_t)self->dims * sizeof *out);
        out[ndim - 1] = shape[1];
    } else if (has_channels_last(&self->views[self->image])) {
        for (int d = channels; d < ndim - 1; d++) axes[d] = d + 1;
        axes[ndim - 1] = channels;
    }
    return ndim;
}
