/* SPDX-License-Identifier: Apache-2.0
 * Checks and facts of dense operands. */
#ifndef TARTAN_CORE_ARRAY_H
#define TARTAN_CORE_ARRAY_H

#include "core/dtype.h"

/* Checks that `array`, the argument `name` of `function`, is a sound descriptor of CPU memory: dtype, ndim,
 * shape >= 0, data aligned and not NULL unless empty, extent addressable. Writable outputs (`output`) may not
 * have two elements in one place: refused unless the strides, sorted, each step over all that lies below.
 * Errors: HANDLE (NULL), ARGUMENT (ndim, alignment, places), DTYPE, SHAPE, OVERFLOW, UNSUPPORTED (device). */
tartan_status tartan_i_array_check(const char *function, const char *name, const tartan_array *array,
                                   bool output);

/* The same for memory of any device that we know. */
tartan_status tartan_i_array_check_any(const char *function, const char *name, const tartan_array *array,
                                       bool output);
/* The same for a mask: TARTAN_U8, and not written. */
tartan_status tartan_i_array_check_bytes(const char *function, const char *name, const tartan_array *array);

/* First and last byte (exclusive) that the array touches; both NULL for an empty one. */
void tartan_i_array_extent(const tartan_array *array, const char **out_begin, const char **out_end);

/* Whether two arrays share a byte of their extents. Reads the descriptors alone. */
bool tartan_i_array_overlap(const tartan_array *a, const tartan_array *b);

/* Elements of the array (the product of its shape). */
int64_t tartan_i_array_elements(const tartan_array *array);

/* "[3, 4, 5]" into `text`. Returns text. */
enum { TARTAN_I_SHAPE_TEXT = 192 };
const char *tartan_i_shape_text(const tartan_array *array, char text[TARTAN_I_SHAPE_TEXT]);

/* ---- Checks of an array that is known to be sound, in the name of `function`; `name` is the argument's ---- */

/* An output that shares no memory with an input (NULL: none). */
tartan_status tartan_i_array_check_apart(const char *function, const char *name, const tartan_array *out,
                                         const char *in_name, const tartan_array *in);

/* An array of matrices: at least 2 dimensions, the last two `rows` x `cols` (-1: any), which are called `why`;
 * with heads > 1 a batch dimension of that size before them. */
tartan_status tartan_i_array_check_dims(const char *function, const char *name, const tartan_array *array,
                                        int64_t rows, int64_t cols, const char *why, int64_t heads);

/* Two arrays with equal batch dimensions. */
tartan_status tartan_i_array_check_batch(const char *function, const char *name, const tartan_array *array,
                                         const char *other_name, const tartan_array *other);

#endif
