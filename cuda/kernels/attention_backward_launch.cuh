/* SPDX-License-Identifier: Apache-2.0
 * How attention_backward_wgmma.cu and attention_backward_extras.cu start their kernels. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_LAUNCH_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_LAUNCH_CUH

#include "device/tensor_map.h"
#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/attention_backward_wgmma.cuh"
#include "kernels/attention_map.h"

namespace tartan_cuda {

namespace {

/* Elements of a token from `at` on, of which 8 are there if `vectors`. */
template <typename T>
__device__ __forceinline__ float product_of(const T *x, const T *y, int64_t x_element, int64_t y_element,
                                            int32_t at, int32_t d, bool vectors) {
    float sum = 0;
    if (vectors) {
        const auto left = *(const tartan_cuda_pack<T, 8> *)(x + at),
                   right = *(const tartan_cuda_pack<T, 8> *)(y + at);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum = fmaf(tartan_cuda_to<float>(left.at[i]), tartan_cuda_to<float>(right.at[i]), sum);
        return sum;
    }
    for (int32_t i = at; i < min(at + 8, d); i++)
        sum = fmaf(tartan_cuda_to<float>(x[i * x_element]), tartan_cuda_to<float>(y[i * y_element]), sum);
    return sum;
}

/* 16 lanes for each query, 8 elements a lane. */
template <typename T>
__global__ void prepare(const tartan_cuda_tensor out, const tartan_cuda_tensor out_grad,
                        const tartan_cuda_tensor lse, int64_t rows, int32_t heads, int32_t tq, int32_t padded,
                        int32_t d, bool vectors, float *lse2, float *delta) {
    const int32_t lane = threadIdx.x % 16;
    for (int64_t first = (int64_t)blockIdx.x * (blockDim.x / 16); first < rows;
         first += (int64_t)gridDim.x * (blockDim.x / 16)) {
        const int64_t at = first + threadIdx.x / 16;
        const int64_t query = at % padded, matrix = at / padded, head = matrix % heads,
                      entry = matrix / heads;
        float sum = 0, value = INFINITY;
        if (at < rows && query < tq) {
            const T *x = (const T *)out.data + entry * out.batch + head * out.head + query * out.token;
            const T *y = (const T *)out_grad.data + entry * out_grad.batch + head * out_grad.head +
                         query * out_grad.token;
            for (int32_t i = 8 * lane; i < d; i += 128)
                sum += product_of(x, y, out.element, out_grad.element, i, d, vectors);
            const float log =
                ((const float *)lse.data)[entry * lse.batch + head * lse.head + query * lse.token];
            if (log != -INFINITY) value = log * kLog2E;
        }
#pragma unroll
        for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        if (at < rows && lane == 0) lse2[at] = value, delta[at] = sum;
    }
}

Gradient gradient_of(const tartan_cuda_tensor &t) {
    return {t.data, t.batch, t.head, t.token, t.element};
}

/* All but what depends on the side that is kept. */
BackwardProblem describe(const tartan_cuda_attention_backward *b, const float *lse, const float *delta,
                         int32_t padded) {
    const tartan_cuda_attention &in = b->in;
    BackwardProblem p = {};
    p.heads_per_kv = (int32_t)(in.heads / in.kv_heads);
    p.d = (int32_t)in.d, p.dtype = in.dtype;
    p.scale = (float)in.scale;
    p.lse = lse, p.delta = delta;
    p.heads = (int32_t)in.heads, p.padded = padded;
    return p;
}

template <typename T> Tokens<T> tokens_of(const tartan_cuda_tensor &t) {
    return {(const T *)t.data, t.batch, t.head, t.token};
}

/* Computes the listed rows again: none, as a rule, so few CTAs. */
template <typename T>
tartan_status repair(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention_backward *b,
                     const BackwardProblem &p) {
    const Tokens<T> q = tokens_of<T>(b->in.q), k = tokens_of<T>(b->in.k), v = tokens_of<T>(b->in.v),
                    g = tokens_of<T>(b->out_grad);
    const dim3 grid((unsigned)queue->chip.processors);
    return p.by_keys
               ? tartan_cuda_launch(function, queue, repair_gradients<T>, grid, dim3(256), p, k, v, q, g)
               : tartan_cuda_launch(function, queue, repair_gradients<T>, grid, dim3(256), p, q, g, k, v);
}

