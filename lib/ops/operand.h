/* SPDX-License-Identifier: Apache-2.0
 * Checks shared by the operations. Errors name `function` and the argument `name`. */
#ifndef TARTAN_OPS_OPERAND_H
#define TARTAN_OPS_OPERAND_H

#include "core/array.h"
#include "device/place.h"
#include "device/run.h"

/* The dtype of an output: `dtype` itself, or f32 for a 16-bit `dtype`. */
tartan_status tartan_i_operand_out_dtype(const char *function, const char *name, int32_t out_dtype,
                                         int32_t dtype);

/* Refuses 8-bit dtypes, which only spmm takes. */
tartan_status tartan_i_operand_wide(const char *function, const char *name, int32_t dtype);

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
