/* SPDX-License-Identifier: Apache-2.0
 * The kernel of conv_wgmma.cu. */
#ifndef TARTAN_CUDA_CONV_WGMMA_CUH
#define TARTAN_CUDA_CONV_WGMMA_CUH

#include "kernels/conv_store.cuh"

namespace tartan_cuda {

/* The kernel of conv_wgmma_f32.cu for a form: a ConvKernel. */
const void *conv_f32_kernel(const tartan_cuda_conv_form *form);

namespace {

/* d = a b + (keep ? d : 0) for 32 bytes of channels. */
template <Factor kFactor, int kRows, int kA>
__device__ __forceinline__ void multiply_item(float (&d)[4 * kRows], uint64_t a, uint64_t b, int32_t keep) {
    if constexpr (kFactor == Factor::tf32)
        wgmma_tf32_shared<8 * kRows>(d, a, b, keep);
    else
        wgmma_shared<kFactor, 8 * kRows, kA>(d, a, b, keep);
}

template <int kParts, typename Products, typename Sums>
__device__ __forceinline__ const auto &results_of(const Products &products, const Sums &sums) {
    if constexpr (kParts == 2)
        return sums;
    else
        return products;
}

/* Sums of products of tf32 lose bits that f32 has: every so many steps they are added up in f32. */
constexpr int kConvTogether = 2;

/* Products of a step take 896 cycles and more; the instructions between them must take less, although shared memory is
 * busy and slow. */
template <Factor kFactor, int kUnits, int kRows, int kA, int kParts>
__device__ __forceinline__ void multiply(const ConvProblem &p, const ConvRing &ring) {
    using T = ConvElement<kFactor>;
    const tartan_cuda_conv_form &f = p.form;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, team = warp / 4;
    const bool leads = lane == 0;
    /* Of descriptors only the lower halves change. */
    const uint64_t a_high = (uint64_t)p.a_high << 32,
                   b_high = (uint64_t)((uint32_t)(f.pitch * f.span >> 4) | (f.span == 128 ? 1u : 2u) << 30)
                            << 32;
    const uint32_t next_unit = (uint32_t)f.unit_bytes >> 4, second = (uint32_t)f.part_bytes >> 4,
                   stages = (uint32_t)f.stages;
    ConvStage full, ended;
    PipelineState<kConvWeights> step;
    PipelineState<kConvTiles> board;
    if (team > 0) board.next();
    uint32_t turn = team ^ 1;
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        volatile const ConvTile *tile = ring.tile(board.at);
        const int32_t list = tile->list, steps = tile->steps;
        if (list < 0) return;
        ended.at = full.at = tile->stage, full.parity = tile->stage_parity;
        step.at = tile->step, step.parity = tile->step_parity;
        /* Before its turn a team must not even wait: what it waits for could be more than a lap of the rings ahead. */
        barrier_wait(ring.turn(team), turn);
        turn ^= 1;
        float d[kUnits][4 * kRows], sums[kParts == 2 ? kUnits : 1][kParts == 2 ? 4 * kRows : 1];
        if constexpr (kParts == 2)
#pragma unroll
            for (int u = 0; u < kUnits; u++)
#pragma unroll
                for (int i = 0; i < 4 * kRows; i++) sums[u][i] = 0;
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
        /* Waits for all products; in f32, adds up what they are. */
        const auto add_up = [&]() {
            wgmma_wait<0>();
            if constexpr (kParts == 2) {
#pragma unroll
                for (int u = 0; u < kUnits; u++) {
                    wgmma_pin(d[u]);
#pragma unroll
                    for (int i = 0; i < 4 * kRows; i++) sums[u][i] += d[u][i];
                    wgmma_pin(d[u]);
                }
            }
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
            constexpr uint32_t kHalf = 4 * TARTAN_CUDA_CONV_ITEM_BYTES >> 4;
            const auto issue = [&](auto items) {
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < decltype(items)::value; i++)
#pragma unroll
                    for (int u = 0; u < kUnits; u++)
                        multiply_item<kFactor, kRows, kA>(
                            d[u], a_high | (a + i % 2 * p.a_next + i / 2 % 2 * p.a_second + i / 4 * kHalf),
                            b_high | (b[i] + u * next_unit), s > 0 || i > 0);
                wgmma_commit();
                wgmma_wait<1>();
            };
            /* The small products first. */
            const auto issue_parts = [&]() {
                const int32_t keep = s % kConvTogether != 0;
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < TARTAN_CUDA_CONV_ITEMS / 2; i++)
#pragma unroll
                    for (int u = 0; u < kUnits; u++) {
                        const uint64_t first_a = a_high | (a + i % 2 * p.a_next + i / 2 * p.a_second),
                                       first_b = b_high | (b[i] + u * next_unit);
                        multiply_item<kFactor, kRows, kA>(d[u], first_a + kHalf, first_b, keep || i > 0);
                        multiply_item<kFactor, kRows, kA>(d[u], first_a, first_b + second, 1);
                        multiply_item<kFactor, kRows, kA>(d[u], first_a, first_b, 1);
                    }
                wgmma_commit();
                wgmma_wait<1>();
            };
            if constexpr (kParts == 2) {
                if (s > 0 && s % kConvTogether == 0) add_up(); /* as late as possible */
                issue_parts();
            } else if (marks >> TARTAN_CUDA_CONV_SHORT & 1)
                issue(std::integral_constant<int, TARTAN_CUDA_CONV_ITEMS / 2>());
            else
                issue(std::integral_constant<int, TARTAN_CUDA_CONV_ITEMS>());
            if (released != 0) release();
            released = ring.weights_empty(step.at), ends = marks >> TARTAN_CUDA_CONV_ENDS & 15;
            step.next();
        }
        add_up();
        if (released != 0) release();
        const ConvPart part = part_of(p, list);
        const int32_t channel = TARTAN_CUDA_CONV_GROUP * part.group + 16 * (int32_t)(warp % 4);
        const auto unit_of = [&](int u) {
            volatile const ConvUnit *from = &ring.tile(board.at)->unit[u];
            return ConvUnit{from->image, from->d, from->h, from->w, from->h_end, from->w_end};
        };
        if (p.boxed) barrier_wait(ring.drained(team ^ 1), turn ^ 1); /* of the tile before */
        bool broken = false;
#pragma unroll
        for (int u = 0; u < kUnits; u++) {
            const uint32_t box = ring.room(u * kRows);
            const float(&y)[4 * kRows] = results_of<kParts>(d, sums)[u];
            if constexpr (kFactor == Factor::tf32)
                broken |= store_floats<kRows>(p, part, unit_of(u), channel, y);
            else
                broken |= p.boxed    ? p.as_they_are ? stage_halves<kFactor, kRows, true>(p, box, channel, y)
                                                     : stage_halves<kFactor, kRows, false>(p, box, channel, y)
                             : p.to_f32 ? store_floats<kRows>(p, part, unit_of(u), channel, y)
                          : p.as_they_are ? store_halves<kFactor, kRows, true>(p, part, unit_of(u),
                                                                               ring.room(warp), channel, y)
                                          : store_halves<kFactor, kRows, false>(p, part, unit_of(u),
                                                                                ring.room(warp), channel, y);
        }
        if (__any_sync(~0u, broken) && f.splits == 1) { /* else who adds the sums of all lists finds them */
            __syncwarp();
            for (int u = 0; u < kUnits; u++)
                store_exact_unit<T>(p, part, unit_of(u), channel,
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

using ConvKernel = void (*)(ConvProblem, CUtensorMap, CUtensorMap, CUtensorMap);

/* kA: 0 if the neighbours of weights are channels (K-major), 1 if they are output slots. kParts: numbers of which a factor is the
 * sum. */
template <Factor kFactor, int kUnits, int kRows, int kA, int kParts>
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
        multiply<kFactor, kUnits, kRows, kA, kParts>(p, ring);
        return;
    }
    registers_lower<kProducerRegisters>();
    if (threadIdx.x < 32)
        load_pixels<kUnits>(p, ring, &map);
    else if (threadIdx.x < 64)
        load_weights(p, ring, &map_values);
    else {
        if constexpr (kParts == 2) divide_pixels(p, ring);
        if (threadIdx.x >= 96)
            store_blanks<kFactor>(p);
        else if (p.boxed)
            drain_results<kUnits>(p, ring, &map_to);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
