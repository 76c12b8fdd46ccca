/* SPDX-License-Identifier: Apache-2.0
 * Weight normalisation of filters. */
#include "kernels.h"
#include "kernels/conv_normalize.cuh"

tartan_status tartan_cuda_conv_normalize_plain(const char *function, tartan_cuda_queue *queue,
                                               const void *problem) {
    using namespace tartan_cuda;
    Normalize n;
    PASS(normalize_start(function, queue, (const tartan_cuda_conv_normalize *)problem, &n));
    return normalize_all<false>(function, queue, n);
}
