/* SPDX-License-Identifier: Apache-2.0
 * What the launches of the kernels of the backward pass share. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_START_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_START_CUH

#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/attention_backward_wgmma.cuh"
#include "kernels/attention_map.h"

namespace tartan_cuda {

namespace {

/* Eight elements of a token from `at` on, as far as there are any; kVectors: eight or none. */
template <bool kVectors, typename T>
__device__ __forceinline__ tartan_cuda_pack<T, 8> load_eight(const T *token, int64_t element, int32_t at,
                                                             int32_t d) {
    tartan_cuda_pack<T, 8> x = {};
    if constexpr (kVectors) {
        if (at < d) x = *(const tartan_cuda_pack<T, 8> *)(token + at);
    } else {
        for (int32_t i = 0; i < 8; i++)
            if (at + i < d) x.at[i] = token[(at + i) * element];
    }
    return x;
}

/* 16 lanes for each query, 8 elements a lane. A CTA has 64 queries at a time, all of one head: divisions cost more than what
 * is done for a query. The first CTA clears the counters of the two lists of rows to repair. */
template <typename T, bool kVectors>
__global__ void prepare(const tartan_cuda_tensor out, const tartan_cuda_tensor out_grad,
                        const tartan_cuda_tensor lse, int64_t rows, int32_t heads, int32_t tq, int32_t padded,
                        int32_t d, float *lse2, float *delta, int64_t *wrong) {
    const int32_t lane = threadIdx.x % 16;
    let_next_kernel_begin();
    if (blockIdx.x == 0 && threadIdx.x < 2) wrong[threadIdx.x] = 0;
    for (int64_t first = (int64_t)blockIdx.x * 64; first < rows; first += (int64_t)gridDim.x * 64) {
        const int32_t matrix = (int32_t)(first / padded), entry = matrix / heads,
                      head = matrix - entry * heads;
        const int32_t query = (int32_t)(first - (int64_t)matrix * padded) + (int32_t)threadIdx.x / 16;
        const T *x = (const T *)out.data + entry * out.batch + head * out.head;
        const T *y = (const T *)out_grad.data + entry * out_grad.batch + head * out_grad.head;
        const float *logs = (const float *)lse.data + entry * lse.batch + head * lse.head;
        float sum[4] = {}, log[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t at = query + 16 * i;
            log[i] = at < tq ? logs[at * lse.token] : -INFINITY;
        }
        for (int32_t c = 8 * lane; c < d; c += 128) {
            tartan_cuda_pack<T, 8> left[4], right[4]; /* all loads before the first sum */
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int64_t at = query + 16 * i;
                const int32_t most = at < tq ? d : 0;
                left[i] = load_eight<kVectors>(x + at * out.token, out.element, c, most);
                right[i] = load_eight<kVectors>(y + at * out_grad.token, out_grad.element, c, most);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum[i] = fmaf(tartan_cuda_to<float>(left[i].at[j]), tartan_cuda_to<float>(right[i].at[j]),
                                  sum[i]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int step = 8; step > 0; step /= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], step);
            if (lane != 0) continue;
            const int64_t to = (int64_t)matrix * padded + query + 16 * i;
            lse2[to] = log[i] == -INFINITY ? INFINITY : log[i] * kLog2E, delta[to] = sum[i];
        }
    }
}

inline Gradient gradient_of(const tartan_cuda_tensor &t) {
    return {t.data, t.batch, t.head, t.token, t.element};
}

/* Queries of a head in lse and delta. */
inline int32_t padded_queries(const tartan_cuda_attention &in) {
    return (int32_t)((in.tq + 127) / 128 * 128 + 64);
}

template <typename T>
tartan_status start_prepare(const char *function, tartan_cuda_queue *queue,
                            const tartan_cuda_attention_backward *b, float *lse, float *delta,
                            int64_t *wrong) {
    const tartan_cuda_attention &in = b->in;
    const int32_t padded = padded_queries(in);
    const int64_t rows = in.batch * in.heads * padded;
    const bool vectors = is_boxed(b->out, in.heads, in.batch) && is_boxed(b->out_grad, in.heads, in.batch);
    return tartan_cuda_launch(function, queue, vectors ? prepare<T, true> : prepare<T, false>,
                              tartan_cuda_grid(rows / 64), dim3(256), b->out, b->out_grad, b->lse, rows,
                              (int32_t)in.heads, (int32_t)in.tq, padded, (int32_t)in.d, lse, delta, wrong);
}

/* Everything that does not depend on which side is kept. */
inline BackwardProblem describe(const tartan_cuda_attention_backward *b, float *lse, float *delta,
                                int32_t padded) {
    const tartan_cuda_attention &in = b->in;
    BackwardProblem p = {};
    p.heads_per_kv = (int32_t)(in.heads / in.kv_heads), p.kept_share = 1;
    p.d = (int32_t)in.d, p.dtype = in.dtype;
    p.scale = (float)in.scale;
    p.lse = lse, p.delta = delta;
    p.heads = (int32_t)in.heads, p.padded = padded;
    return p;
}

