/* SPDX-License-Identifier: Apache-2.0
 * Matrices whose blocks come from those of another, wherever their values are. */
#ifndef TARTAN_OPS_BLOCKS_H
#define TARTAN_OPS_BLOCKS_H

#include "ops/operand.h"

/* An open context and an open matrix with values where it works, and blocks that stay. */
tartan_status tartan_i_blocks_check(const char *function, const tartan_context *context,
                                    const tartan_matrix *matrix);

/* A matrix with values in memory of the context's device, not initialised. The context has been entered. */
tartan_status tartan_i_matrix_new_on(const char *function, tartan_context *context, tartan_layout *layout,
                                     int32_t dtype, int32_t block_order, tartan_matrix **out);

/* A matrix on the context's device with all values as they are, padding and room for blocks to come among them. The
 * context has been entered. */
tartan_status tartan_i_matrix_duplicate(const char *function, tartan_context *context,
                                        const tartan_matrix *from, tartan_matrix **out);

/* A new matrix of `layout` with the blocks of `from` as tartan_op_block_copy says. `sources` is in host
 * memory here, and no longer needed when the call returns. */
typedef struct tartan_i_blocks_form {
    const tartan_matrix *from;
    tartan_layout *layout;
    int32_t dtype, block_order;
    const int64_t *sources; /* [blocks of layout] or NULL */
    bool transposed;
} tartan_i_blocks_form;
tartan_status tartan_i_blocks_new(const char *function, tartan_context *context,
                                  const tartan_i_blocks_form *form, tartan_matrix **out);

/* A tartan_op_block_copy with `targets`, in host memory here, into a matrix that is there. */
tartan_status tartan_i_blocks_scatter(const char *function, tartan_context *context, tartan_matrix *to,
                                      const tartan_matrix *from, const int64_t *targets);

#endif
