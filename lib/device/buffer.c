/* SPDX-License-Identifier: Apache-2.0
 * Dense arrays that own memory of a context's device. */
#include "core/array.h"
#include "device/place.h"
#include "device/resource.h"
#include "tartan/device.h"

struct tartan_buffer {
    uint32_t magic; /* TARTAN_I_BUFFER */
    int32_t order;  /* of the indices in memory */
    tartan_array array;
    tartan_i_resource *memory;
};

/* ---- Shapes ---- */

static void set_strides(tartan_array *a, int32_t order) {
    int64_t step = 1;
    for (int32_t i = 0; i < a->ndim; i++) {
        const int32_t d = order == TARTAN_ROW_MAJOR ? a->ndim - 1 - i : i;
        a->strides[d] = step;
        step *= a->shape[d] > 0 ? a->shape[d] : 1;
    }
}

/* Whether the elements are contiguous in that order. The stride of a dimension of length 1 does not matter. */
static bool is_contiguous(const tartan_array *a, int32_t order) {
    tartan_array like = *a;
    set_strides(&like, order);
    for (int32_t d = 0; d < a->ndim; d++)
        if (a->shape[d] > 1 && a->strides[d] != like.strides[d]) return false;
    return true;
}

static int64_t bytes_of(const tartan_array *a) {
    return tartan_i_array_elements(a) * tartan_dtype_bytes(a->dtype);
}

/* Copies between two arrays in host memory of equal shape and dtype. */
static void copy_elements(const tartan_array *to, const tartan_array *from) {
    const int32_t n = to->ndim, outer = n > 2 ? n - 2 : 0;
    const int64_t rows = n >= 2 ? to->shape[n - 2] : 1, cols = n >= 1 ? to->shape[n - 1] : 1;
    const int64_t to_row = n >= 2 ? to->strides[n - 2] : 0, to_col = n >= 1 ? to->strides[n - 1] : 0;
    const int64_t from_row = n >= 2 ? from->strides[n - 2] : 0, from_col = n >= 1 ? from->strides[n - 1] : 0;
    const tartan_i_tile_copy copy = tartan_i_tile_copier(to->dtype, from->dtype);
    int64_t index[TARTAN_MAX_NDIM] = {0}, tiles = 1;
    for (int32_t d = 0; d < outer; d++) tiles *= to->shape[d];
    for (int64_t tile = 0; tile < tiles && rows * cols > 0; tile++) {
        int64_t to_at = 0, from_at = 0;
        for (int32_t d = 0; d < outer; d++) {
            to_at += index[d] * to->strides[d];
            from_at += index[d] * from->strides[d];
        }
        copy(tartan_i_at(to->data, to->dtype, to_at), to_row, to_col,
             tartan_i_at(from->data, from->dtype, from_at), from_row, from_col, rows, cols);
        for (int32_t d = outer; d-- > 0 && ++index[d] == to->shape[d];) index[d] = 0;
    }
}

/* ---- Making ---- */

/* A buffer of the shape and dtype of `like`, not initialised. */
static tartan_status new_buffer(tartan_i_call *call, const tartan_array *like, int32_t order,
                                tartan_buffer **out) {
    tartan_status status;
    tartan_context *context = call->context;
    tartan_buffer *buffer = NULL;
    int64_t bytes = tartan_dtype_bytes(like->dtype);
    for (int32_t d = 0; d < like->ndim; d++)
        CHECK_IN(call->function, tartan_i_multiply(bytes, like->shape[d] > 0 ? like->shape[d] : 1, &bytes),
                 OVERFLOW, "the buffer has more bytes than can be addressed");
    NEW_ZEROED(buffer, 1);
    buffer->magic = TARTAN_I_BUFFER;
    buffer->order = order;
    buffer->array = *like;
    buffer->array.device_type = context->options.device_type;
    buffer->array.device_id = context->options.device_id;
    set_strides(&buffer->array, order);
    TRY(tartan_i_resource_allocate(call->function, context, bytes_of(like), &buffer->memory));
    buffer->array.data = buffer->memory->begin;
    *out = buffer;
    return TARTAN_OK;
fail:
    tartan_i_free(buffer);
    return status;
}

