/* SPDX-License-Identifier: Apache-2.0
 * The device part of attention_backward_fused.cu. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_FUSED_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_FUSED_CUH

#include "kernels/attention_backward_wgmma.cuh"

namespace tartan_cuda {

namespace {

/* Keys are kept: 128 of one list of queries, or 64 for each of two teams. The gradients ds of scores, 16 bits each,
 * [key][64 queries], go through shared memory, where the product dq = ds k reads them; for one team there are two places in turns,
 * so that one barrier a step is enough. A product gives 64 queries x kCols elements of dq; they are staged in f32 for
 * TMA, which adds them to the sums in memory. */
template <int kWidth_, int kTeams_> struct FusedTiles {
    static constexpr int kTurns = kTeams_ == 1 ? 2 : 1, kCols = kTeams_ == 1 ? kWidth_ / 2 : kWidth_;
    static constexpr uint32_t kChangesTile = 64 * 128; /* ds of 64 keys */
    static constexpr uint32_t kChangesBytes = 2 / kTeams_ * kChangesTile;
    static constexpr uint32_t kStagedWarp = 16 * kCols * 4, kStagedBytes = 8 / kTeams_ * kStagedWarp;
    static constexpr uint32_t kBytes = kTurns * kChangesBytes + kStagedBytes;
};
template <int kWidth_, int kTeams_, int kStages_>
struct FusedForm : FusedTiles<kWidth_, kTeams_>,
                   BackwardForm<kWidth_, kTeams_, kStages_, 1, false, kTeams_ == 1 ? 2 : 8,
                                FusedTiles<kWidth_, kTeams_>::kBytes> {
    using Base = BackwardForm<kWidth_, kTeams_, kStages_, 1, false, kTeams_ == 1 ? 2 : 8,
                              FusedTiles<kWidth_, kTeams_>::kBytes>;
    using Tiles = FusedTiles<kWidth_, kTeams_>;
    static constexpr bool kRotates = true;
    static constexpr uint32_t kChanges = Base::kOthers,
                              kStaged = kChanges + Tiles::kTurns * Tiles::kChangesBytes;
    static_assert(Tiles::kCols <= 64, "registers");
};

/* With fewer, ptxas serialises the products; some of the producer's variables spill instead. */
enum { kFusedConsumerRegisters = 240, kFusedProducerRegisters = 24 };

