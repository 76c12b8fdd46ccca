/* SPDX-License-Identifier: Apache-2.0
 * The forward pass where there are registers for two tiles of scores: products run across steps, so that a warpgroup computes
 * exponentials beside its own products. What limits it is the instructions of its warps, so each step asks ahead for what the
 * next one has to know. */
#ifndef TARTAN_CUDA_ATTENTION_FORWARD_DEEP_CUH
#define TARTAN_CUDA_ATTENTION_FORWARD_DEEP_CUH

#include "kernels/attention_forward_consumer.cuh"

namespace tartan_cuda {

namespace {

template <Factor kFactor, class Form, bool kExtras> struct DeepConsumer : Consumer<kFactor, Form, kExtras> {
    using Base = Consumer<kFactor, Form, kExtras>;
    using Base::keys_at;
    using Base::kScores;
    using Base::multiply_keys;
    using Base::multiply_values;
    using Base::out;
    using Base::p;
    using Base::ring;
    using Base::row_of;
    using Base::stage;
    using Base::state;
    using Base::values_at;

    struct Walk {
        uint32_t queries; /* the lower word of their descriptor */
        float scale;
        bool leads;
        Glance glance;                  /* of the step whose scores are there */
        int32_t keys_came, values_came; /* answers of barrier_ask */
    };

    __device__ __forceinline__ void ask_for_keys(Walk &w) const {
        PipelineState<Form::kStages> after = stage;
        after.next();
        w.keys_came = barrier_ask(ring.keys_full(after.at), after.parity);
    }

    /* A step whose scores are there: they become weights while two products run, the previous step's weights times values and the
     * next scores. ptxas wants the same products in flight wherever a loop is entered, so the first step multiplies zeros by keys
     * in place of values, and the last one asks for its own scores once more; nobody reads the results. */
    __device__ __forceinline__ void advance(const QueryTile &t, Walk &w, int32_t step, bool last,
                                            float (&scores)[kScores], float (&next)[kScores],
                                            uint32_t (&weights)[kScores / 2]) {
        const uint32_t at = stage.at, before = stage.previous(), parity = stage.parity;
        uint32_t seen[kScores / 32], kept[kScores / 32];
        float rescale[2];
        const Glance glance = w.glance;
        if (step > 0 && !__all_sync(~0u, w.values_came))
            barrier_wait(ring.values_full(before), parity ^ (at == 0));
        wgmma_pin(out);
        wgmma_pin(next);
        wgmma_fence();
        multiply_values(weights, step > 0 ? values_at(before) : keys_at(at), step > 1);
        stage.next();
        if (!last && !__all_sync(~0u, w.keys_came)) barrier_wait(ring.keys_full(stage.at), stage.parity);
        const uint32_t ahead = last ? at : stage.at; /* a stage that nobody writes now */
        multiply_keys(next, w.queries, keys_at(ahead));
        w.glance = tartan_cuda::glance(p, ring.step(ahead), row_of(t), t.row);
        const Sight sight = find_seen<false>(p, ring.step(at), glance, row_of(t), t.row, seen);
        if constexpr (kExtras) find_kept<false>(p, ring.step(at), row_of(t), t.entry, kept);
        this->complete(t, at, sight, seen, scores);
        if (!last) barrier_arrive(ring.keys_empty(at));
        w.values_came = barrier_ask(ring.values_full(at), parity);
        ask_for_keys(w);
        const bool raised = raise_references(scores, w.scale, state, rescale);
        weigh(scores, w.scale, state);
        wgmma_wait_for<1>(out);
        if (step > 0 && w.leads) barrier_arrive(ring.values_empty(before));
        if (raised) this->scale_results(rescale);
        add_weights(scores, state); /* see kAddsLate */
        this->pack_weights(kept, scores, weights);
        wgmma_wait_for<0>(next);
        if (last) barrier_arrive(ring.keys_empty(at));
    }

    __device__ __forceinline__ void attend(const QueryTile &t, int32_t steps, uint32_t buffer) {
        float scores[kScores], next[kScores];
        uint32_t weights[kScores / 2] = {};
        Walk w;
        w.queries = this->queries_at(buffer);
        w.scale = p.scale * 1.4426950408889634f; /* exp(x) = 2^(x log2(e)) */
        w.leads = this->leads();
        barrier_wait(ring.keys_full(stage.at), stage.parity);
        wgmma_pin(scores);
        wgmma_fence();
        multiply_keys(scores, w.queries, keys_at(stage.at));
        w.glance = glance(p, ring.step(stage.at), row_of(t), t.row);
        ask_for_keys(w);
        this->release_queries();
        wgmma_wait_for<0>(scores);
        for (int32_t step = 0;;) {
            advance(t, w, step, step + 1 == steps, scores, next, weights);
            if (++step == steps) break;
            advance(t, w, step, step + 1 == steps, next, scores, weights);
            if (++step == steps) break;
        }
        const uint32_t last = stage.previous();
        barrier_wait(ring.values_full(last), stage.parity ^ (stage.at == 0));
        wgmma_pin(out);
        wgmma_fence();
        multiply_values(weights, values_at(last), steps > 1);
        wgmma_wait_for<0>(out);
        if (w.leads) barrier_arrive(ring.values_empty(last));
    }
};

} // namespace

} // namespace tartan_cuda

#endif
