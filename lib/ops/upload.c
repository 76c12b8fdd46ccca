/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/upload.h"

static tartan_status make_room(tartan_i_uploads *uploads, const char *function, const tartan_context *context,
                               const void *host, int64_t bytes, void **out) {
    *out = (void *)host; /* written only if the caller passed it as room */
    if (host == NULL || bytes == 0 || context->options.device_type == TARTAN_CPU) return TARTAN_OK;
    PASS(context->backend->allocate(function, context->device, bytes, out, &uploads->owners[uploads->count]));
    uploads->count++;
    return TARTAN_OK;
}

tartan_status tartan_i_upload_bytes(tartan_i_uploads *uploads, const char *function,
                                    const tartan_context *context, const void *host, int64_t bytes,
                                    const void **out) {
    void *there;
    PASS(make_room(uploads, function, context, host, bytes, &there));
    if (there != host)
        PASS(context->backend->copy(function, context->device, there, host, bytes, TARTAN_COPY_TO_DEVICE));
    *out = there;
    return TARTAN_OK;
}

tartan_status tartan_i_upload_list(tartan_i_uploads *uploads, const char *function,
                                   const tartan_context *context, const int64_t *list, int64_t count,
                                   const int64_t **out) {
    const void *there = NULL;
    PASS(tartan_i_upload_bytes(uploads, function, context, list, count * (int64_t)sizeof *list, &there));
    *out = there;
    return TARTAN_OK;
}

tartan_status tartan_i_upload_numbers(tartan_i_uploads *uploads, const char *function,
                                      const tartan_context *context, const double *host, int64_t count,
                                      bool room, tartan_array *out) {
    const tartan_i_context_options *o = &context->options;
    const int64_t bytes = count * (int64_t)sizeof *host;
    *out = (tartan_array){.dtype = TARTAN_F64,
                          .device_type = o->device_type,
                          .device_id = o->device_id,
                          .ndim = 1,
                          .shape = {count},
                          .strides = {1}};
    if (room) return make_room(uploads, function, context, host, bytes, &out->data);
    const void *there;
    PASS(tartan_i_upload_bytes(uploads, function, context, host, bytes, &there));
    out->data = (void *)there;
    return TARTAN_OK;
}

tartan_status tartan_i_download_numbers(const char *function, const tartan_context *context,
                                        const tartan_array *there, double *host) {
    const int64_t bytes = there->shape[0] * (int64_t)sizeof *host;
    if (there->data == host || bytes == 0) return TARTAN_OK;
    return context->backend->copy(function, context->device, host, there->data, bytes, TARTAN_COPY_TO_HOST);
}

void tartan_i_uploads_free(tartan_i_uploads *uploads, const tartan_context *context) {
    while (uploads->count > 0) context->backend->release(uploads->owners[--uploads->count], context->device);
}
