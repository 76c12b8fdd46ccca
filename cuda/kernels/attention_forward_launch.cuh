/* SPDX-License-Identifier: Apache-2.0
 * How attention_forward_wgmma.cu and attention_forward_extras.cu start their kernels. */
#ifndef TARTAN_CUDA_ATTENTION_FORWARD_LAUNCH_CUH
#define TARTAN_CUDA_ATTENTION_FORWARD_LAUNCH_CUH

#include "device/tensor_map.h"
#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/attention_forward_wgmma.cuh"
#include "kernels/attention_map.h"
#include "kernels/attention_split.cuh"

namespace tartan_cuda {

namespace {

template <class Form>
AttentionProblem describe(const tartan_cuda_attention_forward *f, const tartan_cuda_group_index &u) {
    const tartan_cuda_attention &in = f->in;
    AttentionProblem p = {};
    static_cast<AttentionLists &>(p) = lists_of(in, u, false, Form::kKeys);
    p.batch = (int32_t)in.batch, p.heads = (int32_t)in.heads,
    p.heads_per_kv = (int32_t)(in.heads / in.kv_heads);
    p.tiles = p.batch * p.heads * p.groups, p.splits = 1;
    p.d = (int32_t)in.d;
    p.scale = (float)in.scale;
    p.boxes = f->out.dtype == in.dtype && is_boxed(f->out, in.heads, in.batch);
    p.out = f->out.data, p.out_dtype = f->out.dtype;
    p.out_batch = f->out.batch, p.out_head = f->out.head, p.out_token = f->out.token,
    p.out_element = f->out.element;
    p.lse = (float *)f->lse.data;
    p.lse_batch = f->lse.batch, p.lse_head = f->lse.head, p.lse_token = f->lse.token;
    p.sinks = (const float *)f->sinks, p.sinks_element = f->sinks_element;
    p.q = in.q.data, p.q_batch = in.q.batch, p.q_head = in.q.head, p.q_token = in.q.token;
    p.k = in.k.data, p.k_batch = in.k.batch, p.k_head = in.k.head, p.k_token = in.k.token;
    p.v = in.v.data, p.v_batch = in.v.batch, p.v_head = in.v.head, p.v_token = in.v.token;
    return p;
}

template <class Form, bool kExtras>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention_forward *f,
                     const AttentionProblem &p) {
    const tartan_cuda_attention &in = f->in;
    const int32_t rows = in.block_k < Form::kKeys ? in.block_k : Form::kKeys;
    CUtensorMap q, k, v, out = {};
    PASS(map_tokens(function, &in.q, in.d, in.tq, in.heads, in.batch, 64, &q));
    PASS(map_tokens(function, &in.k, in.d, in.tk, in.kv_heads, in.batch, rows, &k));
    PASS(map_tokens(function, &in.v, in.d, in.tk, in.kv_heads, in.batch, rows, &v));
    if (p.boxes) PASS(map_tokens(function, &f->out, in.d, in.tq, in.heads, in.batch, 64, &out));
    const auto kernel = in.dtype == TARTAN_F16 ? attention_forward<Factor::f16, Form, kExtras>
                                               : attention_forward<Factor::bf16, Form, kExtras>;
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, Form::kShared));
    const int32_t needed = (p.tiles + Form::kTeams - 1) / Form::kTeams, most = queue->chip.processors;
    const dim3 grid((unsigned)(needed < most ? needed : most));
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, false, kernel, grid, dim3(kAttentionThreads),
                                                      Form::kShared, p, q, k, v, out),
                             "starting the kernel attention_forward_wgmma");
}

template <class Form, bool kExtras>
tartan_status start(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention_forward *f) {
    const tartan_cuda_attention &in = f->in;
    tartan_cuda_group_index u;
    PASS(tartan_cuda_index_get_groups(function, queue, in.layout, false, Form::kRows / in.block_q, &u));
    AttentionProblem p = describe<Form>(f, u);
    if (in.block_mask != nullptr)
        PASS(tartan_cuda_index_get_block_mask(function, queue, in.block_mask, false, &p.mask));
    p.counters = queue->counters + TARTAN_CUDA_SIDED_SETS * TARTAN_CUDA_SIDED_COUNTERS;
    const int32_t slots = queue->chip.processors * Form::kTeams;
    choose_panel(&p, in, u, Form::kRows, slots, in.batch * in.heads, p.heads_per_kv, 0);
    const int32_t splits = splits_of(p, u, in.layout_heads, slots);
    if (splits == 1) return launch<Form, kExtras>(function, queue, f, p);
    const int64_t rows = in.batch * in.heads * in.tq;
    void *scratch = nullptr;
    PASS(tartan_cuda_scratch(function, queue, splits * rows * (in.d + 1) * (int64_t)sizeof(float), &scratch));
    const Merge merge = split(&p, f, splits, (float *)scratch);
    tartan_status status = launch<Form, kExtras>(function, queue, f, p);
    if (status == TARTAN_OK)
        status = tartan_cuda_launch(function, queue, merge_parts,
                                    dim3((unsigned)((rows * ((in.d + 31) / 32) + 7) / 8)), dim3(256), merge);
    tartan_cuda_scratch_free(queue, scratch);
    return status;
}

template <bool kExtras>
tartan_status start_form(const char *function, tartan_cuda_queue *queue,
                         const tartan_cuda_attention_forward *f) {
    if (f->in.block_q == 128)
        return f->in.d > 128  ? start<AttentionForm<256, 1, 64, 2, 1>, kExtras>(function, queue, f)
               : f->in.d > 64 ? start<AttentionForm<128, 1, 128, 2, 2>, kExtras>(function, queue, f)
                              : start<AttentionForm<64, 1, 128, 4, 2>, kExtras>(function, queue, f);
    return f->in.d > 128  ? start<AttentionForm<256, 2, 64, 1, 1>, kExtras>(function, queue, f)
           : f->in.d > 64 ? start<AttentionForm<128, 2, 64, 3, 1>, kExtras>(function, queue, f)
                          : start<AttentionForm<64, 2, 64, 4, 2>, kExtras>(function, queue, f);
}

} // namespace

} // namespace tartan_cuda

#endif
