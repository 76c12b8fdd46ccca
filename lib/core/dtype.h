/* SPDX-License-Identifier: Apache-2.0
 * Element types: sizes, conversion. 16-bit and 8-bit conversion rounds once, to nearest even; NaN stays NaN. */
#ifndef TARTAN_CORE_DTYPE_H
#define TARTAN_CORE_DTYPE_H

#include "core/status.h"
#include "tartan/array.h"

#include <string.h>

typedef uint16_t tartan_i_half;   /* bits of a binary16 */
typedef uint16_t tartan_i_bfloat; /* bits of a bfloat16 */
typedef uint8_t tartan_i_e4m3;    /* bits of a float8_e4m3fn */
typedef uint8_t tartan_i_e5m2;    /* bits of a float8_e5m2 */

enum { TARTAN_I_LAST_DTYPE = TARTAN_F8E5M2 }; /* of numbers */

/* Whether matrices and operands may have the dtype: all but integers, which are for masks and indices. */
static inline bool tartan_i_is_number(int32_t dtype) {
    return dtype >= TARTAN_F64 && dtype <= TARTAN_I_LAST_DTYPE;
}

static inline bool tartan_i_is_index(int32_t dtype) {
    return dtype == TARTAN_U8 || dtype == TARTAN_I32 || dtype == TARTAN_I64;
}

static inline bool tartan_i_is_f8(int32_t dtype) {
    return dtype == TARTAN_F8E4M3 || dtype == TARTAN_F8E5M2;
}

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

static inline uint32_t tartan_i_bits_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tartan_i_f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Conversions of f16 have no branches, so that the compiler vectorises loops over them. In [0.5, 1) the last bit of
 * an f32 is worth 2^-24, the unit of subnormal f16 numbers: adding or subtracting 0.5 converts these, rounding
 * included. */
static inline float tartan_i_f32_of_f16(tartan_i_half x) {
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, size = x & 0x7fffu;
    uint32_t normal = (size << 13) + 0x38000000u; /* exponent bias 15 -> 127 */
    uint32_t special = (size << 13) + 0x70000000u + (size > 0x7c00u ? 0x400000u & ~(size << 13) : 0);
    uint32_t tiny = tartan_i_bits_of_f32(tartan_i_f32_of_bits(0x3f000000u | size) - 0.5f);
    uint32_t bits = size < 0x400u ? tiny : normal;
    return tartan_i_f32_of_bits(sign | (size < 0x7c00u ? bits : special));
}

static inline tartan_i_half tartan_i_f16_of_f32(float value) {
    uint32_t bits = tartan_i_bits_of_f32(value), size = bits & 0x7fffffffu;
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1)) >> 13;
    uint32_t tiny = tartan_i_bits_of_f32(tartan_i_f32_of_bits(size) + 0.5f) - 0x3f000000u;
    uint32_t special = size > 0x7f800000u ? 0x7e00u | ((size >> 13) & 0x3ffu) : 0x7c00u;
    uint32_t half = size < 0x38800000u ? tiny : normal;
    return (tartan_i_half)(sign | (size < 0x477ff000u ? half : special)); /* 65520 and more: infinity */
}

/* The 8-bit code of an absolute value, by the same method. `least` is the smallest normal number, `shift` 2^23
 * times the smallest number. Codes continue beyond the largest number. */
static inline uint32_t tartan_i_f8_size(uint32_t size, uint32_t fraction_bits, uint32_t least, float shift) {
    const uint32_t drop = 23 - fraction_bits;
    uint32_t normal = (size - (least - (1u << 23)) + (1u << (drop - 1)) - 1 + ((size >> drop) & 1)) >> drop;
    uint32_t tiny = tartan_i_bits_of_f32(tartan_i_f32_of_bits(size) + shift) - tartan_i_bits_of_f32(shift);
    return size < least ? tiny : normal;
}

static inline float tartan_i_f32_of_e4m3(tartan_i_e4m3 x) {
    uint32_t sign = (uint32_t)(x & 0x80u) << 24, size = x & 0x7fu;
    uint32_t tiny = tartan_i_bits_of_f32((float)size * 0x1p-9f);
    uint32_t bits = size < 8 ? tiny : (size << 20) + 0x3c000000u; /* exponent bias 7 -> 127 */
    return tartan_i_f32_of_bits(sign | (size < 0x7f ? bits : 0x7fc00000u));
}

