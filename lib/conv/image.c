/* SPDX-License-Identifier: Apache-2.0 */
#include "conv/image.h"

/* Whether one of n elements is NaN; f16 and bf16 by their bits. */
static bool line_has_nan(const char *line, int32_t dtype, int64_t n, int64_t step) {
    const double *f64 = (const double *)(const void *)line;
    const float *f32 = (const float *)(const void *)line;
    const uint16_t *half = (const uint16_t *)(const void *)line;
    const int limit = dtype == TARTAN_F16 ? 0x7c00 : 0x7f80;
    int found = 0;
    if (dtype == TARTAN_F64) {
        for (int64_t i = 0; i < n; i++) found |= f64[i * step] != f64[i * step];
    } else if (dtype == TARTAN_F32 && step == 1) {
        for (int64_t i = 0; i < n; i++) found |= f32[i] != f32[i];
    } else if (dtype == TARTAN_F32) {
        for (int64_t i = 0; i < n; i++) found |= f32[i * step] != f32[i * step];
    } else {
        for (int64_t i = 0; i < n; i++) found |= (half[i * step] & 0x7fff) > limit;
    }
    return found != 0;
}

bool tartan_i_image_has_nan(const tartan_array *array) {
    if (array->dtype == TARTAN_U8 || tartan_i_array_is_empty(array)) return false;
    const int32_t last = array->ndim - 1;
    const int64_t bytes = tartan_dtype_bytes(array->dtype);
    int64_t index[TARTAN_MAX_NDIM] = {0}, lines = 1;
    for (int32_t d = 0; d < last; d++) lines *= array->shape[d];
    for (int64_t line = 0; line < lines; line++) {
        int64_t at = 0;
        for (int32_t d = 0; d < last; d++) at += index[d] * array->strides[d];
        if (line_has_nan((const char *)array->data + at * bytes, array->dtype, array->shape[last],
                         array->strides[last]))
            return true;
        for (int32_t d = last; d-- > 0 && ++index[d] == array->shape[d];) index[d] = 0;
    }
    return false;
}
