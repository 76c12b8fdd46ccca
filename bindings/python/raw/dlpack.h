/* SPDX-License-Identifier: Apache-2.0
 * DLPack, as its ABI fixes it, with the exchange interface of version 1.3. */
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

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

typedef struct dl_versioned { /* from DLPack 1.0 on */
    dl_version version;
    void *manager;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags; /* bit 0: read-only */
    dl_tensor tensor;
} dl_versioned;

/* What a tensor type's attribute __dlpack_c_exchange_api__ points to, a capsule named "dlpack_exchange_api". Functions
 * return 0, or -1 with a Python exception set. `prev` leads to tables of older major versions. */
typedef struct dl_exchange {
    dl_version version;
    const struct dl_exchange *prev;
    int (*allocate)(dl_tensor *prototype, dl_versioned **out, void *user,
                    void (*set_error)(void *user, const char *kind, const char *message));
    int (*export_owned)(void *object, dl_versioned **out);
    int (*import_owned)(dl_versioned *tensor, void **out_object);
    int (*view)(void *object, dl_tensor *out); /* may be NULL; valid as long as the object is unchanged */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out_stream);
} dl_exchange;

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };

#endif
