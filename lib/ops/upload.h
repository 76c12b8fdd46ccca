/* SPDX-License-Identifier: Apache-2.0
 * Numbers and lists of the host in memory of a context's device, for the time of a call. On the CPU they stay where they
 * are. */
#ifndef TARTAN_OPS_UPLOAD_H
#define TARTAN_OPS_UPLOAD_H

#include "device/place.h"

/* What a call has uploaded. Begin with {0}; free it in any case. */
enum { TARTAN_I_MAX_UPLOADS = 4 };
typedef struct tartan_i_uploads {
    void *owners[TARTAN_I_MAX_UPLOADS];
    int32_t count;
} tartan_i_uploads;

/* *out is a copy of `bytes` bytes, or NULL for NULL. */
tartan_status tartan_i_upload_bytes(tartan_i_uploads *uploads, const char *function,
                                    const tartan_context *context, const void *host, int64_t bytes,
                                    const void **out);

/* The same for a list of block ids. */
tartan_status tartan_i_upload_list(tartan_i_uploads *uploads, const char *function,
                                   const tartan_context *context, const int64_t *list, int64_t count,
                                   const int64_t **out);

/* Numbers as an array [count] of f64 on the device: copied, or with `room` uninitialised. */
tartan_status tartan_i_upload_numbers(tartan_i_uploads *uploads, const char *function,
                                      const tartan_context *context, const double *host, int64_t count,
                                      bool room, tartan_array *out);

/* Copies such an array back. */
tartan_status tartan_i_download_numbers(const char *function, const tartan_context *context,
                                        const tartan_array *there, double *host);

void tartan_i_uploads_free(tartan_i_uploads *uploads, const tartan_context *context);

#endif
