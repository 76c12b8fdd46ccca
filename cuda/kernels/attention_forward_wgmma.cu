/* SPDX-License-Identifier: Apache-2.0
 * The forward pass of attention on Hopper's tensor cores. A tile of 64 or 128 queries of one head walks the merged list of
 * the key blocks of its lines, 64 or 128 keys at a time. What is subtracted from scores is the running maximum
 * (FlashAttention-2), which is raised only once a weight would be above 2^8 (FlashAttention-4). One warp loads queries, keys and
 * values by TMA; a warpgroup keeps 64 queries' scores and results in registers. Blocks that a line lacks, keys past the limit
 * and bits of the block mask become scores of -infinity, only in tiles of keys that need it.
 *
 * Blocks of 128 queries: both warpgroups of a CTA share the keys and take turns at the tensor cores, so that one computes
 * exponentials while the other multiplies; with up to 64 elements a head each multiplies beside its own exponentials as well
 * (attention_forward_deep.cuh). Smaller blocks: each has a list of its own, and they do the same without any agreement.
 *
 * What limits it: where 64 queries share keys, bytes from L2 (64 FLOP a byte: about 510 TFLOP/s at 8 TB/s); where fewer do, that
 * most blocks of the merged list are not theirs; with up to 64 elements a head, the instructions of two warps a scheduler; else
 * products and their power. */
#include "kernels/attention_forward_launch.cuh"

tartan_status tartan_cuda_attention_forward_wgmma(const char *function, tartan_cuda_queue *queue,
                                                  const void *problem) {
    const auto *f = (const tartan_cuda_attention_forward *)problem;
    return tartan_cuda::has_extras(f->in) ? tartan_cuda_attention_forward_extras(function, queue, problem)
                                          : tartan_cuda::start_form<false>(function, queue, f);
}