template <typename T> Tokens<T> tokens_of(const tartan_cuda_tensor &t) {
    return {(const T *)t.data, t.batch, t.head, t.token};
}

/* Computes the listed rows again. There are usually none, so few CTAs suffice. */
template <typename T>
tartan_status repair(const char *function, tartan_cuda_queue *queue, const tartan_cuda_attention_backward *b,
                     const BackwardProblem &queries, const BackwardProblem &keys) {
    return tartan_cuda_check(
        function,
        tartan_cuda_launch_early(queue, true, repair_gradients<T>, dim3((unsigned)queue->chip.processors),
                                 dim3(256), 0, queries, keys, tokens_of<T>(b->in.q), tokens_of<T>(b->in.k),
                                 tokens_of<T>(b->in.v), tokens_of<T>(b->out_grad)),
        "starting the kernel that computes rows again");
}

/* ---- dk and dv of grouped heads ----
 * Where few heads of keys are seen by many heads of queries, there are fewer tiles of keys than CTAs, or a tile takes long: then
 * each part of the heads that see the same keys has tiles of its own. Their sums are added up in the order of the parts, so
 * that results do not depend on the run. */

struct KeyParts {
    int32_t count; /* of each head of keys */
    int64_t bytes; /* of the sums */
    float *sums;   /* [2][batch][kv_heads][count][tk][d] */
};

/* In how many parts the kernel with tiles of that form computes dk and dv. Shapes alone decide, since the blocks of a dynamic layout
 * are not known, and its results must have the same bits as an ordinary layout's. */
template <class Form>
KeyParts count_key_parts(const tartan_cuda_queue *queue, const tartan_cuda_attention &in) {
    tartan_cuda_attention_keys t = {};
    t.heads = (int32_t)(in.heads / in.kv_heads), t.slots = queue->chip.processors * Form::kTeams;
    t.causal = in.causal;
    t.matrices = (double)(in.batch * in.kv_heads), t.keys = (double)in.tk, t.queries = (double)in.tq;
    t.tile = Form::kRows, t.teams = Form::kTeams, t.d = (double)in.d;
    const int32_t count = tartan_cuda_attention_key_parts(&t);
    return {count, count > 1 ? 8 * in.batch * in.kv_heads * count * in.tk * in.d : 0, nullptr};
}

/* One thread for four elements of a token of dk (blockIdx.y 0) or dv (1). */
inline __global__ void add_key_parts(const KeyParts parts, Gradient k_grad, Gradient v_grad, int32_t dtype,
                                     int32_t kv_heads, int64_t matrices, int32_t tk, int32_t d) {
    const Gradient &out = blockIdx.y == 0 ? k_grad : v_grad;
    const int64_t of_part = (int64_t)tk * d / 4;
    const float4 *sums = (const float4 *)parts.sums + blockIdx.y * matrices * parts.count * of_part;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < matrices * of_part;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t matrix = i / of_part, rest = i - matrix * of_part;
        const float4 *from = sums + matrix * parts.count * of_part + rest;
        float4 sum = from[0];
        for (int32_t part = 1; part < parts.count; part++) {
            const float4 x = __ldcs(from + part * of_part);
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
        const int32_t token = (int32_t)(4 * rest / d), col = (int32_t)(4 * rest - (int64_t)token * d);
        const int64_t entry = matrix / kv_heads, head = matrix - entry * kv_heads;
        const int64_t to = entry * out.batch + head * out.head + token * out.token + col * out.element;
        combine(out.data, dtype, to, sum.x, 0);
        combine(out.data, dtype, to + out.element, sum.y, 0);
        combine(out.data, dtype, to + 2 * out.element, sum.z, 0);
        combine(out.data, dtype, to + 3 * out.element, sum.w, 0);
    }
}

/* After rows that are computed again, which are parts of sums, too. */
inline tartan_status add_parts(const char *function, tartan_cuda_queue *queue,
                               const tartan_cuda_attention_backward *b, const KeyParts &parts) {
    const tartan_cuda_attention &in = b->in;
    const int64_t matrices = in.batch * in.kv_heads;
    if (parts.count == 1) return TARTAN_OK;
    dim3 grid = tartan_cuda_grid((matrices * in.tk * in.d / 4 + 255) / 256);
    grid.y = 2;
    return tartan_cuda_launch(function, queue, add_key_parts, grid, dim3(256), parts, gradient_of(b->k_grad),
                              gradient_of(b->v_grad), in.dtype, (int32_t)in.kv_heads, matrices,
                              (int32_t)in.tk, (int32_t)in.d);
}

