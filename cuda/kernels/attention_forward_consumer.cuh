/* SPDX-License-Identifier: Apache-2.0
 * What a consumer warpgroup of attention_forward_wgmma.cu computes. */
#ifndef TARTAN_CUDA_ATTENTION_FORWARD_CONSUMER_CUH
#define TARTAN_CUDA_ATTENTION_FORWARD_CONSUMER_CUH

#include "device/element.cuh"
#include "device/tile_store.cuh"
#include "kernels/attention_descriptor.cuh"
#include "kernels/attention_extras.cuh"
#include "kernels/attention_ring.cuh"
#include "kernels/attention_seen.cuh"

namespace tartan_cuda {

namespace {

/* A thread's two rows of the scores: what is subtracted from them, at most kSlack (after scaling) below the largest so far, and
 * the sum of their weights. */
struct Softmax {
    float reference[2], sum[2];
};

/* Weights are below 2^kSlack, so that results seldom need to be scaled again. */
static constexpr float kSlack = 8;

/* The largest score of each row, of four threads together. */
template <int kCount>
__device__ __forceinline__ void find_largest(const float (&s)[kCount], float (&largest)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        largest[r] = s[2 * r];
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4) largest[r] = fmaxf(largest[r], fmaxf(s[i], s[i + 1]));
        largest[r] = fmaxf(largest[r], __shfl_xor_sync(~0u, largest[r], 1));
        largest[r] = fmaxf(largest[r], __shfl_xor_sync(~0u, largest[r], 2));
    }
}

/* The same as integers, which takes half the instructions. Right only where a score is positive; else it is negative. */
template <int kCount>
__device__ __forceinline__ void find_largest_positive(const float (&s)[kCount], float (&largest)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int32_t bits = __float_as_int(s[2 * r]);
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4)
            bits = __vimax3_s32(bits, __float_as_int(s[i]), __float_as_int(s[i + 1]));
        bits = max(bits, __shfl_xor_sync(~0u, bits, 1));
        bits = max(bits, __shfl_xor_sync(~0u, bits, 2));
        largest[r] = __int_as_float(bits);
    }
}

/* Raises the references if a score of the warp is too far above: returns whether, and then what earlier results must be
 * multiplied by. */
template <int kCount>
__device__ __forceinline__ bool raise_references(const float (&s)[kCount], float scale, Softmax &state,
                                                 float (&rescale)[2]) {
    float largest[2];
    find_largest_positive(s, largest);
    bool unknown = false, above = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        unknown = unknown || (__float_as_int(largest[r]) < 0 && __float_as_int(state.reference[r]) < 0);
        above = above || !((largest[r] - state.reference[r]) * scale <= kSlack);
    }
    if (__builtin_expect(!__any_sync(~0u, unknown || above), 1)) return false;
    if (__any_sync(~0u, unknown)) {
        find_largest(s, largest);
        above = false;
#pragma unroll
        for (int r = 0; r < 2; r++)
            above =
                above || (largest[r] > -INFINITY && !((largest[r] - state.reference[r]) * scale <= kSlack));
        if (!__any_sync(~0u, above)) return false;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float reference = fmaxf(state.reference[r], largest[r]);
        rescale[r] = reference == -INFINITY ? 0 : exp2_fast((state.reference[r] - reference) * scale);
        state.reference[r] = reference;
        state.sum[r] *= rescale[r];
    }
    return true;
}

/* Turns scores into weights exp2(scale * (score - reference)), in place. */
template <int kCount>
__device__ __forceinline__ void weigh(float (&s)[kCount], float scale, const Softmax &state) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float from =
            state.reference[r] == -INFINITY ? 0 : state.reference[r] * scale; /* no key so far */
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4) {
            s[i] = exp2_fast(fmaf(s[i], scale, -from));
            s[i + 1] = exp2_fast(fmaf(s[i + 1], scale, -from));
        }
    }
}

template <int kCount> __device__ __forceinline__ void add_weights(const float (&s)[kCount], Softmax &state) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = 0;
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4) sum += s[i] + s[i + 1];
        state.sum[r] += sum;
    }
}

