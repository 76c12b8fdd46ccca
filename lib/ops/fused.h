/* SPDX-License-Identifier: Apache-2.0
 * Operations that become rows of kernels/fused.def. */
#ifndef TARTAN_OPS_FUSED_H
#define TARTAN_OPS_FUSED_H

#include "backend/operation.h"

/* Of arrays that are broadcast to the shape of `like`; sums have the type of its dtype. */
tartan_op_fused tartan_i_fused_of(const char *function, tartan_i_fused_row row, const tartan_array *like,
                                  double flops);

/* Random numbers of the elements of `like`, or of an array of the given lengths, which is broadcast to it. */
tartan_status tartan_i_fused_draw(tartan_op_fused *op, tartan_i_draw draw, uint32_t stream, int64_t seed,
                                  int64_t offset, const tartan_i_sizes *lengths);

/* Sets an operand. */
static inline tartan_i_fused_operand tartan_i_fused_operand_of(const char *name, const tartan_array *array,
                                                               int32_t parts) {
    return (tartan_i_fused_operand){name, array, parts};
}

#endif
