/* SPDX-License-Identifier: Apache-2.0
 * Numbers and lists of the host in memory of a context's device, for the time of a call. On the CPU they stay where they
 * are. */
#ifndef TARTAN_OPS_STAGE_H
#define TARTAN_OPS_STAGE_H

#include "device/place.h"

/* What a call has staged. Begin with {0}; free it in any case. */
enum { TARTAN_I_MAX_STAGED = 4 };
typedef struct tartan_i_stage {
    void *owners[TARTAN_I_MAX_STAGED];
    int32_t count;
} tartan_i_stage;

/* *out is a copy of `bytes` bytes, or NULL for NULL. */
tartan_status tartan_i_stage_in(tartan_i_stage *stage, const char *function, const tartan_context *context,
                                const void *host, int64_t bytes, const void **out);

/* The same for a list of block ids. */
tartan_status tartan_i_stage_list(tartan_i_stage *stage, const char *function, const tartan_context *context,
                                  const int64_t *list, int64_t count, const int64_t **out);

/* Numbers as an array [count] of f64 on the device: copied, or with `room` uninitialised. */
tartan_status tartan_i_stage_numbers(tartan_i_stage *stage, const char *function,
                                     const tartan_context *context, const double *host, int64_t count,
                                     bool room, tartan_array *out);

/* Copies such an array back. */
tartan_status tartan_i_stage_fetch(const char *function, const tartan_context *context,
                                   const tartan_array *there, double *host);

void tartan_i_stage_free(tartan_i_stage *stage, const tartan_context *context);

#endif
