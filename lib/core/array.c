// SPDX-License-Identifier: Apache-2.0
// Descriptors of dense operands: making, checking, DLPack.
#include "core/array.h"

#include "core/memory.h"

#include <math.h>
#include <stdio.h>

/* ---- dtypes ---- */

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {
    [TARTAN_F64] = {"float64", 8},
    [TARTAN_F32] = {"float32", 4},
    [TARTAN_F16] = {"float16", 2},
    [TARTAN_BF16] = {"bfloat16", 2},
    [TARTAN_F8E4M3] = {"float8_e4m3fn", 1},
    [TARTAN_F8E5M2] = {"float8_e5m2", 1},
    [TARTAN_U8] = {"uint8", 1},
    [TARTAN_I32] = {"int32", 4},
    [TARTAN_I64] = {"int64", 8},
};

static bool is_dtype(int32_t dtype) {
    return tartan_i_is_number(dtype) || tartan_i_is_index(dtype);
}

static int64_t bytes_of(int32_t dtype) {
    return is_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

int64_t tartan_dtype_bytes(int32_t dtype) {
    return bytes_of(dtype);
}

const char *tartan_dtype_name(int32_t dtype) {
    return is_dtype(dtype) ? dtypes[dtype].name : NULL;
}

int32_t tartan_dtype_of(const char *name) {
    for (int32_t dtype = TARTAN_F64; name != NULL && dtype <= TARTAN_I_LAST_DTYPE; dtype++) {
        if (strcmp(name, dtypes[dtype].name) == 0) return dtype;
    }
    return 0;
}

/* ---- Checks ---- */

// Whether the elements are dense in row-major order, at an address that all checks below allow. For most arrays, one look at
// each dimension suffices.
static bool is_plain(const tartan_array *a) {
    int64_t count = 1, end;
    const int64_t bytes = dtypes[a->dtype].bytes, base = (int64_t)(intptr_t)a->data;
    for (int32_t d = a->ndim - 1; d >= 0; d--) {
        if (a->shape[d] < 1 || (a->shape[d] > 1 && a->strides[d] != count)) return false;
        if (__builtin_mul_overflow(count, a->shape[d], &count)) return false;
    }
    return base > 0 && (base & (bytes - 1)) == 0 && !__builtin_mul_overflow(count, bytes, &count) &&
           !__builtin_add_overflow(base, count, &end);
}

// Offsets in elements of the lowest and the highest element from `data`, of an array with elements; false if they exceed
// int64.
static bool element_range(const tartan_array *a, int64_t *out_first, int64_t *out_last) {
    int64_t first = 0, last = 0, span;
    for (int32_t d = 0; d < a->ndim; d++) {
        if (__builtin_mul_overflow(a->shape[d] - 1, a->strides[d], &span)) return false;
        if (__builtin_add_overflow(span < 0 ? first : last, span, span < 0 ? &first : &last)) return false;
    }
    *out_first = first;
    *out_last = last;
    return true;
}

// Whether the elements can be counted and addressed.
static bool is_addressable(const tartan_array *a) {
    int64_t bytes = bytes_of(a->dtype), count = 1, first = 0, last = 0;
    for (int32_t d = 0; d < a->ndim; d++) {
        if (!tartan_i_multiply(count, a->shape[d] > 0 ? a->shape[d] : 1, &count)) return false;
    }
    if (!tartan_i_array_is_empty(a) && !element_range(a, &first, &last)) return false;
    if (__builtin_add_overflow(last, 1, &last)) return false;
    if (__builtin_mul_overflow(first, bytes, &first) || __builtin_mul_overflow(last, bytes, &last))
        return false;
    // Pointers are below 2^63, so int64 sums show whether the extent leaves the address space.
    int64_t base = (int64_t)(intptr_t)a->data;
    return !__builtin_add_overflow(base, first, &first) && first >= 0 &&
           !__builtin_add_overflow(base, last, &last);
}

// Whether no two elements can share an address: with strides sorted by size, each one steps over all smaller ones.
static bool is_disjoint(const tartan_array *a) {
    uint64_t stride[TARTAN_MAX_NDIM], count[TARTAN_MAX_NDIM], below = 0;
    int32_t n = 0;
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->shape[d] == 1) continue;
        uint64_t size = a->strides[d] < 0 ? 0 - (uint64_t)a->strides[d] : (uint64_t)a->strides[d];
        int32_t k = n++;
        for (; k > 0 && stride[k - 1] > size; k--) stride[k] = stride[k - 1], count[k] = count[k - 1];
        stride[k] = size, count[k] = (uint64_t)a->shape[d];
    }
    for (int32_t k = 0; k < n; k++) {
        if (stride[k] <= below) return false;
        below += (count[k] - 1) * stride[k]; // fits: the extent was checked before
    }
    return true;
}

