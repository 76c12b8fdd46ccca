/* SPDX-License-Identifier: Apache-2.0
 * The device part of attention_forward_wgmma.cu. */
#ifndef TARTAN_CUDA_ATTENTION_FORWARD_WGMMA_CUH
#define TARTAN_CUDA_ATTENTION_FORWARD_WGMMA_CUH

#include "device/element.cuh"
#include "device/tile_store.cuh"
#include "kernels/attention_extras.cuh"
#include "kernels/attention_producer.cuh"
#include "kernels/attention_seen.cuh"

namespace tartan_cuda {

namespace {

/* A thread's two rows of the scores: the running maximum and sum. */
struct Softmax {
    float most[2], sum[2];
};

/* Turns scores into exp(scale * (score - maximum)), in place; returns what earlier results must be multiplied by. */
template <int kCount>
__device__ __forceinline__ void softmax(float (&s)[kCount], float scale, Softmax &state,
                                        float (&rescale)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = state.most[r];
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4) most = fmaxf(most, fmaxf(s[i], s[i + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        const float from = most == -INFINITY ? 0 : most * scale; /* no key so far */
        rescale[r] = exp2_fast(fmaf(state.most[r], scale, -from));
        state.most[r] = most;
        float sum = 0;
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4) {
            s[i] = exp2_fast(fmaf(s[i], scale, -from));
            s[i + 1] = exp2_fast(fmaf(s[i + 1], scale, -from));
            sum += s[i] + s[i + 1];
        }
        state.sum[r] = fmaf(state.sum[r], rescale[r], sum);
    }
}

/* kExtras: there may be a bias or dropout. */
template <Factor kFactor, class Form, bool kExtras> struct Consumer {
    static constexpr int kScores = Form::kKeys / 2, kOuts = Form::kWidth / 2;
    const AttentionProblem &p;
    const AttentionRing<Form> &ring;
    uint32_t warpgroup; /* of the team */
    PipelineState<Form::kStages> stage;
    float out[kOuts];
    Softmax state;      /* after finish(), `sum` is the factor of the results */
    int32_t unreleased; /* a buffer of queries from which results may still be stored, or -1 */

    __device__ __forceinline__ bool leads() const { return threadIdx.x % 32 == 0; }

    /* scores = queries keys^T of the stage, in flight. */
    __device__ __forceinline__ void multiply_keys(float (&scores)[kScores], uint32_t buffer, uint32_t at) {
        constexpr uint64_t kMajor =
            (uint64_t)(16 >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
        const uint64_t q = kMajor | in_descriptor(ring.queries(buffer, warpgroup));
        const uint64_t k = kMajor | in_descriptor(ring.keys(at));
#pragma unroll
        for (int i = 0; i < Form::kWidth / 16; i++)
            wgmma_shared<kFactor, Form::kKeys>(scores, q + ((i / 4 * Form::kQueryPanel + i % 4 * 32) >> 4),
                                               k + ((i / 4 * Form::kKeyPanel + i % 4 * 32) >> 4), i > 0);
        wgmma_commit();
    }

    /* out += weights values of the stage, in flight. */
    __device__ __forceinline__ void multiply_values(const uint32_t (&weights)[kScores / 2], uint32_t at,
                                                    bool keep) {
        constexpr uint64_t kMnMajor =
            (uint64_t)(Form::kKeyPanel >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
        const uint64_t v = kMnMajor | in_descriptor(ring.values(at));
#pragma unroll
        for (int i = 0; i < Form::kKeys / 16; i++)
            wgmma_registers<kFactor, Form::kWidth>(out, weights + 4 * i, v + ((i * 16 * 128) >> 4),
                                                   keep || i > 0);
        wgmma_commit();
    }

    /* Scores to which the bias is added; they may be hidden. */
    __device__ __forceinline__ void complete(const QueryTile &t, uint32_t at, Sight sight,
                                             const uint32_t (&seen)[kScores / 32],
                                             float (&scores)[kScores]) const {
        if constexpr (kExtras) add_bias<false>(p, ring.step(at), row_of(t), t.row, scores);
        if (sight != Sight::all) hide(seen, scores);
    }

    /* Rounds weights, less those that are dropped. */
    __device__ __forceinline__ void pack_weights(const uint32_t (&kept)[kScores / 32],
                                                 float (&scores)[kScores], uint32_t (&weights)[kScores / 2]) {
        if constexpr (kExtras) drop_weights(kept, scores);
#pragma unroll
        for (int i = 0; i < kScores / 2; i++) weights[i] = pack<kFactor>(scores[2 * i], scores[2 * i + 1]);
    }

    /* Waiting for a TMA store at once would hold up the whole warpgroup. */
    __device__ __forceinline__ void release_queries() {
        if (unreleased >= 0 && threadIdx.x % 128 == 0) {
            bulk_wait_read<0>();
            barrier_arrive(ring.queries_empty((uint32_t)unreleased));
        }
        unreleased = -1;
    }

    __device__ __forceinline__ void take_turn() const {
        if constexpr (Form::kWarpgroups == 2) turn_wait(4 + warpgroup);
    }
    __device__ __forceinline__ void pass_turn() const {
        if constexpr (Form::kWarpgroups == 2) turn_pass(4 + (warpgroup ^ 1));
    }

    /* All tiles of keys of a tile of queries. The scores of a tile are computed while the weights of the one before
     * are multiplied by its values. */
    __device__ __forceinline__ void attend(const QueryTile &t, int32_t steps, uint32_t buffer) {
        float scores[kScores], rescale[2];
        uint32_t weights[kScores / 2], seen[kScores / 32], kept[kScores / 32];
        const float scale = p.scale * 1.4426950408889634f; /* exp(x) = 2^(x log2(e)) */
        barrier_wait(ring.keys_full(stage.at), stage.parity);
        take_turn();
        wgmma_pin(scores);
        wgmma_fence();
        multiply_keys(scores, buffer, stage.at);
        pass_turn();
        Sight sight = find_seen<false>(p, ring.step(stage.at), row_of(t), t.row, seen);
        if constexpr (kExtras) find_kept<false>(p, ring.step(stage.at), row_of(t), t.entry, kept);
        wgmma_wait_for<0>(scores);
        complete(t, stage.at, sight, seen, scores);
        barrier_arrive(ring.keys_empty(stage.at));
        softmax(scores, scale, state, rescale);
        pack_weights(kept, scores, weights);
        release_queries();
        for (int32_t step = 1; step < steps; step++) {
            const PipelineState<Form::kStages> before = stage;
            stage.next();
            barrier_wait(ring.keys_full(stage.at), stage.parity);
            take_turn();
            wgmma_pin(scores);
            wgmma_pin(out);
            wgmma_fence();
            multiply_keys(scores, buffer, stage.at);
            barrier_wait(ring.values_full(before.at), before.parity);
            multiply_values(weights, before.at, step > 1);
            pass_turn();
            sight = find_seen<false>(p, ring.step(stage.at), row_of(t), t.row, seen);
            if constexpr (kExtras) find_kept<false>(p, ring.step(stage.at), row_of(t), t.entry, kept);
            wgmma_wait_for<1>(scores);
            complete(t, stage.at, sight, seen, scores);
            barrier_arrive(ring.keys_empty(stage.at));
            softmax(scores, scale, state, rescale);
            wgmma_wait_for<0>(out);
            if (leads()) barrier_arrive(ring.values_empty(before.at));
            if (__any_sync(~0u, rescale[0] != 1 || rescale[1] != 1)) {
#pragma unroll
                for (int i = 0; i < kOuts; i++) out[i] *= rescale[i / 2 % 2];
            }
            pack_weights(kept, scores, weights);
        }
        barrier_wait(ring.values_full(stage.at), stage.parity);
        wgmma_pin(out);
        wgmma_fence();
        multiply_values(weights, stage.at, steps > 1);
        wgmma_wait_for<0>(out);
        if (leads()) barrier_arrive(ring.values_empty(stage.at));
        stage.next();
    }

    /* The thread's first row; the second is 8 further. */
    __device__ __forceinline__ int32_t row_of(const QueryTile &t) const {
        return t.row + 64 * (int32_t)warpgroup + (int32_t)(threadIdx.x % 128) / 32 * 16 +
               (int32_t)(threadIdx.x % 32) / 4;
    }

    /* Adds the sink to the sum of a row's weights exp(score - most). Returns the factor of its results, and lse. */
    __device__ __forceinline__ float add_sink(float sink, float most, float sum, float *lse) const {
        if (sum == 0) { /* no key */
            *lse = sink;
            return sink != sink ? sink : 0;
        }
        const float old = most * p.scale, highest = sink > old ? sink : old;
        const float factor = old == highest ? 1 : expf(old - highest); /* infinities are equal */
        const float total =
            sink == -INFINITY ? sum : fmaf(sum, factor, sink == highest ? 1 : expf(sink - highest));
        *lse = highest + logf(total);
        return factor / total * (kExtras ? p.extras.kept : 1);
    }

    /* Divides by the sums and writes lse. Returns which of the thread's rows have to be computed again: those with
     * results that are not finite, though all their weights are. */
    __device__ __forceinline__ uint32_t finish(const QueryTile &t) {
        const int32_t row = row_of(t);
        const float sink = p.sinks != nullptr ? p.sinks[t.head * p.sinks_element] : -INFINITY;
        uint32_t wrong = 0;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = state.sum[r], probe = 0, lse; /* NaN as soon as one result is not finite */
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            state.sum[r] = add_sink(sink, state.most[r], sum, &lse);
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
#pragma unroll
        for (int i = 0; i < kOuts; i++) {
            const int32_t at = row + i / 2 % 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (at < p.rows && col < p.d)
                combine(p.out, p.out_dtype, first + at * p.out_token + col * p.out_element, out[i], 0);
        }
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

/* The results of one row from the keys that it sees alone, by a warp. Elsewhere a key that it does not see has the weight
 * 0, which is no help if the value is infinite. */
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

template <Factor kFactor, class Form, bool kExtras>
__device__ __forceinline__ void consume_tiles(const AttentionProblem &p, const AttentionRing<Form> &ring,
                                              const CUtensorMap *map_out, uint32_t warpgroup) {
    using T = typename std::conditional<kFactor == Factor::f16, __half, __nv_bfloat16>::type;
    Consumer<kFactor, Form, kExtras> c = {p, ring, warpgroup, {}, {}, {}, -1};
    PipelineState<Form::kBuffers> buffer;
    PipelineState<kBoards> board;
    if (Form::kWarpgroups == 2 && warpgroup == 1) c.pass_turn(); /* the first turn is the other's */
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
            for (int i = 0; i < Consumer<kFactor, Form, kExtras>::kOuts; i++) c.out[i] = 0;
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
                const float most = __shfl_sync(~0u, c.state.most[r], one);
                const float inverse = __shfl_sync(~0u, c.state.sum[r], one);
                if (row < p.rows)
                    attend_row<T>(p, t, row, t.row, most * p.scale * 1.4426950408889634f, inverse);
            }
    }
    if (Form::kWarpgroups == 2 && warpgroup == 0) c.take_turn(); /* the last one that was passed on */
}

template <Factor kFactor, class Form, bool kExtras>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_forward(const __grid_constant__ AttentionProblem p, const __grid_constant__ CUtensorMap map_q,
                      const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                      const __grid_constant__ CUtensorMap map_out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    /* Told to the compiler as uniform, since products must not be issued where threads may diverge. */
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
