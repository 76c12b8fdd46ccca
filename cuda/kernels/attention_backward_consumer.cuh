/* SPDX-License-Identifier: Apache-2.0
 * What a consumer warpgroup of attention_backward_wgmma.cu computes where there are few stages or registers. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_CONSUMER_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_CONSUMER_CUH

#include "device/ptx_mma.cuh"
#include "kernels/attention_backward_tile.cuh"

namespace tartan_cuda {

namespace {

/* Rounds and packs 64 x 64 weights as the left factor of a product. */
template <Factor kFactor>
__device__ __forceinline__ void pack_weights(const float (&x)[32], uint32_t (&weights)[16]) {
#pragma unroll
    for (int i = 0; i < 16; i++) weights[i] = pack<kFactor>(x[2 * i], x[2 * i + 1]);
}

/* kExtras: there may be a bias or dropout. */
template <Factor kFactor, class Form, bool kExtras> struct BackwardConsumer : BackwardTile<kFactor, Form> {
    using Tile = BackwardTile<kFactor, Form>;
    using Tile::first_panel;
    using Tile::hold;
    using Tile::kept_at;
    using Tile::load_vector;
    using Tile::p;
    using Tile::part_of;
    using Tile::release;
    using Tile::release_held;
    using Tile::release_kept;
    using Tile::ring;
    using Tile::row_of;
    using Tile::stage;
    using Tile::warpgroup;
    static constexpr int kOuts = Tile::kOuts;
    static constexpr bool kSkips = Form::kTeams == 2; /* warps that see nothing of a step skip exponentials */

    __device__ __forceinline__ void multiply_scores(float (&s)[32], uint32_t at) {
        wgmma_pin(s);
        wgmma_fence();
        multiply_tokens<kFactor, Form>(s, kept_at(0), ring.streamed(0, at));
    }
    __device__ __forceinline__ void multiply_values(float (&dp)[32], uint32_t at) {
        wgmma_pin(dp);
        wgmma_fence();
        multiply_tokens<kFactor, Form>(dp, kept_at(1), ring.streamed(1, at));
    }

    /* ---- Queries are kept ---- */

    /* The bias is added, and what does not count becomes -infinity. */
    template <bool kByKeys>
    __device__ __forceinline__ void complete(uint32_t at, int32_t first, Sight sight,
                                             const uint32_t (&seen)[1], float (&s)[32]) const {
        if constexpr (kExtras) add_bias<kByKeys>(p, ring.step(at), row_of(first), first, s);
        if (kByKeys && kSkips ? sight == Sight::some : sight != Sight::all) hide(seen, s);
    }
    template <bool kByKeys>
    __device__ __forceinline__ void find_dropped(uint32_t at, int32_t first, int32_t entry,
                                                 uint32_t (&kept)[1]) const {
        if constexpr (kExtras) find_kept<kByKeys>(p, ring.step(at), row_of(first), entry, kept);
    }
    /* The gradient of weight i before dropout. */
    __device__ __forceinline__ float undrop(const uint32_t (&kept)[1], int i, float grad) const {
        if constexpr (!kExtras) return grad;
        return kept[0] >> (i / 2 % 2 * 16 + i / 4 * 2 + i % 2) & 1 ? grad * p.extras.kept : 0;
    }

    /* Scores become weights, and dp becomes ds. Where a score is -infinity ds is 0, or NaN if dp is not finite, which
     * repair_gradients mends. */
    __device__ __forceinline__ void weigh_queries(uint32_t at, int32_t first, Sight sight,
                                                  const uint32_t (&seen)[1], const uint32_t (&kept)[1],
                                                  float (&s)[32], float (&dp)[32], const float (&lse)[2],
                                                  const float (&delta)[2]) const {
        complete<false>(at, first, sight, seen, s);
#pragma unroll
        for (int i = 0; i < 32; i++) s[i] = exp2_fast(fmaf(s[i], p.scale * kLog2E, -lse[i / 2 % 2]));
#pragma unroll
        for (int i = 0; i < 32; i++) dp[i] = s[i] * (undrop(kept, i, dp[i]) - delta[i / 2 % 2]);
    }

    /* lse and delta of the thread's queries. */
    __device__ __forceinline__ void find_vectors(const typename Form::Board &t,
                                                 const typename Tile::OutRows &out, float (&lse)[2],
                                                 float (&delta)[2]) const {
        if (p.out.data != nullptr) {
            this->template find_delta<true>(t, out, lse, delta);
            return;
        }
        const int64_t vectors = ((int64_t)t.entry * p.heads + t.head) * p.padded;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t at = vectors + min(row_of(t.row) + 8 * r, p.padded - 1);
            lse[r] = p.lse[at], delta[r] = p.delta[at];
        }
    }

    /* Kept tensors as left factors: in registers, so that products read shared memory for streamed ones alone, or where they
     * are. */
    struct Factors {
        uint32_t pieces[2][Form::kInRegisters ? Form::kWidth / 16 : 1][4];
    };
    __device__ __forceinline__ void load_factors(Factors &x) const {
        const uint32_t lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
        for (int i = 0; i < (Form::kInRegisters ? Form::kWidth / 16 : 0); i++)
#pragma unroll
            for (uint32_t tensor = 0; tensor < 2; tensor++)
                load_pieces<false>(x.pieces[tensor][i], kept_at(tensor) + i / 4 * Form::kPanel + row * 128 +
                                                            ((i % 4 * 2 + lane / 16) ^ row % 8) * 16);
    }
    __device__ __forceinline__ void multiply_pairs(const Factors &x, float (&s)[32], float (&dp)[32],
                                                   uint32_t at) {
        wgmma_pin(s);
        wgmma_pin(dp);
        wgmma_fence();
        if constexpr (Form::kInRegisters) {
            multiply_tokens<kFactor, Form>(s, x.pieces[0], ring.streamed(0, at));
            multiply_tokens<kFactor, Form>(dp, x.pieces[1], ring.streamed(1, at));
        } else {
            multiply_tokens<kFactor, Form>(s, kept_at(0), ring.streamed(0, at));
            multiply_tokens<kFactor, Form>(dp, kept_at(1), ring.streamed(1, at));
        }
    }

    /* The products of a tile of keys run while the weights of the one before are multiplied. */
    __device__ __forceinline__ void query_gradient(const typename Form::Board &t,
                                                   const typename Tile::OutRows &out, float (&grad)[kOuts]) {
        const int32_t first = t.row, entry = t.entry, steps = t.steps;
        float s[32], dp[32], lse[2], delta[2];
        uint32_t weights[16], seen[1], kept[1];
        Factors factors;
        load_factors(factors);
        barrier_wait(ring.full(stage.at), stage.parity);
        multiply_pairs(factors, s, dp, stage.at);
        release_held();
        find_vectors(t, out, lse, delta);
        Sight sight = find_seen<false>(p, ring.step(stage.at), row_of(first), first, seen);
        find_dropped<false>(stage.at, first, entry, kept);
        wgmma_wait_for<0>(s);
        wgmma_pin(dp);
        weigh_queries(stage.at, first, sight, seen, kept, s, dp, lse, delta);
        pack_weights<kFactor>(dp, weights);
        for (int32_t step = 1; step < steps; step++) {
            const uint32_t before = stage.at;
            stage.next();
            barrier_wait(ring.full(stage.at), stage.parity);
            wgmma_pin(grad);
            multiply_pairs(factors, s, dp, stage.at);
            accumulate<kFactor, Form>(grad, weights, part_of(0, before), step > 1);
            sight = find_seen<false>(p, ring.step(stage.at), row_of(first), first, seen);
            find_dropped<false>(stage.at, first, entry, kept);
            wgmma_wait_for<1>(s);
            wgmma_pin(dp);
            weigh_queries(stage.at, first, sight, seen, kept, s, dp, lse, delta);
            wgmma_pin(dp); /* all of it before the wait */
            wgmma_wait_for<0>(grad);
            release(before);
            pack_weights<kFactor>(dp, weights);
        }
        if (Form::kBuffers == 1) release_kept();
        wgmma_pin(grad);
        wgmma_fence();
        accumulate<kFactor, Form>(grad, weights, part_of(0, stage.at), steps > 1);
        wgmma_wait_for<0>(grad);
        hold(stage.at);
        stage.next();
    }

    /* ---- Keys are kept: products are transposed, [keys][queries] ---- */

    __device__ __forceinline__ void end_key_gradients(uint32_t at, bool last, float (&k_grad)[kOuts],
                                                      float (&v_grad)[kOuts]) {
        wgmma_wait_for<0>(k_grad);
        wgmma_pin(v_grad);
        if (last)
            hold(at);
        else
            release(at);
    }
    /* One step. If kFlows, its last products are in flight afterwards, beside which the next step begins. `keep`: there is a
     * step before, whose stage is `before`; `last`: there is none after it. */
    __device__ __forceinline__ void add_key_gradients(int32_t first, int32_t entry, bool keep, bool last,
                                                      uint32_t before, float (&k_grad)[kOuts],
                                                      float (&v_grad)[kOuts]) {
        float s[32], dp[32];
        float2 lse[8], delta[8]; /* loaded before products are waited for, if there are registers */
        uint32_t weights[16], seen[1], kept[1];
        const uint32_t at = stage.at;
        barrier_wait(ring.full(at), stage.parity);
        multiply_scores(s, at);
        if (Form::kFlows && keep) {
            wgmma_wait_for<1>(k_grad);
            wgmma_pin(v_grad);
            release(before);
        }
        const Glance seen_at_once = glance(p, ring.step(at), row_of(first), first);
        if constexpr (Form::kEarly && !Form::kFlows) load_vector(0, at, lse);
        multiply_values(dp, at);
        if (Form::kEarly && !keep) release_held();
        const Sight sight = find_seen<true>(p, ring.step(at), seen_at_once, row_of(first), first, seen);
        find_dropped<true>(at, first, entry, kept);
        if constexpr (Form::kFlows) load_vector(0, at, lse);
        wgmma_wait_for<1>(s);
        if constexpr (!Form::kEarly) load_vector(0, at, lse);
        complete<true>(at, first, sight, seen, s);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            s[i] = fmaf(s[i], p.scale * kLog2E, -(i % 2 == 0 ? lse[i / 4].x : lse[i / 4].y));
            s[i] = kSkips ? exp2_or_zero(s[i], sight != Sight::none) : exp2_fast(s[i]);
        }
        if constexpr (kExtras) {
            float some_dropped[32];
#pragma unroll
            for (int i = 0; i < 32; i++) some_dropped[i] = s[i];
            drop_weights(kept, some_dropped);
            pack_weights<kFactor>(some_dropped, weights);
        } else {
            pack_weights<kFactor>(s, weights);
        }
        wgmma_pin(v_grad);
        wgmma_fence();
        accumulate<kFactor, Form>(v_grad, weights, part_of(1, at), keep);
        if constexpr (Form::kEarly) load_vector(1, at, delta);
        wgmma_wait_for<1>(dp);
        if (Form::kBuffers == 1 && last) release_kept();
        if constexpr (!Form::kEarly) load_vector(1, at, delta);
        uint32_t changes[16];
