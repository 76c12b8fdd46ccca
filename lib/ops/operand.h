/* SPDX-License-Identifier: Apache-2.0
 * Checks that the operations share. All fail in the name of `function`; `name` is the argument's. */
#ifndef TARTAN_OPS_OPERAND_H
#define TARTAN_OPS_OPERAND_H

#include "backend/backend.h"

/* CHECK in another function's name. */
#define CHECK_FOR(function, condition, code, ...)                                                            \
    do {                                                                                                     \
        if (!(condition)) return tartan_i_fail(TARTAN_ERR_##code, function, __VA_ARGS__);                    \
    } while (0)

/* A sound array in memory of the context's device. */
tartan_status tartan_i_operand_array(const char *function, const tartan_context *context, const char *name,
                                     const tartan_array *array, bool output);

/* An open matrix with values there. */
tartan_status tartan_i_operand_matrix(const char *function, const tartan_context *context, const char *name,
                                      const tartan_matrix *matrix);

/* An open layout; where its blocks change, on the context's device. */
tartan_status tartan_i_operand_layout(const char *function, const tartan_context *context,
                                      const tartan_layout *layout);

/* Memory of the host or of the context's device, which is what can be copied from. */
tartan_status tartan_i_operand_near(const char *function, const tartan_context *context, const char *name,
                                    int32_t device_type, int32_t device_id);

/* NULL, or [blocks] of f32 or f64. */
tartan_status tartan_i_operand_gates(const char *function, const tartan_context *context,
                                     const tartan_array *gates, int64_t blocks);

/* A scalar that is finite in the type of the sums over `dtype`. */
tartan_status tartan_i_operand_scalar(const char *function, const char *name, double value, int32_t dtype);

/* An output that shares no memory with an input (NULL: none). */
tartan_status tartan_i_operand_apart(const char *function, const char *out_name, const tartan_array *out,
                                     const char *in_name, const tartan_array *in);

/* An array of matrices: at least 2 dimensions, the last two `rows` x `cols` (-1: any), which are called `why`;
 * with heads > 1 a batch dimension of that size before them. */
tartan_status tartan_i_operand_dims(const char *function, const char *name, const tartan_array *array,
                                    int64_t rows, int64_t cols, const char *why, int64_t heads);

/* Two arrays with equal batch dimensions. */
tartan_status tartan_i_operand_batch(const char *function, const char *name, const tartan_array *array,
                                     const char *other_name, const tartan_array *other);

/* The output of a product over `dtype`: of that dtype, or f32 where that is a 16-bit one; f32, f16 or bf16 where it is an
 * 8-bit one. */
tartan_status tartan_i_operand_out_dtype(const char *function, const char *name, int32_t out_dtype,
                                         int32_t dtype);

/* Not an 8-bit dtype: those are for spmm alone. */
tartan_status tartan_i_operand_wide(const char *function, const char *name, int32_t dtype);

/* nx = ny pairs of one dtype, not an 8-bit one, X [batch..., rows, k] and Y [batch..., k, cols]. */
tartan_status tartan_i_operand_pairs(const char *function, const tartan_context *context,
                                     const tartan_array *x, int64_t nx, const tartan_array *y, int64_t ny,
                                     int64_t rows, int64_t cols, int64_t heads);

#endif
