/* SPDX-License-Identifier: Apache-2.0
 * Device memory, allocated and freed in the order of a queue. */
#ifndef TARTAN_CUDA_DEVICE_MEMORY_H
#define TARTAN_CUDA_DEVICE_MEMORY_H

#include "queue.h"

/* Memory that may outlive the context; the backend table's allocate and release. */
tartan_status tartan_cuda_memory_allocate(const char *function, tartan_cuda_queue *queue, int64_t bytes,
                                          void **out_pointer, void **out_owner);
void tartan_cuda_memory_release(void *owner);

/* Frees what was released during a graph capture. With the queue's lock held, by a holder of a reference. `in_order`:
 * in the order of the stream. */
void tartan_cuda_memory_free_waiting(tartan_cuda_queue *queue, bool in_order);

/* Scratch memory for one operation; safe during graph capture. */
tartan_status tartan_cuda_scratch(const char *function, tartan_cuda_queue *queue, int64_t bytes, void **out);
void tartan_cuda_scratch_free(tartan_cuda_queue *queue, void *pointer);

/* UNSUPPORTED, naming `what`, unless kernels on the queue's device may use the pointer: not host memory that the device
 * cannot see, nor memory of another device. The queue's device is the thread's. */
tartan_status tartan_cuda_check_pointer(const char *function, tartan_cuda_queue *queue, const char *what,
                                        const void *pointer);

#endif