#pragma unroll
        for (int i = 0; i < 32; i++)
            dp[i] = s[i] * (undrop(kept, i, dp[i]) - (i % 2 == 0 ? delta[i / 4].x : delta[i / 4].y));
        pack_weights<kFactor>(dp, changes);
        wgmma_pin(k_grad);
        wgmma_fence();
        accumulate<kFactor, Form>(k_grad, changes, part_of(0, at), keep);
        if constexpr (!Form::kFlows) end_key_gradients(at, last, k_grad, v_grad);
        stage.next();
    }

    __device__ __forceinline__ void key_gradients(const typename Form::Board &t, float (&k_grad)[kOuts],
                                                  float (&v_grad)[kOuts]) {
        const int32_t first = t.row, entry = t.entry, steps = t.steps;
        if constexpr (Form::kEarly) { /* the first step apart: ptxas knows what is in flight */
            uint32_t before = stage.at;
            add_key_gradients(first, entry, false, steps == 1, before, k_grad, v_grad);
            for (int32_t step = 1; step < steps; step++) {
                const uint32_t at = stage.at;
                add_key_gradients(first, entry, true, step + 1 == steps, before, k_grad, v_grad);
                before = at;
            }
            if constexpr (Form::kFlows) end_key_gradients(before, true, k_grad, v_grad);
        } else {
            release_held();
            for (int32_t step = 0; step < steps; step++)
                add_key_gradients(first, entry, step > 0, step + 1 == steps, 0, k_grad, v_grad);
        }
    }
};

} // namespace

} // namespace tartan_cuda

#endif
