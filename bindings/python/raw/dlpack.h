/* SPDX-License-Identifier: Apache-2.0
 * DLPack, as its ABI fixes it. */
#ifndef TARTAN_PYTHON_DLPACK_H
#define TARTAN_PYTHON_DLPACK_H

#include <stdint.h>

typedef struct DLTensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* elements; NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed { /* before DLPack 1.0; always writable */
    dl_tensor tensor;
    void *manager;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_versioned { /* from DLPack 1.0 on */
    struct {
        uint32_t major, minor;
    } version;
    void *manager;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags; /* bit 0: read-only */
    dl_tensor tensor;
} dl_versioned;

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };

#endif
