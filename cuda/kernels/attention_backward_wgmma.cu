/* SPDX-License-Identifier: Apache-2.0
 * The backward pass of attention on Hopper's tensor cores, in two kernels, so that each sum has one order and results do
 * not depend on the run:
 *   - dq: queries stay, keys and values of the merged list stream past: 3 products for each pair of tiles;
 *   - dk and dv: keys stay, queries and gradients stream past: 4 products.
 * Both compute the scores again from lse. So 14 d operations are done for each pair of tokens, of which 10 d count.
 *
 * Both need delta[i] = out[i] . out_grad[i] and lse * log2(e), infinity where a query sees no key and past the end, which makes
 * all weights 0 there: [batch][heads][padded], `padded` being the queries rounded up to 128 and 64 more. The kernel of dq
 * computes them for its own queries and stores them for the kernel of dk and dv; where `out` cannot be read 16 bytes at a time,
 * another kernel computes them before both. */
#include "kernels/attention_backward_launch.cuh"

tartan_status tartan_cuda_attention_backward_wgmma(const char *function, tartan_cuda_queue *queue,
                                                   const void *problem) {
    const auto *b = (const tartan_cuda_attention_backward *)problem;
    return tartan_cuda::has_extras(b->in) ? tartan_cuda_attention_backward_extras(function, queue, problem)
                                          : tartan_cuda::start_backward<false>(function, queue, b);
}