static inline tartan_i_e4m3 tartan_i_e4m3_of_f32(float value) {
    uint32_t bits = tartan_i_bits_of_f32(value), sign = (bits >> 24) & 0x80u;
    uint32_t size = tartan_i_f8_size(bits & 0x7fffffffu, 3, 0x3c800000u, 0x1p14f);
    return (tartan_i_e4m3)(sign | (size < 0x7fu ? size : 0x7fu)); /* above 464, infinity and NaN: NaN */
}

static inline float tartan_i_f32_of_e5m2(tartan_i_e5m2 x) {
    return tartan_i_f32_of_f16((tartan_i_half)(x << 8));
}

static inline tartan_i_e5m2 tartan_i_e5m2_of_f32(float value) {
    uint32_t bits = tartan_i_bits_of_f32(value), sign = (bits >> 24) & 0x80u;
    uint32_t size = tartan_i_f8_size(bits & 0x7fffffffu, 2, 0x38800000u, 0x1p7f);
    uint32_t special = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7eu : 0x7cu;
    return (tartan_i_e5m2)(sign | (size < 0x7cu ? size : special)); /* 61440 and more: infinity */
}

/* An f64 as f32, rounded to odd: a further rounding to at most 22 bits gives the same result as from the f64. */
static inline float tartan_i_f32_odd_of_f64(double value) {
    float near = (float)value;
    uint32_t bits = tartan_i_bits_of_f32(near);
    double back = (double)near < 0 ? -(double)near : (double)near, size = value < 0 ? -value : value;
    uint32_t step = back < size ? 1u : back > size ? 0xffffffffu : 0; /* 0 for NaN */
    return tartan_i_f32_of_bits((bits & 1) ? bits : bits + step);
}

/* One rounding from f64 to 16 or 8 bits. */
static inline tartan_i_half tartan_i_f16_of_f64(double value) {
    return tartan_i_f16_of_f32(tartan_i_f32_odd_of_f64(value));
}
static inline tartan_i_bfloat tartan_i_bf16_of_f64(double value) {
    return tartan_i_bf16_of_f32(tartan_i_f32_odd_of_f64(value));
}
static inline tartan_i_e4m3 tartan_i_e4m3_of_f64(double value) {
    return tartan_i_e4m3_of_f32(tartan_i_f32_odd_of_f64(value));
}
static inline tartan_i_e5m2 tartan_i_e5m2_of_f64(double value) {
    return tartan_i_e5m2_of_f32(tartan_i_f32_odd_of_f64(value));
}

/* An index: element `i` of an array of U8, I32 or I64. */
static inline int64_t tartan_i_index_at(const void *data, int32_t dtype, int64_t i) {
    return dtype == TARTAN_I64   ? ((const int64_t *)data)[i]
           : dtype == TARTAN_I32 ? ((const int32_t *)data)[i]
                                 : ((const uint8_t *)data)[i];
}

/* Element `i` of an array of any dtype as f64, and back, where integers are cut. For slow paths. */
double tartan_i_load(const void *data, int32_t dtype, int64_t i);
void tartan_i_store(void *data, int32_t dtype, int64_t i, double value);

/* The dtype in which sums over `dtype` are kept: F64 or F32. */
static inline int32_t tartan_i_sum_dtype(int32_t dtype) {
    return dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
}

/* Copies and converts rows x cols elements between two strided tiles that do not overlap; strides in elements.
 * tartan_i_tile_copier returns the function for a pair of floating-point dtypes, or for one of indices to itself. */
typedef void (*tartan_i_tile_copy)(void *to, int64_t to_row_stride, int64_t to_col_stride, const void *from,
                                   int64_t from_row_stride, int64_t from_col_stride, int64_t rows,
                                   int64_t cols);
tartan_i_tile_copy tartan_i_tile_copier(int32_t to_dtype, int32_t from_dtype);

/* The address of element `offset` from `data`. */
static inline void *tartan_i_at(const void *data, int32_t dtype, int64_t offset) {
    return (char *)data + offset * tartan_dtype_bytes(dtype);
}

#endif