template <Factor kFactor, class Form> struct FusedConsumer : BackwardConsumer<kFactor, Form, false> {
    using Base = BackwardConsumer<kFactor, Form, false>;
    using Base::kOuts;
    using Base::p;
    using Base::ring;
    using Base::stage;
    using Base::warpgroup;
    static constexpr int kSums = Form::kCols / 2;
    float *sums; /* of dq */
    int32_t batch, entry;
    uint32_t buffer;

    __device__ __forceinline__ uint32_t changes_at() const {
        return ring.base + Form::kChanges + buffer * Form::kChangesBytes;
    }

    /* Scores -> weights exp(s - lse), 0 for pairs that do not count. */
    __device__ __forceinline__ void weigh(const float2 (&lse)[8], Sight sight, const uint32_t (&seen)[1],
                                          float (&s)[32]) const {
        if (sight != Sight::all) hide(seen, s);
#pragma unroll
        for (int i = 0; i < 32; i++)
            s[i] = exp2_fast(fmaf(s[i], p.scale * kLog2E, -(i % 2 == 0 ? lse[i / 4].x : lse[i / 4].y)));
    }
    /* ds = weights (dp - delta), rounded, to shared memory. Infinite factors of pairs that do not count give NaN, for which
     * there is the list of rows. */
    __device__ __forceinline__ void stage_changes(const float2 (&delta)[8], const float (&s)[32],
                                                  const float (&dp)[32]) const {
        const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, piece = lane / 16 ^ lane % 8;
        const uint32_t to = changes_at() + warpgroup * Form::kChangesTile + (16 * warp + lane % 16) * 128;
#pragma unroll
        for (int f = 0; f < 8; f += 2) {
            uint32_t changes[4];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float2 mean = delta[f + half];
                const float *w = s + 4 * (f + half), *x = dp + 4 * (f + half);
                changes[2 * half] = pack<kFactor>(w[0] * (x[0] - mean.x), w[1] * (x[1] - mean.y));
                changes[2 * half + 1] = pack<kFactor>(w[2] * (x[2] - mean.x), w[3] * (x[3] - mean.y));
            }
            store_matrices(to + (f ^ piece) * 16, changes[0], changes[1], changes[2], changes[3]);
        }
        shared_fence_async();
    }

    /* dq = ds k, in flight: the warpgroup's part of its elements. */
    __device__ __forceinline__ void multiply_changes(float (&dq)[kSums]) {
        constexpr uint64_t kMnMajor =
            (uint64_t)(Form::kPanel >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
        const uint64_t a = kMnMajor | in_descriptor(changes_at());
        const uint32_t col = Form::kCols * warpgroup;
        wgmma_pin(dq);
        wgmma_fence();
#pragma unroll
        for (int tile = 0; tile < Form::kKeptTiles; tile++) {
            const uint64_t b =
                kMnMajor | in_descriptor(ring.kept(0, tile) + col / 64 * Form::kPanel + col % 64 * 2);
#pragma unroll
            for (int i = 0; i < 4; i++)
                wgmma_shared<kFactor, Form::kCols, 1, 1>(
                    dq, a + ((tile * Form::kChangesTile + i * 16 * 128) >> 4), b + ((i * 16 * 128) >> 4),
                    tile + i > 0);
        }
        wgmma_commit();
    }
    /* Where the sums of the warp's two times 8 queries are, in pieces of 8 queries; < 0: there are no such queries. */
    __device__ __forceinline__ void find_places(uint32_t at, int32_t (&places)[2]) const {
        const typename Form::Step *step = ring.step(at);
        const int32_t shift = 6 - p.shift_slots; /* tokens of a slot: 2^shift */
        const int32_t matrix = (int32_t)((warpgroup * batch + entry) * p.heads) + step->head;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int32_t row = (int32_t)(threadIdx.x / 32 % 4) * 16 + 8 * r,
                          first = step->first[row >> shift];
            places[r] =
                first >= p.columns ? -1 : matrix * (p.padded / 8) + (first + (row & ((1 << shift) - 1))) / 8;
        }
    }
    /* Adds it to the sums, a warp its 16 queries. */
    __device__ __forceinline__ void add_changes(const float (&dq)[kSums], const int32_t (&places)[2]) const {
        constexpr uint32_t kEight = 8 * Form::kCols * 4; /* bytes of 8 queries */
        const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const uint32_t room = ring.base + Form::kStaged + (4 * warpgroup + warp) * Form::kStagedWarp;
        if (lane == 0) bulk_wait_read<0>();
        __syncwarp();
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int i = 0; i < kSums / 8; i++) {
                const float four[4] = {dq[8 * i + 2 * r], dq[8 * i + 2 * r + 1], dq[8 * i + 4 + 2 * r],
                                       dq[8 * i + 5 + 2 * r]};
                shared_store_16(room + r * kEight + 512 * i + 16 * lane, four);
            }
        shared_fence_async();
        __syncwarp();
        if (lane == 0) {
            char *const to = (char *)sums;
            if (places[1] == places[0] + 1 && places[0] >= 0) { /* neighbours */
                bulk_reduce_add((float *)(to + (int64_t)places[0] * kEight), room, 2 * kEight);
            } else {
#pragma unroll
                for (int r = 0; r < 2; r++)
                    if (places[r] >= 0)
                        bulk_reduce_add((float *)(to + (int64_t)places[r] * kEight), room + r * kEight,
                                        kEight);
            }
            bulk_commit();
        }
        __syncwarp();
    }

    /* dv += weights out_grad, in flight. */
    __device__ __forceinline__ void multiply_weights(const float (&s)[32], float (&v_grad)[kOuts],
                                                     bool keep) {
        uint32_t weights[16];
        pack_weights<kFactor>(s, weights);
        wgmma_pin(v_grad);
        wgmma_fence();
        accumulate<kFactor, Form>(v_grad, weights, this->part_of(1, stage.at), keep);
    }
    /* dk += ds^T q, in flight: the warpgroup's keys. */
    __device__ __forceinline__ void multiply_queries(float (&k_grad)[kOuts], uint32_t at, bool keep) {
        constexpr uint64_t kMajor =
            (uint64_t)(16 >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
        constexpr uint64_t kMnMajor =
            (uint64_t)(Form::kPanel >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
        const uint64_t a = kMajor | in_descriptor(changes_at() + warpgroup * Form::kChangesTile);
        const uint64_t b = kMnMajor | in_descriptor(ring.streamed(0, at));
        wgmma_pin(k_grad);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; i++)
            wgmma_shared<kFactor, Form::kWidth, 0, 1>(k_grad, a + ((i * 32) >> 4), b + ((i * 16 * 128) >> 4),
                                                      keep || i > 0);
        wgmma_commit();
    }

    /* Where a panel of the warpgroup's results is staged: in its part of the memory of ds and of parts of dq. */
    __device__ __forceinline__ uint32_t room_of(uint32_t panel) const {
        if (panel < Form::kTurns)
            return ring.base + Form::kChanges + panel * Form::kChangesBytes + warpgroup * Form::kChangesTile;
        return ring.base + Form::kStaged + 4 * warpgroup * Form::kStagedWarp +
               (panel - Form::kTurns) * Form::kPanel;
    }
    __device__ __forceinline__ void store_panels(const CUtensorMap *map, uint32_t first,
                                                 const typename Form::Board &t) const {
        for (uint32_t panel = 0; panel < Form::kPanels; panel++)
            if ((int32_t)(64 * panel) < p.d)
                tensor_store_5d(map, room_of(first + panel), (int32_t)(64 * panel), t.row + this->tile_row(),
                                0, t.head, t.entry);
    }
    /* Stores the gradients of a tile, while the producer loads the next one. */
    __device__ __forceinline__ void store(const typename Form::Board &t, float (&dk)[kOuts],
                                          float (&dv)[kOuts], const CUtensorMap *map_dk,
                                          const CUtensorMap *map_dv) const {
        const int32_t row = this->row_of(t.row);
#pragma unroll
        for (int i = 0; i < kOuts; i++) dk[i] *= p.scale;
        list_wrong(p, dk, row, t.head, t.entry);
        list_wrong(p, dv, row, t.head, t.entry);
        if (!p.boxes) {
            store_gradient(p, p.gradients[0], dk, row, 0, t.head, t.entry);
            store_gradient(p, p.gradients[1], dv, row, 0, t.head, t.entry);
            return;
        }
        if (this->leads()) bulk_wait_read<0>();
        this->team_barrier(); /* all warps have read ds */
#pragma unroll
        for (int panel = 0; panel < Form::kPanels; panel++) {
            fill_box<kFactor>(room_of(panel), false, dk + 32 * panel);
            fill_box<kFactor>(room_of(Form::kPanels + panel), false, dv + 32 * panel);
        }
        shared_fence_async();
        warpgroup_barrier(1 + threadIdx.x / 128);
        if (threadIdx.x % 128 != 0) return;
        store_panels(map_dk, 0, t);
        store_panels(map_dv, Form::kPanels, t);
        bulk_commit();
    }

    /* A step multiplies five times. Products run while the warpgroup computes: dk and the next dp during
     * exponentials, dv during the differences, the next scores while warps wait for each other. */
    __device__ __forceinline__ void gradients(int32_t first, int32_t steps, float (&k_grad)[kOuts],
                                              float (&v_grad)[kOuts]) {
        uint32_t seen[1];
        {
            float s[32], dp[32];
            barrier_wait(ring.full(stage.at), stage.parity);
            this->multiply_scores(s, stage.at);
            this->multiply_values(dp, stage.at);
            const Sight sight =
                find_seen<true, true>(p, ring.step(stage.at), this->row_of(first), first, seen);
            float2 lse[8], delta[8];
            this->load_vector(0, stage.at, lse);
            wgmma_wait_for<1>(s);
            weigh(lse, sight, seen, s);
            multiply_weights(s, v_grad, false);
            this->load_vector(1, stage.at, delta);
            wgmma_wait_for<1>(dp);
            if (threadIdx.x % 128 == 0) bulk_wait_read<0>(); /* the results of the tile before have left */
            warpgroup_barrier(1 + threadIdx.x / 128);
            stage_changes(delta, s, dp);
        }
        for (int32_t step = 1; step < steps; step++) {
            float s[32], dp[32];
            const uint32_t before = stage.at;
            stage.next();
            barrier_wait(ring.full(stage.at), stage.parity);
            const Glance seen_at_once = glance(p, ring.step(stage.at), this->row_of(first), first);
            this->multiply_scores(s, stage.at);
            this->team_barrier();
            wgmma_wait_for<1>(v_grad);
            {
                float dq[kSums];
                multiply_changes(dq);
                multiply_queries(k_grad, before, step > 1);
                int32_t places[2]; /* found while products run */
                find_places(before, places);
                wgmma_wait_for<1>(dq);
                wgmma_pin(s);
                add_changes(dq, places);
            }
            const Sight sight =
                find_seen<true, true>(p, ring.step(stage.at), seen_at_once, this->row_of(first), first, seen);
            float2 lse[8], delta[8]; /* loaded while products are asked for */
            this->load_vector(0, stage.at, lse);
            this->multiply_values(dp, stage.at);
            weigh(lse, sight, seen, s);
            wgmma_wait_for<1>(k_grad);
            this->release(before);
            multiply_weights(s, v_grad, true);
            this->load_vector(1, stage.at, delta);
            wgmma_wait_for<1>(dp);
            buffer = Form::kTurns == 2 ? buffer ^ 1 : 0;
            if constexpr (Form::kTurns == 1) /* all warps have read the previous step's */
                warpgroup_barrier(1 + threadIdx.x / 128);
            stage_changes(delta, s, dp);
        }
        float dq[kSums];
        this->team_barrier();
        wgmma_wait_for<0>(v_grad);
        multiply_changes(dq);
        multiply_queries(k_grad, stage.at, steps > 1);
        int32_t places[2];
        find_places(stage.at, places);
        wgmma_wait_for<1>(dq);
        this->release_kept();
        add_changes(dq, places);
        wgmma_wait_for<0>(k_grad);
        this->release(stage.at);
        stage.next();
        buffer = Form::kTurns == 2 ? buffer ^ 1 : 0;
    }
};

