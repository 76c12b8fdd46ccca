/* SPDX-License-Identifier: Apache-2.0
 * Descriptions of tensors in global memory for the bulk copy engine. */
#ifndef TARTAN_CUDA_TENSOR_MAP_H
#define TARTAN_CUDA_TENSOR_MAP_H

#include <cuda.h>

#include "queue.h"

namespace tartan_cuda {

/* A tensor of `ndim` dimensions, the first of them contiguous, read in boxes. Strides in elements; strides[0] is not
 * looked at. `span` is the bytes of a box's first dimension, 16 (no swizzle), 32, 64 or 128: the swizzle's width. */
struct Tensor {
    const void *data;
    int32_t dtype; /* tartan_dtype */
    int32_t ndim;
    int64_t lengths[5], strides[5];
    uint32_t box[5];
    int32_t span;
};

/* The plug-in does not link the library's table of dtypes. */
inline int32_t element_bytes(int32_t dtype) {
    if (dtype == TARTAN_F8E4M3 || dtype == TARTAN_F8E5M2) return 1;
    return dtype == TARTAN_F64 ? 8 : dtype == TARTAN_F32 ? 4 : 2;
}

tartan_status tensor_map_make(const char *function, const Tensor *tensor, CUtensorMap *out);

} // namespace tartan_cuda

#endif
