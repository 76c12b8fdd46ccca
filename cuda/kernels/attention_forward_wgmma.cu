/* SPDX-License-Identifier: Apache-2.0
 * The forward pass of attention on Hopper's tensor cores. A tile of 64 or 128 queries of one head walks the merged list of
 * the key blocks of its lines, 64 or 128 keys at a time, with a running maximum (FlashAttention-2). One warp loads
 * queries, keys and values by TMA; a warpgroup keeps 64 queries' scores and results in registers. Blocks that a line lacks,
 * keys past the limit and bits of the block mask become scores of -infinity, only in tiles of keys that need it.
 *
 * Blocks of 128 queries: both warpgroups of a CTA share the keys and take turns at the tensor cores, so that one computes
 * exponentials while the other multiplies. Smaller blocks: each has a list of its own, and they do the same without any
 * agreement.
 *
 * What limits it: where 64 queries share keys, bytes from L2 (64 FLOP a byte: about 510 TFLOP/s at 8 TB/s); where fewer
 * do, that most of the merged list is not theirs; else the exponentials beside the products. */
#include "kernels/attention_forward_wgmma.cuh"

#include "device/tensor_map.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/attention_map.h"
#include "layout/block_mask.h"

namespace tartan_cuda {

namespace {

template <class Form>
AttentionProblem describe(const tartan_cuda_attention_forward *f, const tartan_cuda_group_index &u) {
    const tartan_cuda_attention &in = f->in;
    AttentionProblem p = {};
    p.pointers = u.pointers, p.cols = u.cols, p.ids = u.ids, p.order = u.order;
    p.groups = u.groups_per_head, p.lines = u.group;
    p.batch = (int32_t)in.batch, p.heads = (int32_t)in.heads,
    p.heads_per_kv = (int32_t)(in.heads / in.kv_heads);
    p.layout_entry = (int32_t)in.layout_entry, p.layout_head = (int32_t)in.layout_head;
    p.last_first = in.causal && u.longest * u.groups_per_head * in.layout_heads == u.entries;
    p.tiles = p.batch * p.heads * p.groups;
    p.tq = (int32_t)in.tq, p.tk = (int32_t)in.tk, p.d = (int32_t)in.d;
    p.block_q = in.block_q, p.block_k = in.block_k;
    while (1 << p.shift_q < in.block_q) p.shift_q++;
    while (1 << p.shift_k < in.block_k) p.shift_k++;
    p.slots = in.block_k < Form::kKeys ? Form::kKeys / in.block_k : 1;
    p.parts = in.block_k > Form::kKeys ? in.block_k / Form::kKeys : 1;
    while (1 << p.shift_slots < p.slots) p.shift_slots++;
    while (1 << p.shift_parts < p.parts) p.shift_parts++;
    p.needs_ids = p.lines > 1 || in.block_mask != nullptr;
    p.scale = (float)in.scale;
    p.causal = in.causal;
    p.query_offset = in.query_offset, p.causal_from = in.causal_from;
    p.boxes = f->out.dtype == in.dtype && is_boxed(f->out, in.heads, in.batch);
    p.out = f->out.data, p.out_dtype = f->out.dtype;
    p.out_batch = f->out.batch, p.out_head = f->out.head, p.out_token = f->out.token,
    p.out_element = f->out.element;
    p.lse = (float *)f->lse.data;
    p.lse_batch = f->lse.batch, p.lse_head = f->lse.head, p.lse_token = f->lse.token;
    p.q = in.q.data, p.q_batch = in.q.batch, p.q_head = in.q.head, p.q_token = in.q.token;
    p.k = in.k.data, p.k_batch = in.k.batch, p.k_head = in.k.head, p.k_token = in.k.token;
    p.v = in.v.data, p.v_batch = in.v.batch, p.v_head = in.v.head, p.v_token = in.v.token;
    return p;
}

template <class Form>
tartan_status start(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention_forward *f) {
    const tartan_cuda_attention &in = f->in;
    const int32_t rows = in.block_k < Form::kKeys ? in.block_k : Form::kKeys;
    tartan_cuda_group_index u;
    PASS(tartan_cuda_index_get_groups(function, queue, in.layout, false, Form::kRows / in.block_q, &u));
    AttentionProblem p = describe<Form>(f, u);
    if (in.block_mask != nullptr) {
        p.row_words = (int32_t)in.block_mask->row_words;
        PASS(tartan_cuda_index_get_bits(function, queue, in.block_mask, false, &p.bits));
    }
    p.counters = queue->counters + TARTAN_CUDA_SIDED_SETS * TARTAN_CUDA_SIDED_COUNTERS;
    CUtensorMap q, k, v, out = {};
    PASS(map_tokens(function, &in.q, in.d, in.tq, in.heads, in.batch, 64, &q));
    PASS(map_tokens(function, &in.k, in.d, in.tk, in.kv_heads, in.batch, rows, &k));
    PASS(map_tokens(function, &in.v, in.d, in.tk, in.kv_heads, in.batch, rows, &v));
    if (p.boxes) PASS(map_tokens(function, &f->out, in.d, in.tq, in.heads, in.batch, 64, &out));
    const auto kernel =
        in.dtype == TARTAN_F16 ? attention_forward<Factor::f16, Form> : attention_forward<Factor::bf16, Form>;
    const cudaError_t error = cudaFuncSetAttribute(
        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)Form::kShared);
    PASS(tartan_cuda_check(function, error, "setting the kernel's shared memory"));
    const int32_t needed = (p.tiles + Form::kTeams - 1) / Form::kTeams, most = queue->chip.processors;
    const dim3 grid((unsigned)(needed < most ? needed : most));
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, false, kernel, grid, dim3(kAttentionThreads),
                                                      Form::kShared, p, q, k, v, out),
                             "starting the kernel attention_forward_wgmma");
}

} // namespace

} // namespace tartan_cuda

tartan_status tartan_cuda_attention_forward_wgmma(const char *function, tartan_cuda_queue *queue,
                                                  const void *problem) {
    using namespace tartan_cuda;
    const auto *f = (const tartan_cuda_attention_forward *)problem;
    if (f->in.block_q == 128)
        return f->in.d > 128  ? start<AttentionForm<256, 1, 64, 2, 1>>(function, queue, f)
               : f->in.d > 64 ? start<AttentionForm<128, 1, 128, 2, 2>>(function, queue, f)
                              : start<AttentionForm<64, 1, 128, 4, 2>>(function, queue, f);
    return f->in.d > 128  ? start<AttentionForm<256, 2, 64, 1, 1>>(function, queue, f)
           : f->in.d > 64 ? start<AttentionForm<128, 2, 64, 3, 1>>(function, queue, f)
                          : start<AttentionForm<64, 2, 64, 4, 2>>(function, queue, f);
}
