/* SPDX-License-Identifier: Apache-2.0
 * The descriptor of a dense operand. It does not own the data and is passed by pointer. */
#ifndef TARTAN_ARRAY_H
#define TARTAN_ARRAY_H

#include "tartan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. Products of 16-bit and 8-bit types are summed in f32. Matrices may have either 8-bit floating-point
 * type, but tartan_spmm is the only operation that multiplies them. Conversions round to nearest even. Numbers too
 * large for the type become infinity, or NaN in F8E4M3, which has no infinity (as in PyTorch and ml_dtypes), so scale
 * them first. */
typedef enum tartan_dtype {
    TARTAN_F64 = 1,  /* IEEE binary64 */
    TARTAN_F32 = 2,  /* IEEE binary32 */
    TARTAN_F16 = 3,  /* IEEE binary16 */
    TARTAN_BF16 = 4, /* bfloat16: the upper half of a binary32 */
    TARTAN_F8E4M3 =
        5, /* OCP E4M3, up to 448: sign, 4 bits of exponent (bias 7), 3 of fraction; 0x7f and 0xff are NaN */
    TARTAN_F8E5M2 = 6, /* OCP E5M2, up to 57344: the upper half of a binary16 */
    TARTAN_U8 = 7,     /* bytes: masks (non-zero is true) and indices; never the elements of a matrix */
    TARTAN_I32 = 8,    /* signed integers: indices and labels; never the elements of a matrix */
    TARTAN_I64 = 9,
} tartan_dtype;

/* The kind of device that holds the memory. The values are DLPack's. */
typedef enum tartan_device {
    TARTAN_CPU = 1,
    TARTAN_CUDA = 2,
} tartan_device;

enum { TARTAN_MAX_NDIM = 8 };

/* A dense operand. Element (i0, i1, ...) is at data + (i0*strides[0] + i1*strides[1] + ...) elements. Row-major and
 * column-major memory differ in their strides only. A matrix operand has shape [batch..., rows, cols]. Strides of
 * inputs may be 0 (repeated data) or negative. */
typedef struct tartan_array {
    void *data;
    int32_t dtype;       /* tartan_dtype */
    int32_t device_type; /* tartan_device */
    int32_t device_id;
    int32_t ndim;       /* 0 .. TARTAN_MAX_NDIM */
    int64_t shape[8];   /* the lengths; entries from ndim on are ignored */
    int64_t strides[8]; /* in elements, not bytes */
} tartan_array;

/* Fill `out` for CPU memory. `strides` NULL means row-major and contiguous.
 * Errors: ARGUMENT (ndim; data not aligned for the dtype), DTYPE, SHAPE (a negative length), OVERFLOW (more than can
 * be addressed), HANDLE (`out` or `shape` is NULL, or `data` is NULL and the array is not empty). */
TARTAN_API tartan_status tartan_array_init(void *data, int32_t dtype, int32_t ndim, const int64_t *shape,
                                           const int64_t *strides, tartan_array *out);

/* tartan_dtype_bytes: the size of an element in bytes: 8, 4, 2, 2, 1, 1, 1, 4, 8; 0 for an unknown dtype.
 * tartan_dtype_name: "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "uint8", "int32" or
 * "int64"; NULL for an unknown dtype.
 * tartan_dtype_of: the floating-point dtype with this name; 0 for any other text, including "uint8", "int32" and
 * "int64". */
TARTAN_API int64_t tartan_dtype_bytes(int32_t dtype);
TARTAN_API const char *tartan_dtype_name(int32_t dtype);
TARTAN_API int32_t tartan_dtype_of(const char *name);

/* XXH3-128 over the bytes of the elements in row-major order, as 32 lower-case hexadecimal digits. Equal values have
 * equal checksums, whatever the strides, so checksums compare results between languages. Free the text with
 * tartan_text_free. Errors: HANDLE, DTYPE, SHAPE, UNSUPPORTED (device memory), MEMORY. */
TARTAN_API tartan_status tartan_array_checksum(const tartan_array *array, char **out_text);

struct DLTensor; /* declared in dlpack.h; the ABI of DLPack 0.2 to 1.x */

/* Fill `out` from a DLTensor. The array refers to the same memory; nothing is copied or retained. Booleans and
 * unsigned 8-bit integers become TARTAN_U8.
 * Errors: DTYPE (unsupported, or lanes != 1), SHAPE (ndim > 8), HANDLE (NULL), UNSUPPORTED (neither CPU nor CUDA
 * memory), ARGUMENT (not aligned), OVERFLOW. */
TARTAN_API tartan_status tartan_array_from_dlpack(const struct DLTensor *tensor, tartan_array *out);

/* Fill the DLTensor `out_tensor` from `array`. Its shape and strides point into `array`, which must outlive it.
 * Errors: DTYPE, SHAPE, HANDLE. */
TARTAN_API tartan_status tartan_array_to_dlpack(tartan_array *array, struct DLTensor *out_tensor);

#ifdef __cplusplus
}
#endif
#endif
