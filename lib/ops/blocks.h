/* SPDX-License-Identifier: Apache-2.0
 * New matrices made of the blocks of another, on any device. */
#ifndef TARTAN_OPS_BLOCKS_H
#define TARTAN_OPS_BLOCKS_H

#include "device/matrix.h"
#include "ops/operand.h"

/* An open context and an open matrix with an ordinary layout and values on the context's device. */
tartan_status tartan_i_blocks_check(const char *function, const tartan_context *context,
                                    const tartan_matrix *matrix);

/* A new matrix on `layout` with the blocks of `from` (see tartan_op_block_copy). `sources` is in host memory and
 * may be freed when the call returns. */
typedef struct tartan_i_blocks_form {
    const tartan_matrix *from;
    tartan_layout *layout;
    int32_t dtype, block_order;
    const int64_t *sources; /* [blocks of layout] or NULL */
    bool transposed;
} tartan_i_blocks_form;
tartan_status tartan_i_blocks_new(const char *function, tartan_context *context,
                                  const tartan_i_blocks_form *form, tartan_matrix **out);

/* A tartan_op_block_copy into an existing matrix; `targets` is in host memory. */
tartan_status tartan_i_blocks_scatter(const char *function, tartan_context *context, tartan_matrix *to,
                                      const tartan_matrix *from, const int64_t *targets);

#endif