/* What depends on the side that is kept. `sum_bytes`: of what is added up in memory for a streamed token. */
template <class Form>
tartan_status describe_side(const char *function, tartan_cuda_queue *queue,
                            const tartan_cuda_attention_backward *b, bool by_keys, const KeyParts &parts,
                            BackwardProblem *out, int64_t sum_bytes = 0) {
    const tartan_cuda_attention &in = b->in;
    BackwardProblem &p = *out;
    const int32_t kept = by_keys ? in.block_k : in.block_q;
    if (by_keys) p.kept_share = parts.count;
    tartan_cuda_group_index u;
    PASS(tartan_cuda_index_get_groups(function, queue, in.layout, by_keys,
                                      kept < Form::kRows ? Form::kRows / kept : 1, &u));
    static_cast<AttentionLists &>(p) = lists_of(in, u, by_keys, Form::kStreamed);
    if (in.block_mask != nullptr)
        PASS(tartan_cuda_index_get_block_mask(function, queue, in.block_mask, by_keys, &p.mask));
    if (by_keys) p.heads_per_kv /= p.kept_share;
    p.kept_heads = (int32_t)(by_keys ? in.kv_heads * p.kept_share : in.heads);
    p.streamed_heads = by_keys ? p.heads_per_kv : 1;
    p.group_rows = kept < Form::kRows ? Form::kRows : kept;
    p.kept_parts = p.group_rows / Form::kRows;
    p.tiles = (int32_t)in.batch * p.kept_heads * p.groups * p.kept_parts;
    p.draws_early = u.longest > 0 && u.longest * p.parts * p.streamed_heads <= 2;
    choose_panel(&p, in, u, Form::kRows, queue->chip.processors * Form::kTeams, in.batch * p.kept_heads,
                 p.heads_per_kv, sum_bytes);
    p.counters = queue->counters + TARTAN_CUDA_SIDED_SETS * TARTAN_CUDA_SIDED_COUNTERS;
    if (by_keys && p.kept_share > 1) {
        const int64_t head = in.tk * in.d, all = in.batch * p.kept_heads * head;
        for (int g = 0; g < 2; g++)
            p.gradients[g] = {parts.sums + g * all, p.kept_heads * head, head, in.d, 1};
        p.dtype = TARTAN_F32, p.boxes = false;
        return TARTAN_OK;
    }
    if (by_keys) {
        p.gradients[0] = gradient_of(b->k_grad), p.gradients[1] = gradient_of(b->v_grad);
    } else {
        p.gradients[0] = gradient_of(b->q_grad);
    }
    const tartan_cuda_tensor &first = by_keys ? b->k_grad : b->q_grad;
    p.boxes =
        is_boxed(first, p.kept_heads, in.batch) && (!by_keys || is_boxed(b->v_grad, p.kept_heads, in.batch));
    return TARTAN_OK;
}

/* Tensors as TMA reads and writes them: out0 and out1 are dq, or dk and dv, if p.boxes. */
struct BackwardMaps {
    CUtensorMap q, k, v, out_grad, out0, out1;
    int32_t q_box, k_box; /* tokens of a box; 0: not made */
};

/* `out` may hold the other side's maps; maps of inputs stay if the boxes are the same. */
inline tartan_status make_maps(const char *function, const tartan_cuda_attention_backward *b,
                               const BackwardProblem &p, BackwardMaps *out) {
    const tartan_cuda_attention &in = b->in;
    const int32_t box = p.block_columns < 64 ? p.block_columns : 64, q_box = p.by_keys ? box : 64,
                  k_box = p.by_keys ? 64 : box;
    if (out->q_box != q_box) {
        PASS(map_tokens(function, &in.q, in.d, in.tq, in.heads, in.batch, q_box, &out->q));
        PASS(map_tokens(function, &b->out_grad, in.d, in.tq, in.heads, in.batch, q_box, &out->out_grad));
    }
    if (out->k_box != k_box) {
        PASS(map_tokens(function, &in.k, in.d, in.tk, in.kv_heads, in.batch, k_box, &out->k));
        PASS(map_tokens(function, &in.v, in.d, in.tk, in.kv_heads, in.batch, k_box, &out->v));
    }
    out->q_box = q_box, out->k_box = k_box;
    if (!p.boxes) return TARTAN_OK;
    const tartan_cuda_tensor &first = p.by_keys ? b->k_grad : b->q_grad;
    PASS(map_tokens(function, &first, in.d, p.rows, p.kept_heads, in.batch, 64, &out->out0));
    if (!p.by_keys) return TARTAN_OK;
    return map_tokens(function, &b->v_grad, in.d, in.tk, in.kv_heads, in.batch, 64, &out->out1);
}

/* Starts a kernel of kBackwardThreads threads, a CTA for the tiles of its teams. `early`: while the kernel before, which is ours and
 * writes only what producers wait for, still runs. */
template <class Form, typename... Parameters, typename... Arguments>
tartan_status start_tiles(const char *function, tartan_cuda_queue *queue, const char *what, bool early,
                          void (*kernel)(Parameters...), const BackwardProblem &p,
                          const Arguments &...arguments) {
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, Form::kShared));
    const int32_t needed = (p.tiles + Form::kTeams - 1) / Form::kTeams, most = queue->chip.processors;
    const dim3 grid((unsigned)(needed < most ? needed : most));
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, early, kernel, grid, dim3(kBackwardThreads),
                                                      Form::kShared, p, arguments...),
                             what);
}

} // namespace

} // namespace tartan_cuda

#endif
