/* SPDX-License-Identifier: Apache-2.0
 * Images and windows in one form for 1, 2 and 3 dimensions: leading dimensions that they do not have are of length 1. */
#ifndef TARTAN_CONV_IMAGE_H
#define TARTAN_CONV_IMAGE_H

#include "conv/windows.h"
#include "core/array.h"

/* An array [n, channels, spatial...], or of stacked windows [windows, channels, size...]; strides in elements. */
typedef struct tartan_i_image {
    char *data;
    int32_t dtype;
    int64_t bytes; /* of an element */
    int64_t count, channels, size[TARTAN_I_MAX_DIMS];
    int64_t item, channel, step[TARTAN_I_MAX_DIMS]; /* strides */
    const struct tartan_i_channels *side; /* the slots of its channels, in convolutions; else NULL */
} tartan_i_image;

/* Without channels, the array is [n, spatial...]. */
static inline tartan_i_image tartan_i_image_of(const tartan_array *array, bool channels) {
    const int32_t first = channels ? 2 : 1, dims = array->ndim - first;
    tartan_i_image image;
    image.data = (char *)array->data;
    image.dtype = array->dtype;
    image.bytes = array->dtype == TARTAN_F64   ? 8
                  : array->dtype == TARTAN_F32 ? 4
                  : array->dtype == TARTAN_U8  ? 1
                                               : 2;
    image.count = array->shape[0];
    image.item = array->strides[0];
    image.channels = channels ? array->shape[1] : 1;
    image.channel = channels ? array->strides[1] : 0;
    image.side = NULL;
    for (int32_t d = 0; d < TARTAN_I_MAX_DIMS; d++) {
        const int32_t from = d - TARTAN_I_MAX_DIMS + dims;
        image.size[d] = from >= 0 ? array->shape[first + from] : 1;
        image.step[d] = from >= 0 ? array->strides[first + from] : 0;
    }
    return image;
}

static inline tartan_i_windows tartan_i_windows_leading(const tartan_i_windows *windows) {
    tartan_i_windows all = *windows;
    for (int32_t d = 0; d < TARTAN_I_MAX_DIMS; d++) {
        const int32_t from = d - TARTAN_I_MAX_DIMS + windows->dims;
        all.count[d] = from >= 0 ? windows->count[from] : 1;
        all.size[d] = from >= 0 ? windows->size[from] : 1;
        all.stride[d] = from >= 0 ? windows->stride[from] : 1;
        all.offset[d] = from >= 0 ? windows->offset[from] : 0;
    }
    all.dims = TARTAN_I_MAX_DIMS;
    return all;
}

/* The part of window i that is inside of dimension d of an image: positions [*begin, *end) of the window; none if they are
 * equal. Returns the position of the window's first element in the image. */
static inline int64_t tartan_i_window_inside(const tartan_i_windows *windows, int32_t d, int64_t i,
                                             int64_t length, int64_t *begin, int64_t *end) {
    const int64_t first = windows->offset[d] + i * windows->stride[d], size = windows->size[d];
    *begin = first < 0 ? (-first < size ? -first : size) : 0;
    *end = length - first < size ? length - first : size;
    if (*end < *begin) *end = *begin;
    return first;
}

/* Windows [*first, *end) of dimension d that cover a position; none if they are equal. */
static inline void tartan_i_windows_covering(const tartan_i_windows *windows, int32_t d, int64_t position,
                                             int64_t *first, int64_t *end) {
    const int64_t at = position - windows->offset[d], stride = windows->stride[d], size = windows->size[d];
    *end = at < 0 ? 0 : at / stride + 1;
    if (*end > windows->count[d]) *end = windows->count[d];
    *first = at < size ? 0 : (at - size) / stride + 1;
    if (*first > *end) *first = *end;
}

/* Whether an array in host memory holds NaN. */
bool tartan_i_image_has_nan(const tartan_array *array);

#endif