static tartan_status new_zeros(tartan_i_call *call, const tartan_array *like, int32_t order,
                               tartan_buffer **out) {
    tartan_status status;
    const tartan_context *context = call->context;
    tartan_buffer *buffer = NULL;
    PASS(new_buffer(call, like, order, &buffer));
    if (bytes_of(like) > 0)
        TRY(context->backend->clear(call->function, context->device, buffer->array.data, bytes_of(like)));
    *out = buffer;
    return TARTAN_OK;
fail:
    tartan_buffer_free(buffer);
    return status;
}

/* Copies the whole extent of a strided device array to the host; the caller frees *out_memory. Memory of another
 * device is copied by way of the context's device. */
static tartan_status fetch_extent(const char *function, const tartan_context *context,
                                  const tartan_array *array, char **out_memory, tartan_array *out) {
    tartan_status status;
    const tartan_backend *backend = context->backend;
    const char *begin, *end;
    void *near = NULL, *owner = NULL;
    const bool far = array->device_id != context->options.device_id;
    tartan_i_array_extent(array, &begin, &end);
    TRY(tartan_i_allocate(out_memory, end - begin, 1));
    if (far) {
        TRY(backend->allocate(function, context->device, end - begin, &near, &owner));
        TRY(backend->copy(function, context->device, near, begin, end - begin, TARTAN_COPY_ON_DEVICE));
    }
    TRY(backend->copy(function, context->device, *out_memory, far ? near : begin, end - begin,
                      TARTAN_COPY_TO_HOST));
    if (far) backend->release(owner, context->device);
    *out = *array;
    out->data = *out_memory + ((const char *)array->data - begin);
    return TARTAN_OK;
fail:
    if (owner != NULL) backend->release(owner, context->device);
    tartan_i_free(*out_memory);
    *out_memory = NULL;
    return status;
}

/* Copies an array whose strides differ from the buffer's; the host rearranges the elements. */
static tartan_status pack(const tartan_i_call *call, const tartan_array *array, const tartan_buffer *buffer) {
    tartan_status status;
    const char *function = call->function;
    const tartan_context *context = call->context;
    char *fetched = NULL;
    tartan_array from = *array, packed = buffer->array;
    packed.data = NULL;
    if (array->device_type != TARTAN_CPU) TRY(fetch_extent(function, context, array, &fetched, &from));
    if (buffer->array.device_type == TARTAN_CPU) {
        copy_elements(&buffer->array, &from);
        return TARTAN_OK;
    }
    TRY(tartan_i_allocate(&packed.data, bytes_of(array), 1));
    copy_elements(&packed, &from);
    TRY(context->backend->copy(function, context->device, buffer->array.data, packed.data, bytes_of(array),
                               TARTAN_COPY_TO_DEVICE));
fail:
    tartan_i_free(packed.data);
    tartan_i_free(fetched);
    return status;
}

static tartan_status new_copy(tartan_i_call *call, const tartan_array *array, tartan_buffer **out) {
    tartan_status status;
    const tartan_context *context = call->context;
    tartan_buffer *buffer = NULL;
    const bool by_columns = is_contiguous(array, TARTAN_COL_MAJOR) && !is_contiguous(array, TARTAN_ROW_MAJOR);
    const int32_t order = by_columns ? TARTAN_COL_MAJOR : TARTAN_ROW_MAJOR;
    tartan_i_call_uses_array(call, array, false);
    PASS(tartan_i_call_order(call));
    PASS(new_buffer(call, array, order, &buffer));
    if (bytes_of(array) == 0) {
        *out = buffer;
        return TARTAN_OK;
    }
    if (!is_contiguous(array, order))
        TRY(pack(call, array, buffer));
    else
        TRY(context->backend->copy(
            call->function, context->device, buffer->array.data, array->data, bytes_of(array),
            array->device_type == TARTAN_CPU ? TARTAN_COPY_TO_DEVICE : TARTAN_COPY_ON_DEVICE));
    *out = buffer;
    return TARTAN_OK;
fail:
    tartan_buffer_free(buffer);
    return status;
}

/* ---- The public functions ---- */