// Checks everything but the dtype, which is a valid one.
static tartan_status check_memory(const char *function, const char *name, const tartan_array *array,
                                  bool output) {
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK_IN(function, array->device_type == TARTAN_CPU || array->device_type == TARTAN_CUDA, UNSUPPORTED,
             "%s is on device type %d, expected %d (CPU) or %d (CUDA)", name, array->device_type, TARTAN_CPU,
             TARTAN_CUDA);
    if (is_plain(array)) return TARTAN_OK;
    for (int32_t d = 0; d < array->ndim; d++) {
        CHECK_IN(function, array->shape[d] >= 0, SHAPE, "%s has shape %s, expected no negative size", name,
                 tartan_i_shape_text(array, text));
    }
    CHECK_IN(function, array->data != NULL || tartan_i_array_is_empty(array), HANDLE,
             "%s of shape %s has data NULL", name, tartan_i_shape_text(array, text));
    CHECK_IN(function, is_addressable(array), OVERFLOW, "%s of shape %s reaches beyond what can be addressed",
             name, tartan_i_shape_text(array, text));
    if (tartan_i_array_is_empty(array)) return TARTAN_OK;
    CHECK_IN(function, (uintptr_t)array->data % (uintptr_t)bytes_of(array->dtype) == 0, ARGUMENT,
             "%s has data at %p, expected an address aligned for %s", name, array->data,
             tartan_dtype_name(array->dtype));
    CHECK_IN(function, !output || is_disjoint(array), ARGUMENT,
             "%s of shape %s has strides that repeat or interleave elements, expected each to step over all "
             "smaller ones",
             name, tartan_i_shape_text(array, text));
    return TARTAN_OK;
}

static tartan_status check_form(const char *function, const char *name, const tartan_array *array) {
    CHECK_IN(function, array != NULL, HANDLE, "%s is NULL, expected an array", name);
    CHECK_IN(function, array->ndim >= 0 && array->ndim <= TARTAN_MAX_NDIM, ARGUMENT,
             "%s has ndim %d, expected 0 .. %d", name, array->ndim, TARTAN_MAX_NDIM);
    return TARTAN_OK;
}

tartan_status tartan_i_array_check_any(const char *function, const char *name, const tartan_array *array,
                                       bool output) {
    PASS(check_form(function, name, array));
    CHECK_IN(function, tartan_i_is_number(array->dtype), DTYPE,
             "%s has dtype %d, expected %d .. %d (a tartan_dtype)", name, array->dtype, TARTAN_F64,
             TARTAN_I_LAST_DTYPE);
    return check_memory(function, name, array, output);
}

tartan_status tartan_i_array_check_bytes(const char *function, const char *name, const tartan_array *array) {
    PASS(check_form(function, name, array));
    CHECK_IN(function, array->dtype == TARTAN_U8, DTYPE, "%s has dtype %d, expected %d (TARTAN_U8)", name,
             array->dtype, TARTAN_U8);
    return check_memory(function, name, array, false);
}

tartan_status tartan_i_array_check_indices(const char *function, const char *name, const tartan_array *array,
                                           bool output) {
    PASS(check_form(function, name, array));
    CHECK_IN(function, tartan_i_is_index(array->dtype), DTYPE,
             "%s has dtype %d, expected %d, %d or %d (TARTAN_I32, TARTAN_I64 or TARTAN_U8)", name,
             array->dtype, TARTAN_I32, TARTAN_I64, TARTAN_U8);
    return check_memory(function, name, array, output);
}

