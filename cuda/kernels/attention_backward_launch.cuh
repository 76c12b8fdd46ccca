/* SPDX-License-Identifier: Apache-2.0
 * How attention_backward_wgmma.cu and attention_backward_extras.cu start their kernels. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_LAUNCH_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_LAUNCH_CUH

#include "kernels/attention_backward_start.cuh"

namespace tartan_cuda {

namespace {

template <class Form, bool kExtras>
tartan_status start(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention_backward *b,
                    bool by_keys, const KeyParts &parts, BackwardProblem *problem, BackwardMaps *maps) {
    PASS(describe_side<Form>(function, queue, b, by_keys, parts, problem));
    const BackwardProblem &p = *problem;
    const BackwardMaps &m = *maps;
    PASS(make_maps(function, b, p, maps));
    const bool half = b->in.dtype == TARTAN_F16;
    const auto kernel = by_keys ? half ? attention_backward<Factor::f16, Form, true, kExtras>
                                       : attention_backward<Factor::bf16, Form, true, kExtras>
                        : half ? attention_backward<Factor::f16, Form, false, kExtras>
                                : attention_backward<Factor::bf16, Form, false, kExtras>;
    const char *const what = "starting the kernel attention_backward_wgmma";
    return by_keys ? start_tiles<Form>(function, queue, what, b->in.tq > 0, kernel, p, m.k, m.v, m.q,
                                       m.out_grad, m.out0, m.out1)
                   : start_tiles<Form>(function, queue, what, false, kernel, p, m.q, m.out_grad, m.k, m.v,
                                       m.out0, m.out1);
}

/* Calls f with the form of tiles that keep queries or keys. */
template <class F> auto with_form(const tartan_cuda_attention &in, bool by_keys, F &&f) {
    if (in.d > 128) return f(BackwardForm<256, 1, 2, 1, true>());
    if ((by_keys ? in.block_k : in.block_q) == 128)
        return in.d > 64 ? f(BackwardForm<128, 1, 3, 2>()) : f(BackwardForm<64, 1, 6, 2>());
    return in.d > 64 ? f(BackwardForm<128, 2, 2>()) : f(BackwardForm<64, 2, 4, 2>());
}

template <bool kExtras>
tartan_status start_side(const char *function, tartan_cuda_queue *queue,
                         const tartan_cuda_attention_backward *b, bool by_keys, const KeyParts &parts,
                         BackwardProblem *p, BackwardMaps *m) {
    if ((by_keys ? b->in.tk : b->in.tq) == 0) return TARTAN_OK;
    return with_form(b->in, by_keys, [&](auto form) {
        return start<decltype(form), kExtras>(function, queue, b, by_keys, parts, p, m);
    });
}

template <typename T, bool kExtras>
tartan_status start_sides(const char *function, tartan_cuda_queue *queue,
                          const tartan_cuda_attention_backward *b, const KeyParts &parts, int64_t *wrong,
                          float *lse, float *delta) {
    const int64_t listed = b->in.batch * b->in.heads * b->in.tq;
    BackwardProblem queries = describe(b, lse, delta, padded_queries(b->in)), keys = queries;
    if (b->in.tq > 0 && is_boxed(b->out, b->in.heads, b->in.batch)) {
        queries.out = b->out, queries.logs = b->lse;
        PASS(tartan_cuda_check(function, cudaMemsetAsync(wrong, 0, 2 * sizeof *wrong, queue->stream),
                               "clearing counters"));
    } else {
        PASS(start_prepare<T>(function, queue, b, lse, delta, wrong));
    }
    queries.wrong_count = (int32_t *)wrong, queries.wrong_rows = wrong + 2;
    keys.wrong_count = (int32_t *)(wrong + 1), keys.wrong_rows = wrong + 2 + listed;
    BackwardMaps maps = {};
    PASS(start_side<kExtras>(function, queue, b, false, parts, &queries, &maps));
    PASS(start_side<kExtras>(function, queue, b, true, parts, &keys, &maps));
    PASS(repair<T>(function, queue, b, queries, keys));
    return add_parts(function, queue, b, parts);
}

template <bool kExtras>
tartan_status start_backward(const char *function, tartan_cuda_queue *queue,
                             const tartan_cuda_attention_backward *b) {
    const tartan_cuda_attention &in = b->in;
    const int64_t rows = in.batch * in.heads * padded_queries(in);
    void *scratch = nullptr;
    KeyParts parts =
        with_form(in, true, [&](auto form) { return count_key_parts<decltype(form)>(queue, in); });
    /* Sums of parts, lse and delta, then for each kernel a counter (8 bytes) and a list of rows, twice as long for dk and dv. */
    const int64_t queries = in.batch * in.heads * in.tq, keys = in.batch * in.kv_heads * parts.count * in.tk;
    const int64_t lists =
        (8 * (2 + queries + 2 * keys) + 127) / 128 * 128; /* bulk copies read what follows */
    PASS(tartan_cuda_scratch(function, queue, parts.bytes + lists + rows * 2 * (int64_t)sizeof(float),
                             &scratch));
    parts.sums = (float *)scratch; /* their bytes are a multiple of 64 */
    int64_t *wrong = (int64_t *)((char *)scratch + parts.bytes);
    float *lse = (float *)(wrong + lists / 8), *delta = lse + rows;
    const tartan_status status =
        in.dtype == TARTAN_F16
            ? start_sides<__half, kExtras>(function, queue, b, parts, wrong, lse, delta)
            : start_sides<__nv_bfloat16, kExtras>(function, queue, b, parts, wrong, lse, delta);
    tartan_cuda_scratch_free(queue, scratch);
    return status;
}

} // namespace

} // namespace tartan_cuda

#endif