template <class Form, bool kExtras>
tartan_status start(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention_backward *b,
                    bool by_keys, BackwardProblem p) {
    const tartan_cuda_attention &in = b->in;
    const int32_t kept = by_keys ? in.block_k : in.block_q, streamed = by_keys ? in.block_q : in.block_k;
    tartan_cuda_group_index u;
    PASS(tartan_cuda_index_get_groups(function, queue, in.layout, by_keys,
                                      kept < Form::kRows ? Form::kRows / kept : 1, &u));
    static_cast<AttentionLists &>(p) = lists_of(in, u, by_keys, Form::kStreamed);
    if (in.block_mask != nullptr)
        PASS(tartan_cuda_index_get_block_mask(function, queue, in.block_mask, by_keys, &p.mask));
    p.kept_heads = (int32_t)(by_keys ? in.kv_heads : in.heads);
    p.streamed_heads = by_keys ? p.heads_per_kv : 1;
    p.group_rows = kept < Form::kRows ? Form::kRows : kept;
    p.kept_parts = p.group_rows / Form::kRows;
    p.tiles = (int32_t)in.batch * p.kept_heads * p.groups * p.kept_parts;
    p.counters = queue->counters + TARTAN_CUDA_SIDED_SETS * TARTAN_CUDA_SIDED_COUNTERS;
    if (by_keys) {
        p.gradients[0] = gradient_of(b->k_grad), p.gradients[1] = gradient_of(b->v_grad);
    } else {
        p.gradients[0] = gradient_of(b->q_grad);
    }
    const int32_t q_box = by_keys && streamed < 64 ? streamed : 64,
                  k_box = !by_keys && streamed < 64 ? streamed : 64;
    CUtensorMap q, k, v, g;
    PASS(map_tokens(function, &in.q, in.d, in.tq, in.heads, in.batch, q_box, &q));
    PASS(map_tokens(function, &b->out_grad, in.d, in.tq, in.heads, in.batch, q_box, &g));
    PASS(map_tokens(function, &in.k, in.d, in.tk, in.kv_heads, in.batch, k_box, &k));
    PASS(map_tokens(function, &in.v, in.d, in.tk, in.kv_heads, in.batch, k_box, &v));
    const tartan_cuda_tensor &first = by_keys ? b->k_grad : b->q_grad;
    p.boxes =
        is_boxed(first, p.kept_heads, in.batch) && (!by_keys || is_boxed(b->v_grad, p.kept_heads, in.batch));
    CUtensorMap out0 = {}, out1 = {};
    if (p.boxes) PASS(map_tokens(function, &first, in.d, p.rows, p.kept_heads, in.batch, 64, &out0));
    if (p.boxes && by_keys)
        PASS(map_tokens(function, &b->v_grad, in.d, in.tk, in.kv_heads, in.batch, 64, &out1));
    const bool half = in.dtype == TARTAN_F16;
    const auto kernel = by_keys ? half ? attention_backward<Factor::f16, Form, true, kExtras>
                                       : attention_backward<Factor::bf16, Form, true, kExtras>
                        : half ? attention_backward<Factor::f16, Form, false, kExtras>
                                : attention_backward<Factor::bf16, Form, false, kExtras>;
    const cudaError_t error = cudaFuncSetAttribute(
        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)Form::kShared);
    PASS(tartan_cuda_check(function, error, "setting the kernel's shared memory"));
    const int32_t needed = (p.tiles + Form::kTeams - 1) / Form::kTeams, most = queue->chip.processors;
    const dim3 grid((unsigned)(needed < most ? needed : most));
    PASS(tartan_cuda_check(function,
                           by_keys
                               ? tartan_cuda_launch_early(queue, false, kernel, grid, dim3(kBackwardThreads),
                                                          Form::kShared, p, k, v, q, g, out0, out1)
                               : tartan_cuda_launch_early(queue, false, kernel, grid, dim3(kBackwardThreads),
                                                          Form::kShared, p, q, g, k, v, out0, out1),
                           "starting the kernel attention_backward_wgmma"));
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
    const int32_t padded = (int32_t)((in.tq + 127) / 128 * 128 + 64);
    const int64_t rows = in.batch * in.heads * padded;
    void *scratch = nullptr;
    /* lse and delta, then for each kernel a counter (8 bytes) and a list of rows, twice as long for dk and dv. */
    const int64_t queries = in.batch * in.heads * in.tq, keys = in.batch * in.kv_heads * in.tk;
    const int64_t lists =
        (8 * (2 + queries + 2 * keys) + 127) / 128 * 128; /* bulk copies read what follows */
    PASS(tartan_cuda_scratch(function, queue, lists + rows * 2 * (int64_t)sizeof(float), &scratch));
    int64_t *wrong = (int64_t *)scratch;
    float *lse = (float *)(wrong + lists / 8), *delta = lse + rows;
    const auto kernel = in.dtype == TARTAN_F16 ? prepare<__half> : prepare<__nv_bfloat16>;
    tartan_status status = tartan_cuda_launch(
        function, queue, kernel, tartan_cuda_grid((rows + 7) / 8), dim3(256), b->out, b->out_grad, b->lse,
        rows, (int32_t)in.heads, (int32_t)in.tq, padded, (int32_t)in.d,
        is_boxed(b->out, in.heads, in.batch) && is_boxed(b->out_grad, in.heads, in.batch), lse, delta);
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
