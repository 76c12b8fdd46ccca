/* SPDX-License-Identifier: Apache-2.0
 * Matrices with values on a context's device. */
#include "device/matrix.h"

#include "device/layout.h"
#include "device/place.h"
#include "tartan/device.h"

static int64_t bytes_of(const tartan_matrix *m) {
    return m->layout->blocks * tartan_i_block_elements(m) * tartan_dtype_bytes(m->dtype);
}

tartan_status tartan_i_matrix_new_on(tartan_i_call *call, tartan_layout *layout, int32_t dtype,
                                     int32_t block_order, tartan_matrix **out) {
    tartan_status status;
    tartan_i_resource *values = NULL;
    const tartan_i_context_options *o = &call->context->options;
    const int64_t block = layout->shape.block_rows * layout->shape.block_cols * tartan_dtype_bytes(dtype);
    int64_t bytes;
    tartan_matrix *m = NULL;
    CHECK_IN(call->function, tartan_i_multiply(layout->blocks, block, &bytes), OVERFLOW,
             "the values have more bytes than can be addressed");
    NEW_ZEROED(m, 1);
    if (o->device_type == TARTAN_CPU) {
        TRY(tartan_i_allocate(&m->values, bytes, 1));
        m->owned = true;
    } else {
        TRY(tartan_i_resource_allocate(call->function, call->context, bytes, &values));
        m->values = values->begin;
        m->user = values;
        m->release = tartan_i_resource_free;
    }
    m->magic = TARTAN_I_MATRIX;
    m->dtype = dtype;
    m->block_order = block_order;
    tartan_i_matrix_set_device(m, o->device_type, o->device_id);
    m->layout = tartan_layout_retain(layout);
    *out = m;
    return TARTAN_OK;
fail:
    tartan_i_free(m);
    return status;
}

tartan_status tartan_i_matrix_duplicate(tartan_i_call *call, const tartan_matrix *from, tartan_matrix **out) {
    tartan_status status = TARTAN_OK;
    const tartan_context *context = call->context;
    const int64_t bytes = bytes_of(from);
    tartan_matrix *m = NULL;
    PASS(tartan_i_matrix_new_on(call, from->layout, from->dtype, from->block_order, &m));
    tartan_i_call_uses_matrix(call, from, false);
    TRY(tartan_i_call_order(call));
    if (bytes > 0)
        TRY(context->backend->copy(call->function, context->device, m->values, from->values, bytes,
                                   from->device_type == TARTAN_CPU ? TARTAN_COPY_TO_DEVICE
                                                                   : TARTAN_COPY_ON_DEVICE));
    *out = m;
    return TARTAN_OK;
fail:
    tartan_matrix_free(m);
    return status;
}

static tartan_status to_host(tartan_i_call *call, const tartan_matrix *from, tartan_matrix **out) {
    tartan_status status;
    const tartan_context *context = call->context;
    tartan_matrix *m = NULL;
    tartan_layout *layout = NULL;
    tartan_i_call_uses_matrix(call, from, false);
    TRY(tartan_i_call_order(call));
    TRY(tartan_i_layout_now(call, from->layout, &layout));
    TRY(tartan_i_matrix_new(layout, from->dtype, from->block_order, &m));
    if (from->device_type == TARTAN_CPU) {
        tartan_matrix now = *from; /* with row lists, which a dynamic layout does not have */
        now.layout = layout;
        tartan_i_blocks_copy(m, &now, 0, layout->blocks);
    } else if (bytes_of(m) > 0) {
        TRY(context->backend->copy(call->function, context->device, m->values, from->values, bytes_of(m),
                                   TARTAN_COPY_TO_HOST));
        tartan_i_matrix_clear_padding(m);
    }
    tartan_layout_free(layout);
    *out = m;
    return TARTAN_OK;
fail:
    tartan_matrix_free(m);
    tartan_layout_free(layout);
    return status;
}

static tartan_status check(const char *function, const tartan_context *context, const tartan_matrix *matrix) {
    if (!tartan_i_is(context, TARTAN_I_CONTEXT))
        return tartan_i_fail_handle(function, "context", context, "context");
    CHECK_IN(function, tartan_i_is(matrix, TARTAN_I_MATRIX), HANDLE, "matrix is %s, expected an open matrix",
             matrix == NULL ? "NULL" : "closed or not one of Tartan's");
    if (tartan_i_is_dynamic(matrix->layout))
        return tartan_i_operand_layout(function, context, matrix->layout);
    return TARTAN_OK;
}

tartan_status tartan_matrix_to_device(tartan_context *context, const tartan_matrix *matrix,
                                      tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(check(__func__, context, matrix));
    PASS(tartan_i_operand_near(__func__, context, "matrix", matrix->device_type, matrix->device_id));
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    const tartan_status status = tartan_i_matrix_duplicate(&call, matrix, out);
    tartan_i_call_leave(&call);
    return status;
}

tartan_status tartan_matrix_to_host(tartan_context *context, const tartan_matrix *matrix,
                                    tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    PASS(check(__func__, context, matrix));
    if (matrix->device_type != TARTAN_CPU) PASS(tartan_i_operand_matrix(__func__, context, "matrix", matrix));
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    const tartan_status status = to_host(&call, matrix, out);
    tartan_i_call_leave(&call);
    return status;
}

const char *tartan_matrix_device(const tartan_matrix *matrix) {
    return tartan_i_is(matrix, TARTAN_I_MATRIX) ? matrix->device : NULL;
}
