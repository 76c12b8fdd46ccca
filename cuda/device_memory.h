/* SPDX-License-Identifier: Apache-2.0
 * Device memory, allocated and freed in the order of a queue. */
#ifndef TARTAN_CUDA_DEVICE_MEMORY_H
#define TARTAN_CUDA_DEVICE_MEMORY_H

#include "queue.h"

/* Frees what was released during a graph capture. With the queue's lock held. `in_order`: in the order of
 * the stream, else at once. */
void tartan_cuda_memory_free_waiting(tartan_cuda_queue *queue, bool in_order);

/* Scratch memory for one operation; safe during graph capture. The queue keeps 1 MiB, which one operation after the other
 * uses. */
tartan_status tartan_cuda_scratch(const char *function, tartan_cuda_queue *queue, int64_t bytes, void **out);
void tartan_cuda_scratch_free(tartan_cuda_queue *queue, void *pointer);
/* Frees what the queue keeps. `in_order`: in the order of the stream, else at once. */
void tartan_cuda_scratch_close(tartan_cuda_queue *queue, bool in_order);

#endif
