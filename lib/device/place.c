/* SPDX-License-Identifier: Apache-2.0 */
#include "device/place.h"

#include "core/array.h"

static tartan_status check_device(const char *function, const tartan_context *context, const char *name,
                                  int32_t type, int32_t id) {
    const tartan_i_context_options *o = &context->options;
    CHECK_IN(function, type == o->device_type && (type == TARTAN_CPU || id == o->device_id), UNSUPPORTED,
             "%s is on device %d:%d, expected %d:%d (as the context)", name, type, id, o->device_type,
             o->device_id);
    return TARTAN_OK;
}

tartan_status tartan_i_operand_near(const char *function, const tartan_context *context, const char *name,
                                    int32_t device_type, int32_t device_id) {
    const tartan_i_context_options *o = &context->options;
    const char *reason;
    if (device_type == TARTAN_CPU || (device_type == o->device_type && device_id == o->device_id))
        return TARTAN_OK;
    const int32_t devices = device_type == o->device_type ? context->backend->devices(&reason) : 0;
    CHECK_IN(function, device_id >= 0 && device_id < devices, UNSUPPORTED,
             "%s is on device %d:%d, expected the host%s", name, device_type, device_id,
             o->device_type == TARTAN_CPU ? "" : " or a device of the context's kind");
    return TARTAN_OK;
}

tartan_status tartan_i_operand_layout(const char *function, const tartan_context *context,
                                      const tartan_layout *layout) {
    if (!tartan_i_is_layout(layout)) return tartan_i_fail_handle(function, "layout", layout, "layout");
    if (!tartan_i_is_dynamic(layout)) return TARTAN_OK;
    return check_device(function, context, "layout", layout->device_type, layout->device_id);
}

tartan_status tartan_i_operand_array(const char *function, const tartan_context *context, const char *name,
                                     const tartan_array *array, bool output) {
    PASS(tartan_i_array_check_any(function, name, array, output));
    return check_device(function, context, name, array->device_type, array->device_id);
}

tartan_status tartan_i_operand_bytes(const char *function, const tartan_context *context, const char *name,
                                     const tartan_array *array) {
    PASS(tartan_i_array_check_bytes(function, name, array));
    return check_device(function, context, name, array->device_type, array->device_id);
}

tartan_status tartan_i_operand_indices(const char *function, const tartan_context *context, const char *name,
                                       const tartan_array *array, bool output) {
    PASS(tartan_i_array_check_indices(function, name, array, output));
    return check_device(function, context, name, array->device_type, array->device_id);
}

tartan_status tartan_i_operand_matrix(const char *function, const tartan_context *context, const char *name,
                                      const tartan_matrix *matrix) {
    CHECK_IN(function, tartan_i_is(matrix, TARTAN_I_MATRIX), HANDLE, "%s is %s, expected an open matrix",
             name, matrix == NULL ? "NULL" : "closed or not one of Tartan's");
    return check_device(function, context, name, matrix->device_type, matrix->device_id);
}