tartan_status tartan_i_array_check_either(const char *function, const char *name, const tartan_array *array,
                                          bool output) {
    if (array != NULL && tartan_i_is_index(array->dtype))
        return tartan_i_array_check_indices(function, name, array, output);
    return tartan_i_array_check_any(function, name, array, output);
}

tartan_status tartan_i_array_check(const char *function, const char *name, const tartan_array *array,
                                   bool output) {
    PASS(tartan_i_array_check_any(function, name, array, output));
    return tartan_i_array_check_host(function, name, array);
}

tartan_status tartan_i_array_check_host(const char *function, const char *name, const tartan_array *array) {
    CHECK_IN(function, array->device_type == TARTAN_CPU, UNSUPPORTED,
             "%s is on CUDA device %d, expected CPU memory here", name, array->device_id);
    return TARTAN_OK;
}

void tartan_i_array_extent(const tartan_array *array, const char **out_begin, const char **out_end) {
    const int64_t bytes = bytes_of(array->dtype);
    int64_t first = 0, last = 0;
    *out_begin = *out_end = NULL;
    if (tartan_i_array_is_empty(array)) return;
    for (int32_t d = 0; d < array->ndim; d++) {
        const int64_t span = (array->shape[d] - 1) * array->strides[d];
        first += span < 0 ? span : 0;
        last += span < 0 ? 0 : span;
    }
    *out_begin = (const char *)array->data + first * bytes;
    *out_end = (const char *)array->data + (last + 1) * bytes;
}

// Strides of the difference between an element of one array and one of another, the largest first, and how many steps
// each may take down and up.
typedef struct {
    int64_t stride[2 * TARTAN_MAX_NDIM], down[2 * TARTAN_MAX_NDIM], up[2 * TARTAN_MAX_NDIM];
    int count;
} steps;

static void add_steps(steps *s, const tartan_array *array, bool down) {
    for (int32_t d = 0; d < array->ndim; d++) {
        int64_t stride = array->strides[d] < 0 ? -array->strides[d] : array->strides[d],
                n = array->shape[d] - 1;
        if (stride == 0 || n == 0) continue;
        int at = 0;
        while (at < s->count && s->stride[at] > stride) at++;
        if (at == s->count || s->stride[at] != stride) {
            for (int i = s->count++; i > at; i--) {
                s->stride[i] = s->stride[i - 1], s->down[i] = s->down[i - 1], s->up[i] = s->up[i - 1];
            }
            s->stride[at] = stride, s->down[at] = s->up[at] = 0;
        }
        *(down ? &s->down[at] : &s->up[at]) += n;
    }
}

// Whether steps of the strides from `at` on add up to `distance`; also true where finding out would take long.
static bool reaches(const steps *s, int at, int64_t distance) {
    if (at == s->count) return distance == 0;
    int64_t low = 0, high = 0, stride = s->stride[at];
    for (int i = at + 1; i < s->count; i++) low -= s->stride[i] * s->down[i], high += s->stride[i] * s->up[i];
    int64_t first = (distance - high) / stride - 1, last = (distance - low) / stride + 1;
    if (first < -s->down[at]) first = -s->down[at];
    if (last > s->up[at]) last = s->up[at];
    if (last - first > 4) return true;
    for (int64_t n = first; n <= last; n++) {
        int64_t rest = distance - n * stride;
        if (low <= rest && rest <= high && reaches(s, at + 1, rest)) return true;
    }
    return false;
}

