/* SPDX-License-Identifier: Apache-2.0
 * The kernels of attention_forward_wgmma.cu with a bias, dropout, or both. */
#include "kernels/attention_forward_launch.cuh"

tartan_status tartan_cuda_attention_forward_extras(const char *function, tartan_cuda_queue *queue,
                                                   const void *problem) {
    return tartan_cuda::start_form<true>(function, queue, (const tartan_cuda_attention_forward *)problem);
}
