/* SPDX-License-Identifier: Apache-2.0
 * Element types: sizes, conversion. 16-bit conversion rounds once, to nearest even; NaN stays NaN. */
#ifndef TARTAN_CORE_DTYPE_H
#define TARTAN_CORE_DTYPE_H

#include "core/status.h"
#include "tartan/array.h"

#include <string.h>

typedef uint16_t tartan_i_half;   /* bits of a binary16 */
typedef uint16_t tartan_i_bfloat; /* bits of a bfloat16 */

static inline float tartan_i_f32_of_bf16(tartan_i_bfloat x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline tartan_i_bfloat tartan_i_bf16_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (tartan_i_bfloat)((bits >> 16) | 0x40); /* quiet NaN */
    return (tartan_i_bfloat)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

float tartan_i_f32_of_f16(tartan_i_half x);
tartan_i_half tartan_i_f16_of_f32(float value);

/* One rounding from f64 to 16 bits. */
tartan_i_half tartan_i_f16_of_f64(double value);
tartan_i_bfloat tartan_i_bf16_of_f64(double value);

/* Element `i` of an array of `dtype` as f64, and back. For slow paths. */
double tartan_i_load(const void *data, int32_t dtype, int64_t i);
void tartan_i_store(void *data, int32_t dtype, int64_t i, double value);

/* The dtype in which sums over `dtype` are kept: F64 or F32. */
static inline int32_t tartan_i_sum_dtype(int32_t dtype) {
    return dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
}

/* Checks that `array`, the argument `name` of `function`, is a sound descriptor of CPU memory: dtype, ndim, shape >= 0,
 * data not NULL unless empty, extent addressable. Writable outputs (`output`) may not have two elements in
 * one place. */
tartan_status tartan_i_array_check(const char *function, const char *name, const tartan_array *array,
                                   bool output);

/* First and last byte (exclusive) that the array touches; both NULL for an empty one. */
void tartan_i_array_extent(const tartan_array *array, const char **out_begin, const char **out_end);

/* Whether two arrays share a byte of their extents. */
bool tartan_i_array_overlap(const tartan_array *a, const tartan_array *b);

/* Elements of the array (the product of its shape). */
int64_t tartan_i_array_elements(const tartan_array *array);

/* "[3, 4, 5]" into `text`. Returns text. */
enum { TARTAN_I_SHAPE_TEXT = 192 };
const char *tartan_i_shape_text(const tartan_array *array, char text[TARTAN_I_SHAPE_TEXT]);

#endif