bool tartan_i_array_overlap(const tartan_array *a, const tartan_array *b) {
    if (a->device_type != b->device_type || (a->device_type != TARTAN_CPU && a->device_id != b->device_id))
        return false;
    const char *a_begin, *a_end, *b_begin, *b_end;
    tartan_i_array_extent(a, &a_begin, &a_end);
    tartan_i_array_extent(b, &b_begin, &b_end);
    if ((uintptr_t)a_begin >= (uintptr_t)b_end || (uintptr_t)b_begin >= (uintptr_t)a_end) return false;
    /* The extents overlap, but the elements may lie between each other: columns of one matrix, or q, k and v of one
     * product. */
    int64_t bytes = bytes_of(a->dtype);
    int64_t distance = (int64_t)((uintptr_t)b_begin - (uintptr_t)a_begin);
    if (bytes != bytes_of(b->dtype) || distance % bytes != 0) return true;
    if (a_end - a_begin > PTRDIFF_MAX / 4 || b_end - b_begin > PTRDIFF_MAX / 4)
        return true; /* no sum overflows */
    steps s = {.count = 0};
    add_steps(&s, a, false);
    add_steps(&s, b, true);
    return reaches(&s, 0, distance / bytes);
}

const char *tartan_i_shape_text(const tartan_array *array, char text[TARTAN_I_SHAPE_TEXT]) {
    int length = snprintf(text, TARTAN_I_SHAPE_TEXT, "[");
    for (int32_t d = 0; d < array->ndim; d++) {
        length += snprintf(text + length, (size_t)(TARTAN_I_SHAPE_TEXT - length), "%s%" PRId64, d ? ", " : "",
                           array->shape[d]);
    }
    snprintf(text + length, (size_t)(TARTAN_I_SHAPE_TEXT - length), "]");
    return text;
}

tartan_status tartan_i_array_check_apart(const char *function, const char *name, const tartan_array *out,
                                         const char *in_name, const tartan_array *in) {
    CHECK_IN(function, in == NULL || !tartan_i_array_overlap(out, in), ARGUMENT,
             "%s overlaps %s, expected separate memory", name, in_name);
    return TARTAN_OK;
}

/* ---- Making ---- */

// Row-major strides; false on overflow. Sizes of 0 count as 1, so that empty arrays get useful strides too.
static bool set_contiguous(tartan_array *a) {
    int64_t stride = 1;
    for (int32_t d = a->ndim - 1; d >= 0; d--) {
        a->strides[d] = stride;
        if (!tartan_i_multiply(stride, a->shape[d] > 0 ? a->shape[d] : 1, &stride)) return false;
    }
    return true;
}

static tartan_status make(const char *function, const char *name, tartan_array *made, const int64_t *shape,
                          const int64_t *strides) {
    CHECK_IN(function, made->ndim == 0 || shape != NULL, HANDLE, "shape is NULL, expected %d sizes",
             made->ndim);
    for (int32_t d = 0; d < made->ndim; d++) {
        made->shape[d] = shape[d];
        made->strides[d] = strides != NULL ? strides[d] : 0;
    }
    // The check also catches an overflow of the strides, since the element count then overflows too.
    if (strides == NULL) set_contiguous(made);
    return tartan_i_array_check_either(function, name, made, false);
}

tartan_status tartan_array_init(void *data, int32_t dtype, int32_t ndim, const int64_t *shape,
                                const int64_t *strides, tartan_array *out) {
    CHECK(out != NULL, HANDLE, "out is NULL, expected a pointer for the result");
    CHECK(ndim >= 0 && ndim <= TARTAN_MAX_NDIM, ARGUMENT, "ndim is %d, expected 0 .. %d", ndim,
          TARTAN_MAX_NDIM);
    tartan_array made = {.data = data, .dtype = dtype, .device_type = TARTAN_CPU, .ndim = ndim};
    PASS(make(__func__, "the array", &made, shape, strides));
    *out = made;
    return TARTAN_OK;
}

/* ---- DLPack: its stable structures, declared here so that its header is not needed ---- */

struct DLTensor {
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
    int64_t *strides; /* NULL: row-major */
    uint64_t byte_offset;
};
enum {
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_BOOL = 6,
    DL_CPU = 1,
    DL_CUDA = 2,
    DL_CUDA_HOST = 3
};
enum { DL_FLOAT8_E4M3FN = 10, DL_FLOAT8_E5M2 = 12 }; /* since DLPack 1.1 */

