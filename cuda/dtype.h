/* SPDX-License-Identifier: Apache-2.0
 * Element types (tartan_dtype) as the plug-in needs them; it does not link the library's table. */
#ifndef TARTAN_CUDA_DTYPE_H
#define TARTAN_CUDA_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "tartan/array.h"

static inline bool tartan_cuda_is_half(int32_t dtype) {
    return dtype == TARTAN_F16 || dtype == TARTAN_BF16;
}

static inline bool tartan_cuda_is_8_bits(int32_t dtype) {
    return dtype == TARTAN_F8E4M3 || dtype == TARTAN_F8E5M2;
}

static inline int32_t tartan_cuda_bytes_of(int32_t dtype) {
    if (dtype == TARTAN_U8) return 1;
    if (dtype == TARTAN_I32) return 4;
    return tartan_cuda_is_8_bits(dtype) ? 1 : tartan_cuda_is_half(dtype) ? 2 : dtype == TARTAN_F32 ? 4 : 8;
}

#endif
