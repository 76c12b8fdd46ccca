/* SPDX-License-Identifier: Apache-2.0
 * Checks and properties of dense operands. */
#ifndef TARTAN_CORE_ARRAY_H
#define TARTAN_CORE_ARRAY_H

#include "core/dtype.h"

/* Whether it has no elements. */
static inline bool tartan_i_array_is_empty(const tartan_array *array) {
    for (int32_t d = 0; d < array->ndim; d++)
        if (array->shape[d] == 0) return true;
    return false;
}

/* Checks that `array`, the argument `name` of `function`, is a valid descriptor of CPU memory: dtype, ndim, shape
 * >= 0, data aligned and not NULL unless empty, extent addressable. An output (`output`) may not have two elements
 * at one address: each stride must step over all smaller ones. Errors: HANDLE (NULL), ARGUMENT (ndim, alignment,
 * strides of an output), DTYPE, SHAPE, OVERFLOW, UNSUPPORTED (device). */
tartan_status tartan_i_array_check(const char *function, const char *name, const tartan_array *array,
                                   bool output);

/* The same for memory of any known device. */
tartan_status tartan_i_array_check_any(const char *function, const char *name, const tartan_array *array,
                                       bool output);
/* The same for a mask: a TARTAN_U8 input. */
tartan_status tartan_i_array_check_bytes(const char *function, const char *name, const tartan_array *array);
/* The same for indices; and for either, numbers or indices. */
tartan_status tartan_i_array_check_indices(const char *function, const char *name, const tartan_array *array,
                                           bool output);
tartan_status tartan_i_array_check_either(const char *function, const char *name, const tartan_array *array,
                                          bool output);

/* A valid array must be in CPU memory. */
tartan_status tartan_i_array_check_host(const char *function, const char *name, const tartan_array *array);

/* First and last byte (exclusive) that a valid array touches; both NULL for an empty one. */
void tartan_i_array_extent(const tartan_array *array, const char **out_begin, const char **out_end);

/* Whether two arrays share a byte: their extents do, and no strides that both have keep their elements apart. Reads
 * only the descriptors. */
bool tartan_i_array_overlap(const tartan_array *a, const tartan_array *b);

/* Elements of the array (the product of its shape). Inline, as plug-ins use it. */
static inline int64_t tartan_i_array_elements(const tartan_array *array) {
    int64_t count = 1;
    for (int32_t d = 0; d < array->ndim; d++) count *= array->shape[d];
    return count;
}

/* "[3, 4, 5]" into `text`. Returns text. */
enum { TARTAN_I_SHAPE_TEXT = 192 };
const char *tartan_i_shape_text(const tartan_array *array, char text[TARTAN_I_SHAPE_TEXT]);

/* ---- Checks of a valid array. Errors name `function` and the argument `name`. ---- */

/* An output must not share memory with an input (NULL: no input). */
tartan_status tartan_i_array_check_apart(const char *function, const char *name, const tartan_array *out,
                                         const char *in_name, const tartan_array *in);

/* All of `shape` is copied, which costs less than a loop. */
static inline void tartan_i_copy_shape(tartan_array *to, const tartan_array *from) {
    to->ndim = from->ndim;
    memcpy(to->shape, from->shape, sizeof to->shape);
}

/* A scalar that is finite in the dtype in which `dtype` is summed. */
tartan_status tartan_i_scalar_check(const char *function, const char *name, double value, int32_t dtype);

#endif
