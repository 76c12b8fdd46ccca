/* SPDX-License-Identifier: Apache-2.0
 * The kernel of conv_wgmma.cu. */
#ifndef TARTAN_CUDA_CONV_WGMMA_CUH
#define TARTAN_CUDA_CONV_WGMMA_CUH

#include "kernels/conv_store.cuh"

namespace tartan_cuda {

namespace {

/* With steps of four items the instructions between products took longer than the products: 650 cycles against 448. So a
 * step has eight, and the loop does little for each. */
template <Factor kFactor, int kUnits, int kRows>
__device__ __forceinline__ void multiply(const ConvProblem &p, const ConvRing &ring) {
    using T = std::conditional_t<kFactor == Factor::f16, __half, __nv_bfloat16>;
    const tartan_cuda_conv_form &f = p.form;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, team = warp / 4;
    /* Weights: core matrices of 8 slots x 16 bytes, those of the same 8 channels side by side. Of descriptors only the lower
     * halves change. */
    const uint32_t kind = f.span == 64 ? 2 : f.span == 32 ? 3 : 0;
    const uint64_t a_high = (uint64_t)(128 >> 4) << 32,
                   b_high = (uint64_t)((uint32_t)(f.pitch * f.span >> 4) | kind << 30) << 32;
    const uint32_t next_unit = (uint32_t)f.unit_bytes >> 4, stages = (uint32_t)f.stages;
    ConvStage full, ended;
    PipelineState<kConvWeights> step;
    PipelineState<kConvTiles> board;
    if (team > 0) board.next();
    uint32_t pixels = 0, turn = team ^ 1;
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        volatile const ConvTile *tile = ring.tile(board.at);
        const int32_t group = tile->group, steps = tile->steps;
        if (group < 0) return;
        ended.at = full.at = tile->stage, full.parity = tile->stage_parity;
        step.at = tile->step, step.parity = tile->step_parity;
        /* Before its turn a team may not even wait: what it waits for could be more than a lap of the rings ahead. */
        barrier_wait(ring.turn(team), turn);
        turn ^= 1;
        float d[kUnits][4 * kRows];
        if (steps == 0) {
#pragma unroll
            for (int u = 0; u < kUnits; u++)
#pragma unroll
                for (int i = 0; i < 4 * kRows; i++) d[u][i] = 0;
        }
        uint32_t released = 0, ends = 0;
        /* Lane 0 read the words of a step and releases its weights; a stage that ends is released by any other lane. */
        const auto release = [&]() {
            uint32_t at = ended.at + lane - 1;
            if (at >= stages) at -= stages;
            if (lane <= ends) barrier_arrive(lane == 0 ? released : ring.empty(at));
            ended.at += ends;
            if (ended.at >= stages) ended.at -= stages;
        };
        for (int32_t s = 0; s < steps; s++) {
            barrier_wait(ring.weights_full(step.at), step.parity);
            uint4 words = make_uint4(0, 0, 0, 0);
            uint32_t marks = 0;
            if (lane == 0) {
                words = shared_load_16(ring.words(step.at));
                marks = shared_load_4(ring.words(step.at) + 4 * TARTAN_CUDA_CONV_MARKS);
            }
            marks = __shfl_sync(~0u, marks, 0);
            words.x = __shfl_sync(~0u, words.x, 0), words.y = __shfl_sync(~0u, words.y, 0);
            words.z = __shfl_sync(~0u, words.z, 0), words.w = __shfl_sync(~0u, words.w, 0);
            if (marks >> TARTAN_CUDA_CONV_DRAINS & 1) { /* it may hold the stages that this one waits for */
                wgmma_wait<0>();
                release();
                released = 0;
            }
            const uint32_t pair[4] = {words.x, words.y, words.z, words.w};
            uint32_t start[TARTAN_CUDA_CONV_ITEMS];
            if (marks % (1 << TARTAN_CUDA_CONV_ITEMS) == 0) { /* most often: one test instead of eight */
#pragma unroll
                for (int i = 0; i < TARTAN_CUDA_CONV_ITEMS; i++) start[i] = pixels;
            } else {
#pragma unroll
                for (int i = 0; i < TARTAN_CUDA_CONV_ITEMS; i++) {
                    if (marks >> i & 1) {
                        barrier_wait(ring.full(full.at), full.parity);
                        pixels = in_descriptor(ring.pixels(f, full.at)) | (uint32_t)f.leading << 16;
                        full.next(f.stages);
                    }
                    start[i] = pixels;
                }
            }
#pragma unroll
            for (int i = 0; i < TARTAN_CUDA_CONV_ITEMS; i++) start[i] += pair[i / 2] >> 16 * (i % 2) & 0xffff;
            if (s + 1 == steps && lane == 0) barrier_arrive(ring.turn(team ^ 1));
            const uint32_t a = in_descriptor(ring.weights(step.at)) | (1024 >> 4) << 16;
            /* The whole group in each branch: a group that spans a branch would cost a wait for all its products. */
            const auto issue = [&](auto items) {
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < decltype(items)::value; i++)
#pragma unroll
                    for (int u = 0; u < kUnits; u++)
                        wgmma_shared<kFactor, 8 * kRows>(d[u], a_high | (a + i * (2048 >> 4)),
                                                         b_high | (start[i] + u * next_unit), s > 0 || i > 0);
                wgmma_commit();
                wgmma_wait<1>();
            };
            if (marks >> TARTAN_CUDA_CONV_SHORT & 1)
                issue(std::integral_constant<int, TARTAN_CUDA_CONV_ITEMS / 2>());
            else
                issue(std::integral_constant<int, TARTAN_CUDA_CONV_ITEMS>());
            if (released != 0) release();
            released = ring.weights_empty(step.at), ends = marks >> TARTAN_CUDA_CONV_ENDS & 15;
            step.next();
        }
        if (steps == 0 && lane == 0) barrier_arrive(ring.turn(team ^ 1));
        wgmma_wait<0>();
        if (released != 0) release();
        bool broken = false;
#pragma unroll
        for (int u = 0; u < kUnits; u++) {
            volatile const ConvUnit *from = &ring.tile(board.at)->unit[u];
            const ConvUnit unit = {from->image, from->d, from->h, from->w, from->h_end, from->w_end};
            const int32_t channel = TARTAN_CUDA_CONV_GROUP * group + 16 * (int32_t)(warp % 4);
            float probe[4] = {0, 0, 0, 0};
#pragma unroll
            for (int i = 0; i < 4 * kRows; i++) probe[i % 4] = fmaf(d[u][i], 0.f, probe[i % 4]);
            broken = broken || (probe[0] + probe[1]) + (probe[2] + probe[3]) != 0;
            if (p.to_f32)
                store_floats<kRows>(p, unit, channel, d[u]);
            else
                store_halves<kFactor, kRows>(p, unit, ring.room(warp), channel, d[u]);
        }
        if (__any_sync(~0u, broken)) {
            for (int u = 0; u < kUnits; u++) {
                volatile const ConvUnit *from = &ring.tile(board.at)->unit[u];
                const ConvUnit unit = {from->image, from->d, from->h, from->w, from->h_end, from->w_end};
                store_exact_unit<T>(p, unit, TARTAN_CUDA_CONV_GROUP * group + 16 * (int32_t)(warp % 4));
            }
        }
        barrier_arrive(ring.read(board.at)); /* each lane, for what it read */
        for (int i = 0; i < kConvTeams; i++) board.next();
    }
}

template <Factor kFactor, int kUnits, int kRows>
__global__ void __launch_bounds__(kConvThreads, 1)
    conv(const __grid_constant__ ConvProblem p, const __grid_constant__ CUtensorMap map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    const ConvRing ring(shared, p.form);
    if (threadIdx.x == 0) {
        tensor_prefetch(&map);
        ring.init(p.form);
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        registers_raise<kConsumerRegisters>();
        multiply<kFactor, kUnits, kRows>(p, ring);
        return;
    }
    registers_lower<kProducerRegisters>();
    if (threadIdx.x < 32)
        load_pixels<kUnits>(p, ring, &map);
    else if (threadIdx.x == 32)
        load_weights(p, ring);
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
