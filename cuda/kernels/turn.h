/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_CUDA_TURN_H
#define TARTAN_CUDA_TURN_H

#include "../device.h"

/* A copy of Y of a pair (16-bit, n contiguous, rows that begin at multiples of 16 bytes) as
 * [entries][heads][k / 64][n][64], with zeros in the last part, into `to`. */
tartan_status tartan_cuda_turn_half(const char *function, tartan_cuda_queue *queue,
                                    const tartan_cuda_sddmm *p, int32_t pair, void *to);

#endif
