/* SPDX-License-Identifier: Apache-2.0
 * Operations on blocks on any device: copies, casts and norms, and the helpers of rearrange.c. */
#include "ops/blocks.h"

#include "layout/positions.h"
#include "ops/upload.h"

/* ---- Shared; see blocks.h ---- */

static tartan_status check_here(const char *function, const tartan_context *context,
                                const tartan_matrix *matrix) {
    if (!tartan_i_is(context, TARTAN_I_CONTEXT))
        return tartan_i_fail_handle(function, "context", context, "context");
    return tartan_i_operand_matrix(function, context, "matrix", matrix);
}

tartan_status tartan_i_blocks_check(const char *function, const tartan_context *context,
                                    const tartan_matrix *matrix) {
    PASS(check_here(function, context, matrix));
    return tartan_i_matrix_check_stays(function, "matrix", matrix);
}

/* Runs a block copy whose sources or targets are still in host memory. */
static tartan_status run_copy(tartan_i_call *call, const tartan_op_block_copy *copy) {
    tartan_status status;
    const tartan_context *context = call->context;
    const char *function = copy->function;
    tartan_op op = {.kind = TARTAN_OP_BLOCK_COPY, .block_copy = *copy};
    tartan_i_uploads uploads = {0};
    TRY(tartan_i_upload_list(&uploads, function, context, copy->sources, copy->to->layout->blocks,
                             &op.block_copy.sources));
    TRY(tartan_i_upload_list(&uploads, function, context, copy->targets, copy->from->layout->blocks,
                             &op.block_copy.targets));
    TRY(tartan_i_call_run(call, &op));
fail:
    tartan_i_uploads_free(&uploads, context);
    return status;
}

static tartan_status new_blocks(tartan_i_call *call, const tartan_i_blocks_form *form, tartan_matrix **out) {
    tartan_matrix *to;
    PASS(tartan_i_matrix_new_on(call, form->layout, form->dtype, form->block_order, &to));
    const tartan_op_block_copy copy = {.function = call->function,
                                       .from = form->from,
                                       .to = to,
                                       .sources = form->sources,
                                       .transpose = form->transposed};
    const tartan_status status = run_copy(call, &copy);
    if (status == TARTAN_OK)
        *out = to;
    else
        tartan_matrix_free(to);
    return status;
}

tartan_status tartan_i_blocks_new(const char *function, tartan_context *context,
                                  const tartan_i_blocks_form *form, tartan_matrix **out) {
    tartan_i_call call;
    PASS(tartan_i_call_enter(function, context, &call));
    const tartan_status status = new_blocks(&call, form, out);
    tartan_i_call_leave(&call);
    return status;
}

tartan_status tartan_i_blocks_scatter(const char *function, tartan_context *context, tartan_matrix *to,
                                      const tartan_matrix *from, const int64_t *targets) {
    const tartan_op_block_copy copy = {.function = function, .from = from, .to = to, .targets = targets};
    tartan_i_call call;
    PASS(tartan_i_call_enter(function, context, &call));
    const tartan_status status = run_copy(&call, &copy);
    tartan_i_call_leave(&call);
    return status;
}

/* ---- Copies ---- */

tartan_status tartan_matrix_copy(tartan_context *context, const tartan_matrix *matrix, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(check_here(__func__, context, matrix));
    if (!tartan_i_is_dynamic(matrix->layout)) {
        const tartan_i_blocks_form form = {.from = matrix,
                                           .layout = matrix->layout,
                                           .dtype = matrix->dtype,
                                           .block_order = matrix->block_order};
        return tartan_i_blocks_new(__func__, context, &form, out);
    }
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    const tartan_status status = tartan_i_matrix_duplicate(&call, matrix, out);
    tartan_i_call_leave(&call);
    return status;
}

tartan_status tartan_matrix_cast(tartan_context *context, const tartan_matrix *matrix, int32_t dtype,
                                 int32_t block_order, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    if (dtype == 0) dtype = matrix->dtype;
    PASS(tartan_i_matrix_check_new(__func__, matrix->layout, dtype, block_order));
    const tartan_i_blocks_form form = {
        .from = matrix, .layout = matrix->layout, .dtype = dtype, .block_order = block_order};
    return tartan_i_blocks_new(__func__, context, &form, out);
}

/* ---- Norms ---- */

/* The norms in host memory. A device computes them in its own memory; they are then fetched. */
static tartan_status run_norms(tartan_i_call *call, tartan_op *op, double *norms) {
    tartan_status status;
    const tartan_context *context = call->context;
    tartan_i_uploads uploads = {0};
    tartan_array there;
    TRY(tartan_i_upload_numbers(&uploads, op->function, context, norms,
                                op->block_norms.matrix->layout->blocks, true, &there));
    op->block_norms.norms = &there;
    TRY(tartan_i_call_run(call, op));
    TRY(tartan_i_download_numbers(op->function, context, &there, norms));
fail:
    tartan_i_uploads_free(&uploads, context);
    return status;
}

tartan_status tartan_matrix_block_norms(tartan_context *context, const tartan_matrix *matrix, int32_t norm,
                                        double *out_norms, int64_t nout_norms) {
    HOLD_MATRIX(matrix);
    PASS(tartan_i_blocks_check(__func__, context, matrix));
    const int64_t blocks = matrix->layout->blocks;
    CHECK(norm >= TARTAN_NORM_MAX && norm <= TARTAN_NORM_L2, ARGUMENT,
          "norm is %d, expected %d (max), %d (L1) or %d (L2)", norm, TARTAN_NORM_MAX, TARTAN_NORM_L1,
          TARTAN_NORM_L2);
    CHECK_LIST(out_norms, blocks, "blocks");
    PASS(tartan_i_matrix_check_apart(__func__, matrix, "out_norms", out_norms,
                                     blocks * (int64_t)sizeof *out_norms));
    if (blocks == 0) return TARTAN_OK;
    tartan_op op = {.kind = TARTAN_OP_BLOCK_NORMS,
                    .block_norms = {.function = __func__, .matrix = matrix, .norm = norm}};
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    const tartan_status status = run_norms(&call, &op, out_norms);
    tartan_i_call_leave(&call);
    return status;
}
