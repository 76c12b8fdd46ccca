/* SPDX-License-Identifier: Apache-2.0
 * The device part of attention_forward_wgmma.cu. */
#ifndef TARTAN_CUDA_ATTENTION_FORWARD_WGMMA_CUH
#define TARTAN_CUDA_ATTENTION_FORWARD_WGMMA_CUH

#include "kernels/attention_forward_deep.cuh"
#include "kernels/attention_producer.cuh"

namespace tartan_cuda {

namespace {

template <Factor kFactor, class Form, bool kExtras>
__device__ __forceinline__ void consume_tiles(const AttentionProblem &p, const AttentionRing<Form> &ring,
                                              const CUtensorMap *map_out, uint32_t warpgroup) {
    using T = typename std::conditional<kFactor == Factor::f16, __half, __nv_bfloat16>::type;
    using Plain = Consumer<kFactor, Form, kExtras>;
    using Chosen = std::conditional_t<Form::kDeep, DeepConsumer<kFactor, Form, kExtras>, Plain>;
    Chosen c = {p, ring, warpgroup, {}, {}, {}, -1};
    PipelineState<Form::kBuffers> buffer;
    PipelineState<kBoards> board;
    if (Form::kTurns && warpgroup == 1) c.pass_turn(); /* the first turn is the other's */
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        const QueryTile t = *ring.tile(board.at);
        barrier_arrive(ring.read(board.at));
        board.next();
        if (t.row < 0) break;
        barrier_wait(ring.queries_full(buffer.at), buffer.parity);
        c.state = {{-INFINITY, -INFINITY}, {0, 0}};
        const int32_t steps = steps_of(p, t.list);
        if (steps > 0) {
            c.attend(t, steps, buffer.at);
        } else {
#pragma unroll
            for (int i = 0; i < Plain::kOuts; i++) c.out[i] = 0;
        }
        const uint32_t wrong = c.finish(t);
        const bool any = warpgroup_any(1 + threadIdx.x / 128, wrong != 0);
        if (p.boxes && !any)
            c.store_boxes(t, map_out, buffer.at);
        else
            c.store_elements(t);
        c.release_queries(); /* if there was no step */
        c.unreleased = (int32_t)buffer.at;
        if (Form::kBuffers == 1) c.release_queries();
        buffer.next();
        if (!any) continue;
        __syncwarp();
#pragma unroll
        for (int r = 0; r < 2; r++)
            for (uint32_t left = __ballot_sync(~0u, wrong >> r & 1); left != 0;) {
                const int32_t one = (__ffs((int32_t)left) - 1) / 4 * 4; /* the first lane of the row's four */
                left &= ~(0xfu << one);
                const int32_t row = __shfl_sync(~0u, c.row_of(t), one) + 8 * r;
                const float reference = __shfl_sync(~0u, c.state.reference[r], one);
                const float inverse = __shfl_sync(~0u, c.state.sum[r], one);
                if (row < p.rows)
                    attend_row<T>(p, t, row, t.row, reference * p.scale * 1.4426950408889634f, inverse);
            }
    }
    if (Form::kTurns && warpgroup == 0) c.take_turn(); /* the last one that was passed on */
}

template <Factor kFactor, class Form, bool kExtras>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_forward(const __grid_constant__ AttentionProblem p, const __grid_constant__ CUtensorMap map_q,
                      const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                      const __grid_constant__ CUtensorMap map_out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    /* Tells the compiler that it is uniform: products must not be issued where threads may diverge. */
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp >= 8 && warp - 8 < Form::kTeams && threadIdx.x % 32 == 0)
        AttentionRing<Form>(shared, warp - 8).init();
    __syncthreads();
    if (warp >= 8) {
        registers_lower<kAttentionProducerRegisters>();
        if (warp - 8 < Form::kTeams)
            produce<Form>(p, AttentionRing<Form>(shared, warp - 8),
                          (int32_t)(blockIdx.x * Form::kTeams + warp - 8), &map_q, &map_k, &map_v);
    } else {
        registers_raise<kAttentionConsumerRegisters>();
        const uint32_t team = Form::kTeams == 2 ? warp / 4 : 0;
        consume_tiles<kFactor, Form, kExtras>(p, AttentionRing<Form>(shared, team), &map_out,
                                              Form::kTeams == 2 ? 0 : warp / 4);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
