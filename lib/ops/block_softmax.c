/* SPDX-License-Identifier: Apache-2.0
 * Softmax of the rows of a block-sparse matrix: what its row of the schema can't say. */
#include "ops/attention_options.h"
#include "ops/checks.h"

tartan_status tartan_i_check_block_softmax(tartan_op *any, const tartan_context *context) {
    tartan_op_block_softmax *op = &any->block_softmax;
    (void)context;
    CHECK_IN(op->function, op->causal || op->causal_from == 0, ARGUMENT,
             "options has causal_from, which needs causal=1");
    CHECK_IN(op->function, op->causal || op->query_offset == 0, ARGUMENT,
             "options has query_offset, which needs causal=1");
    op->in = (tartan_i_attention){.layout = op->x->layout,
                                  .block_mask = op->block_mask,
                                  .scale = op->scale,
                                  .causal = op->causal,
                                  .query_offset = op->query_offset,
                                  .causal_from = op->causal_from};
    return tartan_i_attention_check_mask(op->function, &op->in);
}