template <Factor kFactor, class Form>
__device__ __forceinline__ void consume_fused(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                              uint32_t warpgroup, float *sums, const CUtensorMap *map_dk,
                                              const CUtensorMap *map_dv) {
    using Consumer = FusedConsumer<kFactor, Form>;
    Consumer c = {
        {p, ring, warpgroup, {}, {}, {}}, sums, p.tiles / (p.kept_heads * p.groups * p.kept_parts), 0, 0};
    for (uint32_t parity = 0;; parity ^= 1) {
        barrier_wait(ring.posted(), parity);
        const typename Form::Board t = *ring.board();
        barrier_arrive(ring.read());
        if (t.row < 0) break;
        c.entry = t.entry;
        barrier_wait(ring.kept_full(), parity);
        float dk[Consumer::kOuts], dv[Consumer::kOuts];
        if (t.steps == 0) {
#pragma unroll
            for (int i = 0; i < Consumer::kOuts; i++) dk[i] = dv[i] = 0;
            c.release_kept();
        } else {
            c.gradients(t.row, t.steps, dk, dv);
        }
        c.store(t, dk, dv, map_dk, map_dv);
    }
    if (c.leads()) bulk_wait_read<0>();
}

template <Factor kFactor, class Form>
__global__ void __launch_bounds__(kBackwardThreads, 1)
    attention_fused(const __grid_constant__ BackwardProblem p, float *sums,
                    const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
                    const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap out_grad,
                    const __grid_constant__ CUtensorMap dk, const __grid_constant__ CUtensorMap dv) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    let_next_kernel_begin();
    /* Tells the compiler that it is uniform: products must not be issued where threads may diverge. */
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const auto ring_of = [&](uint32_t team) {
        uint8_t *mine = shared + team * Form::kTeam;
        return BackwardRing<Form>{mine, shared_address(mine)};
    };
    if (warp >= 8 && warp - 8 < Form::kTeams && threadIdx.x % 32 == 0) ring_of(warp - 8).init();
    __syncthreads();
    if (warp >= 8) {
        registers_lower<kFusedProducerRegisters>();
        produce_backward<Form>(p, warp - 8, ring_of((warp - 8) % Form::kTeams), &k, &v, &q, &out_grad);
    } else {
        registers_raise<kFusedConsumerRegisters>();
        consume_fused<kFactor, Form>(p, ring_of(Form::kTeams == 2 ? warp / 4 : 0),
                                     Form::kTeams == 2 ? 0 : warp / 4, sums, &dk, &dv);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
