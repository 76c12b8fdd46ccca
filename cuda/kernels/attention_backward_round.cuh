/* SPDX-License-Identifier: Apache-2.0
 * The last kernel of attention_backward_fused.cu: dq from its sums. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_ROUND_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_ROUND_CUH

#include "kernels/attention_backward_ring.cuh"

namespace tartan_cuda {

namespace {

/* Four lanes have four words each; afterwards lane c has word c of all four. */
__device__ __forceinline__ void exchange_words(uint32_t (&w)[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t got = __shfl_xor_sync(~0u, odd ? w[i] : w[i + 1], 1);
        (odd ? w[i] : w[i + 1]) = got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t got = __shfl_xor_sync(~0u, high ? w[i] : w[i + 2], 2);
        (high ? w[i] : w[i + 2]) = got;
    }
}

/* The sums are [kWidth / kCols][batch][heads][padded / 8][kCols / 16][32 lanes][4], as warps stage them: of 8 queries,
 * lane l has of query l / 4 elements 0, 1, 8 and 9 from 16 i + 2 (l % 4) on.
 *
 * Scales and rounds them, and lists the queries that have to be computed again. A warp for each 8 queries. */
template <Factor kFactor, class Form>
__global__ void __launch_bounds__(256)
    store_query_gradient(const __grid_constant__ BackwardProblem p, const float *sums, int64_t pieces) {
    constexpr int kChunks = Form::kWidth / 16, kOfPart = Form::kCols / 16;
    const int32_t lane = threadIdx.x % 32;
    let_next_kernel_begin();
    wait_for_kernels_before();
    for (int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; piece < pieces;
         piece += (int64_t)gridDim.x * (blockDim.x / 32)) {
        const int64_t matrix = 8 * piece / p.padded, entry = matrix / p.heads;
        const int32_t head = (int32_t)(matrix - entry * p.heads),
                      query = (int32_t)(8 * piece - matrix * p.padded) + lane / 4;
        if (query - lane / 4 >= p.rows) continue;
        const float4 *from = (const float4 *)(sums + 8 * piece * Form::kCols) + lane;
        const Gradient &g = p.gradients[0];
        const int64_t to = entry * g.batch + head * g.head + query * g.token;
        float4 x[kChunks];
        float probe = 0; /* NaN as soon as one result is not finite */
#pragma unroll
        for (int i = 0; i < kChunks; i++) {
            x[i] = __ldcs(from + i / kOfPart * (2 * pieces * Form::kCols) + 32 * (i % kOfPart));
            x[i].x *= p.scale, x[i].y *= p.scale, x[i].z *= p.scale, x[i].w *= p.scale;
            probe = fmaf(x[i].x, 0.f, fmaf(x[i].y, 0.f, fmaf(x[i].z, 0.f, fmaf(x[i].w, 0.f, probe))));
        }
        probe += __shfl_xor_sync(~0u, probe, 1);
        probe += __shfl_xor_sync(~0u, probe, 2);
        const bool inside = query < p.rows;
        if (probe != 0 && lane % 4 == 0 && inside)
            p.wrong_rows[atomicAdd(p.wrong_count, 1)] = matrix * p.rows + query;
#pragma unroll
        for (int i = 0; i < kChunks; i += 2) { /* 32 elements of each query */
            if (p.boxes) {
                uint32_t words[4] = {pack<kFactor>(x[i].x, x[i].y), pack<kFactor>(x[i].z, x[i].w),
                                     pack<kFactor>(x[i + 1].x, x[i + 1].y),
                                     pack<kFactor>(x[i + 1].z, x[i + 1].w)};
                exchange_words(words);
                const int32_t col = 16 * i + 8 * (lane % 4);
                if (inside && col < p.d)
                    *(uint4 *)((char *)g.data + 2 * (to + col)) = {words[0], words[1], words[2], words[3]};
                continue;
            }
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float4 &four = x[i + j / 4];
                const int32_t col = 16 * (i + j / 4) + j % 4 / 2 * 8 + 2 * (lane % 4) + j % 2;
                if (inside && col < p.d)
                    combine(g.data, p.dtype, to + col * g.element,
                            j % 4 == 0   ? four.x
                            : j % 4 == 1 ? four.y
                            : j % 4 == 2 ? four.z
                                         : four.w,
                            0);
            }
        }
    }
}

} // namespace

} // namespace tartan_cuda

#endif
