/* SPDX-License-Identifier: Apache-2.0
 * Tensor maps: tensors in global memory as TMA sees them. */
#ifndef TARTAN_CUDA_TENSOR_MAP_H
#define TARTAN_CUDA_TENSOR_MAP_H

#include <cuda.h>

#include "dtype.h"
#include "queue.h"

namespace tartan_cuda {

/* A tensor of `ndim` dimensions, the first of them contiguous, read in boxes. Strides in elements; strides[0] is
 * ignored. `span`: bytes of a box's first dimension, 16 (no swizzle), 32, 64 or 128 (the width of the swizzle). */
struct Tensor {
    const void *data;
    int32_t dtype; /* tartan_dtype: f32 is rounded to tf32, i32 are 32 bits as they are */
    int32_t ndim;
    int64_t lengths[5], strides[5];
    uint32_t box[5];
    int32_t span;
    uint32_t every
        [5]; /* a box takes every so many elements of a dimension; 0: all. `box` counts those it steps over, too */
};

tartan_status tensor_map_make(const char *function, const Tensor *tensor, CUtensorMap *out);

} // namespace tartan_cuda

#endif
