/* SPDX-License-Identifier: Apache-2.0
 * The largest scores of each block row, chosen on the device. */
#ifndef TARTAN_CUDA_INDEX_SCORES_H
#define TARTAN_CUDA_INDEX_SCORES_H

#include "queue.h"

/* mask[i][j] = 1 if scores[i][j] is among the k >= 1 largest of row i, else 0, as tartan_layout_from_device_scores says.
 * Both are [lines][cols], in device memory, without gaps; `lines` and `cols` are at least 1, `cols` below 2^31. Scores are
 * of f64, f32, f16 or bf16. In the order of the queue, without waiting. */
tartan_status tartan_cuda_choose_largest(const char *function, tartan_cuda_queue *queue, const void *scores,
                                         int32_t dtype, int64_t lines, int32_t cols, int64_t k,
                                         uint8_t *mask);

#endif