/* kExtras: there may be a bias or dropout. */
template <Factor kFactor, class Form, bool kExtras> struct Consumer {
    static constexpr int kScores = Form::kKeys / 2, kOuts = Form::kWidth / 2;
    /* ptxas places sums just behind their exponentials, and waits for each, unless there is a branch between. With more than 64
     * elements a head, the branch is a little faster. */
    static constexpr bool kAddsLate = Form::kWidth == 64;
    const AttentionProblem &p;
    const AttentionRing<Form> &ring;
    uint32_t warpgroup; /* of the team */
    PipelineState<Form::kStages> stage;
    float out[kOuts];
    Softmax state;      /* after finish(), `sum` is the factor of the results */
    int32_t unreleased; /* a buffer of queries from which results may still be stored, or -1 */

    __device__ __forceinline__ bool leads() const { return threadIdx.x % 32 == 0; }

    /* ---- Products, by the lower words of descriptors ---- */

    __device__ __forceinline__ uint32_t queries_at(uint32_t buffer) const {
        return k_major<uint32_t>(ring.queries(buffer, warpgroup));
    }
    __device__ __forceinline__ uint32_t keys_at(uint32_t stage) const {
        return k_major<uint32_t>(ring.keys(0)) + stage * (Form::kKeyTile >> 4);
    }
    __device__ __forceinline__ uint32_t values_at(uint32_t stage) const {
        return mn_major<uint32_t, Form::kKeyPanel>(ring.values(0)) + stage * (Form::kKeyTile >> 4);
    }

    /* scores = queries keys^T, in flight. */
    __device__ __forceinline__ void multiply_keys(float (&scores)[kScores], uint32_t queries, uint32_t keys) {
        wgmma_pin(queries); /* its sums would be kept in registers, of which there are too few */
#pragma unroll
        for (int i = 0; i < Form::kWidth / 16; i++)
            wgmma_shared<kFactor, Form::kKeys>(
                scores, descriptor(queries + ((i / 4 * Form::kQueryPanel + i % 4 * 32) >> 4)),
                descriptor(keys + ((i / 4 * Form::kKeyPanel + i % 4 * 32) >> 4)), i > 0);
        wgmma_commit();
    }

    /* out += weights values, in flight. */
    __device__ __forceinline__ void multiply_values(const uint32_t (&weights)[kScores / 2], uint32_t values,
                                                    bool keep) {
#pragma unroll
        for (int i = 0; i < Form::kKeys / 16; i++)
            wgmma_registers<kFactor, Form::kWidth>(out, weights + 4 * i,
                                                   descriptor(values + (i * 16 * 128 >> 4)), keep || i > 0);
        wgmma_commit();
    }

    /* Scores to which the bias is added; they may be hidden. */
    __device__ __forceinline__ void complete(const QueryTile &t, uint32_t at, Sight sight,
                                             const uint32_t (&seen)[kScores / 32],
                                             float (&scores)[kScores]) const {
        if constexpr (kExtras) add_bias<false>(p, ring.step(at), row_of(t), t.row, scores);
        if (__builtin_expect(sight != Sight::all, 0)) hide(seen, scores);
    }

    /* Rounds weights, less those that are dropped. */
    __device__ __forceinline__ void pack_weights(const uint32_t (&kept)[kScores / 32],
                                                 float (&scores)[kScores], uint32_t (&weights)[kScores / 2]) {
        if constexpr (kExtras) drop_weights(kept, scores);
#pragma unroll
        for (int i = 0; i < kScores / 2; i++) weights[i] = pack<kFactor>(scores[2 * i], scores[2 * i + 1]);
    }

    __device__ __forceinline__ void scale_results(const float (&factors)[2]) {
#pragma unroll
        for (int i = 0; i < kOuts; i++) out[i] *= factors[i / 2 % 2];
    }

    /* Waiting for a TMA store at once would hold up the whole warpgroup, and only the queries of the tile after next need its
     * memory. So the wait comes beside the first scores of the next tile. */
    __device__ __forceinline__ void release_queries() {
        if (unreleased >= 0 && threadIdx.x % 128 == 0) {
            bulk_wait_read<0>();
            barrier_arrive(ring.queries_empty((uint32_t)unreleased));
        }
        unreleased = -1;
    }

    __device__ __forceinline__ void take_turn() const {
        if constexpr (Form::kTurns) turn_wait(4 + warpgroup);
    }
    __device__ __forceinline__ void pass_turn() const {
        if constexpr (Form::kTurns) turn_pass(4 + (warpgroup ^ 1));
    }

    /* All tiles of keys of a tile of queries. The scores of a tile are computed while the weights of the one before
     * are multiplied by its values. */
    __device__ __forceinline__ void attend(const QueryTile &t, int32_t steps, uint32_t buffer) {
        float scores[kScores], rescale[2];
        uint32_t weights[kScores / 2], seen[kScores / 32], kept[kScores / 32];
        const float scale = p.scale * 1.4426950408889634f; /* exp(x) = 2^(x log2(e)) */
        const uint32_t queries = queries_at(buffer);
        barrier_wait(ring.keys_full(stage.at), stage.parity);
        take_turn();
        wgmma_pin(scores);
        wgmma_fence();
        multiply_keys(scores, queries, keys_at(stage.at));
        pass_turn();
        Sight sight = find_seen<false>(p, ring.step(stage.at), row_of(t), t.row, seen);
        if constexpr (kExtras) find_kept<false>(p, ring.step(stage.at), row_of(t), t.entry, kept);
        release_queries();
        wgmma_wait_for<0>(scores);
        complete(t, stage.at, sight, seen, scores);
        barrier_arrive(ring.keys_empty(stage.at));
        raise_references(scores, scale, state, rescale);
        weigh(scores, scale, state);
        add_weights(scores, state);
        pack_weights(kept, scores, weights);
        for (int32_t step = 1; step < steps; step++) {
            const PipelineState<Form::kStages> before = stage;
            stage.next();
            barrier_wait(ring.keys_full(stage.at), stage.parity);
            take_turn();
            wgmma_pin(scores);
            wgmma_pin(out);
            wgmma_fence();
            multiply_keys(scores, queries, keys_at(stage.at));
            barrier_wait(ring.values_full(before.at), before.parity);
            multiply_values(weights, values_at(before.at), step > 1);
            pass_turn();
            sight = find_seen<false>(p, ring.step(stage.at), row_of(t), t.row, seen);
            if constexpr (kExtras) find_kept<false>(p, ring.step(stage.at), row_of(t), t.entry, kept);
            wgmma_wait_for<1>(scores);
            complete(t, stage.at, sight, seen, scores);
            barrier_arrive(ring.keys_empty(stage.at));
            const bool raised = raise_references(scores, scale, state, rescale);
            weigh(scores, scale, state);
            if constexpr (!kAddsLate) add_weights(scores, state);
            wgmma_wait_for<0>(out);
            if (leads()) barrier_arrive(ring.values_empty(before.at));
            if (raised) scale_results(rescale);
            if constexpr (kAddsLate) add_weights(scores, state);
            pack_weights(kept, scores, weights);
        }
        barrier_wait(ring.values_full(stage.at), stage.parity);
        wgmma_pin(out);
        wgmma_fence();
        multiply_values(weights, values_at(stage.at), steps > 1);
        wgmma_wait_for<0>(out);
        if (leads()) barrier_arrive(ring.values_empty(stage.at));
        stage.next();
    }

    /* The thread's first row; the second is 8 further. */
    __device__ __forceinline__ int32_t row_of(const QueryTile &t) const {
        return t.row + 64 * (int32_t)warpgroup + (int32_t)(threadIdx.x % 128) / 32 * 16 +
               (int32_t)(threadIdx.x % 32) / 4;
    }

    /* Adds the sink to the sum of a row's weights exp(score - reference). Returns the factor of its results, and lse. */
    __device__ __forceinline__ float add_sink(float sink, float reference, float sum, float *lse) const {
        if (sum == 0) { /* no key */
            *lse = sink;
            return sink != sink ? sink : 0;
        }
        const float old = reference * p.scale, highest = sink > old ? sink : old;
        const float factor = old == highest ? 1 : expf(old - highest); /* infinities are equal */
        const float total =
            sink == -INFINITY ? sum : fmaf(sum, factor, sink == highest ? 1 : expf(sink - highest));
        *lse = highest + logf(total);
        return factor / total * (kExtras ? p.extras.kept : 1);
    }

    /* Divides by the sums and writes lse. Returns which of the thread's rows have to be computed again: the ones
     * whose results are not finite although all their weights are. */
    __device__ __forceinline__ uint32_t finish(const QueryTile &t) {
        const int32_t row = row_of(t);
        const float sink = p.sinks != nullptr ? p.sinks[t.head * p.sinks_element] : -INFINITY;
        uint32_t wrong = 0;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = state.sum[r], probe = 0, lse; /* NaN as soon as one result is not finite */
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            state.sum[r] = add_sink(sink, state.reference[r], sum, &lse);
#pragma unroll
            for (int i = 2 * r; i < kOuts; i += 4) {
                out[i] *= state.sum[r], out[i + 1] *= state.sum[r];
                probe = fmaf(out[i], 0.f, probe), probe = fmaf(out[i + 1], 0.f, probe);
            }
            if (probe != 0 && isfinite(state.sum[r])) wrong |= 1u << r;
            if (p.lse != nullptr && threadIdx.x % 4 == 0 && row + 8 * r < p.rows)
                p.lse[t.part * p.lse_part + t.entry * p.lse_batch + t.head * p.lse_head +
                      (row + 8 * r) * p.lse_token] = lse;
        }
        return wrong;
    }

    /* Results to memory of any strides. */
    __device__ __forceinline__ void store_elements(const QueryTile &t) {
        const int32_t lane = threadIdx.x % 32, row = row_of(t);
        const int64_t first = out_of(p, t);
        each_part<32>(out, ~0u, [&](const float(&x)[32], int part) {
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const int32_t at = row + i / 2 % 2 * 8, col = 64 * part + i / 4 * 8 + lane % 4 * 2 + i % 2;
                if (at < p.rows && col < p.d)
                    combine(p.out, p.out_dtype, first + at * p.out_token + col * p.out_element, x[i], 0);
            }
        });
    }

    /* Results by way of the queries' memory, which this warpgroup has read. */
    __device__ __forceinline__ void store_boxes(const QueryTile &t, const CUtensorMap *map, uint32_t buffer) {
        const uint32_t room = ring.queries(buffer, warpgroup);
#pragma unroll
        for (int panel = 0; panel < Form::kPanels; panel++)
            fill_box<kFactor>(room + panel * Form::kQueryPanel, false, out + 32 * panel);
        shared_fence_async();
        warpgroup_barrier(1 + threadIdx.x / 128);
        if (threadIdx.x % 128 != 0) return;
        for (int panel = 0; panel < Form::kPanels; panel++)
            if (64 * panel < p.d)
                tensor_store_5d(map, room + panel * Form::kQueryPanel, 64 * panel,
                                t.row + 64 * (int32_t)warpgroup, 0, t.head, t.entry);
        bulk_commit();
    }
};