tartan_status tartan_buffer_create(tartan_context *context, int32_t dtype, const int64_t *lengths,
                                   int64_t nlengths, int32_t order, tartan_buffer **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(context, CONTEXT, "context");
    CHECK(tartan_dtype_bytes(dtype) > 0, DTYPE, "dtype is %d, expected %d .. %d (a tartan_dtype)", dtype,
          TARTAN_F64, TARTAN_I64);
    CHECK(nlengths >= 0 && nlengths <= TARTAN_MAX_NDIM, SHAPE,
          "nlengths is %" PRId64 ", expected 0 .. %d (dimensions)", nlengths, TARTAN_MAX_NDIM);
    CHECK(lengths != NULL || nlengths == 0, HANDLE, "lengths is NULL, expected %" PRId64 " sizes", nlengths);
    CHECK(order == TARTAN_ROW_MAJOR || order == TARTAN_COL_MAJOR, ARGUMENT,
          "order is %d, expected %d (row-major) or %d (column-major)", order, TARTAN_ROW_MAJOR,
          TARTAN_COL_MAJOR);
    tartan_array like = {.dtype = dtype, .ndim = (int32_t)nlengths};
    for (int32_t d = 0; d < like.ndim; d++) {
        CHECK(lengths[d] >= 0, SHAPE, "lengths[%d] is %" PRId64 ", expected 0 or more", d, lengths[d]);
        like.shape[d] = lengths[d];
    }
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    const tartan_status status = new_zeros(&call, &like, order, out);
    tartan_i_call_leave(&call);
    return status;
}

tartan_status tartan_buffer_from_array(tartan_context *context, const tartan_array *array,
                                       tartan_buffer **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_array_check_either(__func__, "array", array, false));
    PASS(tartan_i_operand_near(__func__, context, "array", array->device_type, array->device_id));
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    const tartan_status status = new_copy(&call, array, out);
    tartan_i_call_leave(&call);
    return status;
}

/* The copy of tartan_buffer_to_array; all has been checked. The call holds the memory of `own`, but another thread may
 * free the buffer itself. */
static tartan_status fetch(tartan_i_call *call, const tartan_array *own, int32_t order, tartan_array *array) {
    tartan_status status;
    const char *function = call->function;
    const tartan_context *context = call->context;
    char *memory = NULL;
    const int64_t bytes = bytes_of(array);
    if (bytes == 0) return TARTAN_OK;
    tartan_i_call_uses_array(call, own, false);
    PASS(tartan_i_call_order(call));
    if (is_contiguous(array, order))
        return context->backend->copy(function, context->device, array->data, own->data, bytes,
                                      TARTAN_COPY_TO_HOST);
    tartan_array from = *own;
    if (from.device_type != TARTAN_CPU) TRY(fetch_extent(function, context, own, &memory, &from));
    copy_elements(array, &from);
    status = TARTAN_OK;
fail:
    tartan_i_free(memory);
    return status;
}

tartan_status tartan_buffer_to_array(tartan_context *context, const tartan_buffer *buffer,
                                     tartan_array *array) {
    CHECK_HANDLE(context, CONTEXT, "context");
    CHECK_HANDLE(buffer, BUFFER, "buffer");
    const tartan_array own = buffer->array;
    const int32_t order = buffer->order;
    char text[TARTAN_I_SHAPE_TEXT], own_text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_is_index(own.dtype) ? tartan_i_operand_indices(__func__, context, "buffer", &own, false)
                                      : tartan_i_operand_array(__func__, context, "buffer", &own, false));
    PASS(tartan_i_array_check_either(__func__, "array", array, true));
    PASS(tartan_i_array_check_host(__func__, "array", array));
    CHECK(array->dtype == own.dtype, DTYPE, "array is of %s, expected %s (as the buffer)",
          tartan_dtype_name(array->dtype), tartan_dtype_name(own.dtype));
    bool same = array->ndim == own.ndim;
    for (int32_t d = 0; same && d < own.ndim; d++) same = array->shape[d] == own.shape[d];
    CHECK(same, SHAPE, "array has shape %s, expected %s (as the buffer)", tartan_i_shape_text(array, text),
          tartan_i_shape_text(&own, own_text));
    PASS(tartan_i_array_check_apart(__func__, "array", array, "the buffer", &own));
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    const tartan_status status = fetch(&call, &own, order, array);
    tartan_i_call_leave(&call);
    return status;
}

tartan_status tartan_buffer_view(tartan_buffer *buffer, tartan_array *out_view) {
    CHECK(out_view != NULL, HANDLE, "out_view is NULL, expected a pointer for the result");
    CHECK_HANDLE(buffer, BUFFER, "buffer");
    *out_view = buffer->array;
    return TARTAN_OK;
}

void tartan_buffer_free(tartan_buffer *buffer) {
    if (!tartan_i_is(buffer, TARTAN_I_BUFFER)) return;
    buffer->magic = 0;
    tartan_i_resource_free(buffer->memory);
    tartan_i_free(buffer);
}
