/* SPDX-License-Identifier: Apache-2.0
 * Checks that the operations share. All fail in the name of `function`; `name` is the argument's. */
#ifndef TARTAN_OPS_OPERAND_H
#define TARTAN_OPS_OPERAND_H

#include "core/array.h"
#include "device/place.h"
#include "device/run.h"

/* NULL, or [blocks] of f32 or f64. */
tartan_status tartan_i_operand_gates(const char *function, const tartan_context *context,
                                     const tartan_array *gates, int64_t blocks);

/* A scalar that is finite in the type of the sums over `dtype`. */
tartan_status tartan_i_operand_scalar(const char *function, const char *name, double value, int32_t dtype);

/* The output of a product over `dtype`: of that dtype, or f32 if that has 16 bits; f32, f16 or bf16 if it has 8. */
tartan_status tartan_i_operand_out_dtype(const char *function, const char *name, int32_t out_dtype,
                                         int32_t dtype);

/* Not an 8-bit dtype: those are for spmm alone. */
tartan_status tartan_i_operand_wide(const char *function, const char *name, int32_t dtype);

/* nx = ny pairs of one dtype, not an 8-bit one, X [batch..., rows, k] and Y [batch..., k, cols]. */
tartan_status tartan_i_operand_pairs(const char *function, const tartan_context *context,
                                     const tartan_array *x, int64_t nx, const tartan_array *y, int64_t ny,
                                     int64_t rows, int64_t cols, int64_t heads);

#endif