static int32_t dtype_of_dlpack(uint8_t code, uint8_t bits) {
    if (code == DL_BFLOAT && bits == 16) return TARTAN_BF16;
    if (code == DL_FLOAT8_E4M3FN && bits == 8) return TARTAN_F8E4M3;
    if (code == DL_FLOAT8_E5M2 && bits == 8) return TARTAN_F8E5M2;
    if ((code == DL_UINT || code == DL_BOOL) && bits == 8) return TARTAN_U8;
    if (code == DL_INT) return bits == 64 ? TARTAN_I64 : bits == 32 ? TARTAN_I32 : 0;
    if (code != DL_FLOAT) return 0;
    return bits == 64 ? TARTAN_F64 : bits == 32 ? TARTAN_F32 : bits == 16 ? TARTAN_F16 : 0;
}

static uint8_t code_of_dlpack(int32_t dtype) {
    switch (dtype) {
    case TARTAN_BF16:
        return DL_BFLOAT;
    case TARTAN_F8E4M3:
        return DL_FLOAT8_E4M3FN;
    case TARTAN_F8E5M2:
        return DL_FLOAT8_E5M2;
    case TARTAN_U8:
        return DL_UINT;
    case TARTAN_I32:
    case TARTAN_I64:
        return DL_INT;
    default:
        return DL_FLOAT;
    }
}

tartan_status tartan_array_from_dlpack(const struct DLTensor *tensor, tartan_array *out) {
    CHECK(tensor != NULL, HANDLE, "tensor is NULL, expected a DLTensor");
    CHECK(out != NULL, HANDLE, "out is NULL, expected a pointer for the result");
    int32_t dtype = dtype_of_dlpack(tensor->dtype.code, tensor->dtype.bits);
    CHECK(dtype != 0 && tensor->dtype.lanes == 1, DTYPE,
          "tensor has DLPack type code %d, %d bits, %d lanes, expected float of 64, 32 or 16 bits, bfloat of "
          "16, float8_e4m3fn or float8_e5m2 of 8, bool or unsigned of 8, signed of 64 or 32, 1 lane",
          tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes);
    CHECK(tensor->ndim >= 0 && tensor->ndim <= TARTAN_MAX_NDIM, SHAPE, "tensor has ndim %d, expected 0 .. %d",
          tensor->ndim, TARTAN_MAX_NDIM);
    // Pinned host memory counts as CPU memory.
    int32_t device = tensor->device.type == DL_CUDA_HOST ? DL_CPU : tensor->device.type;
    tartan_array made = {.dtype = dtype, .device_type = device, .ndim = tensor->ndim};
    made.device_id = device == DL_CPU ? 0 : tensor->device.id;
    if (tensor->data != NULL) made.data = (void *)((uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset);
    PASS(make(__func__, "tensor", &made, tensor->shape, tensor->strides));
    *out = made;
    return TARTAN_OK;
}

tartan_status tartan_array_to_dlpack(tartan_array *array, struct DLTensor *out_tensor) {
    CHECK(out_tensor != NULL, HANDLE, "out_tensor is NULL, expected a pointer for the result");
    CHECK(array == NULL || (array->ndim >= 0 && array->ndim <= TARTAN_MAX_NDIM), SHAPE,
          "array has ndim %d, expected 0 .. %d", array->ndim, TARTAN_MAX_NDIM);
    PASS(tartan_i_array_check_either(__func__, "array", array, false));
    *out_tensor = (struct DLTensor){.data = array->data, .ndim = array->ndim};
    out_tensor->device.type = array->device_type;
    out_tensor->device.id = array->device_id;
    out_tensor->dtype.code = code_of_dlpack(array->dtype);
    out_tensor->dtype.bits = (uint8_t)(8 * bytes_of(array->dtype));
    out_tensor->dtype.lanes = 1;
    out_tensor->shape = array->shape;
    out_tensor->strides = array->strides;
    return TARTAN_OK;
}

tartan_status tartan_i_scalar_check(const char *function, const char *name, double value, int32_t dtype) {
    const int32_t sums = tartan_i_sum_dtype(dtype);
    CHECK_IN(function, sums == TARTAN_F64 ? isfinite(value) : isfinite((float)value), ARGUMENT,
             "%s is %g, expected a number that is finite in %s", name, value, tartan_dtype_name(sums));
    return TARTAN_OK;
}
