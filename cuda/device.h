/* SPDX-License-Identifier: Apache-2.0
 * The run-time side of the plug-in as the backend table sees it: no CUDA headers, so that the table is plain C. */
#ifndef TARTAN_CUDA_DEVICE_H
#define TARTAN_CUDA_DEVICE_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library that loaded the plug-in. */
extern const tartan_host *tartan_cuda_host;

/* What the driver knew of the thread before it entered a device. */
typedef struct tartan_cuda_entered {
    void *before; /* a context of the driver */
    bool changed;
} tartan_cuda_entered;

/* Makes a device the thread's current one until tartan_cuda_leave. */
void tartan_cuda_enter(int32_t device_id, tartan_cuda_entered *out);
void tartan_cuda_leave(const tartan_cuda_entered *entered);

const tartan_cuda_chip *tartan_cuda_queue_chip(const tartan_cuda_queue *queue);

/* UNSUPPORTED, naming `what`, unless kernels on the queue's device may use the pointer: not host memory that the device
 * cannot see, nor memory of another device. The queue's device is the thread's. */
tartan_status tartan_cuda_check_pointer(const char *function, tartan_cuda_queue *queue, const char *what,
                                        const void *pointer);

/* ---- Slots of the table, see backend.h; `device` is a tartan_cuda_queue ---- */

int32_t tartan_cuda_devices(const char **out_reason);
void tartan_cuda_describe_device(int32_t device, char *text, int64_t size);
tartan_status tartan_cuda_open(const char *function, const tartan_i_context_options *options,
                               void **out_device);
void tartan_cuda_close(void *device);
void *tartan_cuda_stream(void *device);
tartan_status tartan_cuda_wait(const char *function, int32_t device_id, void *stream, int32_t first_device_id,
                               void *first, tartan_wait *out_wait);
tartan_status tartan_cuda_drain(const char *function, int32_t device_id, void *stream);

tartan_status tartan_cuda_memory_allocate(const char *function, void *device, int64_t bytes,
                                          void **out_pointer, void **out_owner);
void tartan_cuda_memory_release(void *owner, void *device);
tartan_status tartan_cuda_memory_scratch(const char *function, void *device, int64_t bytes, void **out);
void tartan_cuda_memory_scratch_free(void *device, void *memory);
tartan_status tartan_cuda_copy(const char *function, void *device, void *to, const void *from, int64_t bytes,
                               tartan_copy_kind kind);
tartan_status tartan_cuda_clear(const char *function, void *device, void *to, int64_t bytes);

tartan_status tartan_cuda_index_create(const char *function, void *device, const tartan_layout *layout,
                                       void **out_index);
tartan_status tartan_cuda_index_update(const char *function, void *device, void *index, const void *mask);
tartan_status tartan_cuda_index_from_scores(const char *function, void *device, void *index,
                                            const void *scores, int32_t dtype, int64_t k);
tartan_status tartan_cuda_index_fetch(const char *function, void *device, void *index, int64_t *out_blocks,
                                      int64_t *out_row_pointers, int32_t *out_block_cols);
void tartan_cuda_index_release(void *index, void *device);

#ifdef __cplusplus
}
#endif
#endif
