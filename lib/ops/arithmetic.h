/* SPDX-License-Identifier: Apache-2.0
 * What the functions of arithmetic.h share. */
#ifndef TARTAN_OPS_ARITHMETIC_H
#define TARTAN_OPS_ARITHMETIC_H

#include "device/matrix.h"
#include "matrix/work.h"
#include "ops/operand.h"
#include "ops/upload.h"

/* An open matrix `name` with an ordinary layout and values on the device of the open context. */
tartan_status tartan_i_arithmetic_check(const char *function, const tartan_context *context, const char *name,
                                        const tartan_matrix *matrix);

/* For each block of `layout`, the operand's block or -1; NULL in *out if the layouts are equal. The caller frees the list.
 * *matched is the number of blocks that both have. */
tartan_status tartan_i_arithmetic_match(const tartan_layout *layout, const tartan_matrix *operand,
                                        int64_t **out, int64_t *matched);

/* A new matrix on `layout`, in the block order of op->a, that an operation without `to` computes. Its sources are in host
 * memory. Arguments are checked. */
tartan_status tartan_i_elementwise_new(tartan_i_call *call, const tartan_op_elementwise *op,
                                       tartan_layout *layout, int32_t dtype, tartan_matrix **out);

#endif