/* A warp computes the results of one row from the keys that it sees. Elsewhere a key that a row does not see has weight
 * 0, which makes NaN if the value is infinite. */
template <typename T>
__device__ __noinline__ void attend_row(const AttentionProblem &p, const QueryTile &t, int32_t row,
                                        int32_t first_row, float from, float inverse) {
    const int32_t lane = threadIdx.x % 32, limit = limit_of(p, row);
    const int32_t line = (row - first_row) / p.block_rows, inside = row % p.block_rows,
                  kv_head = t.head / p.heads_per_kv;
    const T *q = (const T *)p.q + t.entry * p.q_batch + t.head * p.q_head + row * p.q_token;
    const T *k = (const T *)p.k + t.entry * p.k_batch + kv_head * p.k_head;
    const T *v = (const T *)p.v + t.entry * p.v_batch + kv_head * p.v_head;
    float out[8] = {};
    for (int32_t e = t.list.begin; e < t.list.end; e++) {
        const int32_t id = p.ids[(int64_t)e * p.lines + line];
        if (id < 0) continue;
        for (int32_t in_block = 0; in_block < p.block_columns; in_block += 32) {
            const int32_t at = in_block + lane, key = p.cols[e] * p.block_columns + at;
            const bool seen = at < p.block_columns && key < limit && is_kept(p, id, inside, at);
            float weight = 0;
            if (seen) {
                float score = 0;
                for (int32_t i = 0; i < p.d; i++)
                    score = fmaf(tartan_cuda_to<float>(q[i]), tartan_cuda_to<float>(k[key * p.k_token + i]),
                                 score);
                score += bias_of(p, t.head, id, row, key);
                weight = inverse * exp2_fast(fmaf(score, p.scale * 1.4426950408889634f, -from));
                if (is_dropped(p, t.entry, t.head, row, key)) weight = 0;
            }
            for (uint32_t left = __ballot_sync(~0u, seen); left != 0; left &= left - 1) {
                const int32_t one = __ffs((int32_t)left) - 1;
                const float w = __shfl_sync(~0u, weight, one);
                const T *value = v + (p.cols[e] * p.block_columns + in_block + one) * p.v_token;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    if (lane + 32 * i < p.d)
                        out[i] = fmaf(w, tartan_cuda_to<float>(value[lane + 32 * i]), out[i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (lane + 32 * i < p.d)
            combine(p.out, p.out_dtype, out_of(p, t) + row * p.out_token + (lane + 32 * i) * p.out_element,
                    out[i], 0);
}

} // namespace

} // namespace tartan_cuda

#endif
