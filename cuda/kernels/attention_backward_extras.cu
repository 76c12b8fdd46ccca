/* SPDX-License-Identifier: Apache-2.0
 * The kernels of attention_backward_wgmma.cu with a bias, dropout, or both. */
#include "kernels/attention_backward_launch.cuh"

tartan_status tartan_cuda_attention_backward_extras(const char *function, tartan_cuda_queue *queue,
                                                    const void *problem) {
    return tartan_cuda::start_backward<true>(function, queue,
                                             (const tartan_cuda_attention_backward *)problem);
}
