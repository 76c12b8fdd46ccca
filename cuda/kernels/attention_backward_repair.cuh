/* SPDX-License-Identifier: Apache-2.0
 * Rows of gradients that are computed again. Products of tiles give weight 0 to pairs that do not count, which makes NaN
 * if the other factor is infinite. So rows whose results are not finite, although what belongs to them alone is, go on a
 * list, and a kernel computes them from the pairs that count. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_REPAIR_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_REPAIR_CUH

#include "kernels/attention_backward_ring.cuh"
#include "kernels/attention_extras.cuh"

namespace tartan_cuda {

namespace {

/* Lists the rows of a warp whose results are not all finite. `row`: of the thread's first one. */
template <int kCount>
__device__ __forceinline__ void list_wrong(const BackwardProblem &p, const float (&x)[kCount], int32_t row,
                                           int32_t head, int32_t entry) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float probe = 0; /* NaN as soon as one result is not finite */
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4) probe = fmaf(x[i], 0.f, fmaf(x[i + 1], 0.f, probe));
        probe += __shfl_xor_sync(~0u, probe, 1);
        probe += __shfl_xor_sync(~0u, probe, 2);
        const int32_t at = row + 8 * r;
        if (probe != 0 && threadIdx.x % 4 == 0 && at < p.rows)
            p.wrong_rows[atomicAdd(p.wrong_count, 1)] = ((int64_t)entry * p.kept_heads + head) * p.rows + at;
    }
}

/* The tensors of a pass: dq keeps q and out_grad, dk and dv keep k and v. */
template <typename T> struct Tokens {
    const T *data;
    int64_t batch, head, token;
    __device__ __forceinline__ const T *at(int64_t entry, int64_t head_, int64_t token_) const {
        return data + entry * batch + head_ * head + token_ * token;
    }
};

template <typename T> __device__ __forceinline__ float dot(const T *x, const T *y, int32_t d) {
    float sum = 0;
    for (int32_t i = 0; i < d; i++) sum = fmaf(tartan_cuda_to<float>(x[i]), tartan_cuda_to<float>(y[i]), sum);
    return sum;
}

/* Whether a pair counts. `id`: of its block; `at`: the streamed token's place in it. */
__device__ __forceinline__ bool counts(const BackwardProblem &p, int32_t id, int32_t kept, int32_t streamed,
                                       int32_t at) {
    const int32_t query = p.by_keys ? streamed : kept, key = p.by_keys ? kept : streamed;
    if (streamed >= p.columns || key >= limit_of(p, query)) return false;
    return is_kept(p, id, kept & (p.block_rows - 1), at);
}

/* One row by a warp: first[] and second[] have elements lane, lane + 32, ... of the gradients. */
template <typename T>
__device__ __forceinline__ void repair_row(const BackwardProblem &p, const Tokens<T> (&kept)[2],
                                           const Tokens<T> (&streamed)[2], int32_t row, int32_t head,
                                           int32_t entry, float (&first)[8], float (&second)[8]) {
    const int32_t lane = threadIdx.x % 32, rows = p.group_rows;
    const T *a0 = kept[0].at(entry, head / p.kept_share, row),
            *a1 = kept[1].at(entry, head / p.kept_share, row);
    for (int32_t h = 0; h < p.streamed_heads; h++) {
        const int32_t other = p.by_keys ? head * p.heads_per_kv + h : head / p.heads_per_kv;
        const int32_t list = first_line(p, entry, head, h) + row / rows;
        const int64_t queries = ((int64_t)entry * p.heads + (p.by_keys ? other : head)) * p.padded;
        for (int32_t e = p.pointers[list]; e < p.pointers[list + 1]; e++) {
            const int32_t id = p.ids[(int64_t)e * p.lines + row % rows / p.block_rows];
            if (id < 0) continue;
            for (int32_t begin = 0; begin < p.block_columns; begin += 32) {
                const int32_t at = begin + lane, token = p.cols[e] * p.block_columns + at;
                const bool mine = at < p.block_columns && counts(p, id, row, token, at);
                float weight = 0, change = 0;
                if (mine) {
                    const int64_t query = queries + (p.by_keys ? token : row);
                    const int32_t i = p.by_keys ? token : row, j = p.by_keys ? row : token;
                    const int32_t query_head = p.by_keys ? other : head;
                    const float s =
                        dot(a0, streamed[0].at(entry, other, token), p.d) + bias_of(p, query_head, id, i, j);
                    weight = exp2_fast(fmaf(s, p.scale * 1.4426950408889634f, -p.lse[query]));
                    const bool dropped = is_dropped(p, entry, query_head, i, j);
                    const float grad =
                        dropped ? 0 : dot(a1, streamed[1].at(entry, other, token), p.d) * p.extras.kept;
                    change = weight * (grad - p.delta[query]);
                    weight = dropped ? 0 : weight * p.extras.kept;
                }
                for (uint32_t left = __ballot_sync(~0u, mine); left != 0; left &= left - 1) {
                    const int32_t one = __ffs((int32_t)left) - 1,
                                  that = p.cols[e] * p.block_columns + begin + one;
                    const float w = __shfl_sync(~0u, weight, one), c = __shfl_sync(~0u, change, one);
                    const T *b0 = streamed[0].at(entry, other, that),
                            *b1 = streamed[1].at(entry, other, that);
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        if (lane + 32 * i >= p.d) break;
                        first[i] = fmaf(c, tartan_cuda_to<float>(b0[lane + 32 * i]), first[i]);
                        second[i] = fmaf(w, tartan_cuda_to<float>(b1[lane + 32 * i]), second[i]);
                    }
                }
            }
        }
    }
}

/* A warp for each row of the list. */
template <typename T>
__device__ __forceinline__ void repair_rows(const BackwardProblem &p, const Tokens<T> (&kept)[2],
                                            const Tokens<T> (&streamed)[2]) {
    const int32_t lane = threadIdx.x % 32, warps = (int32_t)(gridDim.x * blockDim.x / 32);
    for (int32_t i = (int32_t)((blockIdx.x * blockDim.x + threadIdx.x) / 32); i < *p.wrong_count;
         i += warps) {
        const int64_t which = p.wrong_rows[i], matrix = which / p.rows;
        const int32_t row = (int32_t)(which % p.rows);
        const int32_t head = (int32_t)(matrix % p.kept_heads), entry = (int32_t)(matrix / p.kept_heads);
        float first[8] = {}, second[8] = {};
        repair_row<T>(p, kept, streamed, row, head, entry, first, second);
        for (int g = 0; g < (p.by_keys ? 2 : 1); g++) {
            const Gradient &out = p.gradients[g];
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (lane + 32 * j < p.d)
                    combine(out.data, p.dtype,
                            entry * out.batch + head * out.head + row * out.token +
                                (lane + 32 * j) * out.element,
                            g == 0 ? first[j] * p.scale : second[j], 0);
        }
    }
}

/* Both lists. A side without tokens has none. */
template <typename T>
__global__ void repair_gradients(const BackwardProblem queries, const BackwardProblem keys, const Tokens<T> q,
                                 const Tokens<T> k, const Tokens<T> v, const Tokens<T> out_grad) {
    const Tokens<T> of_queries[2] = {q, out_grad}, of_keys[2] = {k, v};
    wait_for_kernels_before();
    repair_rows(queries, of_queries, of_keys);
    repair_rows(keys, of_keys, of_queries);
}

} // namespace

} // namespace tartan_cuda

#endif
