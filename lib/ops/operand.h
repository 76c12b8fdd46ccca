/* SPDX-License-Identifier: Apache-2.0
 * Checks shared by the operations. Errors name `function` and the argument `name`. */
#ifndef TARTAN_OPS_OPERAND_H
#define TARTAN_OPS_OPERAND_H

#include "core/array.h"
#include "device/place.h"
#include "device/run.h"

/* NULL, or [blocks] of f32 or f64. */
tartan_status tartan_i_operand_gates(const char *function, const tartan_context *context,
                                     const tartan_array *gates, int64_t blocks);

/* The dtype of a product's output: `dtype` itself, or f32 for a 16-bit `dtype`; f32, f16 or bf16 for an 8-bit one. */
tartan_status tartan_i_operand_out_dtype(const char *function, const char *name, int32_t out_dtype,
                                         int32_t dtype);

/* Refuses 8-bit dtypes, which only spmm takes. */
tartan_status tartan_i_operand_wide(const char *function, const char *name, int32_t dtype);

/* nx = ny pairs X [batch..., rows, k] and Y [batch..., k, cols] of one dtype, which has more than 8 bits. */
tartan_status tartan_i_operand_pairs(const char *function, const tartan_context *context,
                                     const tartan_array *x, int64_t nx, const tartan_array *y, int64_t ny,
                                     int64_t rows, int64_t cols, int64_t heads);

/* `dtype` has the sums of `other`, the dtype of the argument `other_name`: float64, or any of float32, float16, bfloat16. */
tartan_status tartan_i_operand_like(const char *function, const char *name, int32_t dtype,
                                    const char *other_name, int32_t other);

/* `layout`, that of the argument `name`, stores the same blocks as `expected`, that of `of` and `other_name` ("the filters of ",
 * "conv"). */
tartan_status tartan_i_operand_on(const char *function, const char *name, const tartan_layout *layout,
                                  const char *of, const char *other_name, const tartan_layout *expected);

/* Two matrices with the same blocks. */
tartan_status tartan_i_operand_same_layout(const char *function, const char *name,
                                           const tartan_matrix *matrix, const char *other_name,
                                           const tartan_matrix *other);

#endif
