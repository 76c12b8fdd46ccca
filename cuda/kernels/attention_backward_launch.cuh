/* SPDX-License-Identifier: Apache-2.0
 * How attention_backward_wgmma.cu and attention_backward_extras.cu start their kernels. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_LAUNCH_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_LAUNCH_CUH

#include "kernels/attention_backward_start.cuh"

namespace tartan_cuda {

namespace {

template <class Form, bool kExtras>
tartan_status start(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention_backward *b,
                    bool by_keys, BackwardProblem p) {
    BackwardMaps m;
    PASS(describe_side<Form>(function, queue, b, by_keys, &p));
    PASS(make_maps(function, b, p, &m));
    const bool half = b->in.dtype == TARTAN_F16;
    const auto kernel = by_keys ? half ? attention_backward<Factor::f16, Form, true, kExtras>
                                       : attention_backward<Factor::bf16, Form, true, kExtras>
                        : half ? attention_backward<Factor::f16, Form, false, kExtras>
                                : attention_backward<Factor::bf16, Form, false, kExtras>;
    const char *const what = "starting the kernel attention_backward_wgmma";
    PASS(
        by_keys
            ? start_tiles<Form>(function, queue, what, kernel, p, m.k, m.v, m.q, m.out_grad, m.out0, m.out1)
            : start_tiles<Form>(function, queue, what, kernel, p, m.q, m.out_grad, m.k, m.v, m.out0, m.out1));
    return half ? repair<__half>(function, queue, b, p) : repair<__nv_bfloat16>(function, queue, b, p);
}

template <bool kExtras>
tartan_status start_side(const char *function, tartan_cuda_queue *queue,
                         const tartan_cuda_attention_backward *b, bool by_keys, const BackwardProblem &p) {
    const int32_t kept = by_keys ? b->in.block_k : b->in.block_q;
    if ((by_keys ? b->in.tk : b->in.tq) == 0) return TARTAN_OK;
    if (b->in.d > 128) return start<BackwardForm<256, 1, 2, true>, kExtras>(function, queue, b, by_keys, p);
    if (kept == 128)
        return b->in.d > 64 ? start<BackwardForm<128, 1, 4>, kExtras>(function, queue, b, by_keys, p)
                            : start<BackwardForm<64, 1, 6>, kExtras>(function, queue, b, by_keys, p);
    return b->in.d > 64 ? start<BackwardForm<128, 2, 2>, kExtras>(function, queue, b, by_keys, p)
                        : start<BackwardForm<64, 2, 4>, kExtras>(function, queue, b, by_keys, p);
}

template <bool kExtras>
tartan_status start_backward(const char *function, tartan_cuda_queue *queue,
                             const tartan_cuda_attention_backward *b) {
    const tartan_cuda_attention &in = b->in;
    const int32_t padded = padded_queries(in);
    const int64_t rows = in.batch * in.heads * padded;
    void *scratch = nullptr;
    /* lse and delta, then for each kernel a counter (8 bytes) and a list of rows, twice as long for dk and dv. */
    const int64_t queries = in.batch * in.heads * in.tq, keys = in.batch * in.kv_heads * in.tk;
    const int64_t lists =
        (8 * (2 + queries + 2 * keys) + 127) / 128 * 128; /* bulk copies read what follows */
    PASS(tartan_cuda_scratch(function, queue, lists + rows * 2 * (int64_t)sizeof(float), &scratch));
    int64_t *wrong = (int64_t *)scratch;
    float *lse = (float *)(wrong + lists / 8), *delta = lse + rows;
    tartan_status status = in.dtype == TARTAN_F16
                               ? start_prepare<__half>(function, queue, b, lse, delta)
                               : start_prepare<__nv_bfloat16>(function, queue, b, lse, delta);
    BackwardProblem p = describe(b, lse, delta, padded);
    if (status == TARTAN_OK)
        status =
            tartan_cuda_check(function, cudaMemsetAsync(wrong, 0, 16, queue->stream), "clearing counters");
    p.wrong_count = (int32_t *)wrong, p.wrong_rows = wrong + 2;
    if (status == TARTAN_OK) status = start_side<kExtras>(function, queue, b, false, p);
    p.wrong_count = (int32_t *)(wrong + 1), p.wrong_rows = wrong + 2 + queries;
    if (status == TARTAN_OK) status = start_side<kExtras>(function, queue, b, true, p);
    tartan_cuda_scratch_free(queue, scratch);
    return status;
}

} // namespace

} // namespace tartan_cuda

#endif
