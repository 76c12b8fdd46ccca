/* SPDX-License-Identifier: Apache-2.0
 * What is known of a device. */
#ifndef TARTAN_CUDA_CHIP_H
#define TARTAN_CUDA_CHIP_H

#include <stdint.h>

typedef struct tartan_cuda_chip {
    int32_t major, minor; /* compute capability */
    int32_t processors;   /* SMs */
    int64_t shared_bytes; /* shared memory of a CTA, at most */
    const char
        *no_cublas; /* why cuBLAS cannot be used where the context allows it, in static text; or NULL */
} tartan_cuda_chip;

#endif
