/* SPDX-License-Identifier: Apache-2.0
 * The kernel of conv_wgmma.cu. */
#ifndef TARTAN_CUDA_CONV_WGMMA_CUH
#define TARTAN_CUDA_CONV_WGMMA_CUH

#include "kernels/conv_store.cuh"

namespace tartan_cuda {

namespace {

/* Products of a step take 896 cycles and more; the instructions between them must take less, although shared memory is
 * busy and slow. */
template <Factor kFactor, int kUnits, int kRows, int kA>
__device__ __forceinline__ void multiply(const ConvProblem &p, const ConvRing &ring) {
    using T = std::conditional_t<kFactor == Factor::f16, __half, __nv_bfloat16>;
    const tartan_cuda_conv_form &f = p.form;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, team = warp / 4;
    const bool leads = lane == 0;
    /* Of descriptors only the lower halves change. */
    const uint64_t a_high = (uint64_t)p.a_high << 32,
                   b_high = (uint64_t)((uint32_t)(f.pitch * f.span >> 4) | (f.span == 128 ? 1u : 2u) << 30)
                            << 32;
    const uint32_t next_unit = (uint32_t)f.unit_bytes >> 4, stages = (uint32_t)f.stages;
    ConvStage full, ended;
    PipelineState<kConvWeights> step;
    PipelineState<kConvTiles> board;
    if (team > 0) board.next();
    uint32_t turn = team ^ 1;
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        volatile const ConvTile *tile = ring.tile(board.at);
        const int32_t group = tile->group, steps = tile->steps;
        if (group < 0) return;
        ended.at = full.at = tile->stage, full.parity = tile->stage_parity;
        step.at = tile->step, step.parity = tile->step_parity;
        /* Before its turn a team must not even wait: what it waits for could be more than a lap of the rings ahead. */
        barrier_wait(ring.turn(team), turn);
        turn ^= 1;
        float d[kUnits][4 * kRows];
        uint32_t released = 0, ends = 0;
        /* Each lane releases the words that it read, and with them the weights; one lane releases a stage that ends. */
        const auto release = [&]() {
            uint32_t at = ended.at + lane;
            if (at >= stages) at -= stages;
            barrier_arrive(released);
            if (lane < ends) barrier_arrive(ring.empty(at));
            ended.at += ends;
            if (ended.at >= stages) ended.at -= stages;
        };
        for (int32_t s = 0; s < steps; s++) {
            barrier_wait(ring.weights_full(step.at), step.parity);
            const uint32_t marks = shared_load_4(ring.words(step.at) + 32);
            const uint4 low = shared_load_16(ring.words(step.at)),
                        high = shared_load_16(ring.words(step.at) + 16);
            if (marks >> TARTAN_CUDA_CONV_DRAINS & 1) { /* it may hold the stages that this one waits for */
                wgmma_wait<0>();
                release();
                released = 0;
            }
#pragma unroll 1
            for (int32_t n = __popc(marks % (1 << TARTAN_CUDA_CONV_ITEMS)); n > 0; n--) {
                barrier_wait(ring.full(full.at), full.parity);
                full.next(f.stages);
            }
            if (leads && s + 1 == steps) barrier_arrive(ring.turn(team ^ 1));
            const uint32_t a = in_descriptor(ring.weights(step.at)) | p.a_low;
            const uint32_t b[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            /* The whole group in each branch: a group that spans a branch would cost a wait for all its products. */
            const auto issue = [&](auto items) {
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < decltype(items)::value; i++)
#pragma unroll
                    for (int u = 0; u < kUnits; u++)
                        wgmma_shared<kFactor, 8 * kRows, kA>(
                            d[u],
                            a_high | (a + i % 2 * p.a_next + i / 2 % 2 * p.a_second +
                                      i / 4 * (4 * TARTAN_CUDA_CONV_ITEM_BYTES >> 4)),
                            b_high | (b[i] + u * next_unit), s > 0 || i > 0);
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
        wgmma_wait<0>();
        if (released != 0) release();
        const int32_t channel = TARTAN_CUDA_CONV_GROUP * group + 16 * (int32_t)(warp % 4);
        const auto unit_of = [&](int u) {
            volatile const ConvUnit *from = &ring.tile(board.at)->unit[u];
            return ConvUnit{from->image, from->d, from->h, from->w, from->h_end, from->w_end};
        };
        if (p.boxed) barrier_wait(ring.drained(team ^ 1), turn ^ 1); /* of the tile before */
        bool broken = false;
#pragma unroll
        for (int u = 0; u < kUnits; u++) {
            const uint32_t box = ring.room(u * kRows);
            broken |=
                p.boxed    ? p.as_they_are ? stage_halves<kFactor, kRows, true>(p, box, channel, d[u])
                                           : stage_halves<kFactor, kRows, false>(p, box, channel, d[u])
                   : p.to_f32 ? store_floats<kRows>(p, unit_of(u), channel, d[u])
                : p.as_they_are
                    ? store_halves<kFactor, kRows, true>(p, unit_of(u), ring.room(warp), channel, d[u])
                    : store_halves<kFactor, kRows, false>(p, unit_of(u), ring.room(warp), channel, d[u]);
        }
        if (__any_sync(~0u, broken)) {
            __syncwarp();
            for (int u = 0; u < kUnits; u++)
                store_exact_unit<T>(p, unit_of(u), channel,
                                    p.boxed ? ring.memory + ring.room_at + 1024 * u * kRows : nullptr);
        }
        if (p.boxed) {
            shared_fence_async();
            barrier_arrive(ring.staged());
        }
        barrier_arrive(ring.read(board.at)); /* each lane, for what it read */
        for (int i = 0; i < kConvTeams; i++) board.next();
    }
}

/* kA: 0 if the neighbours of weights are channels (K-major), 1 if they are output slots. */
template <Factor kFactor, int kUnits, int kRows, int kA>
__global__ void __launch_bounds__(kConvThreads, 1)
    conv(const __grid_constant__ ConvProblem p, const __grid_constant__ CUtensorMap map,
         const __grid_constant__ CUtensorMap map_to, const __grid_constant__ CUtensorMap map_values) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    const ConvRing ring(shared, p.form);
    if (threadIdx.x == 0) {
        tensor_prefetch(&map);
        if (p.boxed) tensor_prefetch(&map_to);
        if (p.form.in_place) tensor_prefetch(&map_values);
        ring.init(p.form, p.boxed);
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        registers_raise<kConsumerRegisters>();
        multiply<kFactor, kUnits, kRows, kA>(p, ring);
        return;
    }
    registers_lower<kProducerRegisters>();
    if (threadIdx.x < 32)
        load_pixels<kUnits>(p, ring, &map);
    else if (threadIdx.x < 64)
        load_weights(p, ring, &map_values);
    else if (threadIdx.x >= 96)
        store_blanks<kFactor>(p);
    else if (p.boxed)
        drain_results<kUnits>(p, ring, &map_to);
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
