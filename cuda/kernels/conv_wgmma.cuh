/* SPDX-License-Identifier: Apache-2.0
 * The kernel of conv_wgmma.cu. */
#ifndef TARTAN_CUDA_CONV_WGMMA_CUH
#define TARTAN_CUDA_CONV_WGMMA_CUH

#include "kernels/conv_store.cuh"

namespace tartan_cuda {

namespace {

template <Factor kFactor, int kUnits, int kRows>
__device__ __forceinline__ void multiply(const ConvProblem &p, const ConvRing &ring) {
    using T = std::conditional_t<kFactor == Factor::f16, __half, __nv_bfloat16>;
    const tartan_cuda_conv_form &f = p.form;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, team = warp / 4;
    /* Weights: core matrices of 8 slots x 16 bytes, those of the same 8 channels side by side. */
    const uint64_t a_form = (uint64_t)(1024 >> 4) << 16 | (uint64_t)(128 >> 4) << 32;
    const uint64_t kind = f.span == 64 ? 2 : f.span == 32 ? 3 : 0;
    const uint64_t b_form = (uint64_t)f.leading << 16 | (uint64_t)(f.pitch * f.span >> 4) << 32 | kind << 62;
    const uint32_t next_unit = (uint32_t)f.unit_bytes >> 4;
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
        const auto release = [&]() {
            if (lane != 0) return;
            if (released != 0) barrier_arrive(released);
#pragma unroll 1
            for (uint32_t i = 0; i < ends; i++) {
                barrier_arrive(ring.empty(ended.at));
                ended.next(f.stages);
            }
        };
        for (int32_t s = 0; s < steps; s++) {
            barrier_wait(ring.weights_full(step.at), step.parity);
            uint4 words = make_uint4(0, 0, 0, 0); /* by the lane that also releases them */
            if (lane == 0) words = shared_load_16(ring.words(step.at));
            const uint32_t low = __shfl_sync(~0u, words.x, 0), high = __shfl_sync(~0u, words.y, 0),
                           marks = __shfl_sync(~0u, words.z, 0), weights = ring.weights(step.at);
            if (marks >> TARTAN_CUDA_CONV_DRAINS & 1) { /* it may hold the stages that this one waits for */
                wgmma_wait<0>();
                release();
                released = ends = 0;
            }
            uint32_t start[TARTAN_CUDA_CONV_ITEMS] = {low & 0xffff, low >> 16, high & 0xffff, high >> 16};
#pragma unroll
            for (int i = 0; i < TARTAN_CUDA_CONV_ITEMS; i++) {
                if (marks >> i & 1) {
                    barrier_wait(ring.full(full.at), full.parity);
                    pixels = in_descriptor(ring.pixels(f, full.at));
                    full.next(f.stages);
                }
                start[i] += pixels;
            }
            const uint64_t a = a_form + in_descriptor(weights);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < TARTAN_CUDA_CONV_ITEMS; i++)
#pragma unroll
                for (int u = 0; u < kUnits; u++)
                    wgmma_shared<kFactor, 8 * kRows>(d[u], a + i * (2048 >> 4),
                                                     b_form + (start[i] + u * next_unit), s > 0 || i > 0);
            wgmma_commit();
            wgmma_wait<1>();
            release();
            released = ring.weights_empty(step.at), ends = marks >> TARTAN_CUDA_CONV_ENDS & 15;
            step.next();
        }
        if (lane == 0) barrier_arrive(ring.turn(team ^ 1));
        wgmma_wait<0>();
        release();
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
