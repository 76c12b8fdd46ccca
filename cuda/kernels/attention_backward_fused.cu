/* SPDX-License-Identifier: Apache-2.0
 * The backward pass of attention on Hopper's tensor cores, in one kernel: keys and values stay, queries and gradients of
 * the output stream past, and each pair of tiles is multiplied five times, where attention_backward_wgmma.cu needs seven
 * products. The parts of dq that tiles of keys give are added up in memory, in f32, in an order that depends on the run;
 * a last kernel rounds them. */
#include "kernels/attention_backward_fused.cuh"

#include "kernels/attention_backward_round.cuh"
#include "kernels/attention_backward_start.cuh"

namespace tartan_cuda {

namespace {

/* What lies in scratch memory: for each of the two lists of rows that are computed again a counter (8 bytes) and the
 * rows; lse and delta; the sums of dq. */
struct FusedScratch {
    KeyParts parts; /* sums of dk and dv */
    int64_t *wrong; /* counters of queries and keys, then the lists */
    int64_t queries, keys;
    float *lse, *delta, *sums;
    int64_t sum_bytes;
};

template <Factor kFactor, class Form>
tartan_status start_fused(const char *function, tartan_cuda_queue *queue,
                          const tartan_cuda_attention_backward *b, const FusedScratch &scratch) {
    using T = typename std::conditional<kFactor == Factor::f16, __half, __nv_bfloat16>::type;
    const tartan_cuda_attention &in = b->in;
    const int32_t padded = padded_queries(in);
    PASS(tartan_cuda_check(function, cudaMemsetAsync(scratch.sums, 0, scratch.sum_bytes, queue->stream),
                           "clearing sums"));
    PASS(start_prepare<T>(function, queue, b, scratch.lse, scratch.delta, scratch.wrong));
    BackwardProblem keys = describe(b, scratch.lse, scratch.delta, padded), queries = keys;
    keys.wrong_count = (int32_t *)(scratch.wrong + 1), keys.wrong_rows = scratch.wrong + 2 + scratch.queries;
    queries.wrong_count = (int32_t *)scratch.wrong, queries.wrong_rows = scratch.wrong + 2;
    PASS(describe_side<Form>(function, queue, b, true, scratch.parts, &keys));
    PASS(describe_side<Form>(function, queue, b, false, scratch.parts, &queries));
    BackwardMaps m = {};
    PASS(make_maps(function, b, keys, &m));
    if (in.tk > 0)
        PASS(start_tiles<Form>(function, queue, "starting the kernel attention_backward_fused", true,
                               attention_fused<kFactor, Form>, keys, scratch.sums, m.k, m.v, m.q, m.out_grad,
                               m.out0, m.out1));
    const int64_t pieces = in.batch * in.heads * padded / 8;
    PASS(tartan_cuda_check(function,
                           tartan_cuda_launch_early(queue, true, store_query_gradient<kFactor, Form>,
                                                    tartan_cuda_grid((pieces + 7) / 8), dim3(256), 0, queries,
                                                    scratch.sums, pieces),
                           "starting the kernel that rounds the gradient of queries"));
    PASS(repair<T>(function, queue, b, queries, keys));
    return add_parts(function, queue, b, scratch.parts);
}

template <class Form>
tartan_status start_form(const char *function, tartan_cuda_queue *queue,
                         const tartan_cuda_attention_backward *b) {
    const tartan_cuda_attention &in = b->in;
    const int64_t rows = in.batch * in.heads * padded_queries(in);
    FusedScratch s = {};
    s.parts = count_key_parts<Form>(queue, in);
    s.queries = in.batch * in.heads * in.tq, s.keys = in.batch * in.kv_heads * s.parts.count * in.tk;
    s.sum_bytes = rows * Form::kWidth * (int64_t)sizeof(float);
    /* Rows of keys are listed twice: for dk and for dv. */
    const int64_t lists = (8 * (2 + s.queries + 2 * s.keys) + 255) / 256 * 256,
                  vectors = rows * 2 * (int64_t)sizeof(float);
    void *memory = nullptr;
    PASS(tartan_cuda_scratch(function, queue, s.parts.bytes + lists + vectors + s.sum_bytes, &memory));
    s.parts.sums = (float *)memory;
    s.wrong = (int64_t *)((char *)memory + s.parts.bytes);
    s.lse = (float *)((char *)s.wrong + lists), s.delta = s.lse + rows, s.sums = s.delta + rows;
    const tartan_status status = in.dtype == TARTAN_F16
                                     ? start_fused<Factor::f16, Form>(function, queue, b, s)
                                     : start_fused<Factor::bf16, Form>(function, queue, b, s);
    tartan_cuda_scratch_free(queue, memory);
    return status;
}

} // namespace

} // namespace tartan_cuda

tartan_status tartan_cuda_attention_backward_fused(const char *function, tartan_cuda_queue *queue,
                                                   const void *problem) {
    using namespace tartan_cuda;
    const auto *b = (const tartan_cuda_attention_backward *)problem;
    if (b->in.d > 64) return start_form<FusedForm<128, 1, 3>>(function, queue, b);
    return b->in.block_k == 128 ? start_form<FusedForm<64, 1, 5>>(function, queue, b)
                                : start_form<FusedForm<64, 2, 4>>(function, queue, b);
}
