/* SPDX-License-Identifier: Apache-2.0
 * dk and dv where there are registers enough: products run across steps, so that a warpgroup computes while its own products are
 * done. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_DEEP_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_DEEP_CUH

#include "kernels/attention_backward_consumer.cuh"

namespace tartan_cuda {

namespace {

template <Factor kFactor, class Form, bool kExtras>
struct DeepConsumer : BackwardConsumer<kFactor, Form, kExtras> {
    using Base = BackwardConsumer<kFactor, Form, kExtras>;
    using Base::kOuts;
    using Base::kSkips;
    using Base::p;
    using Base::part_of;
    using Base::ring;
    using Base::row_of;
    using Base::stage;

    __device__ __forceinline__ void add(uint32_t tensor, uint32_t at, const uint32_t (&factor)[16], bool keep,
                                        float (&grad)[kOuts]) const {
        wgmma_pin(grad);
        wgmma_fence();
        accumulate<kFactor, Form>(grad, factor, part_of(tensor, at), keep);
    }

    /* Asks for scores and dp of a tile's first step. A product of zeros, which the next one overwrites, stands in for the
     * previous step's: ptxas wants the same products in flight wherever a loop is entered. */
    __device__ __forceinline__ void begin(float (&s)[32], float (&dp)[32], float (&grad)[kOuts]) {
        const uint32_t zeros[16] = {};
        barrier_wait(ring.full(stage.at), stage.parity);
        this->multiply_scores(s, stage.at);
        add(0, stage.at, zeros, false, grad);
        this->multiply_values(dp, stage.at);
        this->release_held();
    }
    /* Asks for the scores of the next step. */
    __device__ __forceinline__ void ask_scores(float (&s)[32]) {
        stage.next();
        barrier_wait(ring.full(stage.at), stage.parity);
        this->multiply_scores(s, stage.at);
    }

    static __device__ __forceinline__ void copy(const float (&from)[32], float (&to)[32]) {
#pragma unroll
        for (int i = 0; i < 32; i++) to[i] = from[i];
    }

    /* Scores -> weights of the step of the stage; `rounded`: after dropout. The scores and two more products are in flight. */
    __device__ __forceinline__ void weigh(const typename Form::Board &t, float (&s)[32], float (&weights)[32],
                                          uint32_t (&rounded)[16], uint32_t (&kept)[1]) const {
        uint32_t seen[1];
        const Sight sight = find_seen<true>(p, ring.step(stage.at), row_of(t.row), t.row, seen);
        this->template find_dropped<true>(stage.at, t.row, t.entry, kept);
        float2 lse[8];
        this->load_vector(0, stage.at, lse);
        wgmma_wait_for<2>(s);
        copy(s, weights);
        this->template complete<true>(stage.at, t.row, sight, seen, weights);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const float x = fmaf(weights[i], p.scale * kLog2E, -(i % 2 == 0 ? lse[i / 4].x : lse[i / 4].y));
            weights[i] = kSkips ? exp2_or_zero(x, sight != Sight::none) : exp2_fast(x);
        }
        wgmma_pin(weights);
        if constexpr (kExtras) {
            float some_dropped[32];
#pragma unroll
            for (int i = 0; i < 32; i++) some_dropped[i] = weights[i];
            drop_weights(kept, some_dropped);
            pack_weights<kFactor>(some_dropped, rounded);
        } else {
            pack_weights<kFactor>(weights, rounded);
        }
    }
    /* dp -> ds, rounded. */
    __device__ __forceinline__ void differ(const float2 (&delta)[8], const float (&weights)[32],
                                           const uint32_t (&kept)[1], const float (&dp)[32],
                                           uint32_t (&changes)[16]) const {
        float ds[32];
#pragma unroll
        for (int i = 0; i < 32; i++)
            ds[i] =
                weights[i] * (this->undrop(kept, i, dp[i]) - (i % 2 == 0 ? delta[i / 4].x : delta[i / 4].y));
        pack_weights<kFactor>(ds, changes);
    }

    /* A step begins where its weights are there, and dp is in flight. It asks for dv and the next scores, which are multiplied while
     * it finds ds, then for dk and the next dp, which are multiplied while it finds the next weights. */
    __device__ __forceinline__ void key_gradients(const typename Form::Board &t, float (&k_grad)[kOuts],
                                                  float (&v_grad)[kOuts]) {
        float s[32], dp[32], weights[32];
        float2 delta[8];
        uint32_t rounded[16], changes[16], kept[1];
        begin(s, dp, k_grad);
        weigh(t, s, weights, rounded, kept);
        uint32_t before = stage.at;
        for (int32_t step = 0; step + 1 < t.steps; step++) {
            const uint32_t at = stage.at;
            this->load_vector(1, at, delta);
            wgmma_wait_for<0>(dp);
            if (step > 0) this->release(before);
            add(1, at, rounded, step > 0, v_grad);
            ask_scores(s);
            differ(delta, weights, kept, dp, changes);
            add(0, at, changes, step > 0, k_grad);
            this->multiply_values(dp, stage.at);
            weigh(t, s, weights, rounded, kept);
            before = at;
        }
        this->load_vector(1, stage.at, delta);
        wgmma_wait_for<0>(dp);
        if (t.steps > 1) this->release(before);
        add(1, stage.at, rounded, t.steps > 1, v_grad);
        differ(delta, weights, kept, dp, changes);
        add(0, stage.at, changes, t.steps > 1, k_grad);
        wgmma_wait_for<0>(k_grad);
        wgmma_pin(v_grad);
        this->hold(stage.at);
        stage.next();
    }
};

} // namespace

} // namespace tartan_cuda

#endif
